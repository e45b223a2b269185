"""Clause coverage as a page and as data."""

from collections.abc import Iterable
from typing import Any

from batchspec.replay.coverage import ACTIONS, PREMISES, Coverage
from batchspec.replay.report.page import Page, count


def coverage_page(coverage: Coverage) -> Page:
    """What was put to the test and, by name, what was not."""
    page = Page()
    rules_missed = coverage.rules_missed()
    actions_missed = coverage.actions_missed()
    premises_missed = coverage.premises_missed()
    rows = []
    for name, missed, clauses, says in (
        ("rules", rules_missed, coverage.checked, "judged at least one instance"),
        ("actions", actions_missed, ACTIONS, "an event from a state that it is legal from"),
        ("premises", premises_missed, PREMISES, "claims on which a rule that judged something rests"),
    ):
        share = f"{len(clauses) - len(missed)} of {len(clauses)}"
        rows.append((name, share, says))
    page.table((f"coverage of {count(coverage.traces, 'trace')}", "exercised", ""), rows, " r", indent=0)
    page.gap()
    if rules_missed:
        page.table(("rules that were not put to the test", ""), rules_missed.items(), indent=0)
        page.gap()
    if actions_missed:
        states: dict[str, list[str]] = {}
        for kind, state in actions_missed:
            states.setdefault(kind, []).extend([] if state is None else [state])
        page.table(
            ("actions that did not happen", ""),
            [(kind, "from " + ", ".join(names) if names else "") for kind, names in states.items()],
            indent=0,
        )
        page.gap()
    if premises_missed:
        values: dict[str, list[str]] = {}
        for option, value in premises_missed:
            values.setdefault(option, []).extend([] if value is None else [value])
        page.table(
            ("premises that were not at work", ""),
            [(option, ", ".join(names)) for option, names in values.items()],
            indent=0,
        )
    return page


def coverage_object(coverage: Coverage) -> dict[str, Any]:
    """The same as data, each clause of the spec listed with its count."""
    rules = [
        {"id": rule, "checked": checked, "traces": coverage.exercised_in[rule]}
        for rule, checked in coverage.checked.items()
    ]
    actions = [
        {"event": kind, "state": state, "rows": coverage.actions[kind, state]} for kind, state in ACTIONS
    ]
    premises = [
        {"option": option, "value": value, "traces": coverage.premises[option, value]}
        for option, value in PREMISES
    ]
    return {
        "traces": coverage.traces,
        "rules": _group(rules, "checked"),
        "actions": _group(actions, "rows"),
        "premises": _group(premises, "traces"),
    }


def _group(clauses: Iterable[dict[str, Any]], by: str) -> dict[str, Any]:
    listed = list(clauses)
    return {
        "exercised": sum(1 for clause in listed if clause[by]),
        "of": len(listed),
        "clauses": listed,
    }
