"""Single faults: one row of a good trace is made wrong in one of nine ways.

    kind       the row is of another kind, or gives another reason
    request    the row is about another request (or names another cause)
    slot       the row takes another batch slot
    count      one of the row's numbers is off
    block      one of the row's block ids or content keys is another
    order      two rows of one step change places
    drop       the row is missing
    duplicate  the row stands there twice
    shift      the row comes a step earlier or later, its pass is another, or its clock is off

Everything is drawn from the `Random` that is passed in: same trace, same seed, same faults.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from batchspec.spec.events import KINDS, REASONS, WITHOUT_REQUEST, Event, RequestId, column_of

GHOST: Final = "nobody"
"""The id of a request that is in no trace."""

COUNTS: Final = (
    "prompt_tokens",
    "max_tokens",
    "priority",
    "cached",
    "start",
    "tokens",
    "drafts",
    "blocks",
    "free_blocks",
    "waiting",
    "running",
    "output_tokens",
    "units",
    "pinned_blocks",
    "shared_blocks",
    "prediction",
)
"""The columns that the fault `count` changes."""

_STEPS: Final = (-2, -1, -1, 1, 1, 2, 7)
_LATER_NS: Final = (-100, -1, 1, 100)


class Fault(NamedTuple):
    """What was changed. Rows count in the good trace; `column` is None where whole rows changed.

    `before` and `after` are the row or rows as they were and as they are now, in order.
    """

    kind: str
    row: int
    column: str | None
    before: tuple[Event, ...]
    after: tuple[Event, ...]
    text: str


class Mutant(NamedTuple):
    """A trace with one fault."""

    fault: Fault
    events: list[Event]


def mutant(events: Sequence[Event], kind: str, random: Random) -> Mutant | None:
    """The trace with one fault of a kind, somewhere; None where no row can have such a fault."""
    return _MAKERS[kind](events, random)


# -- one value of one row --------------------------------------------------------------------------


def _kind(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random)
    event = events[row]
    if event.reason is not None and random.random() < 0.4:
        others = [word for word in REASONS.get(event.event, ()) if word != event.reason]
        return _changed(events, row, "kind", "reason", random.choice(others)) if others else None
    about = event.event not in WITHOUT_REQUEST
    others = [
        kind
        for kind in KINDS
        if kind != event.event and kind != "live" and (kind not in WITHOUT_REQUEST) == about
    ]
    word = random.choice(others)
    reasons = REASONS.get(word)
    reason = event.reason
    if reasons is None or reason not in reasons:
        reason = random.choice(reasons) if reasons else None
    return _replaced(events, row, "kind", "event", event._replace(event=word, reason=reason))


def _request(events: Sequence[Event], random: Random) -> Mutant | None:
    rows = [row for row, event in enumerate(events) if event.request is not None]
    names = [*dict.fromkeys(events[row].request for row in rows), GHOST]
    if not rows:
        return None
    row = _row(events, random, rows)
    event = events[row]
    column = "cause" if event.cause is not None and random.random() < 0.5 else "request"
    now = getattr(event, column)
    others: list[RequestId] = [name for name in names if name != now and name is not None]
    if isinstance(now, int):
        others = [name if isinstance(name, int) else -1 for name in others]
    return _changed(events, row, "request", column, random.choice(others))


def _slot(events: Sequence[Event], random: Random) -> Mutant | None:
    rows = [row for row, event in enumerate(events) if event.slot is not None]
    if not rows:
        return None
    row = _row(events, random, rows)
    most = max(events[row].slot or 0 for row in rows)
    slots = [slot for slot in range(most + 2) if slot != events[row].slot]
    return _changed(events, row, "slot", "slot", random.choice(slots))


def _count(events: Sequence[Event], random: Random) -> Mutant | None:
    places: dict[tuple[str, str], list[int]] = {}
    for row, event in enumerate(events):
        for column in COUNTS:
            if getattr(event, column) is not None:
                places.setdefault((event.event, column), []).append(row)
    if not places:
        return None
    _, column = place = random.choice(sorted(places))
    row = random.choice(places[place])
    value = getattr(events[row], column)
    wrong = value + random.choice(_STEPS)
    # A negative count is no trace at all; urgency may be negative.
    if wrong < 0 and column != "priority":
        wrong = value + 1
    return _changed(events, row, "count", column, wrong)


def _block(events: Sequence[Event], random: Random) -> Mutant | None:
    columns = ("block_ids", "block_hashes")
    places = [
        (row, column) for row, event in enumerate(events) for column in columns if getattr(event, column)
    ]
    if not places:
        return None
    column = random.choice(sorted({column for _, column in places}))
    row = _row(events, random, [row for row, name in places if name == column])
    ids = list(getattr(events[row], column))
    place = random.randrange(len(ids))
    if column == "block_hashes":
        wrong = ids[place] ^ (1 << random.randrange(40))
    else:
        most = max(max(event.block_ids) for event in events if event.block_ids)
        wrong = random.choice([block for block in range(most + 2) if block != ids[place]])
    ids[place] = wrong
    return _changed(events, row, "block", column, tuple(ids))


# -- whole rows ------------------------------------------------------------------------------------


def _order(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random)
    step = events[row].step
    last = row
    while last + 1 < len(events) and last < row + 4 and events[last + 1].step == step:
        last += 1
    if last == row:
        return None
    other = random.randint(row + 1, last)
    before = tuple(events[row : other + 1])
    after = (before[-1], *before[1:-1], before[0])
    if before == after:
        return None
    mutated = [*events[:row], *after, *events[other + 1 :]]
    text = f"{_named(before[0])} and {_named(before[-1])} change places"
    return Mutant(Fault("order", row, None, before, after, text), mutated)


def _drop(events: Sequence[Event], random: Random) -> Mutant | None:
    if len(events) < 2:
        return None
    row = _row(events, random)
    mutated = [*events[:row], *events[row + 1 :]]
    fault = Fault("drop", row, None, (events[row],), (), f"{_named(events[row])} is missing")
    return Mutant(fault, mutated)


def _duplicate(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random)
    event = events[row]
    mutated = [*events[: row + 1], event, *events[row + 1 :]]
    return Mutant(
        Fault("duplicate", row, None, (event,), (event, event), f"{_named(event)} comes twice"), mutated
    )


def _shift(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random)
    event = events[row]
    what = random.choice(("step", "step", "time_ns", "pass"))
    if what == "pass" and event.pass_ is not None:
        return _changed(events, row, "shift", "pass_", max(0, event.pass_ + random.choice((-1, 1))))
    if what == "time_ns" and event.time_ns is not None:
        later = max(0, event.time_ns + random.choice(_LATER_NS))
        return None if later == event.time_ns else _changed(events, row, "shift", "time_ns", later)
    if event.event == "step":
        return None
    return _moved(events, row, random.choice((-1, 1)))


def _moved(events: Sequence[Event], row: int, by: int) -> Mutant | None:
    """The row among those of the next step, first, or of the one before, just before its end."""
    event = events[row]
    if by > 0:
        place = next((at for at in range(row, len(events)) if events[at].step > event.step), None)
        if place is None:
            return None
        shifted = event._replace(step=events[place].step)
        mutated = [*events[:row], *events[row + 1 : place], shifted, *events[place:]]
    else:
        place = next((at for at in range(row, -1, -1) if events[at].step < event.step), None)
        if place is None:
            return None
        shifted = event._replace(step=events[place].step)
        place += events[place].event != "step"
        mutated = [*events[:place], shifted, *events[place:row], *events[row + 1 :]]
    text = f"{_named(event)} comes in step {shifted.step}"
    return Mutant(Fault("shift", row, "step", (event,), (shifted,), text), mutated)


# -- parts -----------------------------------------------------------------------------------------


def _row(events: Sequence[Event], random: Random, rows: Sequence[int] | None = None) -> int:
    """One of the rows (None: of all), rare kinds of events as often as common ones."""
    by_kind: dict[str, list[int]] = {}
    for row in range(len(events)) if rows is None else rows:
        by_kind.setdefault(events[row].event, []).append(row)
    return random.choice(by_kind[random.choice(sorted(by_kind))])


def _changed(events: Sequence[Event], row: int, kind: str, column: str, value: Any) -> Mutant:
    return _replaced(events, row, kind, column, events[row]._replace(**{column: value}))


def _replaced(events: Sequence[Event], row: int, kind: str, column: str, event: Event) -> Mutant:
    was, now = getattr(events[row], column), getattr(event, column)
    text = f"{_named(events[row])}: {column_of(column)} {_shown(was)} becomes {_shown(now)}"
    fault = Fault(kind, row, column_of(column), (events[row],), (event,), text)
    return Mutant(fault, [*events[:row], event, *events[row + 1 :]])


def _named(event: Event) -> str:
    about = "" if event.request is None else f" of {event.request}"
    return f"step {event.step}, {event.event}{about}"


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


_MAKERS: Final[dict[str, Callable[[Sequence[Event], Random], Mutant | None]]] = {
    "kind": _kind,
    "request": _request,
    "slot": _slot,
    "count": _count,
    "block": _block,
    "order": _order,
    "drop": _drop,
    "duplicate": _duplicate,
    "shift": _shift,
}

FAULTS: Final = tuple(_MAKERS)
"""The kinds of faults."""
