"""`batchspec check`: traces against the spec."""

import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.checker import check as check_trace
from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.context import around
from batchspec.replay.report.json import report_object, reports_object, to_json
from batchspec.replay.report.page import Page, plain
from batchspec.replay.report.text import report_page
from batchspec.replay.selection import chosen, known, unmet
from batchspec.replay.timeline import collect, timeline_page
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import BatchspecError, TraceError
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report
from batchspec.traces.reader import open_any
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable

_IN_A_STRETCH = 1000


class Format(StrEnum):
    """What a report is written as."""

    text = "text"
    json = "json"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of one run of `check`."""

    profile: Profile | None
    config: Profile | None
    rules: tuple[str, ...] | None
    findings: int
    command: tuple[str, ...]


def check(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files or folders of parts.")],
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Judge only this rule or family. May be repeated.")
    ] = None,
    findings: Annotated[
        int, typer.Option(metavar="N", min=0, help="List up to N violations of each rule.")
    ] = 1,
    format: Annotated[Format, typer.Option(metavar="text|json", help="What to print.")] = Format.text,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL|RULE", help="Exit 2 unless this level or rule was judged. May be repeated."
        ),
    ] = None,
    first: Annotated[
        int | None, typer.Option("--from", metavar="N", min=0, help="Show steps from N on.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="M", min=0, help="Show steps up to M.")] = None,
) -> None:
    """Check traces against the spec: which rules hold, which are broken, which could not be judged.

    Exit status: 0 all conform, 1 a trace violates a rule, 2 unusable input or usage error.

    Example:  batchspec check run.parquet --profile vllm-v1 --config limits.toml
    """
    stretch = None if first is None and last is None else (first or 0, last)
    if stretch and format is not Format.text:
        raise typer.BadParameter("--from and --to draw a picture; use them with --format text")
    if first is not None and last is not None and last < first:
        raise typer.BadParameter(f"--from {first} lies behind --to {last}")
    options = [("--profile", profile), ("--config", config), *(("--rule", each) for each in rule or ())]
    wanted = _Wanted(
        profile=None if profile is None else named_profile(profile),
        config=None if config is None else load_config(config),
        rules=None if not rule else chosen(rule),
        findings=max(findings, _IN_A_STRETCH) if stretch else findings,
        command=tuple(word for name, value in options if value is not None for word in (name, value)),
    )
    required = tuple(require or ())
    known(required)
    reports: list[Report] = []
    unusable: dict[str, str] = {}
    status = console.CONFORMS
    for number, path in enumerate(traces):
        try:
            trace, report = _judged(path, wanted)
            page = None if format is Format.json else _page(trace, report, wanted, stretch)
        except (BatchspecError, OSError) as error:
            unusable[path] = console.line_of(error)
            console.warn(unusable[path])
            continue
        reports.append(report)
        if page is not None:
            if number:
                console.emit("\n")
            console.show(page)
        for missed in unmet(report, required):
            console.warn(f"{report.trace}: {missed}")
            status = console.UNUSABLE
    if format is Format.json and (reports or len(traces) > 1):
        one = len(traces) == 1
        console.emit(to_json(report_object(reports[0]) if one else reports_object(reports, unusable)))
    if unusable:
        status = console.UNUSABLE
    elif status == console.CONFORMS and any(report.verdict == "violates" for report in reports):
        status = console.VIOLATES
    raise typer.Exit(status)


def _judged(path: str, wanted: _Wanted) -> tuple[Trace, Report]:
    trace = open_any(path)
    if isinstance(trace, RecordTable):
        raise TraceError(f"{trace.path}: a table of requests, not a trace of a run: nothing to check yet")
    header = trace.header
    claims = claimed(
        header_profile=header.profile if header else None,
        header_config=header.config if header else None,
        profile=wanted.profile,
        config=wanted.config,
    )
    with bar(f"checking {plain(path, 40)}", trace.num_rows) as shown:
        report = check_trace(
            trace,
            claims,
            findings=wanted.findings,
            rules=wanted.rules,
            progress=(lambda done, _: shown.to(done)) if shown else None,
        )
    return trace, report


def _page(trace: Trace, report: Report, wanted: _Wanted, stretch: tuple[int, int | None] | None) -> Page:
    if stretch is not None:
        first, last = stretch
        with bar(f"reading {plain(trace.path, 40)}", trace.num_rows) as shown:
            timeline = collect(counted(trace.events(), shown), first, last)
        return timeline_page(timeline, report.findings, title=f"{report.trace}: {report.verdict}")
    sentences = {rule: kind.sentence for rule, kind in RULES.items()}
    command = shlex.join(("batchspec", "check", trace.path, *wanted.command))
    return report_page(report, sentences, around(trace, report.findings), command)
