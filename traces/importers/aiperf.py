"""AIPerf's trace templates: Mooncake's form with fields that may be absent, and sessions.

| field | meaning | record |
| --- | --- | --- |
| `timestamp` | milliseconds from the start | `arrival_ns` |
| `input_length` | tokens of the prompt | `prompt_tokens` |
| `output_length` | tokens generated; where absent, the model decides | `output_tokens` |
| `hash_ids` | one id for each block of 512 tokens (AIPerf's default) | `prefix_hashes` |
| `session_id` | conversation | `session` |
| `delay` | milliseconds to wait after the previous turn, instead of a time | refused: see below |
| `text_input` | the prompt itself, instead of a length | refused: see below |

The request id is the number of the row, from 0. A row without a time arrives when an earlier answer is
complete, which no record can say, and one with a text has a length that depends on the tokenizer: such
rows are dropped and counted. Ids of another number than the prompt has blocks of 512 are left out, and
counted. A time before that of the row above is refused.

Source: https://github.com/ai-dynamo/aiperf (Apache-2.0), the Mooncake trace loader.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import only, prefix
from batchspec.traces.importers.fields import Unusable, maybe_count, maybe_word, some
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "aiperf"
SAYS: Final = "AIPerf traces in Mooncake's form (JSON lines)"
BLOCK: Final = 512
FIELDS: Final = frozenset(
    {"timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay", "text_input", "type"}
)


def detect(head: bytes, path: Path) -> bool:
    """True for rows of Mooncake's form that are not exactly Mooncake's."""
    names = keys_of(head)
    mooncake = {"timestamp", "input_length", "output_length", "hash_ids"}
    timed = bool(names & {"timestamp", "delay"})
    return timed and bool(names & {"input_length", "text_input"}) and names <= FIELDS and names != mooncake


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="aiperf", clock="virtual", complete=True, hash_block=BLOCK)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a row that arrives before the one above."""

    def made(index: int, row: dict[str, Any]) -> Record:
        only(row, FIELDS, log)
        if row.get("timestamp") is None and row.get("delay") is not None:
            raise Unusable("a turn that waits for the one before it: when it arrives is not known")
        if row.get("input_length") is None and row.get("text_input") is not None:
            raise Unusable("a prompt given as text: its length is not known")
        prompt = some(row.get("input_length"), "input_length")
        return Record(
            index,
            nanoseconds(row.get("timestamp"), "ms", "timestamp"),
            prompt,
            maybe_count(row.get("output_length"), "output_length"),
            session=maybe_word(row.get("session_id"), "session_id"),
            prefix_hashes=prefix(row.get("hash_ids"), prompt, BLOCK, log),
        )

    return json_lines(path, made, log, ordered="timestamp")
