"""A workload by its path: a table of requests, or records that an importer knows, reshaped as asked."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.importers import IMPORTERS, ImportLog, gives_records
from batchspec.traces.reader import open_any
from batchspec.traces.reshape import Reshape
from batchspec.traces.textfile import head
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of arrival. `hash_block`: tokens behind one of their prefix hashes."""

    path: str
    records: list[Record]
    hash_block: int | None

    @property
    def rate(self) -> float | None:
        """Requests a second that arrive; None where all arrive at once."""
        span = self.records[-1].arrival_ns - self.records[0].arrival_ns if self.records else 0
        return (len(self.records) - 1) * 1e9 / span if span > 0 else None


def load_workload(path: str | Path, reshape: Reshape | None = None) -> Workload:
    """The requests of a workload. Raises `TraceError` for a trace of a run, which is none."""
    found = workload_or_trace(path, reshape)
    if isinstance(found, Trace):
        raise TraceError(
            f"{found.path}: a trace of a run, not a workload; simulate needs a table of requests"
        )
    return found


def workload_or_trace(path: str | Path, reshape: Reshape | None = None) -> Workload | Trace:
    """What stands under that path: a workload, all of it in memory, or the trace of a run, not read yet."""
    path = Path(path)
    reshape = reshape or Reshape()
    records, hash_block = None, None
    if path.is_file():
        start = head(path)
        for importer in IMPORTERS.values():
            if importer.detect(start, path) and gives_records(importer):
                records = importer.read(path, ImportLog())
                hash_block = importer.header(path).hash_block
                break
    if records is None:
        table = open_any(path)
        if not isinstance(table, RecordTable):
            return table
        records = table.workload()
        hash_block = table.header.hash_block if table.header is not None else None
    kept: Iterator[Record] = reshape.apply(records)
    return Workload(str(path), list(kept), reshape.hash_block(hash_block))
