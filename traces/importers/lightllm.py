"""LightLLM: the HTTP server's log, one line a request that ended.

| key | meaning | record |
| --- | --- | --- |
| `X-Request-Id`, else `lightllm_req_id` | id | `request` |
| `X-Session-Id` | session, where the client sent one | `session` |
| `start_time` | when it arrived, local time, to the second | `arrival_ns` since the first |
| `first_token_cost` | milliseconds to the first token | `first_token_ns` |
| `total_cost_time` | milliseconds to the end | `finish_ns` |
| `prompt_token_num`, `out_token_counter` | tokens of prompt and output | `prompt_tokens`, `output_tokens` |
| all others | | not carried |

Arrivals are cut to whole seconds, so the order of requests within one is not known; it stays that of
the log, which is written as requests end. The latencies are exact. Whether a client went away is not in
the log, and a refused request does not appear. Other lines are counted and left alone.

Source: https://github.com/ModelTC/lightllm (Apache-2.0), `lightllm/server/httpserver/manager.py`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, maybe_word, word
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, filled_lines, kept
from batchspec.traces.importers.times import date, nanoseconds

NAME: Final = "lightllm"
SAYS: Final = "LightLLM server log"

_REQUEST: Final = re.compile(
    r"X-Request-Id:(\S*) X-Session-Id:(\S*) start_time:(\S+ \S+) lightllm_req_id:(\d{1,20})"
)
_VALUES: Final = re.compile(
    r"\b(first_token_cost|total_cost_time|out_token_counter|prompt_token_num):([0-9.]{1,30})"
)


def detect(head: bytes, path: Path) -> bool:
    """True for a log with a line about a request."""
    return b"lightllm_req_id:" in head and b"total_cost_time:" in head


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="lightllm", clock="wall")


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival."""

    def made(index: int, text: str) -> Record | None:
        found = _REQUEST.search(text)
        if found is None:
            log.note("lines about something else")
            return None
        said = dict(_VALUES.findall(text, found.end()))
        arrival = date(found[3])
        if arrival is None:
            raise Unusable("a start_time that is not a time")
        first = nanoseconds(said.get("first_token_cost"), "ms", "first_token_cost")
        total = nanoseconds(said.get("total_cost_time"), "ms", "total_cost_time")
        return Record(
            word(found[1] or found[4], "X-Request-Id"),
            arrival,
            count(said.get("prompt_token_num"), "prompt_token_num"),
            count(said.get("out_token_counter"), "out_token_counter"),
            session=maybe_word(found[2], "X-Session-Id"),
            first_token_ns=arrival + first,
            finish_ns=arrival + total,
        )

    return by_arrival(kept(filled_lines(path), made, log, path), log, since_first=True)
