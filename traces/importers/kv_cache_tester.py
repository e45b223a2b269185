"""kv-cache-tester: a session of a coding agent as one JSON object, with prefix hashes and sub-agents.

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

Ids mean nothing outside the file, and there is no common clock across files: import one at a time. A
request without output is kept; it can be judged, but not run again.

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

NAME: Final = "kv-cache-tester"
SAYS: Final = "kv-cache-tester sessions of coding agents (JSON)"
DEEPEST: Final = 8
"""Sub-agents within sub-agents."""


class _Call(NamedTuple):
    """One request of the file: when its list began, whose it is, and its fields."""

    origin: int
    session: str | None
    fields: Any


def detect(head: bytes, path: Path) -> bool:
    """True for an object with a block size, a scope of ids and requests."""
    return {"block_size", "hash_id_scope", "requests"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself. Reads the file."""
    block = _block(document(path), path)
    return Header(producer_name="kv-cache-tester", clock="wall", complete=True, hash_block=block)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival. Raises `TraceError` for a file that is not of this format."""
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
    return by_arrival(kept(((0, call) for call in calls), made, log, path), log)


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
