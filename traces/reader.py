"""The reader: opens a trace, or whatever else a user may point at, and streams its rows."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchspec.spec.errors import TraceError
from batchspec.spec.events import COLUMNS, Event
from batchspec.traces.normal import Place, check_events, no_nulls, normal
from batchspec.traces.parts import Parts
from batchspec.traces.rows import tuples
from batchspec.traces.schema import IdType
from batchspec.traces.trace import Trace


def open_trace(path: str | Path) -> Trace:
    """Open a Parquet trace: one file, or a folder of `part-*.parquet`. Only footers are read here.

    Raises `TraceError`, one line that names the file and the column, row or part at fault.
    """
    parts = Parts(path, COLUMNS)
    for column in ("step", "event"):
        if column not in parts.columns:
            raise TraceError(f"{parts.path}: column {column}: missing; a trace needs it in every row")
    return Trace(parts.path, parts.header, _Files(parts))


class _Files:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.num_rows = parts.num_rows
        self.id_type: IdType | None = parts.id_type

    def columns(self) -> frozenset[str]:
        return frozenset(column for column in self._parts.columns if self._parts.present(column))

    def kinds(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for place, batch in self._parts.batches(["event"]):
            event = normal("event", batch.column(0), None, place)
            no_nulls("event", event, place)
            counts = np.bincount(event.indices.to_numpy(), minlength=len(event.dictionary)).tolist()
            total.update(dict(zip(event.dictionary.to_pylist(), counts, strict=True)))
        return {kind: count for kind, count in total.items() if count}

    def events(self, first: int, last: int | None) -> Iterator[Event]:
        for _, columns, rows in self._columns(first, last):
            yield from tuples(Event, COLUMNS, columns, rows)

    def batches(self, first: int, last: int | None) -> Iterator[pa.RecordBatch]:
        for _, columns, _ in self._columns(first, last):
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _columns(self, first: int, last: int | None) -> Iterator[tuple[Place, dict[str, pa.Array], int]]:
        for place, batch in self._parts.batches(self._parts.columns, first, last):
            columns = {
                name: normal(name, values, self.id_type, place)
                for name, values in zip(batch.schema.names, batch.columns, strict=True)
            }
            check_events(columns, place)
            yield place, columns, batch.num_rows
