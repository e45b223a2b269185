"""Cutting: a stretch of a trace as a trace of its own, which can be checked on its own.

It begins with a `live` row for each request that is in progress, and its header says what the books hold
beside them (spec/opening.py). The books are those of the spec: the rows before the stretch are walked
through its own actions, but of them only those that can still matter, the rows of requests that live when
the stretch begins or of which it speaks, since their last arrival. Finding these takes a look at two
columns of the rows before, so that a stretch far inside a long trace costs seconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from batchspec.replay.checker import Walk
from batchspec.spec import opening
from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace

LOOKBACK: Final = 256
"""Steps before a stretch in which also the rows of requests that have ended are looked at (lags)."""
SMALL: Final = 200_000
"""Up to so many rows before a stretch are all walked: nothing is left out that costs nothing."""

_BATCH: Final = 1 << 16
_BEGINS: Final = frozenset({"arrive", "live"})
_ENDS: Final = frozenset({"finish", "abort", "reject"})
_LEDGERS: Final = frozenset({"take", "give", "transfer_begin", "transfer_end", "release", "park"})
"""With rows of these kinds somebody may hold something long after its end."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows [first, last) of a trace, the `live` rows that go before them, and the header of both."""

    trace: Trace
    first: int
    last: int
    live: tuple[Event, ...]
    header: Header

    def events(self) -> Iterator[Event]:
        """All rows in order."""
        yield from self.live
        yield from self.trace.events(self.first, self.last)

    def held(self) -> Trace:
        """The stretch in memory."""
        return Trace.from_events(list(self.events()), self.header, self.trace.path)


def cut(trace: Trace, profile: Profile | None, first: int, last: int | None = None) -> Stretch:
    """The steps `first` to `last` (both included; None: to the end) as a trace of its own.

    `profile` are the claims by which the books before the stretch are kept. Raises `TraceError` where
    the trace has no row in these steps.
    """
    begin, end = rows_of(trace, first, last)
    if begin >= end:
        raise TraceError(
            f"{trace.path}: no row in steps {first} to {'the end' if last is None else last}; "
            f"`batchspec info` says which steps it has"
        )
    return cut_rows(trace, profile, begin, end, first)


def cut_rows(trace: Trace, profile: Profile | None, begin: int, end: int, step: int) -> Stretch:
    """The rows [begin, end) as a trace of its own; `begin` is the first row of `step`, or of a later one."""
    header = trace.header or Header()
    if trace.outputs_recorded:
        header = replace(header, outputs="recorded")
    # Whoever reads on from a cut end may still see anything.
    header = replace(header, complete=trace.complete and end == trace.num_rows)
    if not begin and end == trace.num_rows:
        return Stretch(trace, 0, end, (), header)
    extra = dict(header.extra)
    if not begin:
        # The whole trace's own beginning; what it has beyond this stretch still counts.
        told = dict(extra.get(opening.KEY) or {"live": 0})
        told["columns"], told["kinds"] = sorted(trace.columns), sorted(trace.kinds)
        return Stretch(trace, 0, end, (), replace(header, extra={**extra, opening.KEY: told}))
    walk = books_before(trace, profile or Profile(), begin, step, named := _named(trace, begin, end))
    extra[opening.KEY] = opening.opening_of(walk.state, walk.line, named)
    live = tuple(opening.live_rows(walk.state, step))
    return Stretch(trace, begin, end, live, replace(header, begins="running", extra=extra))


def rows_of(trace: Trace, first: int, last: int | None) -> tuple[int, int]:
    """The rows [begin, end) of the steps `first` to `last`: from the first row that is not before them to
    the first that is behind them."""
    begin, at = None, 0
    for _, batch in trace.raw(columns=["step"], rows=_BATCH):
        steps = np.asarray(batch.column(0).cast("int64").fill_null(0))
        low = 0
        if begin is None and (found := np.flatnonzero(steps >= first)).size:
            begin = at + (low := int(found[0]))
        if begin is not None and last is not None and (found := np.flatnonzero(steps[low:] > last)).size:
            return begin, at + low + int(found[0])
        at += batch.num_rows
    return at if begin is None else begin, at


def books_before(
    trace: Trace, profile: Profile, row: int, step: int, named: Iterable[RequestId] = (), small: int = SMALL
) -> Walk:
    """A walk that no rule watches, with the books as they stand when `step` opens with row `row`."""
    kinds = frozenset(trace.kinds) | (frozenset({"output"}) if trace.outputs_recorded else frozenset())
    walk = Walk(profile, trace.columns, kinds, header=trace.header, rules=())
    whole = profile.admission.order == "fair" or profile.reuse.block_lag == "release" or _LEDGERS & kinds
    rows = trace.events(0, row) if row <= small or whole else _that_matter(trace, row, step, named)
    walk.feed_all(rows)
    walk.stand_before(step)
    return walk


def _that_matter(trace: Trace, row: int, step: int, named: Iterable[RequestId]) -> Iterator[Event]:
    """The rows before `row` of the requests that live there, ended lately, or are spoken of later."""
    began, ended = _lives(trace, row)
    recent, _ = rows_of(trace, step - LOOKBACK, None)
    wanted = {name: start for name, start in began.items() if ended.get(name, -1) < start}
    for name in (*named, *(name for name, end in ended.items() if end >= recent)):
        if name in began:
            wanted.setdefault(name, began[name])
    for name, start in wanted.items():
        # An id that began anew lately: its former incarnation may still hold something.
        if recent <= start and ended.get(name, -1) >= 0:
            wanted[name] = recent
    first = min(wanted.values(), default=row)
    at = first
    for event in trace.events(first, row):
        request = event.request
        if request is None:
            if at >= recent:
                yield event
        elif (since := wanted.get(request)) is not None and at >= since:
            yield event
        at += 1


def _lives(trace: Trace, row: int) -> tuple[dict[RequestId, int], dict[RequestId, int]]:
    """By request: the row of its last arrival, and that of its last end, before `row`."""
    began: dict[RequestId, int] = {}
    ended: dict[RequestId, int] = {}
    for place, event, names in _requests(trace, 0, row, _BEGINS | _ENDS):
        for at, kind, name in zip(place, event, names, strict=True):
            (began if kind in _BEGINS else ended)[name] = at
    return began, ended


def _named(trace: Trace, first: int, last: int) -> set[RequestId]:
    """The requests of which the rows [first, last) speak."""
    found: set[RequestId] = set()
    for _, batch in trace.raw(first, last, ["request"], _BATCH):
        if batch.num_columns:
            found.update(batch.column(0).unique().to_pylist())
    found.discard(None)
    return found


def _requests(
    trace: Trace, first: int, last: int, kinds: frozenset[str]
) -> Iterator[tuple[Sequence[int], Sequence[str], Sequence[Any]]]:
    """Rows, kinds and ids of the rows of these kinds, batch by batch."""
    at = first
    for _, batch in trace.raw(first, last, ["event", "request"], _BATCH):
        event = batch.column(0)
        if not hasattr(event, "dictionary"):
            event = event.dictionary_encode()
        words = event.dictionary.to_pylist()
        hit = np.array([word in kinds for word in words] or [False])[event.indices.fill_null(0)]
        places = np.flatnonzero(hit)
        if places.size and batch.num_columns > 1:
            names = batch.column(1).take(places).to_pylist()
            codes = np.asarray(event.indices.fill_null(0))[places]
            yield (places + at).tolist(), [words[code] for code in codes.tolist()], names
        at += batch.num_rows
