"""`batchspec shrink`: the smallest part of a trace that still shows a finding, as a scenario."""

from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.checker import check
from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.replay.commands.cut import open_trace_or_scenario
from batchspec.replay.fast.choose import check_with
from batchspec.replay.progress import bar
from batchspec.replay.report.page import Page, count, plain
from batchspec.replay.selection import chosen
from batchspec.replay.shrinking.search import Shrunk
from batchspec.replay.shrinking.search import shrink as shrink_to
from batchspec.spec.errors import TraceError
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding
from batchspec.traces.scenario import format_scenario, parse_scenario
from batchspec.traces.text import one_line
from batchspec.traces.trace import Trace
from batchspec.traces.writer import cannot_write


def shrink(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or a folder of parts.")],
    rule: Annotated[str, typer.Option(metavar="ID", help="The broken rule, such as slots/reuse.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The scenario to write (.txt); printed when not given.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The first finding from this step on.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
) -> None:
    """Shrink a trace to the fewest requests, steps and claims that still show a finding of one rule.

    What came before is told by `live` rows. The scenario is text, and `batchspec check` takes it.

    Exit status: 0 shrunk, 2 unusable input, or the trace does not break the rule.

    Example:  batchspec shrink run.parquet --rule slots/exclusive --out smallest.txt
    """
    (wanted,) = _one(rule)
    opened = open_trace_or_scenario(trace)
    header = opened.header
    claims = (
        claimed(
            header.profile if header else None,
            header.config if header else None,
            None if profile is None else named_profile(profile),
            None if config is None else load_config(config),
        )
        or Profile()
    )
    found = shrink_to(opened, claims, _finding(opened, claims, wanted, step))
    text = _scenario(opened, found)
    if out is None:
        console.emit(text)
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(Path(out), error) from None
    page = Page()
    page.add(f"wrote {plain(out)}: {_size(found.trace)}, of {count(opened.num_rows, 'event')}")
    page.wrap(plain(found.finding.message), first=f"{wanted} at step {found.finding.step}: ", hang=2)
    if not found.whole:
        page.add("the search was ended before it was through; a smaller one may exist")
    page.add(f"check it with:  batchspec check {plain(out)}")
    console.show(page)


def _one(rule: str) -> tuple[str, ...]:
    rules = chosen([rule])
    if len(rules) != 1:
        raise typer.BadParameter(
            f"--rule takes one rule, such as {rules[0]}, not the family {plain(rule, 40)}"
        )
    return rules


def _finding(trace: Trace, claims: Profile, rule: str, step: int | None) -> Finding:
    """The first finding of the rule, or the first from a step on."""
    most = 1 if step is None else 1_000_000
    with bar(f"checking {plain(trace.path, 40)}", trace.num_rows) as shown:
        report = check_with(
            "auto",
            trace,
            claims,
            findings=most,
            rules=(rule,),
            progress=(lambda done, _: shown.to(done)) if shown else None,
        )
    found = [one for one in report.findings if step is None or (one.step is not None and one.step >= step)]
    if found:
        return found[0]
    (result,) = report.rules
    if result.missing:
        raise TraceError(f"{trace.path}: {rule} is not checkable: needs {', '.join(result.missing)}")
    behind = "" if step is None else f" from step {step} on"
    raise TraceError(
        f"{trace.path}: does not violate {rule}{behind}; `batchspec check` says what it does violate"
    )


def _size(trace: Trace) -> str:
    rows = list(trace.events())
    requests = {event.request for event in rows if event.request is not None}
    return (
        f"{count(len(rows), 'event')}, {count(len({event.step for event in rows}), 'step')}, "
        f"{count(len(requests), 'request')}"
    )


def _scenario(whole: Trace, found: Shrunk) -> str:
    """The scenario with a head that says what it shows. Raises `TraceError` should it not show it."""
    finding = found.finding
    head = [
        f"# {one_line(finding.message, 300)}",
        f"# expect: {finding.rule} violates",
        f"# {_size(found.trace)}; shrunk from {count(whole.num_rows, 'event')}",
    ]
    text = "".join(f"{line}\n" for line in head) + format_scenario(found.trace)
    again = parse_scenario(text)
    header = again.header
    claims = claimed(header.profile, header.config) if header else None
    if not check(again, claims, rules=(finding.rule,)).findings:
        raise TraceError(f"{whole.path}: {finding.rule} shows in the smallest trace, and not in its scenario")
    return text
