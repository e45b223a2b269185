"""The reader: opens a trace, or whatever else a user may point at, and streams its rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchspec.spec.errors import TraceError
from batchspec.spec.events import COLUMNS, Event
from batchspec.traces.importers import IMPORTERS, gives_events
from batchspec.traces.normal import Place, check_events, no_nulls, normal
from batchspec.traces.parts import MAGIC, Parts, find_parts, inspect
from batchspec.traces.rows import tuples
from batchspec.traces.scenario import MAX_BYTES, parse_scenario
from batchspec.traces.schema import IdType
from batchspec.traces.text import one_line
from batchspec.traces.textfile import head
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable, read_records


def open_trace(path: str | Path) -> Trace:
    """Open a Parquet trace: one file, or a folder of `part-*.parquet`. Only footers are read here.

    Raises `TraceError`, one line that names the file and the column, row or part at fault.
    """
    parts = Parts(path, COLUMNS)
    for column in ("step", "event"):
        if column not in parts.columns:
            other = "; this is a table of requests" if "arrival_ns" in parts.parts[0].schema.names else ""
            raise TraceError(f"{parts.path}: column {column}: missing; a trace needs it in every row{other}")
    return Trace(parts.path, parts.header, _Files(parts))


def open_any(path: str | Path) -> Trace | RecordTable:
    """Open what a user points at, known by its content: a trace, a request table, or a scenario.

    Raises `TraceError` for anything else; a file that an importer knows is named as such.
    """
    path = Path(path)
    first = find_parts(path)[0]
    start = head(first)
    if path.is_dir() or path.suffix == ".parquet" or start.startswith(MAGIC):
        names = inspect(first, ()).schema.names
        return read_records(path) if "arrival_ns" in names and "event" not in names else open_trace(path)
    name = one_line(path)
    if not start:
        raise TraceError(f"{name}: empty file; a trace is a Parquet file with at least one row")
    line = start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]
    if b"arrival_ns" in line.replace(b'"', b"").strip().split(b","):
        return read_records(path)
    for importer in IMPORTERS.values():
        if importer.detect(start, path):
            kind = "trace" if gives_events(importer) else "workload"
            raise TraceError(f"{name}: {importer.SAYS}: turn it into a {kind} first, with `batchspec import`")
    return parse_scenario(_text(path, name), name)


def _text(path: Path, name: str) -> str:
    data = head(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TraceError(f"{name}: not a Parquet file, and too long for a scenario")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise TraceError(f"{name}: neither a Parquet file nor text") from None


class _Files:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.num_rows = parts.num_rows
        self.id_type: IdType | None = parts.id_type

    def columns(self) -> frozenset[str]:
        return self._parts.present()

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

    def raw(
        self, first: int, last: int | None, columns: Sequence[str] | None, rows: int
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        wanted = self._parts.columns if columns is None else [c for c in columns if c in self._parts.columns]
        return self._parts.batches(wanted, first, last, rows)

    def _columns(self, first: int, last: int | None) -> Iterator[tuple[Place, dict[str, pa.Array], int]]:
        for place, batch in self._parts.batches(self._parts.columns, first, last):
            columns = {
                name: normal(name, values, self.id_type, place)
                for name, values in zip(batch.schema.names, batch.columns, strict=True)
            }
            check_events(columns, place)
            yield place, columns, batch.num_rows
