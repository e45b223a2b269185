"""SGLang's scheduler status (`SGLANG_LOG_SCHEDULER_STATUS_TARGET`): who runs and who waits, by id.

| field | meaning | events |
| --- | --- | --- |
| `timestamp` | when the line was written, local time | `time_ns` since the first, of all its rows |
| `running_rids` | ids in the batch | see below; their number is `running` |
| `queued_rids` | ids that wait, in their order | see below; their number is `waiting` |
| `rank` | which rank; a trace is of one | checked |
| all others | | not carried |

A line is a snapshot, and what lies between two of them is the difference: an id seen for the first time
arrives (queued ones in their order); one that runs and did not is admitted, or resumed if it had run
before; one that waits and ran is preempted (SGLang drops its KV: `recompute`); one that ran and is in
neither list has ended, with a `finish` without a reason, since the snapshots do not tell an end from an
abort; one that waited and is in neither list is aborted, likewise without a reason. Those that run are
the members of the step (`schedule`, without tokens). A step of the trace is a line, counted from 0.
Where lines are written less often than once a step, what comes and goes between two is not seen. A
first line with requests makes the trace begin with `live` rows.

Source: https://github.com/sgl-project/sglang (Apache-2.0), the scheduler's status logger.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, items, word
from batchspec.traces.importers.jsontext import parsed
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.steps import Clock
from batchspec.traces.importers.stream import filled_lines
from batchspec.traces.importers.times import date
from batchspec.traces.text import one_line, shown

NAME: Final = "sglang-status"
SAYS: Final = "SGLang scheduler status (ids of running and queued requests)"

_EVENT: Final = '"event": "scheduler.status"'


class Snapshot(NamedTuple):
    """One line: its time, and the ids that run and that wait."""

    time_ns: int
    running: tuple[str, ...]
    waiting: tuple[str, ...]


def detect(head: bytes, path: Path) -> bool:
    """True for a log with a line about the scheduler's status."""
    return _EVENT.encode() in head and b'"running_rids"' in head


def header(path: Path) -> Header:
    """What the resulting trace says about itself. Reads the first line."""
    for snapshot in snapshots(path, ImportLog()):
        return Header(producer_name="sglang", clock="wall", begins="running" if snapshot.running else "empty")
    return Header(producer_name="sglang", clock="wall")


def snapshots(path: Path, log: ImportLog) -> Iterator[Snapshot]:
    """What each line says. Raises `TraceError` for a second rank."""
    log.place = one_line(path)
    rank: Any = None
    for line, text in filled_lines(path):
        log.line = line
        at = text.find("{")
        if at < 0 or _EVENT not in text:
            log.note("lines about something else")
            continue
        try:
            row = parsed(text[at:])
            time = date(row.get("timestamp"))
            if time is None:
                raise Unusable("a timestamp that is not a time")
            running, waiting = _ids(row, "running_rids"), _ids(row, "queued_rids")
            if set(running) & set(waiting):
                raise Unusable("an id that runs and waits at once")
        except Unusable as problem:
            log.drop(str(problem))
            continue
        if rank is None:
            rank = row.get("rank")
        elif row.get("rank") != rank:
            raise TraceError(
                f"{log.where}: rank {shown(row.get('rank'))} after {shown(rank)}: a trace is of one "
                "scheduler; keep the lines of one rank"
            )
        yield Snapshot(time, running, waiting)


def events(path: Path, log: ImportLog) -> Iterator[Event]:
    """The events between the snapshots, and a `step` row for each of them."""
    log.what = "events"
    clock = Clock(log)
    before: Snapshot | None = None
    ran: set[str] = set()
    step = -1
    for step, now in enumerate(snapshots(path, log)):
        time = clock.since_first(now.time_ns)
        changes = _opening(now) if before is None else _between(before, now, ran)
        for kind, request, reason in (*changes, *(("schedule", request, None) for request in now.running)):
            log.kept += 1
            yield Event(step, kind, request, time, reason=reason)
        ran.update(now.running)
        ran.intersection_update((*now.running, *now.waiting))
        before = now
        log.kept += 1
        yield Event(step, "step", time_ns=time, waiting=len(now.waiting), running=len(now.running))
    log.line = 0
    if step < 0:
        raise log.nothing()


def _ids(row: dict[str, Any], name: str) -> tuple[str, ...]:
    ids = tuple(word(item, name) for item in items(row.get(name), name))
    if len(set(ids)) < len(ids):
        raise Unusable(f"{name} holds an id twice")
    return ids


def _opening(now: Snapshot) -> Iterator[tuple[str, str, str | None]]:
    """The first snapshot: what was there before it, nobody can say."""
    if not now.running:
        for request in now.waiting:
            yield "arrive", request, None
        return
    for request in now.running:
        yield "live", request, "running"
    for request in now.waiting:
        yield "live", request, "waiting"


def _between(before: Snapshot, now: Snapshot, ran: set[str]) -> Iterator[tuple[str, str, str | None]]:
    """The events that lead from one snapshot to the next, ends first: they make room."""
    known = {*before.running, *before.waiting}
    running, waiting = set(now.running), set(now.waiting)
    did_run = set(before.running)
    for request in before.running:
        if request not in running and request not in waiting:
            yield "finish", request, None
    for request in before.waiting:
        if request not in running and request not in waiting:
            yield "abort", request, None
    for request in (*now.running, *now.waiting):
        if request not in known:
            yield "arrive", request, None
    for request in now.waiting:
        if request in did_run:
            yield "preempt", request, "recompute"
    for request in now.running:
        if request not in did_run:
            yield "resume" if request in ran else "admit", request, None
