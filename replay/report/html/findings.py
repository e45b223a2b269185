"""The findings: each with what was seen, its stretch of the picture, the rows around it, and a scenario."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchspec.replay.report.context import Rows, Stretch, around, event_rows
from batchspec.replay.report.html.markup import Html, block, join, section, table, tag
from batchspec.replay.report.page import count
from batchspec.spec.verdict import Finding, Report
from batchspec.traces.header import Header
from batchspec.traces.scenario import format_scenario

MOST_FINDINGS: Final = 60
"""Findings that are shown in full; the rest are listed."""

_WHOLE: Final = 300
_EXCERPT: Final = 40
_OPEN: Final = 2
_LONGEST: Final = 12_000


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is read again from the trace for the findings: rows around each, and scenarios, by row."""

    stretches: Mapping[int, Stretch]
    scenarios: Mapping[int, tuple[str, bool]]
    """The text, and whether it is the trace from its beginning."""


def evidence(trace: Rows, findings: Sequence[Finding], config: Mapping[str, Any]) -> Evidence:
    """Read the surroundings of the first findings."""
    shown = findings[:MOST_FINDINGS]
    scenarios: dict[int, tuple[str, bool]] = {}
    for finding in shown:
        row = finding.row
        if row is None or row < 0 or row in scenarios:
            continue
        whole = row < _WHOLE
        events = list(trace.events(0 if whole else row - _EXCERPT, row + 2))
        text = format_scenario(events, Header(config=config, complete=False))
        if len(text) <= _LONGEST:
            scenarios[row] = (text, whole)
    return Evidence(around(trace, shown), scenarios)


def findings_section(report: Report, found: Evidence, rules: Mapping[str, Any], pictured: bool) -> Html:
    """All findings, those that follow from others last. `pictured` says that the page has a picture."""
    if not report.findings:
        words = "No rule is broken." if not report.count else "None is listed."
        return section("findings", "Findings", tag("p", words))
    order = sorted(range(len(report.findings)), key=lambda at: report.findings[at].consequence)
    cards = [
        _card(number, report.findings[number], found, rules, pictured=pictured, opened=place < _OPEN)
        for place, number in enumerate(order[:MOST_FINDINGS])
    ]
    more = [
        tag("li", f"{_place(finding)}: {finding.message} ", tag("code", finding.rule))
        for finding in (report.findings[number] for number in order[MOST_FINDINGS : MOST_FINDINGS * 10])
    ]
    listed = len(report.findings)
    notes = []
    if report.count > listed:
        notes.append(
            f"{count(report.count, 'violation')} in all, {listed} of them listed here; "
            "--findings N lists more of each rule."
        )
    if any(finding.consequence for finding in report.findings):
        notes.append(
            "The check mended its picture after each finding. What it found in the mended places is marked "
            "as a consequence and stands last."
        )
    return tag(
        "section",
        tag("h2", "Findings", id="findings-h"),
        *(tag("p", note, class_="quiet") for note in notes),
        *cards,
        tag("ul", join(more)) if more else "",
        id="findings",
        aria_labelledby="findings-h",
    )


def _card(
    number: int,
    finding: Finding,
    found: Evidence,
    rules: Mapping[str, Any],
    *,
    pictured: bool,
    opened: bool,
) -> Html:
    rule = rules.get(finding.rule)
    lines = [("rule", rule.sentence)] if rule is not None else []
    lines += [("seen", finding.observed), ("should be", finding.expected)]
    parts: list[object] = [
        tag(
            "h3",
            tag("span", f"{_place(finding)}:", class_="quiet"),
            finding.message,
            tag("code", finding.rule),
            tag("span", "consequence", class_="quiet") if finding.consequence else "",
        ),
        tag("dl", join(join((tag("dt", name), tag("dd", text))) for name, text in lines)),
    ]
    if pictured and finding.step is not None:
        label = f"The slots around step {finding.step}"
        parts.append(tag("canvas", data_finding=number, role="img", aria_label=label))
        button = tag("button", "Show in the picture", type="button", data_show=number)
        parts.append(tag("div", button, class_="bar"))
    if finding.row is not None:
        parts += _rows(number, finding, found, opened)
    classes = "card finding consequence" if finding.consequence else "card finding"
    return tag("article", *parts, class_=classes, id=f"finding-{number}")


def _rows(number: int, finding: Finding, found: Evidence, opened: bool) -> list[Html]:
    parts = []
    row = finding.row if finding.row is not None else -1
    stretch = found.stretches.get(row)
    if stretch:
        cells = [cells[1:] for cells in event_rows(stretch)]
        at = next((place for place, cell in enumerate(cells) if cell[0] == row), None)
        rows: Any = cells
        made = table(("row", "step", "event", "request", "says"), rows, "nn", marked=at, wide=True)
        parts.append(tag("details", tag("summary", "The rows around it"), made, open=opened))
    scenario = found.scenarios.get(row)
    if scenario is not None:
        text, whole = scenario
        says = "Scenario: the trace up to here, as text for `batchspec check`"
        if not whole:
            says = f"Scenario: the {_EXCERPT} rows up to here as text (an excerpt: earlier rows are missing)"
        name = f"scenario-{number}"
        copy = tag("button", "Copy", type="button", data_copy=name)
        # Too long for paper.
        parts.append(tag("details", tag("summary", says), block(text, name), copy, class_="screen"))
    return parts


def _place(finding: Finding) -> str:
    if finding.step is not None:
        return f"step {finding.step:,}"
    return "end of trace" if finding.row is None else f"record {finding.row:,}"
