"""Qwen-Bailian traces: JSON lines, one a turn of a chat, with an id for each block of 16 tokens.

| field | meaning | record |
| --- | --- | --- |
| `chat_id` | id of this turn | `request` |
| `parent_chat_id` | the turn before it, -1 for none | `session`: the id of the first turn of the chat |
| `timestamp` | seconds from the start | `arrival_ns` |
| `input_length` | tokens of the prompt, earlier turns included | `prompt_tokens` |
| `output_length` | tokens generated | `output_tokens` |
| `type` | text, image, file, search | not carried |
| `turn` | which turn of the chat | not carried |
| `hash_ids` | one id a block, the last one partial; equal leading ids are a shared prefix | `prefix_hashes` |

A parent that is not in the file begins the session itself. Ids of another number than the prompt has
blocks are left out, and counted. A time before that of the row above is refused; ties keep the order
of the file.

Source: https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon; Wang et al., "KVCache Cache in the
Wild", USENIX ATC 2025.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import only, prefix
from batchspec.traces.importers.fields import some, word
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "qwen-bailian"
SAYS: Final = "Qwen-Bailian traces with prefix hashes (JSON lines)"
BLOCK: Final = 16
MOST_TURNS: Final = 4_000_000
"""Most turns whose chat is remembered."""

FIELDS: Final = frozenset(
    {
        "chat_id",
        "parent_chat_id",
        "timestamp",
        "input_length",
        "output_length",
        "type",
        "turn",
        "hash_ids",
    }
)


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row has a chat, a parent and block ids."""
    return {"chat_id", "parent_chat_id", "input_length", "hash_ids"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="qwen-bailian", clock="wall", complete=True, hash_block=BLOCK)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a row that arrives before the one above."""
    first_turns: dict[str, str] = {}

    def made(index: int, row: dict[str, Any]) -> Record:
        only(row, FIELDS, log)
        chat, parent = word(row.get("chat_id"), "chat_id"), word(row.get("parent_chat_id"), "parent_chat_id")
        prompt = some(row.get("input_length"), "input_length")
        session = chat if parent == "-1" else first_turns.get(parent, parent)
        record = Record(
            chat,
            nanoseconds(row.get("timestamp"), "s", "timestamp"),
            prompt,
            some(row.get("output_length"), "output_length"),
            session=session,
            prefix_hashes=prefix(row.get("hash_ids"), prompt, BLOCK, log),
        )
        if len(first_turns) >= MOST_TURNS:
            raise TraceError(f"{log.where}: more than {MOST_TURNS} turns; split the file")
        # The very text that stands for the chat already, so that a long chat costs little.
        first_turns[chat] = session
        return record

    return json_lines(path, made, log, ordered="timestamp")
