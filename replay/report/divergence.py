"""Two runs held against each other, as a page and as plain data."""

from importlib.metadata import version
from typing import Any, Final

from batchspec.replay.divergence import Comparison, Divergence, InputDifference
from batchspec.replay.report.context import details, event_rows
from batchspec.replay.report.json import SCHEMA_VERSION
from batchspec.replay.report.page import Page, count, plain

_MOST: Final = 10


def divergence_page(a: str, b: str, found: Comparison) -> Page:
    """Inputs that differ, then the first decision that does, with its rows in both runs."""
    page = Page()
    if found.same:
        page.add(("same", "green"), f": {count(found.steps, 'step')} with the same decisions")
    else:
        page.add(("diverge", "red"), f": {_where(found)}")
    page.add(f"A is {plain(a)}")
    page.add(f"B is {plain(b)}")
    page.add(f"requests aligned by {found.aligned_by}")
    if found.inputs:
        page.gap()
        page.add((f"the inputs differ, in {count(found.input_count, 'place')}:", "bold"))
        _differences(page, found.inputs)
        if found.input_count > _MOST:
            page.add(f"and {found.input_count - _MOST:,} more", indent=2)
    if found.claims:
        page.gap()
        page.add(("the claims differ:", "bold"))
        _differences(page, found.claims)
    if found.divergence is not None:
        _explained(page, found, found.divergence)
    return page


def _where(found: Comparison) -> str:
    if found.divergence is None:
        return f"the inputs differ, the decisions of all {count(found.steps, 'step')} are the same"
    one = found.divergence
    steps = [
        f"step {step} of {name}" for name, step in (("A", one.step_a), ("B", one.step_b)) if step is not None
    ]
    who = "" if one.request is None else f" of {plain(one.request, 60)}"
    return f"{one.aspect}{who} in {', '.join(steps)}, after {count(found.steps, 'equal step')}"


def _differences(page: Page, found: tuple[InputDifference, ...]) -> None:
    page.table(
        ("request", "what", "A", "B"),
        [
            ("" if one.request is None else plain(one.request, 30), one.what, _value(one.a), _value(one.b))
            for one in found[:_MOST]
        ],
        indent=2,
    )


def _explained(page: Page, found: Comparison, one: Divergence) -> None:
    page.gap()
    for name, text in (("A", one.a), ("B", one.b)):
        page.wrap(plain(text), first=f"{name}:  ", hang=4)
    for name, other, ahead in (("A", "B", one.ahead_a), ("B", "A", one.ahead_b)):
        if ahead:
            names = ", ".join(plain(item, 30) for item in ahead[:_MOST])
            page.wrap(f"arrived by then in {name} and not yet in {other}: {names}")
    if found.before:
        said = [
            f"{name} {one:,}" if one == two else f"{name} {one:,} in A, {two:,} in B"
            for name, (one, two) in found.before.items()
        ]
        page.wrap("; ".join(said), first="one step before: ", hang=4)
    for name, rows in (("A", one.rows_a), ("B", one.rows_b)):
        if rows:
            page.gap()
            page.add((f"{name}:", "bold"))
            page.table(
                ("row", "step", "event", "request", ""), [row[1:] for row in event_rows(rows)], "rr", indent=2
            )


def _value(value: Any) -> str:
    return "not said" if value is None else plain(value, 40)


def divergence_object(a: str, b: str, found: Comparison) -> dict[str, Any]:
    """The same as plain data. A step or row is null where that run has none."""
    one = found.divergence
    return {
        "schema": SCHEMA_VERSION,
        "version": version("batchspec"),
        "verdict": "same" if found.same else "diverge",
        "a": a,
        "b": b,
        "aligned_by": found.aligned_by,
        "steps": found.steps,
        "input_count": found.input_count,
        "inputs": [_difference(item) for item in found.inputs],
        "claims": [_difference(item) for item in found.claims],
        "before": {name: {"a": mine, "b": theirs} for name, (mine, theirs) in found.before.items()},
        "divergence": None if one is None else _divergence(one),
    }


def _difference(item: InputDifference) -> dict[str, Any]:
    return {"request": item.request, "what": item.what, "a": item.a, "b": item.b}


def _divergence(one: Divergence) -> dict[str, Any]:
    sides = {}
    for name, step, row, text, rows, ahead in (
        ("a", one.step_a, one.row_a, one.a, one.rows_a, one.ahead_a),
        ("b", one.step_b, one.row_b, one.b, one.rows_b, one.ahead_b),
    ):
        events = [
            {
                "row": at,
                "step": event.step,
                "event": event.event,
                "request": event.request,
                "says": details(event),
            }
            for at, event in rows
        ]
        sides[name] = {
            "step": step,
            "row": row,
            "decides": text,
            "events": events,
            "arrived_early": list(ahead),
        }
    return {"aspect": one.aspect, "request": one.request, **sides}
