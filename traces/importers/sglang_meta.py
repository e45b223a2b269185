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
    said = meta.get
    arrival = nanoseconds(said("request_received_ts"), "s", "request_received_ts")
    admitted, first = said("forward_entry_time"), said("first_token_latency")
    finished = said("request_finished_ts")
    if finished is not None:
        finished = nanoseconds(finished, "s", "request_finished_ts")
    elif (took := said("e2e_latency")) is not None:
        finished = arrival + nanoseconds(took, "s", "e2e_latency")
    reason = mapping(said("finish_reason"), "finish_reason").get("type")
    most = parameters.get("max_new_tokens")
    # By place: a million times, names cost.
    return Record(
        word(said("id"), "id"),
        arrival,
        count(said("prompt_tokens"), "prompt_tokens"),
        count(said("completion_tokens"), "completion_tokens"),
        None if most is None else maybe_count(most, "max_new_tokens"),
        None,
        None,
        None,
        None if admitted is None else nanoseconds(admitted, "s", "forward_entry_time"),
        None if first is None else arrival + nanoseconds(first, "s", "first_token_latency"),
        finished,
        reason if isinstance(reason, str) and reason in _ENDS else None,
    )
