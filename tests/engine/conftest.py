"""Drives the engine's scheduler without a model, and judges what it recorded."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from batchspec.replay.checker import check_events
from batchspec.spec.events import COLUMNS, Event
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]

if find_spec("torch"):
    import torch

    from batchspec.engine.clock import VirtualClock
    from batchspec.engine.options import Options
    from batchspec.engine.scheduler import Scheduler
    from batchspec.engine.sequence import Request
    from batchspec.engine.tape import Tape

    torch.set_num_threads(1)


class Run(NamedTuple):
    """What a driven run left behind."""

    scheduler: "Scheduler"
    events: list[Event]
    ends: dict[Any, str]
    outputs: dict[Any, int]


def events_of(batches: list[pa.RecordBatch]) -> list[Event]:
    """Recorded batches as events, null as None."""
    found = []
    for batch in batches:
        for row in batch.to_pylist():
            values = (row[name] for name in COLUMNS)
            found.append(Event(*(tuple(item) if isinstance(item, list) else item for item in values)))
    return found


def drive_requests(
    profile: Profile,
    requests: "list[Request]",
    cancels: dict[int, list[Any]] | None = None,
    level: str = "L3",
) -> Run:
    """Serve `requests` with made-up tokens; `cancels` gives ids to cancel at the start of a step."""
    batches: list[pa.RecordBatch] = []
    tape = Tape(batches.append, level)
    scheduler, clock = Scheduler(Options.of(profile), tape), VirtualClock()
    coming = sorted(requests, key=lambda item: item.arrival_ns)[::-1]
    ends: dict[Any, str] = {}
    outputs: dict[Any, int] = {}
    while coming or scheduler.sequences:
        if not scheduler.running:
            moments = [coming[-1].arrival_ns] if coming else []
            deadline = scheduler.next_deadline()
            if scheduler.num_waiting and deadline is None:
                moments = []
            elif deadline is not None:
                moments.append(deadline)
            if moments:
                clock.wait_until(min(moments))
        scheduler.begin(clock.now())
        while coming and coming[-1].arrival_ns <= clock.now():
            scheduler.add(coming.pop())
        for request in (cancels or {}).get(scheduler.step, ()):
            scheduler.cancel(request)
        plan = scheduler.schedule()
        assert plan.tokens == sum(plan.counts)
        emitters = [
            sequence
            for sequence, start, count in zip(plan.sequences, plan.starts, plan.counts, strict=True)
            if start + count == len(sequence.tokens)
        ]
        tokens = [(7 * len(item.tokens) + item.prompt_len) % 5 for item in emitters]
        if plan.sequences:
            clock.ran(plan.tokens)
        scheduler.commit(plan, emitters, tokens, clock.now())
        for sequence, reason in scheduler.ended:
            ends[sequence.request.id] = reason
            outputs[sequence.request.id] = sequence.num_outputs
        scheduler.ended.clear()
        assert scheduler.step < 200_000, "no end in sight"
    tape.flush()
    if tape.broken:
        raise tape.broken
    return Run(scheduler, events_of(batches), ends, outputs)


def judge_run(run: Run) -> Report:
    """The verdict on a run under the engine's own full profile."""
    return check_events(run.events, run.scheduler.options.profile, complete=True)


@pytest.fixture(scope="session")
def drive() -> Callable[..., Run]:
    """Serve requests with made-up tokens."""
    return drive_requests


@pytest.fixture(scope="session")
def judge() -> Callable[[Run], Report]:
    """The verdict on a run."""
    return judge_run
