"""TraceLab rounds: JSON lines, one a model call of a coding agent.

| field | meaning | record |
| --- | --- | --- |
| `round_id` | id of the call | `request` |
| `session_id` | session of the agent | `session` |
| `input_tokens_total` | tokens of the prompt, cached ones included | `prompt_tokens` |
| `output_tokens` | tokens generated | `output_tokens` |
| `timing_events` | what was seen, with times | `arrival_ns`, `finish_ns`: see below |
| all others | | not carried |

A call arrives with the last of its inputs (`user_message`, `tool_result`) that is not later than its
first output (`reasoning`, `text`, `tool_call`), and ends with its last output; outputs are seen when they
are complete, so when the first token came is not known. A round without an input or an output is dropped:
it has no time. Sessions stand one after the other in the file, so calls are put in the order of arrival.

Source: https://github.com/uw-syfi/TraceLab (code Apache-2.0, data CC BY 4.0).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, items, mapping, some, word
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival
from batchspec.traces.importers.times import date

NAME: Final = "tracelab"
SAYS: Final = "TraceLab rounds of coding agents (JSON lines)"
INPUTS: Final = frozenset({"user_message", "tool_result"})
OUTPUTS: Final = frozenset({"reasoning", "text", "tool_call"})


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row has timing events and tokens."""
    return {"round_id", "input_tokens_total", "timing_events"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="tracelab", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The calls in the order of arrival."""

    def made(index: int, row: dict[str, Any]) -> Record:
        ins: list[int] = []
        outs: list[int] = []
        for item in items(row.get("timing_events"), "timing_events"):
            event = mapping(item, "timing_events")
            kind, time = event.get("event_type"), date(event.get("timestamp"))
            if isinstance(kind, str) and (kind in INPUTS or kind in OUTPUTS):
                if time is None:
                    raise Unusable("a timestamp that is not a time")
                (ins if kind in INPUTS else outs).append(time)
        if not outs:
            raise Unusable("a round without an output: when it ended is not known")
        before = [time for time in ins if time <= min(outs)]
        if not before:
            raise Unusable("a round without an input: when it arrived is not known")
        return Record(
            word(row.get("round_id"), "round_id"),
            max(before),
            some(row.get("input_tokens_total"), "input_tokens_total"),
            some(row.get("output_tokens"), "output_tokens"),
            session=word(row.get("session_id"), "session_id"),
            finish_ns=max(outs),
        )

    return by_arrival(json_lines(path, made, log), log, since_first=True)
