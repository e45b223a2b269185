"""Iterations: what a scheduler's own log says of each step, and the `step` rows made of it.

Such logs count members and tokens and do not name requests, so a trace made of them has no `schedule`
rows and can be judged only where a rule asks for what the engine reports. `tokens` of a `step` row is
the number of positions computed in the step, all members together.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.times import iso


class Iteration(NamedTuple):
    """One iteration as its engine reports it. Times are nanoseconds, null is what the log does not say."""

    step: int
    time_ns: int | None = None
    """Its end, on the log's clock."""
    elapsed_ns: int | None = None
    context_requests: int | None = None
    context_tokens: int | None = None
    generation_requests: int | None = None
    generation_tokens: int | None = None
    tokens: int | None = None
    """Positions computed in all."""
    running: int | None = None
    waiting: int | None = None
    free_blocks: int | None = None
    used_blocks: int | None = None


def events_of(iterations: Iterable[Iteration], log: ImportLog, name: str) -> Iterator[Event]:
    """A `step` row for each, with times from the first. `name` is what the log calls the step number.

    Raises `TraceError` for a number that does not rise: a restart of the engine is a trace of its own.
    Raises it too for a file without any iteration.
    """
    clock = Clock(log)
    before = -1
    for iteration in iterations:
        rising(before, iteration.step, log, name)
        before = iteration.step
        log.kept += 1
        yield row_of(iteration, clock.since_first(iteration.time_ns))
    log.line = 0
    if before < 0:
        raise log.nothing()


def row_of(iteration: Iteration, time_ns: int | None) -> Event:
    """The `step` row of an iteration that ended at `time_ns` of the trace's clock."""
    return Event(
        iteration.step,
        "step",
        time_ns=time_ns,
        tokens=iteration.tokens,
        free_blocks=iteration.free_blocks,
        waiting=iteration.waiting,
        running=iteration.running,
    )


def rising(before: int, step: int, log: ImportLog, name: str) -> None:
    """Raise `TraceError` unless `step` is above the one before."""
    if step <= before:
        raise TraceError(
            f"{log.where}: {name} {step} after {before}: the engine was started anew; "
            "cut the file here and import each part"
        )


class Clock:
    """Times of a log, counted from the first; `dated` says whether they are counted from 1970."""

    def __init__(self, log: ImportLog, dated: bool = True) -> None:
        """A clock that has not begun yet."""
        self._log = log
        self._dated = dated
        self._origin: int | None = None

    def since_first(self, nanos: int | None) -> int | None:
        """The time since the first that was asked for; null stays null."""
        if nanos is None:
            return None
        if self._origin is None:
            self._origin = nanos
            if self._dated:
                self._log.started_at = iso(nanos)
        return nanos - self._origin
