"""Exploration: counts that must not move without a reason, what is reached, and what a path looks like."""

import pytest

from batchspec.replay.checker import check_events
from batchspec.replay.compiled import available
from batchspec.replay.packed.search import Packed, explore_packed
from batchspec.spec.errors import SpecError
from batchspec.spec.explore import explore
from batchspec.spec.frame import Job
from batchspec.spec.invariants import INVARIANTS, Invariant
from batchspec.spec.naming import name_of
from batchspec.spec.profile import Profile
from batchspec.spec.space import Space

LIMITS = {"max_seqs": 2, "token_budget": 4, "kv_blocks": 3, "block_size": 2}
BASE: dict[str, dict[str, object]] = {
    "limits": dict(LIMITS),
    "batching": {"mode": "continuous", "chunked_prefill": True},
    "admission": {"order": "fcfs", "misfit": "stop", "test": "step", "reserve": "step"},
    "preemption": {
        "mode": "recompute",
        "victim": "latest-admitted",
        "resume": "front",
        "admit_in_same_step": False,
        "for_waiting": False,
    },
}
RESERVED: dict[str, object] = {
    "admission.test": "full",
    "admission.reserve": "full",
    "preemption.mode": "none",
}
STATIC: dict[str, object] = {
    **RESERVED,
    "limits.kv_blocks": 4,
    "batching.mode": "static",
    "batching.chunked_prefill": False,
}
PRIORITY: dict[str, object] = {
    "admission.order": "priority",
    "admission.urgent": "low",
    "preemption.victim": "least-urgent",
    "preemption.for_waiting": True,
    "preemption.admit_in_same_step": True,
    "preemption.resume": "arrival",
}
FAIR: dict[str, object] = {**RESERVED, "admission.order": "fair", "batching.chunked_prefill": False}

TWO = (Job(3, 2), Job(2, 3))
THREE = (Job(2, 2),) * 3
MIXED = (Job(2, 2), Job(1, 1), Job(1, 2))
WIDE = (Job(1, 2), Job(3, 3), Job(1, 1))
URGENT = (Job(3, 2, 1), Job(2, 2, 0), Job(1, 1, 0))
TENANTS = (Job(1, 2, 0, "x"), Job(1, 1, 0, "x"), Job(2, 1, 0, "y"))


def profile_of(options: dict[str, object]) -> Profile:
    data = {group: dict(table) for group, table in BASE.items()}
    for option, value in options.items():
        group, name = option.split(".")
        data[group][name] = value
    return Profile.from_dict(data)


def found(options: dict[str, object], jobs: tuple[Job, ...], **settings: bool):
    return explore(Space(profile_of(options), jobs, **settings))


# name: options, requests, settings -> states, transitions, depth. A count that moves says that a guard or
# an effect has: look at which, and then at whether it should have.
PINNED: dict[str, tuple[dict[str, object], tuple[Job, ...], dict[str, bool], tuple[int, int, int]]] = {
    "one request": ({}, (Job(2, 2),), {}, (9, 11, 4)),
    "recompute": ({}, TWO, {}, (175, 378, 14)),
    "recompute, three": ({}, THREE, {}, (235, 519, 20)),
    "recompute, three, symmetric": ({}, THREE, {"symmetry": True}, (191, 428, 20)),
    "recompute, eager": ({}, TWO, {"eager": True}, (24, 32, 9)),
    "aborts": ({}, TWO, {"aborts": True}, (218, 512, 14)),
    "known": ({"admission.test": "known"}, TWO, {}, (167, 354, 15)),
    "swap": ({"preemption.mode": "swap"}, TWO, {}, (116, 242, 11)),
    "small host": ({"preemption.mode": "swap", "limits.host_blocks": 1}, TWO, {}, (172, 352, 16)),
    "reserved": ({**RESERVED, "limits.kv_blocks": 5}, THREE, {}, (170, 393, 10)),
    "static": (STATIC, MIXED, {}, (31, 46, 9)),
    "static, eager": (STATIC, MIXED, {"eager": True}, (31, 41, 9)),
    "shortest first": ({"admission.order": "sjf"}, (Job(3, 2), Job(1, 2), Job(1, 1)), {}, (232, 504, 11)),
    "priority, eager": (PRIORITY, URGENT, {"eager": True}, (69, 90, 11)),
    "fair": (FAIR, TENANTS, {}, (98, 121, 10)),
    "own blocks given up": ({"preemption.victim": "self"}, TWO, {}, (130, 280, 12)),
    "fewest outputs": ({"preemption.victim": "fewest-outputs"}, THREE, {}, (341, 745, 26)),
    "back of the line": ({"preemption.resume": "back"}, THREE, {}, (282, 620, 20)),
    "by arrival": (
        {"preemption.resume": "arrival", "preemption.victim": "latest-arrived"},
        THREE,
        {},
        (235, 519, 20),
    ),
    "priority": (PRIORITY, URGENT, {}, (558, 1320, 14)),
    "misfits passed by": (
        {**RESERVED, "limits.kv_blocks": 4, "admission.misfit": "skip"},
        WIDE,
        {},
        (74, 132, 11),
    ),
    "no stall": ({"batching.stall_free": True}, TWO, {}, (175, 365, 15)),
    "watermark": (
        {"admission.watermark_blocks": 1, "admission.work_conserving": True},
        TWO,
        {},
        (159, 325, 15),
    ),
    "same step": ({"preemption.admit_in_same_step": True}, TWO, {}, (201, 448, 14)),
    "static, aborts": (STATIC, MIXED, {"aborts": True, "stops": False}, (89, 146, 12)),
    "fair, aborts": (FAIR, TENANTS, {"aborts": True}, (280, 389, 10)),
    "never fits": ({}, (Job(7, 1), Job(1, 1)), {}, (9, 10, 5)),
    "outgrows the pool": ({}, (Job(4, 4),), {}, (22, 32, 8)),
}


@pytest.mark.parametrize("name", PINNED)
def test_counts_are_pinned(name):
    options, jobs, settings, counts = PINNED[name]

    result = found(options, jobs, **settings)

    assert (result.states, result.transitions, result.depth) == counts
    assert result.holds
    assert result.whole


@pytest.mark.skipif(not available(), reason="needs the extra fast")
@pytest.mark.parametrize("name", PINNED)
def test_the_packed_form_counts_the_same(name):
    options, jobs, settings, counts = PINNED[name]
    space = Space(profile_of(options), jobs, **settings)

    readable, packed = explore(space), explore_packed(Packed(space))

    assert (packed.states, packed.transitions, packed.depth) == counts
    assert (packed.ends, packed.reached, packed.whole) == (readable.ends, readable.reached, True)
    assert packed.holds


@pytest.mark.parametrize("name", ["recompute, three", "swap"])
def test_what_a_policy_is_for_is_reached(name):
    options, jobs, settings, _ = PINNED[name]

    assert all(found(options, jobs, **settings).reached.values())


def test_symmetry_keeps_the_verdict_and_saves_states():
    """Three equal requests: states that differ by an exchange of ended ones are one."""
    plain, reduced = found({}, THREE, aborts=True), found({}, THREE, aborts=True, symmetry=True)

    assert reduced.states < plain.states * 0.8
    assert reduced.holds == plain.holds
    assert reduced.reached == plain.reached
    assert reduced.depth == plain.depth


def test_the_path_to_a_broken_invariant_is_the_shortest_and_a_trace():
    nobody_preempted = Invariant(
        "nobody", "", lambda space, frame: all(part.state != "preempted" for part in frame.parts)
    )
    space = Space(profile_of({}), TWO)

    (broken,) = explore(space, invariants=(*INVARIANTS, nobody_preempted)).broken

    assert [event.event for event in broken.path][-1] == "preempt"
    assert sum(event.event == "preempt" for event in broken.path) == 1
    assert check_events(broken.path, space.profile, complete=False).findings == ()


def test_a_search_that_is_cut_says_so():
    result = explore(Space(profile_of({}), TWO), most=10)

    assert (result.states, result.whole) == (10, False)
    with pytest.raises(SpecError, match="at least 1"):
        explore(Space(profile_of({}), TWO), most=0)


def test_the_graph_has_every_state_and_transition():
    result = explore(Space(profile_of({}), TWO), graph=True)

    assert result.graph is not None
    assert (result.graph.number_of_nodes(), result.graph.number_of_edges()) == (
        result.states,
        result.transitions,
    )


def test_names_go_on_after_the_alphabet():
    assert [name_of(number) for number in (0, 25, 26, 53)] == ["A", "Z", "A1", "B2"]
