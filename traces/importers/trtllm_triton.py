"""TensorRT-LLM iteration statistics in Triton's log: JSON behind a log prefix, one line an iteration.

| key | meaning | event, iteration |
| --- | --- | --- |
| `Iteration Counter` | number of the iteration | `step` |
| `Timestamp` | its end, `MM-DD-YYYY hh:mm:ss`; the prefix has the fraction | `time_ns` since the first |
| `Active Request Count` | requests active in it, those that end with it included | `running` |
| `Free KV cache blocks`, `Used KV cache blocks` | KV blocks after it | `free_blocks`, `used_blocks` |
| `Max KV cache blocks`, `Tokens per KV cache block`, `Max Request Count` | sizes | limits in the header |
| `Context Requests`, `Total Context Tokens` | prompts, their tokens | `context_*` |
| `Generation Requests` | requests that decode | `generation_requests` |
| `Paused Requests` | requests paused | counted: their ids are not in the log |
| all others | | not carried |

The older form of `trtllm_stats`, without queue and latency. Other lines are counted and left alone.

Source: https://github.com/triton-inference-server/tensorrtllm_backend (Apache-2.0).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, maybe_count
from batchspec.traces.importers.jsontext import parsed
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.steps import Iteration, events_of
from batchspec.traces.importers.stream import filled_lines
from batchspec.traces.importers.trtllm_stats import limits, us_date
from batchspec.traces.text import one_line

NAME: Final = "trtllm-triton"
SAYS: Final = "TensorRT-LLM iteration statistics in Triton's log"

_PREFIX: Final = re.compile(r"[IWE]\d{4} (\d\d:\d\d:\d\d)\.(\d{1,9}) ", re.ASCII)


def detect(head: bytes, path: Path) -> bool:
    """True for a log with a line of iteration statistics."""
    return b'"Iteration Counter":' in head and b'"Active Request Count":' in head


def header(path: Path) -> Header:
    """What the resulting trace says about itself: the pool's sizes, from the first line with them."""
    for _, text in filled_lines(path):
        try:
            row = _row(text)
            if row is not None:
                sizes = ("Max Request Count", "Max KV cache blocks", "Tokens per KV cache block")
                config = limits(*(row.get(name) for name in sizes))
                return Header(producer_name="tensorrt-llm", clock="wall", config=config)
        except Unusable:
            break
    return Header(producer_name="tensorrt-llm", clock="wall")


def iterations(path: Path, log: ImportLog) -> Iterator[Iteration]:
    """What the log says of each iteration."""
    log.place = one_line(path)
    for line, text in filled_lines(path):
        log.line = line
        try:
            row = _row(text)
            if row is None:
                log.note("lines about something else")
                continue
            iteration = _iteration(row, text, log)
        except Unusable as problem:
            log.drop(str(problem))
            continue
        yield iteration


def events(path: Path, log: ImportLog) -> Iterator[Event]:
    """The `step` rows. Raises `TraceError` for an iteration number that does not rise."""
    log.what = "events"
    return events_of(iterations(path, log), log, "Iteration Counter")


def _row(text: str) -> dict[str, Any] | None:
    at = text.find("{")
    return parsed(text[at:]) if at >= 0 and '"Iteration Counter":' in text else None


def _iteration(row: Mapping[str, Any], text: str, log: ImportLog) -> Iteration:
    time = us_date(row.get("Timestamp"))
    if time is None:
        raise Unusable("a Timestamp that is not a time")
    prefix = _PREFIX.match(text)
    if prefix is not None and str(row["Timestamp"]).endswith(prefix[1]):
        time += int(prefix[2].ljust(9, "0"))
    prompt, decodes = _maybe(row, "Total Context Tokens"), _maybe(row, "Generation Requests")
    if paused := _maybe(row, "Paused Requests"):
        log.note("requests paused: their ids are not in the log", paused)
    return Iteration(
        count(row.get("Iteration Counter"), "Iteration Counter"),
        time,
        context_requests=_maybe(row, "Context Requests"),
        context_tokens=prompt,
        generation_requests=decodes,
        running=_maybe(row, "Active Request Count"),
        free_blocks=_maybe(row, "Free KV cache blocks"),
        used_blocks=_maybe(row, "Used KV cache blocks"),
    )


def _maybe(row: Mapping[str, Any], name: str) -> int | None:
    return maybe_count(row.get(name), name)
