"""The sections on the verdict: what was found, what was judged, and what was not and why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from batchspec.replay.report.html.markup import Html, Piece, join, section, tag
from batchspec.replay.report.page import count
from batchspec.replay.report.text import state_of
from batchspec.spec.verdict import Report, RuleResult

STATES: Final = ("violates", "open", "conforms", "not exercised", "not checkable")
_BARS: Final = {"not exercised": "unexercised", "not checkable": "notcheckable"}
_SAYS: Final = {
    "violates": "broken",
    "open": "still within their bound at the end",
    "conforms": "hold",
    "not exercised": "not exercised: nothing in the trace called for them",
    "not checkable": "not checkable: the trace or its profile lacks something",
}


def verdict_section(report: Report, tiles: Sequence[tuple[str, str]]) -> Html:
    """The head of the page: verdict, what it is about, how much of the spec was judged, key figures."""
    states = Counter(state_of(result) for result in report.rules)
    shares = join(
        tag(
            "i",
            class_=_BARS.get(state, state),
            style=f"flex:{states[state]}",
            title=f"{states[state]} {state}",
        )
        for state in STATES
        if states[state]
    )
    keys = join(
        tag("span", tag("span", class_=f"state {_class(state)}"), f"{states[state]} {_SAYS[state]}")
        for state in STATES
        if states[state]
    )
    broken = sum(result.verdict == "violates" for result in report.rules)
    said = [tag("span", report.verdict, class_=f"badge {report.verdict}")]
    if report.count:
        said.append(tag("span", f"  {count(report.count, 'violation')} of {count(broken, 'rule')}"))
    judged = sum(1 for result in report.rules if result.checked)
    says = f"{judged} of {len(report.rules)} rules judged"
    figures = join(tag("div", tag("b", value), tag("span", name), class_="tile") for name, value in tiles)
    notes = [tag("p", note) for note in _notes(report)]
    return tag(
        "section",
        tag("h1", report.trace),
        tag("p", join(said)),
        tag("p", _about(report), class_="quiet"),
        *notes,
        tag("div", shares, class_="judged", role="img", aria_label=says),
        tag("p", keys, class_="keys"),
        tag("div", figures, class_="tiles") if tiles else "",
        id="verdict",
        class_="card",
    )


def rules_section(report: Report, rules: Mapping[str, Any]) -> Html:
    """Every rule with its verdict, how often it was judged, and what it lacks. `rules` is the catalogue."""
    states = Counter(state_of(result) for result in report.rules)
    buttons = [
        tag("button", f"all {len(report.rules)}", type="button", data_filter="all", aria_pressed="true")
    ]
    buttons += [
        tag("button", f"{state} {states[state]}", type="button", data_filter=state, aria_pressed="false")
        for state in STATES
        if states[state]
    ]
    head = ("verdict", "rule", "judged", "violations", "says")
    order = {state: place for place, state in enumerate(STATES)}
    results = sorted(report.rules, key=lambda result: order[state_of(result)])
    rows = join((_rule(result, rules) for result in results), "\n")
    top = join(
        tag("th", cell, scope="col", class_="n" if cell in ("judged", "violations") else None)
        for cell in head
    )
    made = tag("table", tag("thead", tag("tr", top)), tag("tbody", rows), class_="wide")
    return section(
        "rules",
        "Every rule",
        tag("div", join(buttons), class_="bar", role="group", aria_label="Show rules that"),
        tag("div", made, class_="scroll"),
        long=True,
    )


def _rule(result: RuleResult, rules: Mapping[str, Any]) -> Html:
    state = state_of(result)
    rule = rules.get(result.id)
    says: list[Piece] = [rule.sentence if rule is not None else ""]
    remarks = []
    if result.missing:
        remarks.append("needs " + ", ".join(result.missing))
    if result.skipped:
        remarks.append(f"{result.skipped:,} skipped for a null")
    if result.waived:
        remarks.append(f"{result.waived:,} waived")
    if remarks:
        says.append(Html("<br>"))
        says.append(tag("b", "; ".join(remarks)))
    if rule is not None:
        says.append(tag("span", f" {rule.source}", class_="quiet"))
    return tag(
        "tr",
        tag("td", tag("span", state, class_=f"state {_class(state)}")),
        tag("td", tag("code", result.id)),
        tag("td", f"{result.checked:,}" if result.checked else "–", class_="n"),
        tag("td", f"{result.violations:,}" if result.violations else "–", class_="n"),
        tag("td", *says),
        data_state=state,
    )


def _class(state: str) -> str:
    return state.partition(" ")[0]


def _about(report: Report) -> str:
    if report.profile is not None:
        against = f"profile {report.profile}"
    elif report.config:
        against = "its own config"
    else:
        against = "no profile and no config: only rules that need no claim are judged"
    if report.level == "L0":
        size = f"level L0, {count(report.events, 'record')}"
    else:
        size = (
            f"level {report.level}, {count(report.events, 'event')}, {count(report.steps, 'step')}, "
            f"{count(report.requests, 'request')}"
        )
    return f"{size}; held against {against}"


def _notes(report: Report) -> list[str]:
    notes = list(report.notes)
    if report.truncated is not None:
        notes.insert(
            0,
            f"The trace breaks off at step {report.truncated}: it was cut there or is still being written, "
            "so nothing that was still due counts as missed.",
        )
    if report.waived:
        notes.append(f"{count(report.waived, 'violation')} waived.")
    return notes
