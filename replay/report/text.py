"""The text report: verdict first, then each broken rule's first violation in full, then every rule.

A finding has one fixed form, and reads alone: what happened at which step, the rule, what was seen,
what should have been, the events around it, and the command that shows that stretch.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from batchspec.replay.report.context import Stretch, event_rows
from batchspec.replay.report.page import Page, Segment, count
from batchspec.spec.verdict import Finding, Report, RuleResult

SHOWN_BEFORE: Final = 3
_SAME_NEED: Final = 12
"""How many steps before a finding the command of its stretch begins."""

_STYLES: Final = {
    "violates": "bold red",
    "open": "yellow",
    "conforms": "green",
    "not exercised": "dim",
    "not checkable": "dim",
}
_COUNTED: Final = {
    "violates": ("violates", "violate"),
    "open": ("open", "open"),
    "conforms": ("conforms", "conform"),
    "not exercised": ("not exercised", "not exercised"),
    "not checkable": ("not checkable", "not checkable"),
}


def report_page(
    report: Report,
    sentences: Mapping[str, str] | None = None,
    stretches: Mapping[int, Stretch] | None = None,
    command: str | None = None,
) -> Page:
    """One report as a page.

    `sentences` has the statement of each rule, `stretches` the events around each finding's row
    (`context.around`), `command` the command line that made the report, without `--from` and `--to`.
    """
    page = Page()
    page.add(f"{report.trace}: ", (report.verdict, _STYLES[report.verdict]), _against(report))
    page.add(_size(report))
    if report.truncated is not None:
        page.wrap(
            f"truncated at step {report.truncated}: the trace was cut there or is still being written, "
            "so nothing that was still due counts as missed"
        )
    for note in report.notes:
        page.wrap(note, first="note: ")
    command = command or f"batchspec check {report.trace}"
    _findings(page, report, sentences or {}, stretches or {}, command)
    page.gap()
    _rules(page, report)
    page.gap()
    page.add(*_last_line(report))
    return page


def finding_lines(
    page: Page, finding: Finding, sentence: str | None, stretch: Stretch | None, command: str
) -> None:
    """Add one finding in the fixed form."""
    mark = ("  (consequence)", "yellow") if finding.consequence else ""
    page.add(f"{_place(finding)}: ", (finding.message, "bold"), (f"  [{finding.rule}]", "red"), mark)
    if sentence:
        page.wrap(sentence, indent=2, first="rule:       ")
    page.wrap(finding.observed, indent=2, first="seen:       ")
    page.wrap(finding.expected, indent=2, first="should be:  ")
    if stretch:
        page.add("events:", indent=2)
        page.table(
            ("", "row", "step", "event", "request", ""), event_rows(stretch, finding.row), "lrr", indent=4
        )
    if finding.step is not None:
        first = max(0, finding.step - SHOWN_BEFORE)
        page.add(f"show:       {command} --from {first} --to {finding.step}", indent=2)


def state_of(result: RuleResult) -> str:
    """The word under which a rule is listed: its verdict, or `not exercised` where nothing was judged."""
    if result.verdict == "conforms" and result.checked == 0:
        return "not exercised"
    return result.verdict


def _against(report: Report) -> str:
    if report.profile is not None:
        return f" (profile {report.profile})"
    if report.config:
        return " (config)"
    return " (no profile and no config: only rules that need no claim are judged)"


def _size(report: Report) -> str:
    if report.level == "L0":
        return f"level L0, {count(report.events, 'record')}"
    parts = (count(report.events, "event"), count(report.steps, "step"), count(report.requests, "request"))
    return f"level {report.level}, {', '.join(parts)}"


def _findings(
    page: Page,
    report: Report,
    sentences: Mapping[str, str],
    stretches: Mapping[int, Stretch],
    command: str,
) -> None:
    listed: dict[str, int] = {}
    for finding in report.findings:
        listed[finding.rule] = listed.get(finding.rule, 0) + 1
        if finding.consequence:
            continue
        page.gap()
        stretch = None if finding.row is None else stretches.get(finding.row)
        finding_lines(page, finding, sentences.get(finding.rule), stretch, command)
    after = [finding for finding in report.findings if finding.consequence]
    if after:
        page.gap()
        page.wrap(
            "The check mended its picture after each finding; what it found in the mended places follows."
        )
        page.add(("consequences:", "bold"))
        for finding in after:
            page.wrap(f"{_place(finding)}: {finding.message}  [{finding.rule}]", indent=2, hang=4)
    rest = [
        f"{result.violations - listed.get(result.id, 0):,} of {result.id}"
        for result in report.rules
        if result.violations > listed.get(result.id, 0)
    ]
    if rest:
        page.gap()
        page.wrap(", ".join(rest) + " (--findings N lists more of each rule)", first="and more: ")


def _place(finding: Finding) -> str:
    if finding.step is not None:
        return f"step {finding.step}"
    return "end of trace" if finding.row is None else f"record {finding.row}"


def _rules(page: Page, report: Report) -> None:
    order = list(_STYLES)
    needs = Counter(result.missing for result in report.rules)
    results = [result for result in report.rules if needs[result.missing] <= _SAME_NEED or not result.missing]
    results.sort(key=lambda result: order.index(state_of(result)))
    widths = [
        max((len(word) for word in words), default=0) for words in zip(*map(_cells, results), strict=False)
    ]
    for result in results:
        state, rule, checked = (cell.ljust(width) for cell, width in zip(_cells(result), widths, strict=True))
        page.add((state, _STYLES[state_of(result)]), f"  {rule}  {checked}  {_remark(result)}")
    for missing, number in needs.items():
        if missing and number > _SAME_NEED:
            page.add(
                ("not checkable", _STYLES["not checkable"]),
                f"  {number} rules that need {', '.join(missing)} (`batchspec rules` lists all)",
            )


def _cells(result: RuleResult) -> tuple[str, str, str]:
    return state_of(result), result.id, f"{result.checked:,} judged" if result.checked else ""


def _remark(result: RuleResult) -> str:
    parts = []
    if result.violations:
        parts.append(count(result.violations, "violation"))
    if result.waived:
        parts.append(f"{result.waived:,} waived")
    if result.skipped:
        parts.append(f"{result.skipped:,} skipped for a null")
    if result.missing:
        parts.append("needs " + ", ".join(result.missing))
    return ", ".join(parts)


def _last_line(report: Report) -> list[Segment]:
    states = [state_of(result) for result in report.rules]
    counted = [
        f"{states.count(state)} {words[states.count(state) != 1]}"
        for state, words in _COUNTED.items()
        if state in states
    ]
    parts: list[Segment] = ["verdict: ", (report.verdict, _STYLES[report.verdict])]
    if report.count:
        rules = sum(result.verdict == "violates" for result in report.rules)
        parts.append(f", {count(report.count, 'violation')} of {count(rules, 'rule')}")
    if report.waived:
        parts.append(f", {report.waived:,} waived")
    parts.append(f" (rules: {', '.join(counted) or 'none judged'})")
    return parts
