"""Books: what a trace says happened, as the spec's own actions tell it, without any rule.

Two ways to write a step down are the same run where the books after it are the same.
"""

from collections.abc import Sequence
from typing import Any, Final

from batchspec.replay.checker import Walk
from batchspec.replay.mutation.goods import Good
from batchspec.spec.events import Event
from batchspec.spec.model import State

_OF_THE_STEP: Final = frozenset(
    {"row", "steps", "first_row_of_step", "step_ns", "decided", "decisions"}
    | {"fit_text", "next_in_line", "next_fits", "fits_behind", "passes_by", "skips", "kinds", "columns"}
)
"""What belongs to the row or the judgement of a step, not to what happened."""

_NO_ORDER: Final[dict[str, Any]] = {
    "number": 0,
    "place": 0,
    "first_admit": None,
    "joined": None,
    "late": False,
}


def after_rows(good: Good, events: Sequence[Event]) -> dict[str, Any]:
    """The books after these rows."""
    return _told(_walked(good, events))


def after_step(good: Good, events: Sequence[Event], step: int, ordinals: bool = True) -> dict[str, Any]:
    """The books when the step after `step` begins; without `ordinals` they do not say who came first."""
    rows = [event for event in events if event.step <= step]
    told = _told(_walked(good, [*rows, Event(step + 1, "step")]))
    if not ordinals:
        told["live"] = {name: record._replace(**_NO_ORDER) for name, record in told["live"].items()}
        told["ended"] = {name: end._replace(number=0) for name, end in told["ended"].items()}
        for name in ("waiting", "preempted", "running"):
            told[name] = sorted(map(str, dict(told[name])))
        for name in ("parked", "untold"):
            told[name] = sorted(map(str, told[name]))
    return told


def _walked(good: Good, events: Sequence[Event]) -> State:
    columns = frozenset({"step", "event"}) | good.columns
    walk = Walk(good.profile, columns, good.kinds, header=good.header, rules=())
    walk.feed_all(events)
    return walk.state


def _told(state: State) -> dict[str, Any]:
    # The order of those who wait says who came first: a dict alone would not tell.
    told: dict[str, Any] = {
        name: [*value.items()] if name in ("waiting", "preempted", "running") else value
        for name, value in vars(state).items()
        if name not in _OF_THE_STEP
    }
    # Rows are counted in a member's part too, and its row is no fact about the run.
    told["members"] = {request: part._replace(row=0) for request, part in state.members.items()}
    told["passes"] = {
        number: {request: part._replace(row=0) for request, part in parts.items()}
        for number, parts in state.passes.items()
    }
    return told
