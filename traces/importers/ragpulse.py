"""RAGPulse: JSON lines, one a question to a university's retrieval-augmented service.

| field | meaning | record |
| --- | --- | --- |
| `timestamp` | whole seconds from the start of a week, as a text | `arrival_ns` |
| `input_length` | tokens of the prompt | `prompt_tokens` |
| `output_length` | tokens generated | `output_tokens` |
| `hash_ids` | ids of the prompt's pieces, which are of unequal lengths | not carried |
| `session_id` | milliseconds since 1970 at which the session began, and mostly a suffix | `session` |

The request id is the number of the row, from 0. The published file holds two weeks one after the other,
and the clock of the second begins at 0 again. A row before the one above is therefore taken as such a
restart if its session and the one above were begun whole weeks apart: that many weeks are added from
there on, and noted. Any other row before the one above is refused. Ties keep the order of the file.

Source: https://github.com/flashserve/RAGPulse (MIT); Wang et al., arXiv 2511.12979.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import only
from batchspec.traces.importers.fields import some, word
from batchspec.traces.importers.jsontext import json_lines, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.times import nanoseconds

NAME: Final = "ragpulse"
SAYS: Final = "RAGPulse traces (JSON lines)"
WEEK: Final = 7 * 86_400 * 1_000_000_000
FIELDS: Final = frozenset({"timestamp", "input_length", "output_length", "hash_ids", "session_id"})

_DAY: Final = WEEK // 7


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row names the pieces of a prompt."""
    return FIELDS | {"sys_prompt", "passages_ids", "user_input"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="ragpulse", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a row out of order that is no restart."""
    weeks, before, began = 0, 0, None

    def made(index: int, row: dict[str, Any]) -> Record:
        nonlocal weeks, before, began
        only(row, FIELDS, log)
        time = nanoseconds(row.get("timestamp"), "s", "timestamp")
        session = word(row.get("session_id"), "session_id")
        lengths = (
            some(row.get("input_length"), "input_length"),
            some(row.get("output_length"), "output_length"),
        )
        begins = _began(session)
        if time < before:
            apart = _weeks(began, begins, before, time)
            if not apart:
                raise TraceError(
                    f"{log.where}: timestamp is before that of the row above, and session_id does not say "
                    "that a later week begins here; sort the file"
                )
            weeks += apart
            log.note(f"the clock restarts: {apart * 7} days added from there on")
        before, began = time, begins
        return Record(index, weeks * WEEK + time, *lengths, session=session)

    return json_lines(path, made, log)


def _began(session: str) -> int | None:
    """Nanoseconds since 1970 at which a session was begun, from its id."""
    digits = session.partition("-")[0]
    return int(digits) * 1_000_000 if digits.isascii() and digits.isdigit() and len(digits) < 16 else None


def _weeks(began: int | None, begins: int | None, before: int, time: int) -> int:
    """Weeks between the clocks of two rows: 0 if that cannot be told, or is not near whole weeks."""
    if began is None or begins is None:
        return 0
    apart = (begins - time) - (began - before)
    weeks = round(apart / WEEK)
    return weeks if weeks > 0 and abs(apart - weeks * WEEK) < _DAY else 0
