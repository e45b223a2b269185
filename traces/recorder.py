"""The recorder: writes events into a trace as they happen, part by part."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from batchspec.spec.errors import TraceError
from batchspec.spec.events import COLUMNS, Event, RequestId
from batchspec.traces.header import Header
from batchspec.traces.normal import Place, check_events, normal
from batchspec.traces.rows import batch_of, id_type_of
from batchspec.traces.schema import TRACE_SCHEMA, IdType, with_ids
from batchspec.traces.text import one_line
from batchspec.traces.writer import Writer, cannot_write


class Recorder:
    """Writes a trace: one file where `path` ends in `.parquet`, else a folder of parts.

    A part carries a temporary name until it is closed, so a reader never sees half a file. Only the
    last part says `complete`, and only if `close` was told so. Events are checked as a reader would,
    a row group at a time, so what was written can be read. Raises `TraceError` for an event that no
    reader would take, for a folder that already holds parts, and for a disk that takes no more.
    """

    def __init__(
        self,
        path: str | Path,
        header: Header | None = None,
        *,
        rows_per_part: int = 1_000_000,
        rows_per_group: int = 65_536,
        id_type: IdType | None = None,
        overwrite: bool = False,
    ) -> None:
        """Open the trace for writing.

        `id_type` None takes the type of the first id; a first row group without any id means strings.
        """
        self.path = Path(path)
        self.header = header or Header()
        self.rows = 0
        """Events written so far."""
        self._shown = one_line(path)
        self._single = self.path.suffix == ".parquet"
        self._rows_per_part = 2**63 if self._single else max(1, rows_per_part)
        self._rows_per_group = max(1, min(rows_per_group, self._rows_per_part))
        self._id_type = id_type
        self._pending: list[Event] = []
        self._part: Writer | None = None
        self._parts = 0
        self._closed = False
        self._prepare(overwrite)

    def __enter__(self) -> "Recorder":
        """The recorder itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; a trace left by an exception is not complete."""
        self.close(complete=kind is None)

    def write(self, event: Event) -> None:
        """Append one event."""
        self._pending.append(event)
        if len(self._pending) >= self._rows_per_group:
            self.flush()

    def write_row(self, step: int, kind: str, request: RequestId | None = None, **columns: Any) -> None:
        """Append one event given by its columns (`pass_` for the column `pass`)."""
        self.write(Event(step, kind, request, **columns))

    def write_all(self, events: Iterable[Event]) -> None:
        """Append many events."""
        for event in events:
            self.write(event)

    def flush(self) -> None:
        """Hand what is pending to the open part as a row group."""
        if self._closed:
            raise TraceError(f"{self._shown}: the recorder is closed; nothing can be added")
        pending, self._pending = self._pending, []
        while pending:
            if self._part is not None and self._part.rows >= self._rows_per_part:
                self._finish(complete=False)
            room = self._rows_per_part - (self._part.rows if self._part else 0)
            self._append(pending[:room])
            pending = pending[room:]

    def close(self, complete: bool = True) -> None:
        """Write what is pending and close the last part. A second call does nothing."""
        if self._closed:
            return
        try:
            self.flush()
            if self._part is None:
                self._begin()
            self._finish(complete)
        except TraceError:
            # What was written before the fault stays readable, as a trace that was cut.
            self._finish(complete=False)
            raise
        finally:
            self._closed = True

    def _prepare(self, overwrite: bool) -> None:
        try:
            if self._single:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                return
            self.path.mkdir(parents=True, exist_ok=True)
            old = sorted(self.path.glob("part-*.parquet"))
            if old and not overwrite:
                raise TraceError(
                    f"{self._shown}: this folder already holds parts of a trace; choose another folder"
                )
            for part in old:
                part.unlink()
        except OSError as error:
            raise cannot_write(self.path, error) from None

    def _append(self, events: list[Event]) -> None:
        if self._id_type is None:
            self._id_type = id_type_of(events) or str
        batch = batch_of(events, with_ids(TRACE_SCHEMA, self._id_type), self.rows, self._shown)
        place = Place(self._shown, self.rows)
        names = [name for name in COLUMNS if batch.column(name).null_count < len(events)]
        columns = {name: normal(name, batch.column(name), self._id_type, place) for name in names}
        check_events({**{name: batch.column(name) for name in ("step", "event")}, **columns}, place)
        part = self._part or self._begin()
        part.append(batch)
        self.rows += len(events)

    def _begin(self) -> Writer:
        path = self.path if self._single else self.path / f"part-{self._parts:05}.parquet"
        self._part = Writer(path, with_ids(TRACE_SCHEMA, self._id_type or str))
        self._parts += 1
        return self._part

    def _finish(self, complete: bool) -> None:
        if self._part is not None:
            part, self._part = self._part, None
            part.close(replace(self.header, complete=complete))
