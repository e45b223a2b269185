"""`batchspec check`: traces against the spec."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Annotated

import typer

from batchspec.replay import console, plugins
from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.replay.coverage import Coverage
from batchspec.replay.fast.choose import Engine, check_with
from batchspec.replay.progress import bar, counted
from batchspec.replay.records import check_records
from batchspec.replay.report.context import around
from batchspec.replay.report.coverage import coverage_page
from batchspec.replay.report.html.make import html_of, save
from batchspec.replay.report.json import report_object, reports_object, to_json
from batchspec.replay.report.junit import junit_xml
from batchspec.replay.report.page import Page, plain
from batchspec.replay.report.sarif import sarif_object
from batchspec.replay.report.text import report_page
from batchspec.replay.selection import chosen, known, unmet
from batchspec.replay.timeline import collect, timeline_page
from batchspec.replay.waivers import Waived, Waiver, load_waivers, remarks
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import BatchspecError, TraceError
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report
from batchspec.traces.reader import open_any
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable

_IN_A_STRETCH = 1000


class By(StrEnum):
    """Which checker judges."""

    auto = "auto"
    reference = "reference"
    fast = "fast"


class Format(StrEnum):
    """What a report is written as."""

    text = "text"
    json = "json"
    junit = "junit"
    sarif = "sarif"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of one run of `check`."""

    profile: Profile | None
    config: Profile | None
    rules: tuple[str, ...] | None
    findings: int
    waivers: tuple[Waiver, ...]
    today: date
    coverage: bool
    engine: Engine
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Judged:
    """One trace and everything that came of its check."""

    trace: Trace | RecordTable
    report: Report
    waived: Waived
    coverage: Coverage | None


def check(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files or folders of parts.")],
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="ORDER", help="Claim this order of admission, by name or module:name."),
    ] = None,
    victim: Annotated[
        str | None, typer.Option(metavar="RULE", help="Claim this victim rule, by name or module:name.")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Judge only this rule or family. May be repeated.")
    ] = None,
    use: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:NAME", help="Judge this rule of your own too. May be repeated."),
    ] = None,
    findings: Annotated[
        int, typer.Option(metavar="N", min=0, help="List up to N violations of each rule.")
    ] = 1,
    format: Annotated[
        Format, typer.Option(metavar="text|json|junit|sarif", help="What to print.")
    ] = Format.text,
    waive: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Violations that are accepted for now, with reasons (.toml)."),
    ] = None,
    today: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="The day that decides which waivers still hold (2027-01-31)."),
    ] = None,
    coverage: Annotated[
        bool,
        typer.Option("--coverage", help="Say which rules, actions and premises were put to the test."),
    ] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL|RULE", help="Exit 2 unless this level or rule was judged. May be repeated."
        ),
    ] = None,
    engine: Annotated[
        By,
        typer.Option(
            metavar="auto|reference|fast", help="The readable checker or the fast one: same findings."
        ),
    ] = By.auto,
    report: Annotated[
        str | None, typer.Option(metavar="FILE.html", help="Also write the HTML report of the trace.")
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
    if report is not None and len(traces) > 1:
        raise typer.BadParameter("--report is the report of one trace; name one")
    if coverage and format not in (Format.text, Format.json):
        raise typer.BadParameter("--coverage is said with --format text or json")
    plugins.install_rules()
    for name in use or ():
        plugins.rule_named(name)
    wanted_rules = [plugins.rule_named(word) if ":" in word else word for word in rule or ()]
    claims = None if config is None else load_config(config)
    if policy is not None or victim is not None:
        claims = (claims or Profile()).merged(_policies(policy, victim))
    options = [
        ("--profile", profile),
        ("--config", config),
        ("--policy", policy),
        ("--victim", victim),
        *(("--use", each) for each in use or ()),
        *(("--rule", each) for each in rule or ()),
        ("--waive", waive),
        ("--today", today),
    ]
    wanted = _Wanted(
        profile=None if profile is None else named_profile(profile),
        config=claims,
        rules=chosen(wanted_rules) if wanted_rules else None,
        findings=max(findings, _IN_A_STRETCH) if stretch else findings,
        waivers=() if waive is None else load_waivers(waive),
        today=date.today() if today is None else _day(today),
        coverage=coverage,
        engine=engine.value,
        command=tuple(word for name, value in options if value is not None for word in (name, value)),
    )
    required = tuple(require or ())
    known(required)
    done: list[_Judged] = []
    unusable: dict[str, str] = {}
    status = console.CONFORMS
    for path in traces:
        try:
            judged = _judged(path, wanted)
            page = _page(judged, wanted, stretch) if format is Format.text else None
            if report is not None:
                _draw(judged, wanted, report)
        except (BatchspecError, OSError) as error:
            unusable[path] = console.line_of(error)
            console.warn(unusable[path])
            continue
        if page is not None:
            if done or unusable:
                console.emit("\n")
            console.show(page)
        done.append(judged)
        for missed in unmet(judged.report, required):
            console.warn(f"{judged.report.trace}: {missed}")
            status = console.UNUSABLE
    if unusable:
        status = console.UNUSABLE
    elif status == console.CONFORMS and any(judged.report.verdict == "violates" for judged in done):
        status = console.VIOLATES
    _write(format, done, unusable, len(traces), status)
    for remark in remarks([judged.waived for judged in done], [judged.report for judged in done]):
        console.warn(f"{waive}: {remark}")
    raise typer.Exit(status)


def _policies(policy: str | None, victim: str | None) -> Profile:
    given: dict[str, dict[str, str]] = {}
    if policy is not None:
        given["admission"] = {"order": plugins.order_named(policy)}
    if victim is not None:
        given["preemption"] = {"victim": plugins.victim_named(victim)}
    return Profile.from_dict(given, "options")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"--today must be a day such as 2027-01-31, not {plain(text, 40)}") from None


def _write(
    format: Format, done: Sequence[_Judged], unusable: dict[str, str], traces: int, status: int
) -> None:
    """What is written once, behind the pages or in their place."""
    reports = [judged.report for judged in done]
    covers = [judged.coverage for judged in done if judged.coverage is not None]
    merged = None
    if covers:
        merged = Coverage()
        merged.merge(covers)
    if format is Format.text:
        if merged is not None:
            console.emit("\n")
            console.show(coverage_page(merged))
    elif not reports and traces == 1:
        return  # the one line on standard error says it all
    elif format is Format.junit:
        console.emit(junit_xml(reports, unusable, [judged.waived.covered() for judged in done]))
    elif format is Format.sarif:
        waived = [judged.waived.covered() for judged in done]
        console.emit(to_json(sarif_object(reports, unusable, waived, status)))
    elif traces == 1:
        console.emit(to_json(report_object(reports[0], merged)))
    else:
        console.emit(to_json(reports_object(reports, unusable, covers, merged)))


def _judged(path: str, wanted: _Wanted) -> _Judged:
    trace = open_any(path)
    header = trace.header
    claims = claimed(
        header_profile=header.profile if header else None,
        header_config=header.config if header else None,
        profile=wanted.profile,
        config=wanted.config,
    )
    waived = Waived(wanted.waivers, wanted.today)
    covers = waived if wanted.waivers else None
    cover = Coverage() if wanted.coverage else None
    with bar(f"checking {plain(path, 40)}", trace.num_rows) as shown:
        if isinstance(trace, RecordTable):
            report = check_records(trace, claims, findings=wanted.findings, rules=wanted.rules, waived=covers)
        else:
            report = check_with(
                wanted.engine,
                trace,
                claims,
                findings=wanted.findings,
                rules=wanted.rules,
                waived=covers,
                progress=(lambda done, _: shown.to(done)) if shown else None,
                observe=cover.observe if cover is not None else None,
                say=console.warn,
            )
    if cover is not None:
        cover.add(report, claims)
    return _Judged(trace, report, waived, cover)


def _draw(judged: _Judged, wanted: _Wanted, path: str) -> None:
    """Write the HTML report."""
    trace = judged.trace
    command = ("batchspec", "check", trace.path, *wanted.command, "--report", path)
    with bar(f"drawing {plain(trace.path, 40)}", trace.num_rows) as shown:
        page = html_of(trace, judged.report, command=command, coverage=judged.coverage, shown=shown)
        save(path, page)


def _page(judged: _Judged, wanted: _Wanted, stretch: tuple[int, int | None] | None) -> Page:
    trace, report = judged.trace, judged.report
    if stretch is not None:
        if isinstance(trace, RecordTable):
            raise TraceError(f"{trace.path}: a table of requests has no steps; leave --from and --to out")
        first, last = stretch
        with bar(f"reading {plain(trace.path, 40)}", trace.num_rows) as shown:
            timeline = collect(counted(trace.events(), shown), first, last)
        return timeline_page(timeline, report.findings, title=f"{report.trace}: {report.verdict}")
    sentences = {rule: kind.sentence for rule, kind in RULES.items()}
    command = shlex.join(("batchspec", "check", trace.path, *wanted.command))
    rows = {} if isinstance(trace, RecordTable) else around(trace, report.findings)
    return report_page(report, sentences, rows, command)
