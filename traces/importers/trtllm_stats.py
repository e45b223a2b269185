"""TensorRT-LLM iteration statistics (`get_stats`, `/metrics`): JSON objects in an array or in lines.

| field | meaning | event, iteration |
| --- | --- | --- |
| `iter` | number of the iteration | `step` |
| `timestamp` | its end, `MM-DD-YYYY hh:mm:ss.ffffff` | `time_ns` since the first |
| `iterLatencyMS` | how long it took | `elapsed_ns` |
| `numActiveRequests` | requests active in it, those that end with it included | `running` |
| `numQueuedRequests` | requests waiting after it | `waiting` |
| `kvCacheStats.freeNumBlocks`, `.usedNumBlocks` | KV blocks after it | `free_blocks`, `used_blocks` |
| `kvCacheStats.maxNumBlocks`, `.tokensPerBlock` | size of the pool, of a block | limits in the header |
| `maxNumActiveRequests` | most requests in the batch | `max_seqs` in the header |
| `inflightBatchingStats.numContextRequests`, `.numCtxTokens` | prompts, their tokens | `context_*` |
| `inflightBatchingStats.numGenRequests` | requests that decode | `generation_requests` |
| `inflightBatchingStats.numPausedRequests` | requests paused | counted: their ids are not in the file |
| all others | | not carried |

`tokens` is `numCtxTokens` and `numGenRequests`, where `avgNumDecodedTokensPerIter` says one each. The
file names no requests, so the trace is of `step` rows alone. An iteration number that does not rise is
refused.

Source: https://github.com/NVIDIA/TensorRT-LLM (Apache-2.0), `IterationStats`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import MAX_COUNT, Unusable, count, mapping, maybe_count
from batchspec.traces.importers.jsontext import keys_of, values
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.steps import Iteration, events_of
from batchspec.traces.importers.times import nanoseconds, seconds

NAME: Final = "trtllm-stats"
SAYS: Final = "TensorRT-LLM iteration statistics (JSON)"

_DATE: Final = re.compile(r"(\d\d)-(\d\d)-(\d{4}) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?", re.ASCII)


def detect(head: bytes, path: Path) -> bool:
    """True for objects with an iteration, its latency and requests."""
    return {"iter", "iterLatencyMS", "numActiveRequests"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting trace says about itself: the pool's sizes, from the first object."""
    for _, row in values(path, ImportLog()):
        try:
            pool = mapping(row.get("kvCacheStats"), "kvCacheStats")
            sizes = (row.get("maxNumActiveRequests"), pool.get("maxNumBlocks"), pool.get("tokensPerBlock"))
            return Header(producer_name="tensorrt-llm", clock="wall", config=limits(*sizes))
        except Unusable:
            break
    return Header(producer_name="tensorrt-llm", clock="wall")


def iterations(path: Path, log: ImportLog) -> Iterator[Iteration]:
    """What the file says of each iteration."""
    for line, row in values(path, log):
        log.line = line
        try:
            iteration = _iteration(row, log)
        except Unusable as problem:
            log.drop(str(problem))
            continue
        yield iteration


def events(path: Path, log: ImportLog) -> Iterator[Event]:
    """The `step` rows. Raises `TraceError` for an iteration number that does not rise."""
    log.what = "events"
    return events_of(iterations(path, log), log, "iter")


def us_date(text: object) -> int | None:
    """Nanoseconds since 1970 of a date with the month first; None if it is none."""
    found = _DATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    month, day, year, clock, fraction = found.groups()
    whole = seconds(f"{year}-{month}-{day} {clock}")
    if whole is None:
        return None
    return whole * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)


def limits(max_seqs: object, kv_blocks: object, block_size: object) -> dict[str, Any]:
    """The sizes as claims of a header; what is null or zero is not claimed."""
    sizes = {"max_seqs": max_seqs, "kv_blocks": kv_blocks, "block_size": block_size}
    known = {name: size for name, value in sizes.items() if (size := maybe_count(value, name))}
    return {"limits": known} if known else {}


def _iteration(row: Mapping[str, Any], log: ImportLog) -> Iteration:
    pool = mapping(row.get("kvCacheStats"), "kvCacheStats")
    batch = mapping(row.get("inflightBatchingStats"), "inflightBatchingStats")
    time = us_date(row.get("timestamp"))
    if time is None:
        raise Unusable("a timestamp that is not a time")
    took = row.get("iterLatencyMS")
    prompt, decodes = _maybe(batch, "numCtxTokens"), _maybe(batch, "numGenRequests")
    single = batch.get("avgNumDecodedTokensPerIter", 1) == 1
    if paused := _maybe(batch, "numPausedRequests"):
        log.note("requests paused: their ids are not in the file", paused)
    return Iteration(
        count(row.get("iter"), "iter"),
        time,
        None if took is None else nanoseconds(took, "ms", "iterLatencyMS"),
        _maybe(batch, "numContextRequests"),
        prompt,
        decodes,
        decodes if single else None,
        prompt + decodes if single and prompt is not None and decodes is not None else None,
        _maybe(row, "numActiveRequests"),
        _maybe(row, "numQueuedRequests"),
        _maybe(pool, "freeNumBlocks"),
        _maybe(pool, "usedNumBlocks"),
    )


def _maybe(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    # Nearly all values are whole numbers at once: they are spared two calls.
    return value if type(value) is int and 0 <= value <= MAX_COUNT else maybe_count(value, name)
