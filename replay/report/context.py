"""The events around a finding, read again from the trace."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from batchspec.spec.events import Event, column_of

BEFORE: Final = 4
AFTER: Final = 2
"""How many rows around a finding's row a report shows."""

Stretch = tuple[tuple[int, Event], ...]
"""Rows of a trace in order, each with its index."""

_LONGEST_ID = 24
_MOST_BLOCKS = 6
_ONE_READ = 4096


class Rows(Protocol):
    """What a stretch is read from: a trace, or anything else that can start in its middle."""

    def events(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """The events of the rows [first, last), in order."""


def around(trace: Rows, rows: Iterable[int], before: int = BEFORE, after: int = AFTER) -> dict[int, Stretch]:
    """For each wanted row its neighbours: at most `before` rows before it and `after` rows after it.

    A row that the trace does not have is left out.
    """
    found: dict[int, Stretch] = {}
    for group in _groups(sorted({row for row in rows if row >= 0})):
        first = max(0, group[0] - before)
        events = dict(enumerate(trace.events(first, group[-1] + after + 1), first))
        for row in group:
            if row in events:
                near = range(max(0, row - before), row + after + 1)
                found[row] = tuple((index, events[index]) for index in near if index in events)
    return found


def _groups(rows: list[int]) -> Iterator[list[int]]:
    """Rows that are worth one read: close to each other, so that little is read between them."""
    group: list[int] = []
    for row in rows:
        if group and row - group[0] > _ONE_READ:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


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
