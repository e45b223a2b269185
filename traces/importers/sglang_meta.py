"""SGLang's `meta_info` of a finished request, which two of its logs hold.

| field | meaning | record |
| --- | --- | --- |
| `id` | id | `request` |
| `request_received_ts` | seconds since 1970 | `arrival_ns` |
| `forward_entry_time` | when it was first scheduled, seconds since 1970 | `admitted_ns` |
| `first_token_latency` | seconds from `request_received_ts` | `first_token_ns` |
| `request_finished_ts`, else `e2e_latency` | when it ended | `finish_ns` |
| `prompt_tokens`, `completion_tokens` | tokens of prompt and output | `prompt_tokens`, `output_tokens` |
| `finish_reason.type` | `stop`, `length` or `abort` | `status` |
"""

from collections.abc import Mapping
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.importers.fields import count, mapping, maybe_count, word
from batchspec.traces.importers.times import nanoseconds

_ENDS: Final = frozenset({"stop", "length", "abort"})


def record(meta: Mapping[str, Any], parameters: Mapping[str, Any]) -> Record:
    """The record of a finished request; `parameters` are its sampling parameters. Raises `Unusable`."""
    arrival = nanoseconds(meta.get("request_received_ts"), "s", "request_received_ts")
    finished = _at(meta, "request_finished_ts")
    reason = mapping(meta.get("finish_reason"), "finish_reason").get("type")
    return Record(
        word(meta.get("id"), "id"),
        arrival,
        count(meta.get("prompt_tokens"), "prompt_tokens"),
        count(meta.get("completion_tokens"), "completion_tokens"),
        maybe_count(parameters.get("max_new_tokens"), "max_new_tokens"),
        admitted_ns=_at(meta, "forward_entry_time"),
        first_token_ns=_after(arrival, meta, "first_token_latency"),
        finish_ns=_after(arrival, meta, "e2e_latency") if finished is None else finished,
        status=reason if isinstance(reason, str) and reason in _ENDS else None,
    )


def _at(meta: Mapping[str, Any], name: str) -> int | None:
    return None if meta.get(name) is None else nanoseconds(meta[name], "s", name)


def _after(arrival: int, meta: Mapping[str, Any], name: str) -> int | None:
    return None if meta.get(name) is None else arrival + nanoseconds(meta[name], "s", name)
