"""OpenTelemetry spans of LLM requests: OTLP/JSON, one export a line or one document, as vLLM writes them.

| field of a span | meaning | record |
| --- | --- | --- |
| `startTimeUnixNano` | when the request arrived | `arrival_ns` since the first |
| `endTimeUnixNano` | when it ended | `finish_ns` |
| `gen_ai.request.id`, else `spanId` | id | `request` |
| `gen_ai.usage.prompt_tokens`, `gen_ai.usage.input_tokens` | tokens of the prompt | `prompt_tokens` |
| `gen_ai.usage.completion_tokens`, `gen_ai.usage.output_tokens` | tokens generated | `output_tokens` |
| `gen_ai.request.max_tokens` | most of them | `max_tokens` |
| `gen_ai.latency.time_in_queue` | seconds to the first scheduling | `admitted_ns` |
| `gen_ai.latency.time_to_first_token` | seconds to the first token | `first_token_ns` |
| `gen_ai.response.finish_reasons` | why it ended | `status` |
| `gen_ai.conversation.id`, `session.id` | conversation | `session` |
| `status.code` 2 | the span failed | `status` error |
| all others | | not carried |

Spans that are about no LLM request (no attribute of the first rows above) are counted and left alone.
They are exported as requests end, so they are put in the order of arrival. 64-bit numbers may be texts,
as OTLP/JSON has them. Whether a client went away is not in a span.

Source: https://opentelemetry.io/docs/specs/otlp (JSON encoding), the GenAI semantic conventions, and
vLLM's `vllm/tracing` (Apache-2.0).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import (
    Unusable,
    items,
    mapping,
    maybe_count,
    maybe_word,
    word,
)
from batchspec.traces.importers.jsontext import keys_of, values
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, kept
from batchspec.traces.importers.times import LARGEST, nanoseconds

NAME: Final = "otel"
SAYS: Final = "OpenTelemetry spans of LLM requests (OTLP/JSON)"
PROMPT: Final = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
OUTPUT: Final = ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")
SESSION: Final = ("gen_ai.conversation.id", "session.id", "exgentic.session.id")
ABOUT: Final = frozenset(
    {*PROMPT, *OUTPUT, "gen_ai.request.id", "gen_ai.request.model", "gen_ai.request.max_tokens"}
)

_REASONS: Final = {
    "max_tokens": "length",
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
}


def detect(head: bytes, path: Path) -> bool:
    """True for an OTLP export of spans."""
    return {"resourceSpans", "startTimeUnixNano"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="opentelemetry", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival."""

    def made(index: int, item: object) -> Record | None:
        span = mapping(item, "spans")
        attributes = _attributes(span.get("attributes"))
        if not ABOUT & attributes.keys():
            log.note("spans about something else")
            return None
        failed = mapping(span.get("status"), "status").get("code") in (2, "STATUS_CODE_ERROR")
        return request(
            attributes,
            _nanos(span.get("startTimeUnixNano"), "startTimeUnixNano"),
            _nanos(span.get("endTimeUnixNano"), "endTimeUnixNano"),
            span.get("spanId"),
            failed,
        )

    return by_arrival(kept(_spans(path, log), made, log, path), log, since_first=True)


def request(attributes: Mapping[str, Any], start: int, end: int, span: object, failed: bool) -> Record:
    """The record of one span, from its attributes, its times and its own id. Raises `Unusable`."""
    return Record(
        word(attributes.get("gen_ai.request.id", span), "gen_ai.request.id"),
        start,
        maybe_count(_first(attributes, PROMPT), PROMPT[0]),
        maybe_count(_first(attributes, OUTPUT), OUTPUT[0]),
        maybe_count(attributes.get("gen_ai.request.max_tokens"), "gen_ai.request.max_tokens"),
        session=maybe_word(_first(attributes, SESSION), "session.id"),
        admitted_ns=_after(start, attributes, "gen_ai.latency.time_in_queue"),
        first_token_ns=_after(start, attributes, "gen_ai.latency.time_to_first_token"),
        finish_ns=end,
        status="error" if failed else _status(attributes.get("gen_ai.response.finish_reasons")),
    )


def _spans(path: Path, log: ImportLog) -> Iterator[tuple[int, object]]:
    for line, export in values(path, log):
        try:
            for resource in items(export.get("resourceSpans"), "resourceSpans"):
                for scope in items(mapping(resource, "resourceSpans").get("scopeSpans"), "scopeSpans"):
                    for span in items(mapping(scope, "scopeSpans").get("spans"), "spans"):
                        yield line, span
        except Unusable as problem:
            log.line = line
            log.drop(str(problem))


def _attributes(value: object) -> dict[str, Any]:
    """The attributes by name; each value is wrapped in an object that names its type."""
    out = {}
    for item in items([] if value is None else value, "attributes"):
        attribute = mapping(item, "attributes")
        wrapped = attribute.get("value")
        if isinstance(wrapped, dict) and isinstance(name := attribute.get("key"), str):
            out[name] = next(iter(wrapped.values()), None)
    return out


def _nanos(value: object, name: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) is not int:
        raise Unusable(f"{name} is no time")
    if not 0 <= value <= LARGEST:
        raise Unusable(f"{name} is too large for a time")
    return value


def _after(start: int, attributes: Mapping[str, Any], name: str) -> int | None:
    seconds = attributes.get(name)
    return None if seconds is None else start + nanoseconds(seconds, "s", name)


def _first(attributes: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _status(reasons: object) -> str | None:
    """The first of the reasons, which OTLP wraps once more."""
    if isinstance(reasons, dict):
        reasons = reasons.get("values")
    if isinstance(reasons, list) and reasons:
        reasons = reasons[0]
    if isinstance(reasons, dict):
        reasons = reasons.get("stringValue")
    return _REASONS.get(reasons) if isinstance(reasons, str) else None
