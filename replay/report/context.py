"""The events around a finding, read again from the trace."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from batchspec.spec.events import Event, RequestId, column_of
from batchspec.spec.verdict import Finding

BEFORE: Final = 5
AFTER: Final = 1
"""How many rows before and after a finding's row a report shows."""

Stretch = tuple[tuple[int, Event], ...]
"""Rows of a trace in order, each with its index."""

_LONGEST_ID = 24
_MOST_BLOCKS = 6
_ONE_READ = 4096
_LOOK_BACK = 128
_NOTHING = frozenset({"drafts", "cached", "pinned_blocks", "shared_blocks"})
_TELLING = frozenset(
    {"admit", "resume", "preempt", "finish", "abort", "cancel", "reject", "park", "ready", "release", "live"}
)


class Rows(Protocol):
    """What a stretch is read from: a trace, or anything else that can start in its middle."""

    def events(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """The events of the rows [first, last), in order."""


def around(trace: Rows, findings: Iterable[Finding]) -> dict[int, Stretch]:
    """For each finding's row a handful of rows: those that say what led to it, and what came next.

    Before the row stand the last few rows about the finding's requests, and of seats and memory that
    change hands; rows between them are left out. A row that the trace does not have is left out.
    """
    wanted: dict[int, set[RequestId]] = {}
    for finding in findings:
        if finding.row is not None and finding.row >= 0:
            wanted.setdefault(finding.row, set()).update(finding.requests)
    found: dict[int, Stretch] = {}
    for group in _groups(sorted(wanted)):
        first = max(0, group[0] - _LOOK_BACK)
        events = dict(enumerate(trace.events(first, group[-1] + AFTER + 1), first))
        for row in group:
            if row in events:
                found[row] = _chosen(events, row, wanted[row])
    return found


def _chosen(events: dict[int, Event], row: int, requests: set[RequestId]) -> Stretch:
    past = [index for index in range(max(0, row - _LOOK_BACK), row) if index in events]
    telling = [
        index for index in past[:-1] if events[index].request in requests or events[index].event in _TELLING
    ]
    shown = [*telling[1 - BEFORE :], *past[-1:], *range(row, row + AFTER + 1)]
    return tuple((index, events[index]) for index in shown if index in events)


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
    """What an event says beyond step, kind and request, as `column=value` pairs in column order.

    Zeros and empty lists that say "none of it" are left out.
    """
    pairs = [
        f"{column_of(name)}={_value(value)}"
        for name, value in zip(Event._fields, event, strict=True)
        if value not in (None, ())
        and name not in ("step", "event", "request")
        and not (value == 0 and name in _NOTHING)
    ]
    return " ".join(pairs)


def event_rows(stretch: Stretch, marked: int | None = None) -> list[tuple[object, ...]]:
    """A stretch as table rows: mark, row, step, event, request, details. `…` where rows are left out."""
    rows: list[tuple[object, ...]] = []
    following = None
    for index, event in stretch:
        if following not in (None, index):
            rows.append(("", "…", "", "", "", ""))
        following = index + 1
        request = "" if event.request is None else short(event.request)
        mark = ">" if index == marked else ""
        rows.append((mark, index, event.step, event.event, request, details(event)))
    return rows


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
