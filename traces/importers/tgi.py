"""Text Generation Inference: the router's JSON log, one line a request that went well.

| field | meaning | record |
| --- | --- | --- |
| `message` | `Success`; lines with another are counted and left alone | |
| `timestamp` | when the request ended, UTC | `finish_ns` |
| `span.total_time` | from arrival to end, with its unit | `arrival_ns` since the first |
| `span.inference_time` | from the first scheduling to the end | `admitted_ns` |
| `span.time_per_token` | `inference_time` per token | `output_tokens`: their quotient, if near a whole |
| `span.compute_characters` | characters of the prompt, not tokens | not carried |
| all others | | not carried |

The request id is the number of the line among those, from 0. The log has no tokens of the prompt, no
first token and no requests that failed; `prompt_tokens` is null, so the result can be judged, but not
run again. Lines are written as requests end, so they are put in the order of arrival.

Source: https://github.com/huggingface/text-generation-inference (Apache-2.0), `router/src/server.rs`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import MAX_COUNT, Unusable, mapping
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival
from batchspec.traces.importers.times import date, duration

NAME: Final = "tgi"
SAYS: Final = "Text Generation Inference router log (JSON lines)"
NEAR: Final = 0.02
"""How far the quotient may lie from a whole number, per token: times are cut to a few digits."""


def detect(head: bytes, path: Path) -> bool:
    """True for a JSON log of the router."""
    return {"timestamp", "message", "target"} <= keys_of(head) and b"text_generation_router" in head


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="text-generation-inference", clock="wall")


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival."""

    def made(index: int, row: dict[str, Any]) -> Record | None:
        span = mapping(row.get("span"), "span")
        if row.get("message") != "Success" or "total_time" not in span:
            log.note("lines about something else")
            return None
        end = date(row.get("timestamp"))
        if end is None:
            raise Unusable("a timestamp that is not a time")
        inference = duration(span.get("inference_time"), "inference_time")
        arrival = end - duration(span["total_time"], "total_time")
        if arrival < 0:
            raise Unusable("total_time is too large for a time")
        return Record(
            index,
            arrival,
            output_tokens=_tokens(inference, span.get("time_per_token"), log),
            admitted_ns=end - inference,
            finish_ns=end,
        )

    return by_arrival(json_lines(path, made, log), log, since_first=True)


def _tokens(inference: int, each: object, log: ImportLog) -> int | None:
    nanos = duration(each, "time_per_token")
    tokens = inference / nanos if nanos else 0.0
    whole = round(tokens)
    if not 1 <= whole <= MAX_COUNT or abs(tokens - whole) > NEAR * max(1.0, whole**0.5):
        log.lose("output tokens: inference_time is no multiple of time_per_token")
        return None
    return whole
