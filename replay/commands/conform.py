"""`batchspec conform`: the conformance suite on a scheduler under test, outside pytest."""

from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.claims import load_config, named_profile
from batchspec.replay.conform.search import EXAMPLES
from batchspec.replay.conform.suite import conform as run_suite
from batchspec.replay.loading import load_factory
from batchspec.replay.report.conformance import conformance_page


def conform(
    scheduler: Annotated[
        str, typer.Argument(metavar="MODULE:FACTORY", help="What makes a scheduler for a profile.")
    ],
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file.")
    ] = "batchspec",
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
    examples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Cases that the search draws.")
    ] = EXAMPLES,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same cases.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="A broken SHOULD counts as well.")] = False,
) -> None:
    """Point the conformance suite at a scheduler: does it keep what its profile claims?

    Exit status: 0 conforms, 1 breaks a MUST (with --strict a SHOULD), 2 cannot be run.

    Example:  batchspec conform batchspec.replay.adapters.engine:make --profile vllm-v1
    """
    claims = named_profile(profile)
    if config is not None:
        claims = claims.merged(load_config(config))
    result = run_suite(
        load_factory(scheduler), claims, subject=scheduler, examples=examples, seed=seed, strict=strict
    )
    console.show(conformance_page(result))
    raise typer.Exit(console.CONFORMS if result.conforms else console.VIOLATES)
