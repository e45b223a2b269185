"""vLLM's server log: requests as they are added, and each iteration or the periodic statistics.

| text | meaning | event, iteration |
| --- | --- | --- |
| `MM-DD hh:mm:ss` | when it was written, to the second, without a year | `time_ns` since the first |
| `Received request ID: … max_tokens=N` | a request (`--enable-log-requests`) | `max_tokens` of its `arrive` |
| `prompt_token_ids: [...]` in the same line, in older versions | its prompt | `prompt_tokens` |
| `Added request ID.` | the engine has it; the id may have a suffix of its own | `arrive` |
| `Iteration(N): …` | an iteration (`--enable-logging-iteration-details`) | `step`, `tokens` and the like |
| `iteration elapsed time: X ms` | how long it took | `elapsed_ns` |
| `Running: R reqs, Waiting: W reqs` | every ten seconds | `running`, `waiting` without iterations |
| `GPU KV cache usage` | share of the pool, to a tenth of a percent: not a number of blocks | not carried |
| all others | | not carried |

An `arrive` has the step of the next iteration that is logged. A request that was received and never
added was refused, or was on its way as the log ends: such are counted. Tokens that are computed again
after a preemption count as generation, as vLLM counts them. The log does not say which requests are
members of an iteration, nor which end. In a log without iterations a step of the trace is a line of
periodic statistics, counted from 0. Lines of a second engine are refused.

Source: https://github.com/vllm-project/vllm (Apache-2.0), `vllm/v1/metrics/loggers.py`, the request logger.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, word
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.steps import Clock, Iteration, rising, row_of
from batchspec.traces.importers.stream import filled_lines
from batchspec.traces.importers.times import date, nanoseconds
from batchspec.traces.text import one_line, shown

NAME: Final = "vllm-log"
SAYS: Final = "vLLM server log (requests and iterations)"
MOST_OPEN: Final = 1_000_000
"""Most requests that are received and not added."""

_HEAD: Final = re.compile(
    r"(?:\([^)]{1,80}\) )?[A-Z]+ (\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? \[?[\w./-]+:\d+\] ", re.ASCII
)
_ADDED: Final = re.compile(r"Added request (\S+?)\.?$")
_RECEIVED: Final = re.compile(r"Received request (\S+?): ")
_LIMIT: Final = re.compile(r"[( ]max_tokens=(\d{1,10})[,)]")
_PROMPT: Final = re.compile(r"prompt_token_ids: \[([\d, ]*)\]")
_ENGINE: Final = re.compile(r"Engine (\d{1,6}): ")
_ITERATION: Final = re.compile(
    r"Iteration\((\d{1,10})\): (\d{1,10}) context requests, (\d{1,10}) context tokens, "
    r"(\d{1,10}) generation requests, (\d{1,10}) generation tokens, iteration elapsed time: ([\d.]{1,20}) ms",
    re.ASCII,
)
_PERIODIC: Final = re.compile(r"Running: (\d{1,10}) reqs, Waiting: (\d{1,10}) reqs", re.ASCII)

_YEAR: Final = 366 * 86_400 * 1_000_000_000


class Arrival(NamedTuple):
    """A request that was added, and what was received of it."""

    request: str
    time_ns: int
    prompt_tokens: int | None = None
    max_tokens: int | None = None


def detect(head: bytes, path: Path) -> bool:
    """True for a log with a line about a request or an iteration of vLLM."""
    about = (b"] Received request ", b"] Added request ", b": Iteration(", b": Avg prompt throughput: ")
    return (
        any(word in head for word in about)
        and re.search(rb"(?m)^.{0,99}\d\d-\d\d \d\d:\d\d:\d\d", head) is not None
    )


def header(path: Path) -> Header:
    """What the resulting trace says about itself."""
    return Header(producer_name="vllm", clock="wall")


def rows(path: Path, log: ImportLog) -> Iterator[Arrival | Iteration]:
    """Requests added and iterations, in the order of the log. Raises `TraceError` for a second engine."""
    log.place = one_line(path)
    detailed = any("Iteration(" in text and _ITERATION.search(text) for _, text in filled_lines(path))
    received: dict[str, tuple[int | None, int | None]] = {}
    clock = _Clock()
    engine, periodic = None, 0
    for line, text in filled_lines(path):
        log.line = line
        head = _HEAD.match(text)
        time = clock.at(head[1]) if head else None
        if head is None or time is None:
            log.note("lines about something else")
            continue
        about = _ENGINE.match(text, head.end())
        if about:
            engine = engine or about[1]
            if about[1] != engine:
                raise TraceError(
                    f"{log.where}: a line of engine {shown(about[1])} after one of {shown(engine)}: a trace "
                    "is of one engine; keep the lines of one"
                )
        try:
            if found := _ITERATION.search(text, head.end()):
                yield _iteration(found, time)
            elif found := _ADDED.match(text, head.end()):
                request = _named(word(found[1], "id"), received)
                prompt, most = received.pop(request, (None, None))
                yield Arrival(request, time, prompt, most)
            elif found := _RECEIVED.match(text, head.end()):
                if len(received) >= MOST_OPEN:
                    raise TraceError(f"{log.where}: more than {MOST_OPEN} requests received and not added")
                received[word(found[1], "id")] = _said(text)
            elif (found := _PERIODIC.search(text, head.end())) and not detailed:
                running, waiting = count(found[1], "Running"), count(found[2], "Waiting")
                yield Iteration(periodic, time, running=running, waiting=waiting)
                periodic += 1
            else:
                log.note("lines about something else")
        except Unusable as problem:
            log.drop(str(problem))
    log.line = 0
    if received:
        log.note("requests received and never added: refused, or still on their way", len(received))


def events(path: Path, log: ImportLog) -> Iterator[Event]:
    """`arrive` and `step` rows. Raises `TraceError` for an iteration number that does not rise."""
    log.what = "events"
    clock = Clock(log, dated=False)
    before = -1
    arrived: list[Arrival] = []
    for row in rows(path, log):
        if isinstance(row, Arrival):
            # Its step is that of the iteration to come.
            arrived.append(row)
            if len(arrived) > MOST_OPEN:
                raise TraceError(f"{log.where}: more than {MOST_OPEN} requests without an iteration")
            continue
        rising(before, row.step, log, "Iteration")
        before = row.step
        yield from _arrivals(arrived, row.step, clock, log)
        arrived = []
        log.kept += 1
        yield row_of(row, clock.since_first(row.time_ns))
    yield from _arrivals(arrived, before + 1, clock, log)
    if not log.kept:
        raise log.nothing()


def _arrivals(arrived: list[Arrival], step: int, clock: Clock, log: ImportLog) -> Iterator[Event]:
    for row in arrived:
        log.kept += 1
        time = clock.since_first(row.time_ns)
        yield Event(step, "arrive", row.request, time, row.prompt_tokens, row.max_tokens)


def _iteration(found: "re.Match[str]", time: int) -> Iteration:
    names = ("context requests", "context tokens", "generation requests", "generation tokens")
    prompts, prompt_tokens, decodes, decoded = (
        count(found[at], name) for at, name in enumerate(names, start=2)
    )
    return Iteration(
        count(found[1], "Iteration"),
        time,
        nanoseconds(found[6], "ms", "iteration elapsed time"),
        prompts,
        prompt_tokens,
        decodes,
        decoded,
        prompt_tokens + decoded,
    )


def _named(identity: str, received: dict[str, tuple[int | None, int | None]]) -> str:
    """The id by which the request was received: without the suffix that the engine adds."""
    stem = identity.rpartition("-")[0]
    return stem if identity not in received and stem in received else identity


def _said(text: str) -> tuple[int | None, int | None]:
    """Prompt tokens and limit. The prompt's text may stand in the line: what follows it is looked at."""
    at = max(0, text.rfind("params: SamplingParams("))
    limit, prompt = _LIMIT.search(text, at), _PROMPT.search(text, at)
    tokens = prompt[1].count(",") + 1 if prompt and prompt[1].strip() else None
    return tokens, count(limit[1], "max_tokens") if limit else None


class _Clock:
    """A clock without a year: a leap year is taken, and a fall by most of a year is a new one."""

    def __init__(self) -> None:
        self._years = 0
        self._before: int | None = None

    def at(self, text: str) -> int | None:
        """Nanoseconds of a date; None if it is none."""
        now = date(f"2000-{text}")
        if now is None:
            return None
        if self._before is not None and self._before - now > _YEAR // 2:
            self._years += 1
        self._before = now
        return now + self._years * _YEAR
