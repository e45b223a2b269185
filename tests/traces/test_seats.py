"""Who sits where: the runs of small traces by hand, and what must hold of every trace."""

from collections import Counter, defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from batchspec.replay.generate import random_run
from batchspec.spec.events import Event
from batchspec.spec.metrics import measure
from batchspec.traces.scenario import parse_scenario
from batchspec.traces.seats import AGAIN, DECODE, IDLE, PREFILL, Run, Seats


def runs_of(events, barrier=False):
    runs: list[Run] = []
    seats = Seats(runs.append, barrier=barrier)
    for event in events:
        seats.add(event)
    seats.over()
    return sorted(runs, key=lambda run: (run.first, run.seat, run.stay))


def brief(runs):
    return [(run.seat, run.request, run.kind, run.first, run.last, run.end) for run in runs]


def scenario(text, barrier=False):
    return brief(runs_of(parse_scenario(text).events(), barrier))


def test_prefill_decode_preemption_and_recomputation_are_told_apart():
    text = """
    1 arrive A prompt=6
    1 admit A slot=0
    1 schedule A start=0 tokens=4
    2 schedule A start=4 tokens=2
    3 schedule A start=6 tokens=1
    4 preempt A recompute
    6 resume A slot=2 cached=0
    6 schedule A start=0 tokens=7
    7 schedule A start=7 tokens=1
    7 finish A length
    """
    assert scenario(text) == [
        (0, "A", PREFILL, 0, 1, ""),
        (0, "A", DECODE, 2, 2, "preempt"),
        (2, "A", AGAIN, 4, 4, ""),
        (2, "A", DECODE, 5, 5, "finish"),
    ]


def test_a_request_that_swaps_back_computes_nothing_again():
    text = """
    1 arrive A prompt=4
    1 admit A slot=0
    1 schedule A start=0 tokens=4
    2 preempt A swap
    3 resume A slot=0 cached=4
    3 schedule A start=4 tokens=1
    """
    assert scenario(text)[-1] == (0, "A", DECODE, 2, 2, "")


def test_rejected_drafts_are_not_computed_again():
    text = """
    1 arrive A prompt=4
    1 admit A slot=0
    1 schedule A start=0 tokens=4
    2 schedule A start=4 tokens=4 drafts=3
    3 schedule A start=5 tokens=4 drafts=3
    """
    assert scenario(text) == [(0, "A", PREFILL, 0, 0, ""), (0, "A", DECODE, 1, 2, "")]


def test_a_seat_that_is_kept_without_a_pass_is_idle():
    text = """
    1 arrive A prompt=2
    1 admit A slot=0
    1 schedule A start=0 tokens=2
    2 step
    3 step
    4 schedule A start=2 tokens=1
    5 step
    """
    assert [(kind, first, last) for _, _, kind, first, last, _ in scenario(text)] == [
        (PREFILL, 0, 0),
        (IDLE, 1, 2),
        (DECODE, 3, 3),
        (IDLE, 4, 4),
    ]


def test_a_member_that_is_preempted_in_its_step_computed_nothing():
    text = """
    1 arrive A prompt=2
    1 admit A slot=0
    1 schedule A start=0 tokens=2
    2 schedule A start=2 tokens=1
    2 preempt A recompute
    """
    assert scenario(text) == [(0, "A", PREFILL, 0, 0, "preempt")]


def test_a_static_batch_holds_its_slots_until_the_last_member_ends():
    text = """
    1 arrive A prompt=1
    1 arrive B prompt=1
    1 arrive C prompt=1
    1 admit A slot=0
    1 admit B slot=1
    1 schedule A start=0 tokens=1
    1 schedule B start=0 tokens=1
    1 finish A length
    2 schedule B start=1 tokens=1
    3 schedule B start=2 tokens=1
    3 finish B length
    4 admit C slot=0
    4 schedule C start=0 tokens=1
    """
    held = scenario(text, barrier=True)
    assert (0, "A", IDLE, 1, 2, "") in held
    assert (0, "C", PREFILL, 3, 3, "") in held
    assert [run for run in scenario(text) if run[2] == IDLE] == []


def test_without_slots_a_request_takes_the_lowest_seat_that_is_free():
    text = """
    1 arrive A prompt=1
    1 arrive B prompt=1
    1 arrive C prompt=1
    1 admit A
    1 admit B
    1 schedule A start=0 tokens=1
    1 schedule B start=0 tokens=1
    1 finish A length
    2 admit C
    2 schedule C start=0 tokens=1
    """
    assert {(run[1], run[0]) for run in scenario(text)} == {("A", 0), ("B", 1), ("C", 0)}


def test_a_trace_that_breaks_every_rule_is_still_drawn():
    events = [
        Event(5, "finish", "never"),
        Event(5, "schedule", "stranger", start=0, tokens=3),
        Event(4, "preempt", "nobody"),
        Event(4, "admit", "A", slot=-7),
        Event(4, "admit", "A", slot=2**40),
        Event(4, "schedule", "A", start=None, tokens=None),
        Event(9, "admit", "B", slot=2**40),
        Event(9, "resume", "B", slot=2**40),
        Event(9, "abort", "B"),
        Event(9, "finish", "A"),
    ]
    assert [run[:2] for run in brief(runs_of(events))].count((2**40, "A")) >= 1


@given(st.randoms(use_true_random=False))
def test_runs_tile_each_stay_and_hold_every_token_once(random):
    run = random_run(random)
    events = run.events()
    barrier = run.profile.batching.mode in ("static", "dynamic")
    runs = runs_of(events, barrier)
    metrics = measure(events)
    assert sum(one.tokens for one in runs) == metrics.computed_tokens

    stays = defaultdict(list)
    for one in runs:
        stays[one.stay].append(one)
    for stay in stays.values():
        for before, after in pairwise(stay):
            assert after.first == before.last + 1
            assert after.seat == before.seat
    assert Counter(one.end for one in runs)["finish"] == metrics.finished
    assert Counter(one.end for one in runs)["preempt"] == metrics.preemptions

    taken = Counter((one.seat, step) for one in runs for step in range(one.first, one.last + 1))
    assert not taken or max(taken.values()) == 1, "two in a slot, and the reference scheduler seats one"
    members = Counter(step for one in runs if one.kind != IDLE for step in range(one.first, one.last + 1))
    batch = metrics.members_per_pass
    assert sum(members.values()) == (0 if batch is None else round(batch.mean * batch.count))
