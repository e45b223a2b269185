"""Orders of admission, victims, and the virtual token counters."""

from dataclasses import dataclass

import pytest

from batchspec.spec import policies
from batchspec.spec.errors import SpecError
from batchspec.spec.policies import FairShares, admission_rank, register_order, register_victim, victim_of
from batchspec.spec.profile import Profile
from batchspec.spec.rates import RateLimits


@dataclass(frozen=True)
class Someone:
    """A candidate with the fields that policies may look at."""

    id: str
    number: int = 0
    prompt: int | None = 1
    max_tokens: int | None = 1
    priority: int | None = None
    tenant: str | None = None
    outputs: int | None = 0
    place: int = 0
    first_admit: int | None = None
    joined: int | None = None


def profile(**groups: dict[str, object]) -> Profile:
    return Profile.from_dict(groups)


def next_of(waiting: list[Someone], claims: Profile, preempted: set[str] | None = None) -> str:
    back = preempted or set()
    return min(waiting, key=lambda r: admission_rank(r, r.id in back, claims)).id


def test_each_order_names_its_next() -> None:
    waiting = [
        Someone("early", number=0, place=0, prompt=9, max_tokens=9, priority=5),
        Someone("short", number=1, place=1, prompt=1, max_tokens=2, priority=7),
        Someone("low", number=2, place=2, prompt=5, max_tokens=5, priority=1),
    ]
    assert next_of(waiting, profile(admission={"order": "fcfs"})) == "early"
    assert next_of(waiting, profile(admission={"order": "sjf"})) == "short"
    assert next_of(waiting, profile(admission={"order": "priority", "urgent": "low"})) == "low"
    assert next_of(waiting, profile(admission={"order": "priority", "urgent": "high"})) == "short"


def test_sjf_puts_unknown_work_last_and_breaks_ties_by_place() -> None:
    claims = profile(admission={"order": "sjf"})
    unknown = Someone("unknown", place=0, max_tokens=None)
    assert next_of([unknown, Someone("known", place=1, prompt=10**6)], claims) == "known"
    assert next_of([Someone("b", place=2), Someone("a", place=1)], claims) == "a"


@pytest.mark.parametrize(("resume", "first"), [("front", "victim"), ("back", "new"), ("arrival", "victim")])
def test_a_preempted_request_returns_where_the_profile_says(resume: str, first: str) -> None:
    claims = profile(admission={"order": "fcfs"}, preemption={"resume": resume})
    # Under `back` its place is that of its preemption, after the new request's arrival.
    victim = Someone("victim", number=0, place=2 if resume == "back" else 0, first_admit=0)
    new = Someone("new", number=1, place=1)
    assert next_of([new, victim], claims, {"victim"}) == first


def test_front_orders_several_victims_by_first_admission_and_respects_urgency() -> None:
    front = profile(admission={"order": "priority", "urgent": "low"}, preemption={"resume": "front"})
    first, second = Someone("first", place=5, first_admit=0), Someone("second", place=1, first_admit=1)
    assert next_of([second, first], front, {"first", "second"}) == "first"
    urgent = Someone("urgent", place=9, priority=-1)
    assert next_of([first, urgent], front, {"first"}) == "urgent"


def test_each_victim_rule_names_its_victim() -> None:
    running = [
        Someone("a", number=2, joined=0, outputs=5, priority=3),
        Someone("b", number=0, joined=2, outputs=1, prompt=4, priority=1),
        Someone("c", number=1, joined=1, outputs=1, prompt=9, priority=3),
    ]
    needy = running[0]
    expected = {
        "latest-admitted": "b",
        "latest-arrived": "a",
        "self": "a",
        "fewest-outputs": "c",
        "least-urgent": "a",
    }
    for name, victim in expected.items():
        claims = profile(preemption={"victim": name}, admission={"urgent": "low"})
        found = victim_of(running, needy, claims)
        assert found is not None, name
        assert found.id == victim, name


def test_newest_denied_looks_only_at_those_that_were_denied() -> None:
    running = [Someone("a", joined=0), Someone("b", joined=1), Someone("c", joined=2)]
    claims = profile(preemption={"victim": "newest-denied"})
    found = victim_of(running, running[0], claims, denied=running[:2])
    assert found is not None
    assert found.id == "b"


def test_a_waiting_request_evicts_only_strictly_less_urgent_ones() -> None:
    claims = profile(admission={"urgent": "low"}, preemption={"victim": "least-urgent"})
    running = [Someone("same", priority=1), Someone("less", priority=2)]
    found = victim_of(running, Someone("waiting", priority=1), claims)
    assert found is not None
    assert found.id == "less"
    assert victim_of(running[:1], Someone("waiting", priority=1), claims) is None


def test_names_are_open_but_not_twice() -> None:
    with pytest.raises(SpecError, match="exists already"):
        register_order("fcfs", policies.sjf)
    with pytest.raises(SpecError, match="exists already"):
        register_victim("self", policies.latest_admitted)
    register_victim("shortest-prompt", lambda request, _: (request.prompt or 0,))
    try:
        claims = Profile()
        object.__setattr__(claims.preemption, "victim", "shortest-prompt")
        found = victim_of([Someone("long", prompt=9), Someone("short", prompt=2)], None, claims)
        assert found is not None
        assert found.id == "short"
    finally:
        del policies.VICTIMS["shortest-prompt"]


def test_vtc_lifts_a_tenant_that_wakes_to_the_least_of_those_that_wait() -> None:
    """VT1, the queue is not empty: c_u = max(c_u, min over the waiting tenants)."""
    shares = FairShares()
    for tenant, service in (("a", 10), ("b", 30)):
        shares.enter(tenant)
        shares.admit(tenant, service)
    shares.enter("new")
    assert shares.counter("new") == 10
    shares.leave("a")
    shares.enter("late")
    assert shares.counter("late") == 10, "the least is now the new tenant's own lifted counter"
    assert shares.counter("b") == 40, "lifted to 10 on its arrival, then charged; never lowered"


def test_vtc_lifts_to_the_last_tenant_that_left_where_nobody_waits() -> None:
    """VT1, the queue is empty: c_u = max(c_u, counter of the last tenant that left)."""
    shares = FairShares()
    for tenant, service in (("a", 50), ("b", 20)):
        shares.enter(tenant)
        shares.leave(tenant)
        shares.admit(tenant, service)
    # b woke while the queue was empty, after a had left with 50: it was lifted to 50 first.
    assert shares.counter("b") == 70
    shares.enter("c")
    assert shares.counter("c") == 70
    without = FairShares(lift=False)
    without.enter("a")
    without.admit("a", 50)
    without.enter("c")
    assert without.counter("c") == 0


def test_vtc_charges_outputs_at_the_end_of_the_step_and_divides_by_weight() -> None:
    shares = FairShares(w_p=1, w_q=2, weights={"heavy": 4})
    shares.emit("heavy", 1)
    shares.emit("heavy", 1)
    assert shares.counter("heavy") == 0
    shares.end_step()
    assert shares.counter("heavy") == 1
    shares.admit("heavy", 8)
    assert shares.counter("heavy") == 3


def test_rate_limits_slide_and_count_only_what_was_accepted() -> None:
    rates = RateLimits({"a": {"requests": 2, "per_ns": 10}, "*": {"requests": 1, "per_ns": 10}})
    for now, refused in ((0, False), (5, False), (6, True), (9, True), (10, False), (14, True)):
        assert rates.exceeded("a", now) is refused, now
        if not refused:
            rates.accept("a", now)
    rates.accept("b", 0)
    assert rates.exceeded("b", 9)
    assert not rates.exceeded("c", 9), "each other tenant has a window of its own"
    assert not RateLimits(None).exceeded("a", 0)
