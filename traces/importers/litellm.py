"""LiteLLM's standard logging payload: JSON lines, one a call.

| field | meaning | record |
| --- | --- | --- |
| `id` | id | `request` |
| `startTime`, `endTime` | seconds since 1970 | `arrival_ns` since the first, `finish_ns` |
| `completionStartTime` | when the first token came, likewise | `first_token_ns` |
| `prompt_tokens`, `completion_tokens` | tokens of prompt and output | `prompt_tokens`, `output_tokens` |
| `metadata.user_api_key_team_alias`, else `user_api_key_team_id` | team of the caller | `tenant` |
| `status` | `success` or `failure` | `status` error for a failure |
| all others | | not carried |

A call that failed before any token was counted has zeros for its lengths and its end for its first
token: it keeps its times and has neither lengths nor a first token. Why it failed is a free text, so a
refusal, an abort and an error are all `error`. Calls are put in the order of arrival.

Source: https://github.com/BerriAI/litellm, `StandardLoggingPayload`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, mapping, maybe_word, word
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival
from batchspec.traces.importers.times import date, nanoseconds

NAME: Final = "litellm"
SAYS: Final = "LiteLLM standard logging payloads (JSON lines)"


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row has a call's type, times and tokens."""
    return {"call_type", "startTime", "endTime", "completion_tokens"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="litellm", clock="wall")


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The calls in the order of arrival."""

    def made(index: int, row: dict[str, Any]) -> Record:
        if row.get("status") not in ("success", "failure"):
            raise Unusable("status is neither success nor failure")
        failed = row["status"] == "failure"
        prompt: int | None = count(row.get("prompt_tokens"), "prompt_tokens")
        output: int | None = count(row.get("completion_tokens"), "completion_tokens")
        begun: int | None = _time(row, "completionStartTime") if output else None
        if failed:
            log.note("calls that failed, kept with status error")
            # Zeros of a failure are no lengths: nothing was counted.
            prompt, output = prompt or None, output if prompt else None
        metadata = mapping(row.get("metadata"), "metadata")
        tenant = metadata.get("user_api_key_team_alias") or metadata.get("user_api_key_team_id")
        arrival = _time(row, "startTime")
        if arrival is None:
            raise Unusable("startTime is missing")
        return Record(
            word(row.get("id"), "id"),
            arrival,
            prompt,
            output,
            tenant=maybe_word(tenant, "team"),
            first_token_ns=begun,
            finish_ns=_time(row, "endTime"),
            status="error" if failed else None,
        )

    return by_arrival(json_lines(path, made, log), log, since_first=True)


def _time(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, str) and (known := date(value)) is not None:
        return known
    return nanoseconds(value, "s", name)
