"""Mooncake traces: JSON lines, one a request, with an id for each block of 512 tokens of the prompt.

| field | meaning | record |
| --- | --- | --- |
| `timestamp` | milliseconds from the start | `arrival_ns` |
| `input_length` | tokens of the prompt | `prompt_tokens` |
| `output_length` | tokens generated | `output_tokens` |
| `hash_ids` | one id a block, the last one partial; equal leading ids are a shared prefix | `prefix_hashes` |

The request id is the number of the row, from 0. Arrivals are bunched: many rows share a time, and the
order of the file is the only order among them. A time before that of the row above is refused. Ids of
another number than the prompt has blocks are left out, and counted.

Source: https://github.com/kvcache-ai/Mooncake (Apache-2.0), `FAST25-release/traces/`; Qin et al.,
"Mooncake", FAST 2025.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import only, prefix
from batchspec.traces.importers.fields import missing, some
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "mooncake"
SAYS: Final = "Mooncake traces with prefix hashes (JSON lines)"
BLOCK: Final = 512
FIELDS: Final = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row has exactly the four fields."""
    return keys_of(head) == FIELDS


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="mooncake", clock="wall", complete=True, hash_block=BLOCK)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a row that arrives before the one above."""

    def made(index: int, row: dict[str, Any]) -> Record:
        hashes = row.get("hash_ids")
        missing(hashes, "hash_ids")
        prompt = some(row.get("input_length"), "input_length")
        arrival = nanoseconds(row.get("timestamp"), "ms", "timestamp")
        output = some(row.get("output_length"), "output_length")
        # All four are there, so a fifth would be unknown.
        if len(row) > len(FIELDS):
            only(row, FIELDS, log)
        return Record(index, arrival, prompt, output, prefix_hashes=prefix(hashes, prompt, BLOCK, log))

    return json_lines(path, made, log, ordered="timestamp")
