"""SGLang's scheduler log: lines about prefill batches, and about every so many decode batches.

| text | meaning | event, iteration |
| --- | --- | --- |
| `[YYYY-MM-DD hh:mm:ss TP0]` | when it was written, to the second; which rank | `time_ns` since the first |
| `Prefill batch` | a batch with prompts | |
| `#new-seq`, `#new-token` | requests that prefill, their tokens | `context_*` |
| `#running-req` | requests that decode | `generation_requests`; with `#new-seq` it is `running` |
| `#queue-req` | requests waiting | `waiting` |
| `Decode batch` | a batch of decodes, one line for every `decode_log_interval` of them | |
| `KV cache pool is full. Retract requests.` | preemptions | counted: their ids are not in the log |
| all others | | not carried |

The log has no step numbers: a step of the trace is a line about a batch, counted from 0, and there are
steps between two lines. It names no requests, so the trace is of `step` rows alone. Ranks of one engine
log the same steps, so lines of a rank other than the first are refused. Other lines are counted.

Source: https://github.com/sgl-project/sglang (Apache-2.0), the scheduler's metrics reporter.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.steps import Iteration, events_of
from batchspec.traces.importers.stream import filled_lines
from batchspec.traces.importers.times import date
from batchspec.traces.text import one_line, shown

NAME: Final = "sglang-scheduler"
SAYS: Final = "SGLang scheduler log (prefill and decode lines)"

_LINE: Final = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: [A-Z]+\d+)*)\] "
    r"(Prefill batch|Decode batch|KV cache pool is full)",
    re.ASCII,
)
_VALUES: Final = re.compile(r"#([a-z_-]{1,40}): (\d{1,15})\b", re.ASCII)


def detect(head: bytes, path: Path) -> bool:
    """True for a log with a line about a batch."""
    batch = b"] Prefill batch" in head or b"] Decode batch" in head
    return batch and b"#running-req:" in head


def header(path: Path) -> Header:
    """What the resulting trace says about itself."""
    return Header(producer_name="sglang", clock="wall")


def iterations(path: Path, log: ImportLog) -> Iterator[Iteration]:
    """What the log says of each batch that has a line. Raises `TraceError` for a second rank."""
    log.place = one_line(path)
    step, rank = 0, None
    for line, text in filled_lines(path):
        log.line = line
        found = _LINE.match(text)
        if found is None:
            log.note("lines about something else")
            continue
        if rank is None:
            rank = found[2]
        elif found[2] != rank:
            raise TraceError(
                f"{log.where}: a line of rank {shown(found[2].strip())} after one of {shown(rank.strip())}: "
                "a trace is of one scheduler; keep the lines of one rank"
            )
        said = dict(_VALUES.findall(text, found.end()))
        try:
            if found[3].startswith("KV"):
                gone = count(said.get("retracted_reqs"), "#retracted_reqs")
                log.note("requests retracted: their ids are not in the log", gone)
                continue
            iteration = _iteration(step, found, said)
        except Unusable as problem:
            log.drop(str(problem))
            continue
        step += 1
        yield iteration


def events(path: Path, log: ImportLog) -> Iterator[Event]:
    """The `step` rows, one a line about a batch."""
    log.what = "events"
    return events_of(iterations(path, log), log, "line")


def _iteration(step: int, line: "re.Match[str]", said: dict[str, str]) -> Iteration:
    time = date(line[1])
    if time is None:
        raise Unusable("a timestamp that is not a time")
    decodes, waiting = (
        count(said.get("running-req"), "#running-req"),
        count(said.get("queue-req"), "#queue-req"),
    )
    if line[3].startswith("Decode"):
        return Iteration(step, time, generation_requests=decodes, running=decodes, waiting=waiting)
    prompts = count(said.get("new-seq"), "#new-seq")
    tokens = count(said.get("new-token"), "#new-token")
    return Iteration(
        step,
        time,
        context_requests=prompts,
        context_tokens=tokens,
        generation_requests=decodes,
        running=prompts + decodes,
        waiting=waiting,
    )
