"""`batchspec explore`: every state that a small configuration can reach, and what is wrong in one of them."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from batchspec.replay import console
from batchspec.replay.claims import load_config, named_profile
from batchspec.replay.exploring import Engine, explore_scheduler, explore_with
from batchspec.replay.loading import load_factory
from batchspec.replay.progress import bar
from batchspec.replay.report.exploration import counterexample, exploration_object, exploration_page
from batchspec.replay.report.json import to_json
from batchspec.replay.stategraph import graph_kind, write_graph
from batchspec.replay.undertest.system import UnderTest
from batchspec.spec.errors import ProfileError
from batchspec.spec.explore import MOST_STATES
from batchspec.spec.frame import Job
from batchspec.spec.profile import Profile
from batchspec.spec.promela import promela, tla
from batchspec.spec.space import Space

_MOST_JOBS = 26
_SIZES = ("max_seqs", "token_budget", "kv_blocks", "block_size")


class Format(StrEnum):
    """What to print."""

    text = "text"
    json = "json"


def explore(
    request: Annotated[
        list[str],
        typer.Option(
            metavar="P:M[:PRIORITY[:TENANT]]",
            help="A request of P prompt tokens and at most M outputs; give it once for each.",
        ),
    ],
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="What is claimed: a shipped profile, or a file.")
    ] = "vllm-v1",
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
    max_seqs: Annotated[int | None, typer.Option(metavar="N", help="Most requests that run at once.")] = None,
    token_budget: Annotated[int | None, typer.Option(metavar="N", help="Most tokens in a step.")] = None,
    kv_blocks: Annotated[int | None, typer.Option(metavar="N", help="KV blocks in the pool.")] = None,
    block_size: Annotated[int | None, typer.Option(metavar="N", help="Positions in a KV block.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FACTORY", help="Instead of the spec: a scheduler under test."),
    ] = None,
    eager: Annotated[
        bool,
        typer.Option("--eager", help="The policy's own choices only; arrivals, stops, aborts stay open."),
    ] = False,
    aborts: Annotated[
        bool, typer.Option("--aborts", help="Clients may cancel any request before any step.")
    ] = False,
    stops: Annotated[
        bool, typer.Option("--stops/--no-stops", help="Requests may stop before their last token.")
    ] = True,
    symmetry: Annotated[
        bool, typer.Option("--symmetry", help="States that differ by an exchange of equal requests are one.")
    ] = False,
    most: Annotated[
        int, typer.Option(metavar="N", min=1, help="Give up after this many states.")
    ] = MOST_STATES,
    engine: Annotated[
        Engine,
        typer.Option(
            metavar="auto|readable|packed", help="What goes through the states: packed is fast (extra fast)."
        ),
    ] = Engine.auto,
    format: Annotated[Format, typer.Option(metavar="text|json", help="What to print.")] = Format.text,
    graph: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the graph of states (.graphml or .dot).")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the core model, for spin (.pml) or in TLA+ (.tla)."),
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the first counterexample as a scenario.")
    ] = None,
) -> None:
    """Visit every state that requests can reach under a profile, and judge each one.

    Requests arrive in the order given, at any step. Exit status 1: an invariant breaks, nothing can go
    on, or (with --eager) requests go round without progress; the shortest way there is printed. With
    --scheduler it is a scheduler under test that decides, and every rule is judged in each of its states.

    Example:  batchspec explore --request 3:2 --request 2:3 --max-seqs 2 --token-budget 4 --kv-blocks 3
    --block-size 2
    """
    if graph is not None:
        graph_kind(Path(graph))
    if model is not None and Path(model).suffix not in (".pml", ".tla"):
        raise ProfileError(f"{model}: a model is written as .pml (spin) or .tla (TLA+)")
    sizes = zip(_SIZES, (max_seqs, token_budget, kv_blocks, block_size), strict=True)
    claims = named_profile(profile)
    if config is not None:
        claims = claims.merged(load_config(config))
    given: dict[str, Any] = {"limits": {name: size for name, size in sizes if size is not None}}
    claims = claims.merged(Profile.from_dict(given, "options"))
    jobs = jobs_of(request)
    system: Space | UnderTest
    if scheduler is not None:
        if eager or symmetry or model is not None:
            raise ProfileError("--scheduler makes its own choices: leave --eager, --symmetry and --model out")
        system = UnderTest(load_factory(scheduler), claims, jobs, stops=stops, aborts=aborts)
    else:
        system = Space(claims, jobs, stops=stops, aborts=aborts, eager=eager, symmetry=symmetry)
        if model is not None:
            sized = system.sizes()
            text = promela(sized) if model.endswith(".pml") else tla(sized, Path(model).stem)
            Path(model).write_text(text, encoding="utf-8")
    with bar("exploring") as shown:
        progress = None if shown is None else shown.to
        kept = graph is not None
        if isinstance(system, UnderTest):
            found = explore_scheduler(engine, system, most=most, graph=kept, progress=progress)
            used = Engine.readable
        else:
            found, used = explore_with(engine, system, most=most, graph=kept, progress=progress)
    if format is Format.json:
        console.emit(to_json(exploration_object(system, found, used)))
    else:
        console.show(exploration_page(system, found))
    if graph is not None and found.graph is not None:
        write_graph(found.graph, Path(graph))
    first = counterexample(system, found)
    if scenario is not None and first is not None:
        Path(scenario).write_text(first, encoding="utf-8")
    if not found.holds:
        raise typer.Exit(console.VIOLATES)


def jobs_of(requests: Sequence[str]) -> list[Job]:
    """The script of requests. Raises `ProfileError` for one that is not `P:M[:PRIORITY[:TENANT]]`."""
    if len(requests) > _MOST_JOBS:
        raise ProfileError(f"{len(requests)} requests are more than the {_MOST_JOBS} that can be explored")
    return [_job(text) for text in requests]


def _job(text: str) -> Job:
    prompt, most, priority, tenant = (*text.split(":", 3), "", "", "")[:4]
    try:
        job = Job(int(prompt), int(most), int(priority or 0), tenant or None)
    except ValueError:
        job = Job(0, 0)
    if job.prompt < 1 or job.max_tokens < 1:
        raise ProfileError(
            f"--request {text}: write PROMPT:MAX, PROMPT:MAX:PRIORITY or PROMPT:MAX:PRIORITY:TENANT"
        )
    return job
