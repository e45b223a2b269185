"""BurstGPT: CSV, one row a call of a university's GPT service, in two layouts.

| column | meaning | record |
| --- | --- | --- |
| `Timestamp` | seconds from midnight of the first day | `arrival_ns`, as it is |
| `Session ID` | conversation (second layout; empty for API calls) | `session` |
| `Elapsed time` | seconds from submission to the end of the answer (second layout) | `finish_ns` |
| `Model` | ChatGPT or GPT-4 | not carried |
| `Request tokens` | tokens of the prompt | `prompt_tokens` |
| `Response tokens` | tokens of the answer; 0 for a call that failed | `output_tokens` |
| `Total tokens` | their sum | checked |
| `Log Type` | conversation or API | not carried |

The request id is the number of the row, from 0. Calls that failed are dropped and counted. A time
before that of the row above is refused; ties keep the order of the file.

Source: https://github.com/HPMLL/BurstGPT (CC BY 4.0); Wang et al., "BurstGPT", KDD 2025.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, maybe_word
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.table import Row, columns_of, table
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "burstgpt"
SAYS: Final = "BurstGPT traces, both layouts (CSV)"
COLUMNS: Final = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
ALSO: Final = ("Session ID", "Elapsed time")


def detect(head: bytes, path: Path) -> bool:
    """True for a table with all six columns of the first layout."""
    return set(COLUMNS) <= set(columns_of(head))


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="burstgpt", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a file that is not of this format."""

    def made(index: int, row: Row) -> Record:
        time, _, asked, answered, total, _, session, elapsed = row
        prompt, output = count(asked, "Request tokens"), count(answered, "Response tokens")
        if count(total, "Total tokens") != prompt + output:
            raise Unusable("Total tokens is not the sum of the others")
        if not output:
            raise Unusable("a call that failed: no response tokens")
        if not prompt:
            raise Unusable("Request tokens is zero")
        arrival = nanoseconds(time, "s", "Timestamp")
        finish = arrival + nanoseconds(elapsed, "s", "Elapsed time") if elapsed else None
        return Record(
            index,
            arrival,
            prompt,
            output,
            session=maybe_word(session, "Session ID"),
            finish_ns=finish,
        )

    return table(path, COLUMNS, made, log, also=ALSO, ordered="Timestamp")
