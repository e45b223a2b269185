"""Vidur's processed traces: CSV, lengths of prompts and outputs, with arrivals in some of the files.

| column | meaning | record |
| --- | --- | --- |
| `arrived_at` | seconds since the first row | `arrival_ns`; 0 for all in a file without it, which is noted |
| `num_prefill_tokens` | tokens of the prompt | `prompt_tokens` |
| `num_decode_tokens` | tokens generated | `output_tokens` |
| `num_total_tokens` | their sum | checked |
| `pd_ratio` | their ratio | not carried |

The request id is the number of the row, from 0. `--strict` refuses a file without arrivals.

Source: https://github.com/microsoft/vidur (MIT), `data/processed_traces/`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, some
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.table import Row, columns_of, table
from batchspec.traces.importers.times import nanoseconds
from batchspec.traces.textfile import head as head_of

NAME: Final = "vidur"
SAYS: Final = "Vidur processed traces (CSV)"
LENGTHS: Final = ("num_prefill_tokens", "num_decode_tokens")
ALSO: Final = ("num_total_tokens", "pd_ratio")


def detect(head: bytes, path: Path) -> bool:
    """True for a table with Vidur's two lengths."""
    return set(LENGTHS) <= set(columns_of(head))


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="vidur", clock="virtual", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a file that is not of this format."""
    timed = "arrived_at" in columns_of(head_of(path))

    def made(index: int, row: Row) -> Record:
        arrived, prompt, output, total, _ = row
        lengths = some(prompt, "num_prefill_tokens"), some(output, "num_decode_tokens")
        if total and count(total, "num_total_tokens") != sum(lengths):
            raise Unusable("num_total_tokens is not the sum of the others")
        return Record(index, nanoseconds(arrived, "s", "arrived_at"), *lengths)

    def untimed(index: int, row: Row) -> Record:
        if not index:
            log.lose("no arrivals in this file: all requests arrive at 0")
        return made(index, ["0", *row])

    if timed:
        return table(path, ("arrived_at", *LENGTHS), made, log, also=ALSO, ordered="arrived_at")
    return table(path, LENGTHS, untimed, log, also=ALSO)
