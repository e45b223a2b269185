"""The two worked examples, pinned to every number: the four steps of the trace format, and static
against continuous batching of eight requests on four slots."""

import pytest

from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference import ReferenceScheduler

LENGTHS = (6, 2, 8, 3, 5, 2, 7, 3)


def run(scheduler: ReferenceScheduler) -> list[Event]:
    events: list[Event] = []
    while not scheduler.idle:
        events += scheduler.step(0)
    return events


def test_the_four_steps_of_the_trace_format() -> None:
    profile = Profile.from_dict(
        {
            "limits": {"max_seqs": 2, "token_budget": 8, "kv_blocks": 3, "block_size": 4},
            "batching": {"mode": "continuous", "chunked_prefill": True, "mixed": True},
            "admission": {"order": "fcfs", "misfit": "stop", "test": "step", "reserve": "step"},
            "preemption": {"mode": "recompute", "victim": "latest-admitted", "resume": "front"},
        }
    )
    scheduler = ReferenceScheduler(profile)
    scheduler.add(Record("A", 0, prompt_tokens=6, output_tokens=3), 0)
    scheduler.add(Record("B", 0, prompt_tokens=5, output_tokens=3), 0)
    rows = [
        (e.step, e.event, e.request, e.start, e.tokens, e.blocks, e.free_blocks, e.cause, e.slot)
        for e in run(scheduler)
        if e.event != "arrive"
    ]
    none = None
    assert rows[:15] == [
        (1, "admit", "A", none, none, 2, none, none, 0),
        (1, "schedule", "A", 0, 6, 2, none, none, none),
        (1, "admit", "B", none, none, 1, none, none, 1),
        (1, "schedule", "B", 0, 2, 1, none, none, none),
        (1, "step", none, none, none, none, 0, none, none),
        (2, "schedule", "A", 6, 1, 2, none, none, none),
        (2, "preempt", "B", none, none, 0, none, "B", none),
        (2, "step", none, none, none, none, 1, none, none),
        (3, "schedule", "A", 7, 1, 2, none, none, none),
        (3, "finish", "A", none, none, 0, none, none, none),
        (3, "step", none, none, none, none, 3, none, none),
        (4, "resume", "B", none, none, 2, none, none, 0),
        (4, "schedule", "B", 0, 5, 2, none, none, none),
        (4, "step", none, none, none, none, 1, none, none),
        (5, "schedule", "B", 5, 1, 2, none, none, none),
    ]


@pytest.mark.parametrize(
    ("mode", "makespan", "mean_finish", "finishes"),
    [
        ("static", 15, 8.5, (6, 2, 8, 3, 13, 10, 15, 11)),
        ("continuous", 12, 6.5, (6, 2, 8, 3, 7, 5, 12, 9)),
    ],
)
def test_eight_requests_on_four_slots(
    mode: str, makespan: int, mean_finish: float, finishes: tuple[int, ...]
) -> None:
    profile = Profile.from_dict({"limits": {"max_seqs": 4}, "batching": {"mode": mode}})
    scheduler = ReferenceScheduler(profile)
    for number, length in enumerate(LENGTHS):
        scheduler.add(Record(number, 0, prompt_tokens=1, output_tokens=length), 0)
    events = run(scheduler)
    ends = {e.request: e.step for e in events if e.event == "finish"}
    useful = sum(e.event == "schedule" for e in events)
    assert tuple(ends[number] for number in range(8)) == finishes
    assert events[-1].step == makespan
    assert sum(ends.values()) / 8 == mean_finish
    assert useful == 36
    assert useful / (4 * makespan) == {"static": 0.60, "continuous": 0.75}[mode]
