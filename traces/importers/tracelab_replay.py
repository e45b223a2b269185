"""TraceLab's replay tables: CSV, one row a round of a session.

| column | meaning | record |
| --- | --- | --- |
| `session_id` or `id` | session | `session` |
| `arrival_time` | milliseconds, begin of the session; 0 where absent | `arrival_ns` of its first round |
| `round_idx` | which round, from 0 | with the session the request id: `session/round` |
| `prefix_len` | tokens kept from earlier rounds | `prompt_tokens`, with `input_len` |
| `input_len` | new tokens | see above |
| `output_len` | tokens to generate | `output_tokens` |
| `tool_wait_after_ms` | wait before the next round of the session | see below |

A later round begins when the one before is complete and the tool has run. How long a model takes is not
in the file: a later round is given the earliest time at which it can arrive, the session's begin and all
waits before it, and that is counted. `--strict` refuses. Rows are put in the order of arrival.

Source: https://github.com/uw-syfi/TraceLab (Apache-2.0), `replay/README.md`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, some, word
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival
from batchspec.traces.importers.table import Row, columns_of, table
from batchspec.traces.importers.times import nanoseconds
from batchspec.traces.textfile import head as head_of

NAME: Final = "tracelab-replay"
SAYS: Final = "TraceLab replay tables (CSV)"
COLUMNS: Final = ("round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms")


def detect(head: bytes, path: Path) -> bool:
    """True for a table of rounds with their waits."""
    names = set(columns_of(head))
    return set(COLUMNS) <= names and bool(names & {"session_id", "id"})


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="tracelab-replay", clock="virtual", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The rounds in the order of arrival. Raises `TraceError` for a file that is not of this format."""
    name = "session_id" if "session_id" in columns_of(head_of(path)) else "id"
    now: dict[str, tuple[int, int]] = {}

    def made(index: int, row: Row) -> Record:
        which, turn, prefix, new, output, wait, arrival = row
        session, number = word(which, name), count(turn, "round_idx")
        begins = nanoseconds(arrival or "0", "ms", "arrival_time")
        expected, earliest = now.get(session, (0, begins))
        if number != expected:
            raise Unusable("round_idx does not follow that of the session's row above")
        if number:
            log.lose("the time of a later round: the earliest possible is taken")
        prompt = count(prefix, "prefix_len") + count(new, "input_len")
        if not prompt:
            raise Unusable("a round without a prompt")
        record = Record(f"{session}/{number}", earliest, prompt, some(output, "output_len"), session=session)
        # Only the session at hand: its rows stand together.
        now.clear()
        now[session] = (number + 1, earliest + nanoseconds(wait or "0", "ms", "tool_wait_after_ms"))
        return record

    return by_arrival(table(path, (name, *COLUMNS), made, log, also=("arrival_time",)), log)
