"""The trace: a header and a stream of events, from files or from memory, behind one face."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Protocol

import pyarrow as pa

from batchspec.spec.errors import TraceError
from batchspec.spec.events import COLUMNS, KINDS, Event
from batchspec.traces.header import Header
from batchspec.traces.normal import Place
from batchspec.traces.rows import batch_of, id_type_of
from batchspec.traces.schema import TRACE_SCHEMA, IdType, with_ids
from batchspec.traces.text import nearest, shown

_BATCH_ROWS = 8192


class Source(Protocol):
    """Where the events of a trace come from."""

    num_rows: int
    id_type: IdType | None

    def columns(self) -> frozenset[str]:
        """Columns with at least one value."""

    def kinds(self) -> dict[str, int]:
        """Rows by event kind."""

    def events(self, first: int, last: int | None) -> Iterator[Event]:
        """The rows [first, last) in order."""

    def batches(self, first: int, last: int | None) -> Iterator[pa.RecordBatch]:
        """The same rows as Arrow batches in the read types."""

    def raw(
        self, first: int, last: int | None, columns: Sequence[str] | None, rows: int
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """The same rows in the types of the file, nothing checked, in batches of at most `rows` rows."""


class Trace:
    """What happened: events in order, streamed, with what is known about the whole.

    Nothing is read before it is asked for, and nothing is kept: `events` may be called many times.
    Reading raises `TraceError` at the first row that no event can be made of.
    """

    def __init__(self, path: str, header: Header | None, source: Source) -> None:
        """Use `open_trace` or `Trace.from_events`."""
        self.path = path
        self.header = header
        self._source = source

    @classmethod
    def from_events(
        cls, events: Sequence[Event], header: Header | None = None, path: str = "<memory>"
    ) -> "Trace":
        """A trace of events that are at hand. Raises `TraceError` for an unknown kind of event."""
        return cls(path, header, _Memory(events, path))

    @property
    def num_rows(self) -> int:
        """Events in all."""
        return self._source.num_rows

    @property
    def id_type(self) -> IdType | None:
        """`str` or `int`: what request ids are; None if no row has one."""
        return self._source.id_type

    @property
    def complete(self) -> bool:
        """Did the producer say that nothing follows? Without a header a trace counts as cut."""
        return self.header is not None and self.header.complete

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that exist and are not all null: what the trace says anything about."""
        return self._source.columns()

    @cached_property
    def kinds(self) -> dict[str, int]:
        """Number of rows by event kind, from a pass over the `event` column alone."""
        return self._source.kinds()

    @cached_property
    def outputs_recorded(self) -> bool:
        """Are emitted tokens rows of their own (header, or any `output` row), not derived?"""
        said = self.header is not None and self.header.outputs == "recorded"
        return said or "output" in self.kinds

    def events(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """The events of the rows [first, last), in order; `last` None is the end."""
        return self._source.events(first, last)

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """The same rows as Arrow batches: int64, dictionary<int32, string>, list<int64>.

        A batch has the columns that the file has, known ones only.
        """
        return self._source.batches(first, last)

    def raw(
        self,
        first: int = 0,
        last: int | None = None,
        columns: Sequence[str] | None = None,
        rows: int = _BATCH_ROWS,
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """The same rows as they stand in the file, in whatever types, not looked at yet.

        With the place of each batch for what is to be said of it; `columns` picks some, `rows` is the
        largest number of rows in a batch. For readers that check values themselves.
        """
        return self._source.raw(first, last, columns, rows)


class _Memory:
    def __init__(self, events: Sequence[Event], path: str) -> None:
        self._events = events
        self._path = path
        self.num_rows = len(events)
        self.id_type: IdType | None = id_type_of(events)
        self._kinds = dict(Counter(event.event for event in events))
        for kind in self._kinds:
            if kind not in KINDS:
                raise TraceError(f"{path}: unknown event {shown(kind)}{nearest(str(kind), KINDS)}")

    def columns(self) -> frozenset[str]:
        by_column = zip(COLUMNS, zip(*self._events, strict=True), strict=True) if self._events else ()
        return frozenset(name for name, values in by_column if values.count(None) < self.num_rows)

    def kinds(self) -> dict[str, int]:
        return dict(self._kinds)

    def events(self, first: int, last: int | None) -> Iterator[Event]:
        return islice(self._events, first, last)

    def batches(self, first: int, last: int | None) -> Iterator[pa.RecordBatch]:
        schema = with_ids(TRACE_SCHEMA, self.id_type or str)
        end = self.num_rows if last is None else min(last, self.num_rows)
        for at in range(first, end, _BATCH_ROWS):
            rows = self._events[at : min(at + _BATCH_ROWS, end)]
            yield batch_of(rows, schema, at, self._path)

    def raw(
        self, first: int, last: int | None, columns: Sequence[str] | None, rows: int
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        at = first
        for batch in self.batches(first, last):
            yield Place(self._path, at), batch if columns is None else batch.select(list(columns))
            at += batch.num_rows
