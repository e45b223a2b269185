"""Llumnix instance logs: CSV, one row a step of one instance.

| column | meaning | event, iteration |
| --- | --- | --- |
| `timestamp` | end of the step, seconds since 1970 | `time_ns` since the first |
| `instance_id` | which instance; a trace is of one | checked |
| `step_id` | number of the step | `step` |
| `num_available_gpu_blocks` | free KV blocks after it | `free_blocks` |
| `num_running_requests`, `num_waiting_requests` | after it | `running`, `waiting` |
| `num_killed_requests` | requests preempted | counted: their ids are not in the file |
| `bs` | tokens in the batch | `tokens` |
| `inference_type` | prefill or decode | not carried |
| all others | | not carried |

The file names no requests, so the trace is of `step` rows alone. A second instance is refused, and so is
a step number that does not rise.

Source: https://github.com/AlibabaPAI/llumnix (Apache-2.0), the instance log; Sun et al.,
"Llumnix", OSDI 2024.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.steps import Iteration, events_of
from batchspec.traces.importers.table import columns_of, opened
from batchspec.traces.importers.times import nanoseconds
from batchspec.traces.text import shown

NAME: Final = "llumnix"
SAYS: Final = "Llumnix instance logs (CSV)"
COLUMNS: Final = (
    "timestamp",
    "instance_id",
    "step_id",
    "num_available_gpu_blocks",
    "num_running_requests",
    "num_waiting_requests",
    "num_killed_requests",
    "bs",
)
NOT_READ: Final = (
    "gpu_cache_usage",
    "migration_load_metric",
    "inference_type",
    "profiling_data",
    "seq_lens",
    "num_instances",
    "num_seqs",
    "num_blocks_first_waiting_request",
    "num_blocks_all_waiting_requests",
    "waiting_time_first_waiting_request",
    "kv_blocks_ratio",
    "remaining_steps",
    "adaptive_decode",
    "miss_waiting_tokens",
)


def detect(head: bytes, path: Path) -> bool:
    """True for a table with an instance, its steps and blocks."""
    return set(COLUMNS) <= set(columns_of(head))


def header(path: Path) -> Header:
    """What the resulting trace says about itself."""
    return Header(producer_name="llumnix", clock="wall")


def iterations(path: Path, log: ImportLog) -> Iterator[Iteration]:
    """What the file says of each step. Raises `TraceError` for a second instance."""
    rows, pick = opened(path, COLUMNS, log, NOT_READ)
    instance = None
    for line, row in rows:
        log.line = line
        try:
            time, which, step, free, running, waiting, killed, tokens = pick(row)[: len(COLUMNS)]
            iteration = Iteration(
                count(step, "step_id"),
                nanoseconds(time, "s", "timestamp"),
                tokens=count(tokens, "bs"),
                running=count(running, "num_running_requests"),
                waiting=count(waiting, "num_waiting_requests"),
                free_blocks=count(free, "num_available_gpu_blocks"),
            )
            if gone := count(killed, "num_killed_requests"):
                log.note("requests preempted: their ids are not in the file", gone)
        except Unusable as problem:
            log.drop(str(problem))
            continue
        if instance is None:
            instance = which
        elif which != instance:
            raise TraceError(
                f"{log.where}: instance_id {shown(which)} after {shown(instance)}: a trace is of one "
                "instance; keep the rows of one"
            )
        yield iteration


def events(path: Path, log: ImportLog) -> Iterator[Event]:
    """The `step` rows. Raises `TraceError` for a step number that does not rise."""
    log.what = "events"
    return events_of(iterations(path, log), log, "step_id")
