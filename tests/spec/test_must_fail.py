"""Models that must fail: schedulers that are wrong in one way, each with the shortest path that shows it.

A spec in which one of these passed would say nothing. Each scheduler makes its own choices (`eager`), but
for arrivals and stops; its right counterpart, under the same limits and requests, passes.
"""

from collections.abc import Iterable, Sequence

import pytest

from batchspec.replay.checker import check_events
from batchspec.spec.events import Event
from batchspec.spec.explore import Exploration, explore
from batchspec.spec.frame import Job
from batchspec.spec.invariants import INVARIANTS, ITERATION_ORDER, SERVICE_GAP, Invariant, no_thrash
from batchspec.spec.model import Request, State
from batchspec.spec.overlap import APART, Overlap
from batchspec.spec.policies import FairShares, urgency
from batchspec.spec.profile import Profile
from batchspec.spec.space import Space
from batchspec.spec.watches import FRUITLESS, RAN, SERVICE

RESERVED = {"admission.test": "full", "admission.reserve": "full", "preemption.mode": "none"}
WHOLE = {"batching.chunked_prefill": False}


def profile_of(limits: tuple[int, int, int, int], options: dict[str, object]) -> Profile:
    """Limits are S, T, N and b."""
    names = ("max_seqs", "token_budget", "kv_blocks", "block_size")
    data: dict[str, dict[str, object]] = {
        "limits": dict(zip(names, limits, strict=True)),
        "batching": {"mode": "continuous", "chunked_prefill": True},
        "admission": {"order": "fcfs", "misfit": "stop", "test": "step", "reserve": "step"},
        "preemption": {
            "mode": "recompute",
            "victim": "latest-admitted",
            "resume": "front",
            "admit_in_same_step": False,
        },
    }
    for option, value in options.items():
        group, name = option.split(".")
        data.setdefault(group, {})[name] = value
    return Profile.from_dict(data)


def story(events: Iterable[Event]) -> list[str]:
    """A path in short: who joins, leaves and ends in which step, and who runs how many tokens."""
    words = []
    for event in events:
        if event.event == "schedule":
            words.append(f"{event.step} run {event.request} {event.tokens}")
        elif event.event in ("arrive", "preempt", "finish"):
            words.append(f"{event.step} {event.event} {event.request}")
    return words


def told(rule: str, events: Sequence[Event], profile: Profile) -> bool:
    """Whether the checker, too, finds it in the trace of the path."""
    return any(finding.rule == rule for finding in check_events(events, profile, complete=False).findings)


# -- Orca stops at the first misfit ------------------------------------------------------------------


def orca(misfit: str) -> tuple[Exploration, Profile]:
    profile = profile_of((3, 9, 6, 1), {**RESERVED, **WHOLE, "admission.misfit": misfit})
    jobs = [Job(1, 2), Job(2, 2), Job(1, 2)]
    space = Space(profile, jobs, eager=True, watches=frozenset({RAN}))
    return explore(space, invariants=(*INVARIANTS, ITERATION_ORDER)), profile


def test_iteration_order_holds_where_the_first_misfit_stops_the_line():
    assert orca("stop")[0].holds


def test_skipping_the_head_breaks_iteration_order():
    """Orca (OSDI'22), algorithm 1: `break`, not `continue`."""
    (broken,) = orca("skip")[0].broken

    assert broken.invariant is ITERATION_ORDER
    assert story(broken.path) == ["1 arrive A", "1 arrive B", "1 arrive C", "1 run A 1", "1 run C 1"]
    assert told("admission/head-of-line", broken.path, orca("stop")[1])


# -- virtual token counters --------------------------------------------------------------------------


class WithoutEmptyCase(FairShares):
    """A lift only where the queue holds somebody: a tenant that wakes first keeps an old, low counter."""

    def enter(self, tenant: str | None) -> None:
        """VT1 without its lines 8 to 10."""
        self.last_left = None
        super().enter(tenant)


class HalfLifted(Space):
    """Order `fair` with that counter."""

    def shares_of(self, profile: Profile) -> FairShares:
        """Its counters."""
        return WithoutEmptyCase.of(profile)


def fair(tenants: str, model: type[Space] = Space, lift: bool = True) -> Exploration:
    """One seat, prompts of one token and one output, w_p = w_q = 1: U = 2, each request is worth 2."""
    options = {**RESERVED, **WHOLE, "admission.order": "fair", "fairness.w_q": 1, "fairness.lift": lift}
    jobs = [Job(1, 1, 0, tenant) for tenant in tenants]
    space = model(profile_of((1, 2, 2, 1), options), jobs, eager=True, watches=frozenset({SERVICE}))
    return explore(space, invariants=(*INVARIANTS, SERVICE_GAP))


def test_the_service_bound_holds_with_the_lift():
    assert fair("xxxxyyyy").holds
    assert fair("xxxyxyyy").holds


def test_without_the_lift_the_service_bound_breaks():
    """VTC (OSDI'24), line 12: x is served three times alone, then y three times while x waits."""
    (broken,) = fair("xxxxyyyy", lift=False).broken

    assert broken.invariant is SERVICE_GAP
    assert [line for line in story(broken.path) if "run" in line] == [
        "1 run A 1",
        "2 run B 1",
        "3 run C 1",
        "4 run E 1",
        "5 run F 1",
        "6 run G 1",
    ]


def test_a_lift_without_the_empty_queue_breaks_the_service_bound():
    """VTC, lines 8 to 10, which the artifact leaves out."""
    (broken,) = fair("xxxyxyyy", HalfLifted).broken

    assert broken.invariant is SERVICE_GAP
    assert [line[-3] for line in story(broken.path) if "run" in line] == list("ABCDFG")


# -- preemption --------------------------------------------------------------------------------------


class Equals(Space):
    """A request that waits may take the place of one that is as urgent."""

    def more_urgent(self, waiting: Request, running: Request) -> bool:
        """`≤` where `<` is right."""
        return urgency(waiting, self.profile) <= urgency(running, self.profile)


def urgent(model: type[Space]) -> Exploration:
    options: dict[str, object] = {
        "admission.order": "priority",
        "admission.urgent": "low",
        "preemption.victim": "least-urgent",
        "preemption.resume": "arrival",
        "preemption.for_waiting": True,
        "preemption.admit_in_same_step": True,
    }
    return explore(model(profile_of((1, 2, 4, 1), options), [Job(3, 1), Job(3, 1)], eager=True))


def test_strictly_more_urgent_requests_never_go_round():
    assert urgent(Space).holds


def test_preemption_of_equals_swaps_for_ever():
    (livelock,) = urgent(Equals).livelocks

    assert story(livelock.cycle) == [
        "3 run B 1",
        "3 preempt B",
        "3 run A 2",
        "4 run A 1",
        "4 preempt A",
        "4 run B 2",
    ]


class Capped(Space):
    """No part of a prompt is longer than one token (vLLM: long_prefill_token_threshold)."""

    def _chunks(self, state: State, record: Request) -> Sequence[int]:
        return [1] if super()._chunks(state, record) else []


def under_pressure(test: str, victim: str = "self") -> Exploration:
    options: dict[str, object] = {"admission.test": test, "preemption.victim": victim}
    return explore(Capped(profile_of((2, 2, 4, 1), options), [Job(4, 1), Job(4, 1)], eager=True))


def test_admission_by_all_known_tokens_makes_progress():
    assert under_pressure("known").holds
    assert under_pressure("step", "latest-admitted").holds


def test_admission_by_the_next_chunk_livelocks_under_pressure():
    """Both need the whole pool to emit; who is short gives up its own blocks, and is back at once."""
    (livelock, *_) = under_pressure("step").livelocks

    assert story(livelock.path) == [
        "1 arrive A",
        "1 run A 1",
        "2 run A 1",
        "3 arrive B",
        "3 run A 1",
        "3 run B 1",
    ]
    assert story(livelock.cycle) == [
        "4 preempt A",
        "4 run B 1",
        "5 run B 1",
        "5 run A 1",
        "6 preempt B",
        "6 run A 1",
        "7 run A 1",
        "7 run B 1",
    ]


def growing(watermark: int, invariant: Invariant) -> Exploration:
    profile = profile_of((2, 3, 5, 1), {"admission.watermark_blocks": watermark})
    space = Space(profile, [Job(1, 4), Job(4, 2)], eager=True, watches=frozenset({FRUITLESS}))
    return explore(space, invariants=(invariant,))


def test_a_watermark_of_zero_with_growth_thrashes():
    """B is let in, evicted by A's growth, let in again and evicted again, with nothing to show for it."""
    (broken,) = growing(0, no_thrash(1)).broken

    assert [line for line in story(broken.path) if "preempt" in line] == ["2 preempt B", "4 preempt B"]
    assert growing(1, no_thrash(1)).holds


def test_full_reservation_never_preempts():
    """What growth makes happen under `step` cannot happen at all under `full`."""
    reached = {}
    for need in ("step", "full"):
        profile = profile_of((2, 4, 4, 1), {"admission.test": need, "admission.reserve": need})
        found = explore(Space(profile, [Job(2, 2), Job(1, 3), Job(1, 1)]))
        assert found.holds
        reached[need] = found.reached["recomputes"]
    assert reached == {"step": True, "full": False}


# -- what can never fit ------------------------------------------------------------------------------


class Silent(Space):
    """Nobody is ever refused."""

    def rejects(self, state: State, record: Request) -> bool:
        """Never."""
        return False


def test_never_fit_without_rejection_stalls():
    profile = profile_of((2, 4, 2, 1), {"admission.test": "known"})
    jobs = [Job(3, 1), Job(1, 1)]

    assert explore(Space(profile, jobs, eager=True)).holds
    (path,) = explore(Silent(profile, jobs, eager=True)).stuck
    assert story(path) == ["1 arrive A", "1 arrive B"]


# -- overlap -----------------------------------------------------------------------------------------


def overlapped(block_lag: int, jobs: Sequence[Job]) -> tuple[Exploration, Profile]:
    """Two passes in flight that nothing orders; one seat and one request's blocks."""
    limits = {"max_seqs": 1, "token_budget": 4, "kv_blocks": 3, "block_size": 1}
    reuse = {"depth": 2, "slot_lag": 1, "overlap_member": 1, "block_lag": block_lag}
    profile = Profile.from_dict({"limits": limits, "batching": {"lookahead": 0}, "reuse": reuse})
    return explore(Overlap(profile, jobs), invariants=(APART,)), profile


def test_blocks_that_come_back_two_steps_late_are_written_by_nobody_else():
    """What ends by pass k is a member of pass k + 1, which completes in step k + 2."""
    for jobs in ([Job(1, 2)] * 2, [Job(1, 2)] * 3, [Job(2, 1), Job(1, 2), Job(1, 1)]):
        assert overlapped(2, jobs)[0].holds


@pytest.mark.parametrize("block_lag", [1, 0])
def test_blocks_released_one_step_early_under_overlap_are_used_after_release(block_lag):
    found, profile = overlapped(block_lag, [Job(1, 2), Job(1, 2)])

    (broken,) = found.broken
    assert broken.invariant is APART
    assert story(broken.path) == [
        "1 arrive A",
        "1 run A 1",
        "2 run A 1",
        "2 finish A",
        "3 arrive B",
        "3 run B 1",
    ]
    assert told("memory/use-after-release", broken.path, profile)


def test_ordered_passes_make_it_safe_again():
    """The rule asks for completion only where the device may run passes side by side."""
    found, profile = overlapped(1, [Job(1, 2), Job(1, 2)])
    ordered = profile.merged(Profile.from_dict({"reuse": {"ordered_passes": True}}))

    assert not told("memory/use-after-release", found.broken[0].path, ordered)
