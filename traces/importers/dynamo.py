"""NVIDIA Dynamo's request traces (`dynamo.request.trace.v1`): JSON lines, one a finished request.

| field | meaning | record |
| --- | --- | --- |
| `event_type` | `request_end`; lines of other types are counted and left alone | |
| `request.request_id` | id | `request` |
| `request.request_received_ms` | milliseconds since 1970 | `arrival_ns` since the first |
| `request.input_tokens` | tokens of the prompt | `prompt_tokens` |
| `request.output_tokens` | tokens generated | `output_tokens` |
| `request.prefill_wait_time_ms` | milliseconds to the first scheduling | `admitted_ns` |
| `request.ttft_ms` | milliseconds to the first token | `first_token_ns` |
| `request.total_time_ms` | milliseconds to the end | `finish_ns` |
| `request.replay.input_sequence_hashes` | a hash a block, the last one partial | `prefix_hashes` |
| `request.replay.trace_block_size` | tokens of a block | `hash_block` of the header |
| `agent_context.session_id` | session | `session` |
| `request.finish_reason_metadata` | why it ended, in the engine's word where it has one | `status` |
| all others | | not carried |

A line may be wrapped, as file sinks do: `{"timestamp": …, "event": {…}}`. Hashes are unsigned 64-bit
numbers; those of 2^63 and more become their two's complement. The size of a block is that of the first
line; hashes of another size, or another number than the prompt has blocks, are left out and counted.
Lines are written as requests end, so they are put in the order of arrival.

Source: https://github.com/ai-dynamo/dynamo (Apache-2.0), the request trace.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import prefix
from batchspec.traces.importers.fields import Unusable, count, mapping, maybe_word, some, word
from batchspec.traces.importers.jsontext import json_lines, keys_of, parsed
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, filled_lines
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "dynamo"
SAYS: Final = "NVIDIA Dynamo request traces (JSON lines)"
SCHEMA: Final = "dynamo.request.trace.v1"
LOOKED_AT: Final = 1000
"""Lines in which a block size is looked for."""

_STATUS: Final = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "abort": "abort",
    "cancelled": "abort",
    "error": "error",
}


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row is of this schema."""
    return "event_type" in keys_of(head) and SCHEMA.encode() in head


def header(path: Path) -> Header:
    """What the resulting table says about itself. Reads the first lines of the file."""
    return Header(producer_name="dynamo", clock="wall", hash_block=_block(path))


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival. Raises `TraceError` for a line of another schema."""
    block = _block(path)

    def made(index: int, row: dict[str, Any]) -> Record | None:
        event = _unwrapped(row)
        if event.get("schema") != SCHEMA:
            raise TraceError(f"{log.where}: schema is not {SCHEMA}")
        if event.get("event_type") != "request_end":
            log.note("lines about something else than the end of a request")
            return None
        request = mapping(event.get("request"), "request")
        arrival = nanoseconds(request.get("request_received_ms"), "ms", "request_received_ms")
        prompt = count(request.get("input_tokens"), "input_tokens")
        replay = mapping(request.get("replay"), "replay")
        hashes = replay.get("input_sequence_hashes")
        if hashes is not None and (block is None or replay.get("trace_block_size") != block):
            log.lose("hashes of blocks of another size than those of the first line")
            hashes = None
        return Record(
            word(request.get("request_id"), "request_id"),
            arrival,
            prompt,
            count(request.get("output_tokens"), "output_tokens"),
            session=maybe_word(
                mapping(event.get("agent_context"), "agent_context").get("session_id"), "session_id"
            ),
            admitted_ns=_after(arrival, request, "prefill_wait_time_ms"),
            first_token_ns=_after(arrival, request, "ttft_ms"),
            finish_ns=_after(arrival, request, "total_time_ms"),
            status=_status(request),
            prefix_hashes=None if hashes is None or block is None else prefix(hashes, prompt, block, log),
        )

    return by_arrival(json_lines(path, made, log), log, since_first=True)


def _block(path: Path) -> int | None:
    """The block size that the first line with one states."""
    for (_, text), _ in zip(filled_lines(path), range(LOOKED_AT), strict=False):
        try:
            replay = mapping(_unwrapped(parsed(text)).get("request"), "request").get("replay")
            if isinstance(replay, dict) and "trace_block_size" in replay:
                return some(replay["trace_block_size"], "trace_block_size")
        except Unusable:
            continue
    return None


def _unwrapped(row: dict[str, Any]) -> dict[str, Any]:
    event = row.get("event")
    return event if isinstance(event, dict) else row


def _after(arrival: int, request: Mapping[str, Any], name: str) -> int | None:
    return None if request.get(name) is None else arrival + nanoseconds(request[name], "ms", name)


def _status(request: Mapping[str, Any]) -> str | None:
    said = mapping(request.get("finish_reason_metadata"), "finish_reason_metadata")
    word_ = said.get("backend_finish_reason") or said.get("finish_reason")
    return _STATUS.get(word_) if isinstance(word_, str) else None
