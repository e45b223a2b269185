"""ServeGen's offline traces: JSON lines, one a request of a batch job, without arrivals.

| field | meaning | record |
| --- | --- | --- |
| `request_id` | id | `request` |
| `type` | text or image | not carried |
| `input_length` | tokens of the prompt | `prompt_tokens` |
| `output_length` | tokens generated, in some of the files | `output_tokens` |
| `duration` | milliseconds that it took, in some of the files | not carried: it has no start |
| `hash_ids` | one id for each block of 16 tokens, the last one partial | `prefix_hashes` |
| `img_ids` | images of the prompt | not carried |

The requests of a job are all there when it starts: they arrive at 0, in file order, which is noted. Ids
of another number than the prompt has blocks are left out, and counted.

Source: https://github.com/alibaba/ServeGen (Apache-2.0), `data/offline/`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import only, prefix
from batchspec.traces.importers.fields import maybe_count, some, word
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog

NAME: Final = "servegen-offline"
SAYS: Final = "ServeGen's traces of batch jobs (JSON lines)"
BLOCK: Final = 16
FIELDS: Final = frozenset(
    {"request_id", "type", "input_length", "output_length", "duration", "hash_ids", "img_ids"}
)


def detect(head: bytes, path: Path) -> bool:
    """True for rows with an id, a type and a length, and no other fields than these."""
    names = keys_of(head)
    return {"request_id", "type", "input_length"} <= names <= FIELDS


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="servegen", clock="virtual", complete=True, hash_block=BLOCK)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order."""

    def made(index: int, row: dict[str, Any]) -> Record:
        only(row, FIELDS, log)
        prompt = some(row.get("input_length"), "input_length")
        record = Record(
            word(row.get("request_id"), "request_id"),
            0,
            prompt,
            maybe_count(row.get("output_length"), "output_length"),
            prefix_hashes=prefix(row.get("hash_ids"), prompt, BLOCK, log),
        )
        log.note("requests of a batch job: all arrive at 0")
        return record

    return json_lines(path, made, log)
