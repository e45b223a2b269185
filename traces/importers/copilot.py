"""GitHub Copilot coding-agent traces: JSON lines, one a session, with its turns and their model calls.

| field of a call | meaning | record |
| --- | --- | --- |
| `message_id` | id | `request` |
| `timestamp` | when it was sent, UTC | `arrival_ns` since the first call |
| `duration_ms` | milliseconds that it took | `finish_ns` |
| `tokens.prompt` | tokens of the prompt, cached ones included | `prompt_tokens` |
| `tokens.completion` | tokens generated | `output_tokens` |
| `result` | how it ended | `status`: error unless `Success` |
| `session_id` of the session | | `session` |
| all others | | not carried |

Sessions overlap, so calls are put in the order of arrival; ties keep the order of the file.

Source: no published file was at hand; the fields are those of the made sample in tests/data.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, items, mapping, maybe_word, word
from batchspec.traces.importers.jsontext import keys_of, parsed
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, filled_lines, kept
from batchspec.traces.importers.times import date, nanoseconds
from batchspec.traces.text import one_line

NAME: Final = "copilot"
SAYS: Final = "GitHub Copilot coding-agent sessions (JSON lines)"


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row is a session of turns with model calls."""
    return {"session_id", "turns", "llm_calls", "message_id"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="copilot", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The calls in the order of arrival."""

    def made(index: int, row: tuple[str | None, Any]) -> Record:
        session, call = row[0], mapping(row[1], "llm_calls")
        arrival = date(call.get("timestamp"))
        if arrival is None:
            raise Unusable("a timestamp that is not a time")
        lasted = call.get("duration_ms")
        tokens = mapping(call.get("tokens"), "tokens")
        return Record(
            word(call.get("message_id"), "message_id"),
            arrival,
            count(tokens.get("prompt"), "tokens.prompt"),
            count(tokens.get("completion"), "tokens.completion"),
            session=session,
            finish_ns=None if lasted is None else arrival + nanoseconds(lasted, "ms", "duration_ms"),
            status=None if call.get("result") == "Success" else "error",
        )

    return by_arrival(kept(_calls(path, log), made, log, path), log, since_first=True)


def _calls(path: Path, log: ImportLog) -> Iterator[tuple[int, tuple[str | None, Any]]]:
    for line, text in filled_lines(path):
        log.place, log.line = one_line(path), line
        try:
            row = parsed(text)
            session = maybe_word(row.get("session_id"), "session_id")
            turns = [
                items(mapping(turn, "turns").get("llm_calls"), "llm_calls")
                for turn in items(row.get("turns"), "turns")
            ]
        except Unusable as problem:
            log.drop(str(problem))
            continue
        for calls in turns:
            for call in calls:
                yield line, (session, call)
