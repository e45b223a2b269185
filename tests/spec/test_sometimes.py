"""What must be possible is possible: the reference scheduler's traces come to each property.

A spec that allows nothing, or a scheduler that does nothing, breaks no rule; it fails here.
"""

from functools import cache
from random import Random

import pytest

from batchspec.replay.generate import random_run
from batchspec.replay.simulate import simulate
from batchspec.spec.events import Event
from batchspec.spec.profile import GROUPS, ORDERS, Profile
from batchspec.spec.records import Record
from batchspec.spec.sometimes import SOMETIMES

RUNS = 400


@cache
def runs() -> list[tuple[Profile, list[Event]]]:
    drawn = (random_run(Random(seed)) for seed in range(RUNS))
    return [(run.profile, list(run.events())) for run in drawn]


@pytest.mark.parametrize("name", SOMETIMES)
def test_the_reference_scheduler_comes_to_it(name: str) -> None:
    item = SOMETIMES[name]
    under = [(profile, events) for profile, events in runs() if item.applies(profile)]
    assert any(item.reached(events, profile) for profile, events in under), f"in none of {len(under)} traces"


@pytest.mark.parametrize("name", SOMETIMES)
def test_a_scheduler_that_does_nothing_never_comes_to_it(name: str) -> None:
    idle = [Event(1, "arrive", "A", prompt_tokens=4, max_tokens=2), Event(1, "step"), Event(2, "step")]
    for profile in (Profile(), runs()[0][0]):
        assert not SOMETIMES[name].reached([], profile)
        assert not SOMETIMES[name].reached(idle, profile)


@pytest.mark.parametrize("item", SOMETIMES.values(), ids=SOMETIMES)
def test_a_property_says_what_it_is_and_when_it_is_owed(item) -> None:
    assert item.sentence.endswith(".")
    for claim in item.premise:
        group, _, name = claim.partition("=")[0].partition(".")
        assert name in GROUPS[group].__dataclass_fields__


def test_each_mode_order_and_kind_of_preemption_has_its_own() -> None:
    claims = {claim for item in SOMETIMES.values() for claim in item.premise}
    assert {f"admission.order={order}" for order in ORDERS} <= claims
    assert {f"batching.mode={mode}" for mode in ("static", "dynamic", "continuous")} <= claims
    assert {f"preemption.mode={mode}" for mode in ("none", "recompute", "swap")} <= claims


@pytest.mark.parametrize("order", ["sjf", "priority", "fair"])
def test_first_come_first_served_never_comes_to_another_order(order: str) -> None:
    """The property of an order tells it from fcfs: a must-fail trace for each."""
    records = [
        Record("A", 0, 9, 4, priority=5, tenant="x"),
        Record("B", 0, 9, 4, priority=5, tenant="x"),
        Record("C", 0, 1, 1, priority=0, tenant="y"),
    ]
    property_of = next(item for item in SOMETIMES.values() if item.premise == (f"admission.order={order}",))

    def reaches(by: str) -> bool:
        claims = {"limits": {"max_seqs": 1}, "admission": {"order": by, "urgent": "low"}}
        profile = Profile.from_dict(claims)
        return property_of.reached(list(simulate(records, profile)), profile)

    assert reaches(order)
    assert not reaches("fcfs")


def test_static_batching_never_refills_a_seat_while_others_run() -> None:
    records = [Record("A", 0, 1, 1), Record("B", 0, 1, 5), Record("C", 0, 1, 1)]

    def refills(mode: str) -> bool:
        profile = Profile.from_dict({"limits": {"max_seqs": 2}, "batching": {"mode": mode}})
        return SOMETIMES["continuous/refill"].reached(list(simulate(records, profile)), profile)

    assert refills("continuous")
    assert not refills("static")
