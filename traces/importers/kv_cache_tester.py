"""kv-cache-tester: sessions of coding agents, each one JSON object with prefix hashes and sub-agents.

| field of a request | meaning | record |
| --- | --- | --- |
| `t` | seconds from the session's start; in a sub-agent from the sub-agent's own start | `arrival_ns` |
| `type` | `n` plain, `s` streaming, `subagent` a list of requests | see below |
| `in`, `out` | tokens of prompt and output | `prompt_tokens`, `output_tokens` |
| `hash_ids` | one id for each whole block of `block_size` tokens | `prefix_hashes` |
| `ttft` | seconds to the first token, where known | `first_token_ns` |
| `api_time` | seconds to the end, where known | `finish_ns` |
| `stop` | why it ended | `status`: length for max_tokens, stop for all others |
| `model`, `input_types`, `output_types`, `think_time` | | not carried |

The `t` of a sub-agent is the time at which it was complete: it began `duration_ms` earlier, and its own
requests count from there. Sub-agents overlap with each other and with the session, so requests are put
in the order of arrival; ties keep the order of the file. `session` is the file's `id`, for a sub-agent
followed by its own. The request id is the number of the request in the file, from 0.

A folder of such files (`*.json`, in the order of their names) is a table of all its sessions. There is no
common clock across files, so every session begins at 0, which is noted: they run side by side. Ids mean
nothing outside their file: in a folder each file's have numbers of their own, and a request is called
`FILE/INDEX`. All files must have the same block size. A request without output is kept; it can be judged,
but not run again.

Source: https://github.com/callanjfox/kv-cache-tester (Apache-2.0), `traces/`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, items, keys, mapping, maybe_word, some, word
from batchspec.traces.importers.jsontext import document, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, kept
from batchspec.traces.importers.times import nanoseconds
from batchspec.traces.text import one_line
from batchspec.traces.textfile import head as start_of

NAME: Final = "kv-cache-tester"
SAYS: Final = "kv-cache-tester sessions of coding agents (JSON, or a folder of it)"
DEEPEST: Final = 8
"""Sub-agents within sub-agents."""

MOST_FILES: Final = 100_000
_WORD: Final = (1 << 64) - 1


class _Call(NamedTuple):
    """One request of the file: when its list began, whose it is, and its fields."""

    origin: int
    session: str | None
    fields: Any


def detect(head: bytes, path: Path) -> bool:
    """True for an object with a block size, a scope of ids and requests, or a folder of such files."""
    if path.is_dir():
        files = _files(path)
        head = start_of(files[0]) if files else b""
    return {"block_size", "hash_id_scope", "requests"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself. Reads the file."""
    first = next(iter(_files(path)), path)
    block = _block(document(first), first)
    return Header(producer_name="kv-cache-tester", clock="wall", complete=True, hash_block=block)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival. Raises `TraceError` for a file that is not of this format."""
    if path.is_dir():
        return by_arrival(_folder(path, log), log)
    return by_arrival(_session(path, log), log)


def _folder(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests of all sessions in a folder, one session after the other, each from time 0 on."""
    files = _files(path)
    if not files:
        raise TraceError(f"{one_line(path)}: no *.json in this folder")
    if len(files) > MOST_FILES:
        raise TraceError(f"{one_line(path)}: more than {MOST_FILES} files; import a part of them at a time")
    known: int | None = None
    for number, file in enumerate(files):
        block = _block(document(file), file)
        if known is not None and block != known:
            raise TraceError(f"{one_line(file)}: block_size {block}, but {files[0].name} has {known}")
        known = block
        log.place = one_line(file)
        log.note("sessions: they share no clock, so each begins at 0")
        for record in _session(file, log):
            ids = record.prefix_hashes
            yield record._replace(
                request=f"{file.stem}/{record.request}",
                prefix_hashes=None if ids is None else tuple(_of_file(number, key) for key in ids),
            )


def _of_file(number: int, key: int) -> int:
    """A number of 64 bits for an id of one file, another in each file (splitmix64)."""
    mixed = (key * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1B54A32D192ED03) & _WORD
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _WORD
    return (mixed ^ mixed >> 31) >> 1


def _files(path: Path) -> list[Path]:
    """The files of a folder in the order of their names; of a file none."""
    return sorted(item for item in path.glob("*.json") if item.is_file()) if path.is_dir() else []


def _session(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests of one file, in its order."""
    log.place = one_line(path)
    session = document(path)
    block = _block(session, path)

    def made(index: int, call: _Call) -> Record:
        row = mapping(call.fields, "requests")
        arrival = call.origin + nanoseconds(row.get("t"), "s", "t")
        prompt = some(row.get("in"), "in")
        ids = None if row.get("hash_ids") is None else keys(row["hash_ids"], "hash_ids")
        if ids is not None and len(ids) != prompt // block:
            log.lose("hash_ids that do not cover the whole blocks of the prompt")
            ids = None
        return Record(
            index,
            arrival,
            prompt,
            count(row.get("out"), "out"),
            session=call.session,
            first_token_ns=_after(arrival, row, "ttft"),
            finish_ns=_after(arrival, row, "api_time"),
            status=_status(row.get("stop")),
            prefix_hashes=ids,
        )

    try:
        calls = list(_calls(session, 0, maybe_word(session.get("id"), "id"), log))
    except Unusable as problem:
        raise TraceError(f"{one_line(path)}: {problem}") from None
    return kept(((0, call) for call in calls), made, log, path)


def _calls(row: Any, origin: int, session: str | None, log: ImportLog, depth: int = 0) -> Iterator[_Call]:
    """The requests of a session or sub-agent, in file order."""
    for call in items(row.get("requests"), "requests"):
        if not isinstance(call, dict) or call.get("type") != "subagent":
            yield _Call(origin, session, call)
            continue
        ended = nanoseconds(call.get("t"), "s", "t of a sub-agent")
        lasted = nanoseconds(call.get("duration_ms"), "ms", "duration_ms of a sub-agent")
        agent = word(call.get("agent_id"), "agent_id")
        log.note("sub-agents: they began at t - duration_ms")
        if depth >= DEEPEST:
            raise Unusable("sub-agents nested too deeply")
        yield from _calls(call, origin + ended - lasted, f"{session}/{agent}", log, depth + 1)


def _block(session: dict[str, Any], path: Path) -> int:
    try:
        return some(session.get("block_size"), "block_size")
    except Unusable as problem:
        raise TraceError(f"{one_line(path)}: {problem}") from None


def _after(arrival: int, row: Any, name: str) -> int | None:
    return None if row.get(name) is None else arrival + nanoseconds(row[name], "s", name)


def _status(stop: object) -> str | None:
    return None if not stop else "length" if stop == "max_tokens" else "stop"
