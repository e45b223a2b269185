"""SplitwiseSim's request traces: CSV, one row a request.

| column | meaning | record |
| --- | --- | --- |
| `request_id` | id | `request` |
| `request_type` | kind of work; 2 is generation, the only one that exists | checked |
| `application_id` | which of the simulated applications | not carried |
| `arrival_timestamp` | seconds | `arrival_ns` |
| `batch_size` | 1: a row is one request | checked |
| `prompt_size` | tokens of the prompt | `prompt_tokens` |
| `token_size` | tokens generated | `output_tokens` |

A time before that of the row above is refused; ties keep the order of the file.

Source: https://github.com/Mutinifni/splitwise-sim (MIT), `traces/`, `request.py`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, some, word
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.table import Row, columns_of, table
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "splitwise-sim"
SAYS: Final = "SplitwiseSim request traces (CSV)"
COLUMNS: Final = (
    "request_id",
    "request_type",
    "application_id",
    "arrival_timestamp",
    "batch_size",
    "prompt_size",
    "token_size",
)


def detect(head: bytes, path: Path) -> bool:
    """True for a table with all seven columns."""
    return set(COLUMNS) <= set(columns_of(head))


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="splitwise-sim", clock="virtual", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a file that is not of this format."""

    def made(index: int, row: Row) -> Record:
        identity, kind, _, time, batch, prompt, output = row
        if count(kind, "request_type") != 2:
            raise Unusable("request_type is not that of generation")
        if count(batch, "batch_size") != 1:
            raise Unusable("batch_size is not one")
        arrival = nanoseconds(time, "s", "arrival_timestamp")
        lengths = some(prompt, "prompt_size"), some(output, "token_size")
        return Record(word(identity, "request_id"), arrival, *lengths)

    return table(path, COLUMNS, made, log, ordered="arrival_timestamp")
