"""Azure LLM inference traces of 2023, 2024 and 2025: CSV, one row an invocation.

| column | meaning | record |
| --- | --- | --- |
| `TIMESTAMP` | when it was invoked, UTC, up to nine fraction digits | `arrival_ns` since the first row |
| `ContextTokens` | tokens of the prompt | `prompt_tokens` |
| `GeneratedTokens` | tokens generated | `output_tokens` |
| `NumImages` | images in the prompt (2025, multimodal) | not carried |

The request id is the number of the row, from 0. A row without tokens, or with a field that is no
number, is dropped and counted. A time before that of the row above is refused: the file was not
left in the order of arrival, and ties would have no order. inference-perf replays the same files.

Source: https://github.com/Azure/AzurePublicDataset (CC BY 4.0); Patel et al., "Splitwise: Efficient
Generative LLM Inference Using Phase Splitting", ISCA 2024.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.table import Row, columns_of, table
from batchspec.traces.importers.times import date, iso

NAME: Final = "azure"
SAYS: Final = "Azure LLM inference traces of 2023, 2024 and 2025 (CSV)"
COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_COUNT: Final = re.compile(r"[0-9]{1,9}")


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first line names exactly these columns, with or without `NumImages`."""
    names = columns_of(head)
    return names == COLUMNS or names == (COLUMNS[0], "NumImages", *COLUMNS[1:])


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="azure-llm-inference", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a file that is not of this format."""
    origin: int | None = None

    def made(index: int, row: Row) -> Record:
        nonlocal origin
        time, prompt, output, images = row
        if not (_COUNT.fullmatch(prompt) and _COUNT.fullmatch(output)):
            raise Unusable("a token count that is not a number")
        prompt_tokens, output_tokens = int(prompt), int(output)
        if not prompt_tokens or not output_tokens:
            raise Unusable("no tokens")
        now = date(time, utc=True)
        if now is None:
            raise Unusable("a timestamp that is not a time")
        if origin is None:
            origin, log.started_at = now, iso(now)
        if images.strip("0"):
            log.note("requests with images: the table has no column for their number")
        return Record(index, now - origin, prompt_tokens, output_tokens)

    return table(path, COLUMNS, made, log, also=("NumImages",), ordered="TIMESTAMP")
