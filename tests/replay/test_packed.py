"""The packed form against the readable space: the same states next, the same counts, the same verdicts."""

import random
from collections import Counter
from typing import Any

import pytest

from batchspec.replay.checker import check_events
from batchspec.replay.compiled import available
from batchspec.replay.packed.claims import CLAIM_IDS
from batchspec.replay.packed.layout import frame_of, words_of
from batchspec.replay.packed.moves import SIGHT_IDS
from batchspec.replay.packed.search import Packed, explore_packed
from batchspec.spec.errors import SpecError
from batchspec.spec.explore import explore
from batchspec.spec.frame import START, Job
from batchspec.spec.invariants import INVARIANTS
from batchspec.spec.profile import Profile
from batchspec.spec.sights import SIGHTS
from batchspec.spec.space import Space
from batchspec.spec.watches import RAN

fast = pytest.mark.skipif(not available(), reason="needs the extra fast")

WORDS: dict[str, tuple[Any, ...]] = {
    "batching.mode": ("continuous", "continuous", "static"),
    "batching.chunked_prefill": (True, True, False),
    "batching.stall_free": (None, True),
    "admission.order": ("fcfs", "sjf", "priority", "fair"),
    "admission.misfit": ("stop", "skip"),
    "admission.test": ("step", "known", "known+1", "full"),
    "admission.reserve": ("step", "known", "full"),
    "admission.watermark_blocks": (None, None, 1),
    "admission.work_conserving": (None, True),
    "preemption.mode": ("none", "recompute", "recompute", "swap"),
    "preemption.victim": ("latest-admitted", "latest-arrived", "fewest-outputs", "least-urgent", "self"),
    "preemption.resume": ("front", "back", "arrival"),
    "preemption.admit_in_same_step": (False, True),
    "preemption.for_waiting": (None, True),
    "fairness.lift": (None, False),
    "fairness.w_q": (None, 1),
}


# Draws whose claims do not go together: a test below the reserve, or no preemption where requests grow.
BROKEN = (173, 184, 220, 283, 401)
STUCK = (157, 163, 283, 401)


def drawn(seed: int) -> Space:
    """A space of the packed form's domain: sizes, claims, requests and settings by chance."""
    rng = random.Random(seed)
    data: dict[str, dict[str, Any]] = {
        "limits": {
            "max_seqs": rng.randint(1, 3),
            "token_budget": rng.randint(2, 5),
            "kv_blocks": rng.randint(2, 5),
            "block_size": rng.randint(1, 2),
        }
    }
    for path, words in WORDS.items():
        group, name = path.split(".")
        word = rng.choice(words)
        if word is not None:
            data.setdefault(group, {})[name] = word
    data["admission"]["urgent"] = rng.choice(("low", "high"))
    if data["preemption"]["mode"] == "none":
        data["preemption"].pop("for_waiting", None)
    if rng.random() < 0.3:
        data["limits"]["host_blocks"] = rng.randint(0, 2)
    kinds = [
        Job(rng.randint(1, 4), rng.randint(1, 3), rng.randint(0, 2), rng.choice("xyz")) for _ in range(3)
    ]
    jobs = [rng.choice(kinds) for _ in range(rng.randint(2, 4))]
    switches = ("stops", "aborts", "eager", "symmetry")
    settings = {
        name: rng.random() < share for name, share in zip(switches, (0.7, 0.3, 0.3, 0.3), strict=True)
    }
    return Space(Profile.from_dict(data), jobs, **settings)


@fast
@pytest.mark.parametrize("seed", range(60))
def test_every_state_has_the_same_states_next(seed):
    space = drawn(seed)
    packed = Packed(space)
    seen, queue = {START}, [START]
    for frame in queue:
        after = [space.apply(frame, rows) for rows in space.enabled(frame)]
        assert Counter(packed.after(frame)) == Counter(after), frame
        fresh = [other for other in dict.fromkeys(after) if other not in seen]
        seen.update(fresh)
        queue += fresh[: 120 - len(queue)]


@fast
@pytest.mark.parametrize("seed", sorted({*range(100, 115), *BROKEN, *STUCK}))
def test_the_whole_exploration_is_the_same(seed):
    space = drawn(seed)
    readable = explore(space)

    assert (seed in BROKEN) == bool(readable.broken)
    assert (seed in STUCK) == bool(readable.stuck)
    for workers in (1, 2, 3):
        packed = explore_packed(Packed(space), workers=workers)

        assert_same(packed, readable)


def assert_same(packed, readable) -> None:
    for name in ("states", "transitions", "depth", "ends", "whole", "reached", "livelocks"):
        assert getattr(packed, name) == getattr(readable, name), name
    assert {one.invariant.id for one in packed.broken} == {one.invariant.id for one in readable.broken}
    assert len(packed.stuck) == len(readable.stuck)


def space_of(jobs: list[Job], eager: bool = False, **options: Any) -> Space:
    data: dict[str, dict[str, Any]] = {
        "limits": {"max_seqs": 2, "token_budget": 3, "kv_blocks": 3, "block_size": 1},
        "batching": {"chunked_prefill": True},
        "admission": {"order": "fcfs", "misfit": "stop", "test": "step", "reserve": "step"},
        "preemption": {"mode": "recompute", "victim": "latest-admitted", "resume": "front"},
    }
    for option, value in options.items():
        group, name = option.split("__")
        data[group][name] = value
    return Space(Profile.from_dict(data), jobs, eager=eager)


@fast
def test_the_way_to_a_broken_invariant_is_as_short_and_a_trace():
    """A test that asks for less than the reserve takes: more blocks are held than there are."""
    space = space_of([Job(1, 2)] * 2, limits__kv_blocks=4, admission__test="known", admission__reserve="full")
    readable, packed = explore(space), explore_packed(Packed(space))

    assert_same(packed, readable)
    (mine,), (other,) = packed.broken, readable.broken
    assert mine.invariant.id == "memory/bound"
    assert len(mine.path) == len(other.path)
    findings = check_events(mine.path, space.profile, complete=False).findings
    assert "memory/bound" in {finding.rule for finding in findings}


@fast
def test_a_state_from_which_nothing_goes_on_is_found():
    """Without preemption both have grown into the pool, and neither can grow on."""
    space = space_of([Job(2, 2), Job(1, 2)], eager=True, preemption__mode="none")
    readable, packed = explore(space), explore_packed(Packed(space))

    assert_same(packed, readable)
    assert len(packed.stuck) == 1


@fast
def test_going_round_is_found_and_told():
    """A lazy scheduler may evict and take in again as often as it likes."""
    space = space_of([Job(2, 2), Job(1, 2)])
    readable, packed = explore(space, cycles=True), explore_packed(Packed(space), cycles=True)

    assert packed.livelocks == readable.livelocks != ()
    assert explore_packed(Packed(space_of([Job(2, 2)])), cycles=True).livelocks == ()


@fast
def test_a_search_that_is_cut_says_so():
    packed = explore_packed(Packed(space_of([Job(2, 2), Job(2, 2)])), most=10)

    assert packed.states > 10
    assert not packed.whole
    with pytest.raises(SpecError, match="at least 1"):
        explore_packed(Packed(space_of([Job(1, 1)])), most=0)


@fast
def test_words_are_a_state_and_nothing_else():
    space = drawn(3)
    packed = Packed(space)
    frame = START
    for _ in range(12):
        rows = next(iter(space.enabled(frame)), None)
        if rows is None:
            break
        frame = space.apply(frame, rows)
        assert frame_of(space, packed.memory, words_of(space, packed.memory, frame)) == frame


def test_what_has_no_packed_form_is_refused():
    watched = Space(space_of([Job(1, 1)]).profile, [Job(1, 1)], watches=frozenset({RAN}))
    with pytest.raises(SpecError, match="use the readable engine"):
        Packed(watched)
    if available():
        with pytest.raises(SpecError, match="more than 16 requests"):
            Packed(space_of([Job(1, 1)] * 17))


def test_it_knows_every_invariant_and_every_sight():
    assert tuple(invariant.id for invariant in INVARIANTS) == CLAIM_IDS
    assert tuple(sight.id for sight in SIGHTS) == SIGHT_IDS
