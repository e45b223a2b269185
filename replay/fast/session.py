"""A session: one trace, judged by the kernel where it can and by the readable checker where it must.

The kernel runs over the batches that a second thread reads. Where it is in doubt, the books go back to the
last boundary between two steps, a `Walk` takes them over, and looks at the rows from there one by one until
it stands between two steps again with nothing on its mind; then the kernel goes on. All findings are the
walk's, and so is the report.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from batchspec.replay.checker import Progress, Waived, Walk
from batchspec.replay.fast import books as shelf
from batchspec.replay.fast import layout
from batchspec.replay.fast.domain import numbers, outside
from batchspec.replay.fast.feed import Ahead, Ready, Refused, make_ready
from batchspec.replay.fast.kernel import Books, Rows, judge
from batchspec.replay.fast.names import Names
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import COLUMNS, Event, RequestId
from batchspec.spec.model import End
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report
from batchspec.traces.normal import Place, check_events, normal
from batchspec.traces.rows import tuples
from batchspec.traces.schema import IdType
from batchspec.traces.trace import Trace

BATCH_ROWS: Final = 1 << 16
GUESS_ABOVE: Final = 1 << 18
"""Longer traces are taken to have the columns and kinds of their first batch, until a row says otherwise:
a pass of its own to learn them would cost as much as the judging."""
_CHUNK: Final = 256
_KEPT_BATCHES: Final = 16
_LONGEST_STRETCH: Final = 1 << 17
_CONSUMER: Final = frozenset({"finish", "abort", "reject"})


@dataclass
class Account:
    """How the work was shared: rows judged by the readable checker, stretches, and why if all of it was."""

    why: str | None = None
    rows: int = 0
    walked: int = 0
    stretches: int = 0
    restarts: int = 0
    doubts: list[int] = field(default_factory=list)


class _Surprised(Exception):
    """The trace is not of the shape that it was taken to have."""


class _Held(NamedTuple):
    """A batch that may be gone through again: the books as they were at its row `first`."""

    books: Books
    ready: Ready
    rows: Rows
    first: int


class Session:
    """One check of one trace under one profile. Options as of `checker.check`."""

    def __init__(
        self,
        trace: Trace,
        profile: Profile | None = None,
        *,
        findings: int = 1,
        rules: Sequence[str] | None = None,
        waived: Waived | None = None,
        progress: Progress | None = None,
        reset: Callable[[], None] = lambda: None,
        batch_rows: int = BATCH_ROWS,
        guess_above: int = GUESS_ABOVE,
    ) -> None:
        """Nothing is read yet. `reset` is called where the trace is begun anew: `waived` has to forget."""
        self.trace = trace
        self.profile = profile or Profile()
        self.account = Account()
        self._findings = findings
        self._rules = rules
        self._waived = waived
        self._progress = progress
        self._reset = reset
        self._batch_rows = batch_rows
        self._guess_above = guess_above

    def report(self) -> Report | None:
        """The report; None where the readable checker must judge the whole trace (`account.why`).

        Raises `TraceError` where a file cannot be read at all.
        """
        columns, kinds = self._shape()
        try:
            return self._run(columns, kinds)
        except _Surprised:
            self.account.restarts += 1
            self._reset()
        except Refused as error:
            self.account.why = str(error)
            return None
        try:
            return self._run(self.trace.columns, frozenset(self.trace.kinds))
        except (_Surprised, Refused) as error:
            self.account.why = str(error) or "a shape that changes"
            return None

    def _shape(self) -> tuple[frozenset[str], frozenset[str]]:
        trace = self.trace
        if trace.num_rows <= self._guess_above:
            return trace.columns, frozenset(trace.kinds)
        place, batch = next(trace.raw(0, None, rows=self._batch_rows))
        ready = make_ready(place, batch, trace.id_type, frozenset())
        event = normal("event", batch.column("event"), None, place)
        return ready.filled, frozenset(event.unique().to_pylist()) | {"arrive", "schedule", "step"}

    def _walk(self, columns: frozenset[str], kinds: frozenset[str]) -> Walk:
        said = self.trace.header is not None and self.trace.header.outputs == "recorded"
        return Walk(
            self.profile,
            columns,
            kinds | ({"output"} if said else set()),
            header=self.trace.header,
            findings=self._findings,
            rules=self._rules,
            waived=self._waived,
        )

    def _run(self, columns: frozenset[str], kinds: frozenset[str]) -> Report | None:
        walk = self._walk(columns, kinds)
        self.account.why = outside(walk)
        if self.account.why is not None:
            return None
        course = _Course(self, walk, columns)
        ahead = Ahead(self._batches())
        try:
            for ready in ahead:
                course.take(ready)
                if self._progress is not None:
                    self._progress(ready.place.row + ready.batch.num_rows, self.trace.num_rows)
        finally:
            ahead.close()
        course.finish()
        if course.seen != kinds and not self._as_expected(walk, course.seen):
            raise _Surprised("other kinds of events than at first")
        return walk.report(self.trace.path, self.trace.complete)

    def _batches(self) -> Iterator[Ready]:
        for place, batch in self.trace.raw(0, None, rows=self._batch_rows):
            try:
                yield make_ready(place, batch, self.trace.id_type, frozenset(layout.KINDS))
            except pa.ArrowException as error:
                raise Refused(str(error)) from None

    def _as_expected(self, walk: Walk, kinds: frozenset[str]) -> bool:
        """Whether the kinds that came would have had the same rules judged."""
        return all(
            RULES[rule].missing(self.profile, walk.columns, kinds) == missing
            for rule, missing in walk.missing.items()
        )


class _Course:
    """One run over the batches of a trace, with the books in one of two hands."""

    def __init__(self, session: Session, walk: Walk, columns: frozenset[str]) -> None:
        self.seen: frozenset[str] = frozenset()
        self._session = session
        self._account = session.account
        self._walk = walk
        self._columns = columns
        self._names = Names(session.trace.id_type is str)
        self._claims, self._judged = numbers(walk)
        self._books: Books | None = shelf.blank()
        self._held: deque[_Held] = deque()
        self._work: deque[tuple[Ready, Rows, int]] = deque()
        self._least = 0
        self._until = 0
        self._since = 0

    def take(self, ready: Ready) -> None:
        """Go through one batch."""
        if not ready.filled <= self._columns:
            raise _Surprised(f"a column {sorted(ready.filled - self._columns)[0]}")
        self._account.rows += ready.batch.num_rows
        self._work.append((ready, self._mapped(ready), 0))
        self._go()
        if self._books is not None and self._names.texts:
            self._names.forget(self._spoken_of(), ready.names.get("request", ()))

    def _go(self) -> None:
        while self._work:
            ready, rows, first = self._work.popleft()
            if self._books is None:
                at = self._look(ready, first)
                if at < ready.batch.num_rows:
                    self._work.appendleft((ready, rows, at))
            else:
                self._speed(self._books, ready, rows, first)

    def _mapped(self, ready: Ready) -> Rows:
        if not ready.names:
            return ready.rows
        wide = list(ready.rows.wide)
        for name, words in ready.names.items():
            place = layout.WIDE.index(name)
            wide[place] = self._names.mapped(words, wide[place])
        return ready.rows._replace(wide=tuple(wide))

    # -- the kernel --------------------------------------------------------------------------------

    def _speed(self, books: Books, ready: Ready, rows: Rows, first: int) -> None:
        self._held.append(_Held(shelf.copied(books), ready, rows, first))
        books, status, at = self._judge(books, ready, rows, first, ready.batch.num_rows)
        self._books = books
        if status == layout.DONE:
            self._drop(int(books.S[layout.BOUNDARY]))
        elif status == layout.SURPRISE:
            raise _Surprised("a kind of event that was not there at first")
        else:
            self._account.doubts.append(ready.place.row + at)
            self._hand_over(int(books.S[layout.BOUNDARY]), ready.place.row + at)

    def _judge(self, books: Books, ready: Ready, rows: Rows, first: int, last: int) -> tuple[Books, int, int]:
        at = first
        while True:
            status = judge(books, self._claims, self._judged, rows, at, last, ready.place.row)
            at = int(books.S[layout.STOPPED])
            if status != layout.FULL:
                return books, status, at
            books = shelf.grown(books)

    def _drop(self, boundary: int) -> None:
        """Batches before the one with the last boundary will not be needed any more."""
        while len(self._held) > 1 and self._held[1].ready.place.row + self._held[1].first <= boundary:
            self._held.popleft()
        if len(self._held) > _KEPT_BATCHES:
            raise Refused("no step row for too long")

    def _hand_over(self, boundary: int, doubt: int) -> None:
        """Go back to a boundary and give the books to the walk, which looks at least beyond the doubt."""
        self._drop(boundary)
        first = self._held[0]
        at = boundary - first.ready.place.row
        books, status, _ = self._judge(first.books, first.ready, first.rows, first.first, at)
        if status != layout.DONE:
            raise Refused("no way back")
        self._pour(books, boundary)
        self._books = None
        self._account.stretches += 1
        # Where doubts follow each other closely, each stretch is longer than the one before.
        quiet = boundary - self._since > 4 * (self._least + _CHUNK)
        self._least = 0 if quiet else min(2 * self._least + 64, _LONGEST_STRETCH)
        self._until = max(doubt + 1, boundary + self._least)
        again = [(held.ready, held.rows, 0) for held in self._held]
        again[0] = (first.ready, first.rows, at)
        self._work.extendleft(reversed(again))
        self._held.clear()

    def _pour(self, books: Books, row: int) -> None:
        shelf.pour(books, self._walk, self._names.name, row, shelf.Ended(self._finder(row)))
        bits = int(books.S[layout.SEEN])
        self.seen |= {kind for kind, code in layout.KINDS.items() if bits >> code & 1}

    # -- the readable checker ----------------------------------------------------------------------

    def _look(self, ready: Ready, first: int) -> int:
        """Feed rows to the walk. Returns the row of the batch from which on the kernel may go on."""
        at, end = first, ready.batch.num_rows
        while at < end:
            for event in _events(ready, at, min(_CHUNK, end - at), self._session.trace.id_type):
                self._feed(event)
                at += 1
                self._account.walked += 1
                row = ready.place.row + at
                if event.event == "step" and row >= self._until and self._draw(row):
                    return at
        return at

    def _feed(self, event: Event) -> None:
        ended = self._walk.state.ended
        if isinstance(ended, shelf.Ended):
            # An id may be used again after its end: whether it has ended makes no difference to an arrival.
            ended.aside = event.event == "arrive"
        if event.event not in self.seen:
            self.seen |= {event.event}
        self._walk.feed(event)

    def _draw(self, row: int) -> bool:
        capacity = 1024
        while capacity < 4 * len(self._walk.state.live):
            capacity *= 2
        self._books = shelf.draw(self._walk, self._names.put, capacity)
        self._since = row
        return self._books is not None

    def finish(self) -> None:
        """Every batch was gone through: let the walk have the books for good."""
        books = self._books
        if books is None:
            return
        rows = self._session.trace.num_rows
        if books.S[layout.OPEN]:
            self._hand_over(int(books.S[layout.BOUNDARY]), rows)
            self._go()
        else:
            self._pour(books, rows)

    def _spoken_of(self) -> set[int]:
        books = self._books
        if books is None:
            return set()
        keys = {int(books.R[place, layout.ID]) for place in shelf.rows_of(books)}
        keys |= set(books.R[books.L[layout.ENDED_LIST, : books.S[layout.ENDED]], layout.ID].tolist())
        keys |= set(books.slots[books.slots[:, 1] != layout.NIL, 2].tolist())
        keys |= set(books.L[layout.END_ID, : books.S[layout.ENDS]].tolist())
        return keys | set(books.L[layout.EDGE_CAUSE :, : books.S[layout.EDGES]].ravel().tolist())

    def _finder(self, before: int) -> Callable[[RequestId], End | None]:
        trace = self._session.trace

        def find(request: RequestId) -> End | None:
            """The last end of a request before a row, read from the trace once more."""
            found = None
            for place, batch in trace.raw(0, before, ("event", "request"), self._session._batch_rows):
                same = pc.equal(batch.column("request"), request).fill_null(False)
                if not pc.any(same).as_py():
                    continue
                for index in pc.indices_nonzero(same).to_pylist():
                    if batch.column("event")[index].as_py() in _CONSUMER:
                        found = place.row + index
            if found is None:
                return None
            event = next(iter(trace.events(found, found + 1)))
            passed = event.pass_step if event.event == "finish" else event.step
            return End(event.event, event.step, passed, 0, event.block_ids is not None, event.reason)

        return find


def _events(ready: Ready, first: int, rows: int, id_type: IdType | None) -> Iterator[Event]:
    """Some rows of a batch as events. Raises `TraceError` where no event can be made of one."""
    batch = ready.batch.slice(first, rows)
    place = Place(ready.place.file, ready.place.row + first)
    columns = {
        name: normal(name, values, id_type, place)
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
    }
    check_events(columns, place)
    return tuples(Event, COLUMNS, columns, batch.num_rows)
