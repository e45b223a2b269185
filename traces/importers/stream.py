"""The stream of an importer: rows in, records out, what is unusable counted, the order of arrival kept."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchspec.spec.errors import TraceError
from batchspec.spec.records import RECORD_COLUMNS, Record
from batchspec.traces.importers.fields import Unusable
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.times import iso
from batchspec.traces.normal import Place, normal
from batchspec.traces.rows import batch_of, tuples
from batchspec.traces.schema import WORKLOAD_SCHEMA, IdType, with_ids
from batchspec.traces.text import one_line
from batchspec.traces.textfile import lines

MOST_SORTED: Final = 8_000_000
"""Most requests that are put in order; they are held as columns, some hundred bytes each."""

UNSERVED: Final = frozenset({"rejected", "error"})
"""What `status` says of a request that was refused, or that failed on the way. One that ended as it
should is `stop` or `length`, one whose client went away `abort`; null where the source does not tell."""

_CHUNK: Final = 8_192
_TIMES: Final = ("arrival_ns", "admitted_ns", "first_token_ns", "finish_ns")

T = TypeVar("T")
Make = Callable[[int, T], Record | None]
"""Makes a record of the row with this index; None for a row that is about something else."""


def kept(
    rows: Iterable[tuple[int, T]], make: Make[T], log: ImportLog, path: Path, ordered: str | None = None
) -> Iterator[Record]:
    """The records of the rows that are usable. `rows` gives line numbers; the index counts rows from 0.

    With `ordered`, the name of the column of arrivals, a row that arrives before the one above is
    refused: such a file was not left in the order of arrival, and ties would have no order. Raises
    `TraceError` also for a file of which nothing is kept.
    """
    log.place = one_line(path)
    before: int | None = None
    for index, (log.line, row) in enumerate(rows):
        try:
            record = make(index, row)
        except Unusable as problem:
            log.drop(str(problem))
            continue
        if record is None:
            continue
        if ordered is not None:
            if before is not None and record.arrival_ns < before:
                raise TraceError(f"{log.where}: {ordered} is before that of the row above; sort the file")
            before = record.arrival_ns
        log.kept += 1
        yield record
    log.line = 0
    if not log.kept:
        raise log.nothing()


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of each line that is not blank, without the space around it."""
    for number, line in lines(path):
        if text := line.strip():
            yield number, text


def by_arrival(records: Iterator[Record], log: ImportLog, *, since_first: bool = False) -> Iterator[Record]:
    """Records in the order of arrival, for logs that are written as requests end. Ties keep their order.

    With `since_first` their times are those of a wall clock, and are counted from the first arrival.
    """
    first = list(islice(records, 1))
    if not first:
        return
    id_type: IdType = int if isinstance(first[0].request, int) else str
    schema = with_ids(WORKLOAD_SCHEMA, id_type)
    batches = []
    rows = 0
    while chunk := first + list(islice(records, _CHUNK - len(first))):
        first = []
        batches.append(batch_of(chunk, schema, rows, log.place))
        rows += len(chunk)
        if rows > MOST_SORTED:
            raise TraceError(f"{log.place}: more than {MOST_SORTED} requests to put in order; split the file")
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    del batches, chunk
    arrivals = table.column("arrival_ns").to_numpy()
    order = np.argsort(arrivals, kind="stable")
    ties = int(np.count_nonzero(np.diff(arrivals[order]) == 0))
    log.line = 0
    if ties:
        log.note("requests that share their arrival with another; these keep the order of the file", ties)
    origin = int(arrivals[order[0]]) if since_first else 0
    if since_first:
        log.started_at = iso(origin)
    for at in range(0, rows, _CHUNK):
        part = table.take(pa.array(order[at : at + _CHUNK]))
        columns = {}
        for name in RECORD_COLUMNS:
            values = part.column(name).combine_chunks()
            if origin and name in _TIMES:
                values = pc.subtract(values, origin)
            columns[name] = normal(name, values, id_type, Place(log.place, at))
        yield from tuples(Record, RECORD_COLUMNS, columns, part.num_rows)


def runnable(records: Iterator[Record], log: ImportLog) -> Iterator[Record]:
    """Only the records that an engine can run again: not refused, not failed, both lengths known."""
    for record in records:
        if record.status in UNSERVED:
            log.omit("refused or failed requests, which cannot be run again")
        elif not record.prompt_tokens or not record.output_tokens:
            log.omit("requests without tokens of prompt or output, which cannot be run again")
        else:
            yield record
    log.line = 0
    if not log.kept:
        raise log.nothing()
