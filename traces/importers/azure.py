"""Azure LLM inference traces of 2023 and 2024: CSV, one row an invocation.

| column | meaning | record |
| --- | --- | --- |
| `TIMESTAMP` | when it was invoked, UTC, up to nine fraction digits | `arrival_ns` since the first row |
| `ContextTokens` | tokens of the prompt | `prompt_tokens` |
| `GeneratedTokens` | tokens generated | `output_tokens` |

The request id is the number of the row, from 0. A row without tokens, or with a field that is no
number, is dropped and counted. A time before that of the row above is refused: the file was not
left in the order of arrival, and ties would have no order.

Source: https://github.com/Azure/AzurePublicDataset (CC BY 4.0); Patel et al., "Splitwise: Efficient
Generative LLM Inference Using Phase Splitting", ISCA 2024.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.text import one_line, shown
from batchspec.traces.textfile import csv_rows

NAME: Final = "azure"
SAYS: Final = "Azure LLM inference traces of 2023 and 2024 (CSV)"
COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:\+00:00|Z)?", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_ZERO: Final = datetime(1970, 1, 1)


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first line names exactly the three columns."""
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].strip()
    return first == ",".join(COLUMNS).encode()


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="azure-llm-inference", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a file that is not of this format."""
    name = one_line(path)
    rows = csv_rows(path)
    if tuple(next(rows, (0, []))[1]) != COLUMNS:
        raise TraceError(f"{name}: line 1: the columns must be {','.join(COLUMNS)}")
    origin = before = None
    for row, (line, fields) in enumerate(rows):
        where = f"{name}: line {line}"
        if len(fields) != len(COLUMNS):
            log.drop(where, f"not {len(COLUMNS)} fields")
            continue
        time, prompt, output = fields
        if not _COUNT.fullmatch(prompt) or not _COUNT.fullmatch(output):
            log.drop(where, "a token count that is not a number")
            continue
        if not int(prompt) or not int(output):
            log.drop(where, "no tokens")
            continue
        now = _nanoseconds(time)
        if now is None:
            log.drop(where, "a timestamp that is not a time")
            continue
        if before is not None and now < before:
            raise TraceError(
                f"{where}: TIMESTAMP {shown(time)} is before that of the row above; sort the file"
            )
        origin, before = now if origin is None else origin, now
        log.kept += 1
        yield Record(row, now - origin, int(prompt), int(output))


def _nanoseconds(text: str) -> int | None:
    """Exact nanoseconds since 1970; a float would lose the seventh digit."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    try:
        whole = datetime.fromisoformat(found[1]) - _ZERO
    except ValueError:
        return None
    return (whole.days * 86_400 + whole.seconds) * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))
