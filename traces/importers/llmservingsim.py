"""LLMServingSim's workloads: JSON lines, one a request, or one a session of chained calls.

| field | meaning | record |
| --- | --- | --- |
| `arrival_time_ns` | nanoseconds of the simulator's clock | `arrival_ns` |
| `input_toks` | tokens of the prompt | `prompt_tokens` |
| `output_toks` | tokens to generate | `output_tokens` |
| `input_tok_ids`, `output_tok_ids` | the tokens themselves | checked: as many as the length says |
| `session_id` | session of a chain | `session` |
| `sub_requests` | the calls of a chain; each after the one before and its tool | see below |
| `tool_duration_ns` | how long that tool runs | see below |

The request id is the number of the row, from 0. The later calls of a chain arrive when an earlier one
is complete, which no record can say: the first call is kept, and the others are dropped and counted.
Rows may stand in any order, as in the simulator; ties keep the order of the file.

Source: https://github.com/casys-kaist/LLMServingSim (MIT), `docs/docs/workloads/jsonl-format.md`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import only
from batchspec.traces.importers.fields import Unusable, items, mapping, maybe_word, some
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "llmservingsim"
SAYS: Final = "LLMServingSim workloads (JSON lines)"
CALL: Final = frozenset({"input_toks", "output_toks", "input_tok_ids", "output_tok_ids", "tool_duration_ns"})
FIELDS: Final = CALL | {"arrival_time_ns", "session_id", "sub_requests"}


def detect(head: bytes, path: Path) -> bool:
    """True for rows with this simulator's clock and lengths."""
    names = keys_of(head)
    # A row with the tokens themselves may be longer than the head, and then only begins with these.
    return {"input_toks", "output_toks", "arrival_time_ns"} <= names <= FIELDS


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="llmservingsim", clock="virtual", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival."""

    def made(index: int, row: dict[str, Any]) -> Record:
        only(row, FIELDS, log)
        call, later = row, 0
        if "sub_requests" in row:
            calls = items(row["sub_requests"], "sub_requests")
            if not calls:
                raise Unusable("a session without calls")
            call, later = dict(mapping(calls[0], "sub_requests")), len(calls) - 1
            only(call, CALL, log)
        record = Record(
            index,
            nanoseconds(row.get("arrival_time_ns"), "ns", "arrival_time_ns"),
            _length(call, "input"),
            _length(call, "output"),
            session=maybe_word(row.get("session_id"), "session_id"),
        )
        for _ in range(later):
            log.drop("a call that waits for the one before it: when it arrives is not known")
        return record

    return by_arrival(json_lines(path, made, log), log)


def _length(call: dict[str, Any], what: str) -> int:
    length = some(call.get(f"{what}_toks"), f"{what}_toks")
    tokens = call.get(f"{what}_tok_ids")
    if tokens is not None and len(items(tokens, f"{what}_tok_ids")) != length:
        raise Unusable(f"{what}_tok_ids has another length than {what}_toks says")
    return length
