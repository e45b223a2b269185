"""Text Generation Inference: the router's log, JSON or text, one line a request that went well.

| field | meaning | record |
| --- | --- | --- |
| `message` | `Success`; lines with another are counted and left alone | |
| `timestamp` | when the request ended, UTC | `finish_ns` |
| `span.total_time` | from arrival to end, with its unit | `arrival_ns` since the first |
| `span.inference_time` | from the first scheduling to the end | `admitted_ns` |
| `span.time_per_token` | `inference_time` per token | `output_tokens`: their quotient, if near a whole |
| `max_new_tokens: Some(n)` in the span's parameters (text only) | most output tokens | `max_tokens` |
| `span.compute_characters` | characters of the prompt, not tokens | not carried |
| all others | | not carried |

As text the fields of the span stand in a line as `total_time="110.2ms"`, behind the parameters and before
`text_generation_router::server`; colours are passed over. The request id is the number of the line among
those, from 0. The log has no tokens of the prompt, no first token and no requests that failed;
`prompt_tokens` is null, so the result can be judged, but not run again. Lines are written as requests end,
so they are put in the order of arrival.

Source: https://github.com/huggingface/text-generation-inference (Apache-2.0), `router/src/server.rs`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import MAX_COUNT, Unusable, mapping, maybe_count
from batchspec.traces.importers.jsontext import keys_of, parsed
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, filled_lines, kept
from batchspec.traces.importers.times import date, duration

NAME: Final = "tgi"
SAYS: Final = "Text Generation Inference router log (JSON lines, or text)"
NEAR: Final = 0.02
"""How far the quotient may lie from a whole number, per token: times are cut to a few digits."""


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_BEGIN: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z) +INFO ", re.ASCII)
_END: Final = re.compile(r": text_generation_router::server: [^\s:]{1,200}:\d{1,9}: Success$", re.ASCII)
_SPAN: Final = re.compile(r'\b(total_time|inference_time|time_per_token)="([^"]{1,40})"')
_MOST: Final = re.compile(r"\bmax_new_tokens: (?:Some\()?(\d{1,10})\b", re.ASCII)


def detect(head: bytes, path: Path) -> bool:
    """True for a log of the router."""
    if b"text_generation_router" not in head:
        return False
    return {"timestamp", "message", "target"} <= keys_of(head) or b"text_generation_router::server" in head


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
            max_tokens=maybe_count(row.get("max_new_tokens"), "max_new_tokens"),
            admitted_ns=end - inference,
            finish_ns=end,
        )

    def of_line(index: int, text: str) -> Record | None:
        return made(index, parsed(text) if text.startswith("{") else _fields(text))

    return by_arrival(kept(filled_lines(path), of_line, log, path), log, since_first=True)


def _fields(text: str) -> dict[str, Any]:
    """The fields of a line of text; of a line about something else none."""
    line = _COLOUR.sub("", text)
    begin, end = _BEGIN.match(line), _END.search(line)
    if begin is None or end is None:
        return {}
    # Parameters, in which a client may write what it likes, stand before the span's own times.
    span = line.rfind(" total_time=", 0, end.start())
    span = line.rfind("{total_time=", 0, end.start()) if span < 0 else span
    asked = _MOST.search(line, begin.end(), max(span, begin.end()))
    return {
        "timestamp": begin[1],
        "message": "Success",
        "span": dict(_SPAN.findall(line[span : end.start()])) if span >= 0 else {},
        "max_new_tokens": None if asked is None else asked[1],
    }


def _tokens(inference: int, each: object, log: ImportLog) -> int | None:
    nanos = duration(each, "time_per_token")
    tokens = inference / nanos if nanos else 0.0
    whole = round(tokens)
    if not 1 <= whole <= MAX_COUNT or abs(tokens - whole) > NEAR * max(1.0, whole**0.5):
        log.lose("output tokens: inference_time is no multiple of time_per_token")
        return None
    return whole
