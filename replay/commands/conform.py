"""`batchspec conform`: the conformance suite on a scheduler under test, outside pytest."""

from dataclasses import replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.claims import load_config, named_profile
from batchspec.replay.conform.artifacts import write
from batchspec.replay.conform.judge import CALL_S
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.search import EXAMPLES
from batchspec.replay.conform.subjects import COMMAND, factory_of, own_limit
from batchspec.replay.conform.suite import conform as run_suite
from batchspec.replay.conform.workload import replayed
from batchspec.replay.harness import Factory
from batchspec.replay.progress import bar
from batchspec.replay.report.conformance import conformance_page
from batchspec.replay.report.conformance_data import (
    conformance_junit,
    conformance_markdown,
    conformance_object,
    conformance_sarif,
)
from batchspec.replay.report.json import to_json
from batchspec.replay.waivers import Waived, load_waivers, remarks
from batchspec.spec.profile import Profile


class Format(StrEnum):
    """What a result is written as."""

    text = "text"
    json = "json"
    junit = "junit"
    sarif = "sarif"
    markdown = "markdown"


def conform(
    scheduler: Annotated[
        str | None, typer.Argument(metavar="MODULE:FACTORY", help="What makes a scheduler for a profile.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(metavar="PROG", help="Instead: a program and its words; it answers JSON lines."),
    ] = None,
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
    trace_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write the files of each finding to this folder.")
    ] = None,
    waive: Annotated[
        str | None, typer.Option(metavar="FILE", help="Findings that are accepted, with reasons (.toml).")
    ] = None,
    today: Annotated[
        str | None, typer.Option(metavar="DAY", help="The day that decides which waivers still hold.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A broken SHOULD counts as well.")] = False,
    workload: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Instead of the suite: drive the scheduler with these requests."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Take only the workload's first N requests.")
    ] = None,
    step_ms: Annotated[
        float, typer.Option(metavar="MS", min=0.000001, help="What a step takes, under a workload.")
    ] = 20.0,
    call_limit: Annotated[
        float, typer.Option(metavar="S", min=0.01, help="Longest time for a call, in seconds.")
    ] = CALL_S,
    format: Annotated[
        Format, typer.Option(metavar="text|json|junit|sarif|markdown", help="What to print.")
    ] = Format.text,
) -> None:
    """Point the conformance suite at a scheduler: does it keep what its profile claims?

    Exit status: 0 conforms, 1 breaks a MUST (with --strict a SHOULD), 2 cannot be run.

    Example:  batchspec conform batchspec.replay.adapters.engine:make --profile vllm-v1 --trace-dir found
    """
    if (scheduler is None) == (command is None):
        raise typer.BadParameter("name one scheduler: MODULE:FACTORY, or a program with --command")
    claims = named_profile(profile)
    if config is not None:
        claims = claims.merged(load_config(config))
    waivers = () if waive is None else load_waivers(waive)
    waived = Waived(waivers, date.today() if today is None else _day(today))
    name = scheduler if scheduler is not None else f"{COMMAND}{command}"
    factory = factory_of(name, call_limit)
    try:
        if workload is not None:
            result = replayed(
                factory,
                claims,
                workload,
                limit=limit,
                step_ns=max(1, round(step_ms * 1e6)),
                subject=name,
                waived=waived if waivers else None,
                call_s=own_limit(factory, call_limit),
                out=None if trace_dir is None else Path(trace_dir) / "trace.parquet",
            )
        else:
            result = _suite(factory, claims, name, examples, seed, waived if waivers else None, call_limit)
    finally:
        close = getattr(factory, "close", None)
        if close is not None:
            close()
    result = replace(result, strict=strict)
    if trace_dir is not None:
        write(result, trace_dir)
    status = console.CONFORMS if result.conforms else console.VIOLATES
    _print(result, format, waived, trace_dir, status)
    if waivers:
        for remark in remarks([waived], [result.report()]):
            console.warn(f"{waive}: {remark}")
    raise typer.Exit(status)


def _suite(
    factory: Factory,
    claims: Profile,
    name: str,
    examples: int,
    seed: int,
    waived: Waived | None,
    call_limit: float,
) -> Result:
    with bar("driving the scheduler") as shown:
        return run_suite(
            factory,
            claims,
            subject=name,
            examples=examples,
            seed=seed,
            waived=waived,
            call_s=own_limit(factory, call_limit),
            ran=None if shown is None else shown.to,
        )


def _print(result: Result, format: Format, waived: Waived, files: str | None, status: int) -> None:
    if format is Format.text:
        console.show(conformance_page(result, files))
    elif format is Format.json:
        console.emit(to_json(conformance_object(result, files)))
    elif format is Format.junit:
        console.emit(conformance_junit([result]))
    elif format is Format.markdown:
        console.emit(conformance_markdown([result]))
    else:
        console.emit(to_json(conformance_sarif(result, waived.covered(), files, status)))


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"--today must be a day such as 2027-01-31, not {text[:40]!r}") from None
