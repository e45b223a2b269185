"""The events around a finding, read again from the trace in one pass."""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from batchspec.spec.events import Event, column_of

BEFORE: Final = 4
AFTER: Final = 2
"""How many rows around a finding's row a report shows."""

Stretch = tuple[tuple[int, Event], ...]
"""Rows of a trace in order, each with its index."""

_LONGEST_ID = 24
_MOST_BLOCKS = 6


def around(
    events: Iterable[Event], rows: Iterable[int], before: int = BEFORE, after: int = AFTER
) -> dict[int, Stretch]:
    """For each wanted row its neighbours: at most `before` rows before it and `after` rows after it.

    Reads the events once, keeps only what is wanted, and stops behind the last wanted row. A row
    that the trace does not have is left out.
    """
    wanted = sorted({row for row in rows if row >= 0})
    if not wanted:
        return {}
    found: dict[int, list[tuple[int, Event]]] = {}
    past: deque[tuple[int, Event]] = deque(maxlen=before)
    following: deque[int] = deque()
    targets = iter(wanted)
    target = next(targets, None)
    for index, event in islice(enumerate(events), wanted[-1] + after + 1):
        for row in following:
            found[row].append((index, event))
        if index == target:
            found[index] = [*past, (index, event)]
            following.append(index)
            target = next(targets, None)
        past.append((index, event))
        while following and following[0] + after <= index:
            following.popleft()
    return {row: tuple(stretch) for row, stretch in found.items()}


def details(event: Event) -> str:
    """What an event says beyond step, kind and request, as `column=value` pairs in column order."""
    pairs = [
        f"{column_of(name)}={_value(value)}"
        for name, value in zip(Event._fields, event, strict=True)
        if value is not None and name not in ("step", "event", "request")
    ]
    return " ".join(pairs)


def event_rows(stretch: Stretch, marked: int | None) -> list[tuple[object, ...]]:
    """A stretch as table rows: mark, row, step, event, request, details."""
    return [
        (
            ">" if index == marked else "",
            index,
            event.step,
            event.event,
            "" if event.request is None else short(event.request),
            details(event),
        )
        for index, event in stretch
    ]


def short(request: object) -> str:
    """A request's id, cut where it is too long for a table."""
    text = str(request)
    return text if len(text) <= _LONGEST_ID else text[: _LONGEST_ID - 1] + "…"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        shown = ",".join(map(str, value[:_MOST_BLOCKS]))
        more = f",… {len(value)} in all" if len(value) > _MOST_BLOCKS else ""
        return f"[{shown}{more}]"
    return short(value)
