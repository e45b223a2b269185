"""What the engine reports about itself, what no trace can show, and the plan of the reference scheduler."""

from collections.abc import Iterator
from random import Random

import pytest

from batchspec.replay.checker import check
from batchspec.replay.generate import Run, random_run
from batchspec.replay.simulate import header_of
from batchspec.spec.events import Event
from batchspec.spec.verdict import RuleResult
from batchspec.traces.trace import Trace

PLAN = "plan/reference"


def test_stats_agree(examples) -> None:
    """SGLang PR 13142: a running count of minus one."""
    passing, failing = examples("stats/agree")

    assert passing["stats/agree"].verdict == "conforms"
    assert failing.broken == ["stats/agree"]


def test_outputs_invariant(judge) -> None:
    """Rules, (engine): no trace has token values, so no trace alone can be judged by it, nor pass it."""
    found = judge("1 arrive A prompt=4")["outputs/invariant"]

    assert found.verdict == "not checkable"
    assert "record --follow" in found.missing[0]


def test_plan_reference(examples) -> None:
    """Rules, (opt-in): the recorded decisions equal those of the reference scheduler."""
    passing, failing = examples(PLAN)

    assert passing[PLAN].verdict == "conforms"
    assert failing.steps(PLAN) == [2]


# -- stats -----------------------------------------------------------------------------------------

LIVE = "cfg kv_blocks=4 block_size=4 {more}\n1 arrive A prompt=8\n1 arrive B prompt=4\n1 arrive C prompt=4\n"
LIVE += "1 park C grammar blocks=0\n1 admit A blocks=2\n1 schedule A start=0 tokens=8 blocks=2\n"


@pytest.mark.parametrize(
    ("reported", "broken"),
    [
        ("running=1 waiting=2 free=2", False),
        ("running=0", True),
        ("running=2", True),
        ("waiting=1", True),  # parked ones wait too
        ("free=4", True),
        ("waiting=2", False),
    ],
)
def test_what_is_reported_equals_what_follows_from_the_events(judge, reported: str, broken: bool) -> None:
    """Trace format, step 8: `waiting` is all other live requests, parked ones included."""
    found = judge(LIVE.format(more="") + f"1 step {reported}")

    assert bool(found["stats/agree"].violations) is broken
    assert found["stats/agree"].checked == reported.count("=")


def test_preempted_requests_wait(judge) -> None:
    text = LIVE.format(more="") + "2 preempt A operator\n2 step running=0 waiting=3 free=4"

    assert judge(text).broken == []


def test_in_static_mode_a_finish_counts_in_the_books_at_once(judge) -> None:
    """Trace format, step 12: only the right to take seat and blocks waits for the last member."""
    text = (
        "cfg batching.mode=static kv_blocks=4\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit A blocks=1\n"
    )
    text += (
        "1 admit B blocks=1\n1 schedule A start=0 tokens=4 blocks=1\n1 schedule B start=0 tokens=4 blocks=1\n"
    )

    assert judge(f"{text}1 finish A stop\n1 step running=1 waiting=0 free=3").broken == []


def test_where_nothing_is_reported_nothing_is_compared(judge) -> None:
    assert judge("1 arrive A prompt=4\n1 step")["stats/agree"].missing == ("running",)


# -- the plan --------------------------------------------------------------------------------------


def runs(count: int) -> Iterator[Run]:
    """Random runs whose plan can be compared: no shared prefixes, no releases of sessions."""
    seed = found = 0
    while found < count:
        run = random_run(Random(seed))
        seed += 1
        if not run.profile.reuse.prefix and run.profile.reuse.block_lag != "release":
            found += 1
            yield run


def plan_of(run: Run, events: list[Event]) -> RuleResult:
    recorded = any(event.event == "output" for event in events)
    trace = Trace.from_events(events, header_of(run.profile, recorded=recorded, complete=True))
    return check(trace, run.profile, rules=(PLAN,)).rules[0]


@pytest.mark.parametrize("level", ["L1", "L3", "L4"])
def test_the_reference_scheduler_plans_as_it_plans(level: str) -> None:
    """Every mode, order, preemption, lag and speculation of the random runs."""
    judged = 0
    for run in runs(60):
        result = plan_of(run, list(run.events(level)))
        assert result.verdict == "conforms" or result.missing == ("tokens",), run.profile.to_dict()
        assert result.skipped == 0
        judged += result.checked
    assert judged > 500


@pytest.mark.parametrize("kind", ["admit", "resume", "preempt", "schedule", "reject"])
def test_a_decision_that_is_missing_is_found(kind: str) -> None:
    verdicts = []
    for run in runs(60):
        events = list(run.events("L1"))
        # An end in a step of which it is no member counts as one from outside.
        ends = {(event.step, event.request) for event in events if event.event == "finish"}
        places = [
            n for n, row in enumerate(events) if row.event == kind and (row.step, row.request) not in ends
        ]
        if places and any(event.event == "schedule" for event in events):
            del events[places[len(places) // 2]]
            verdicts.append(plan_of(run, events).verdict)
    assert len(verdicts) > 5
    assert set(verdicts) == {"violates"}


def test_another_number_of_tokens_is_found(judge) -> None:
    for run in runs(30):
        events = list(run.events("L1"))
        places = [
            n for n, event in enumerate(events) if event.event == "schedule" and (event.tokens or 0) > 1
        ]
        if places:
            at = places[-1]
            events[at] = events[at]._replace(tokens=(events[at].tokens or 0) - 1)
            assert plan_of(run, events).verdict == "violates"


CLAIMS = "cfg batching.mode=continuous order=fcfs max_seqs=2 token_budget=8 {more}\n"
A = "1 arrive A prompt=4 max=9\n1 admit A\n1 schedule A start=0 tokens=4\n1 step\n"


def test_only_the_first_difference_is_told(judge) -> None:
    text = CLAIMS.format(more="") + A + "2..5 step"

    found = judge(text, rules=(PLAN,))

    assert found.steps(PLAN) == [2]
    assert found[PLAN].checked == 2, "from there on the two are not in the same state"


@pytest.mark.parametrize(
    "rows",
    [
        "2 schedule A start=4 tokens=1\n2 finish A stop\n2 step\n3 step",
        "2 abort A operator\n2 step\n3 step",
        "2 cancel A\n2 abort A client\n2 step\n3 step",
        "2 finish A error\n2 step\n3 step",
        "2 schedule A start=4 tokens=1\n2 abort A operator\n2 step\n3 step",
        "2 arrive B prompt=4\n2 reject B error\n2 schedule A start=4 tokens=1\n2 step",
        "2 arrive B prompt=4\n2 park B grammar\n2 schedule A start=4 tokens=1\n2 step\n"
        "3 ready B\n3 schedule A start=5 tokens=1\n3 admit B\n3 schedule B start=0 tokens=4\n3 step",
        "2 schedule A start=4 tokens=1\n2 arrive B prompt=4\n2 step\n"
        "3 schedule A start=5 tokens=1\n3 admit B\n3 schedule B start=0 tokens=4\n3 step",
    ],
)
def test_what_comes_from_outside_is_fed_and_not_compared(judge, rows: str) -> None:
    """Rules: fed the same arrivals, aborts and outputs."""
    found = judge(CLAIMS.format(more="") + A + rows, rules=(PLAN,))

    assert found[PLAN].verdict == "conforms"
    assert found[PLAN].skipped == 0
    assert found[PLAN].checked >= 2


@pytest.mark.parametrize(
    ("rows", "skipped"),
    [
        ("2 schedule B start=0 tokens=1\n2 step", 0),  # a decision about nobody: a difference
        ("2 arrive A prompt=4\n2 step", 1),
        ("2 arrive B\n2 step", 1),
        ("2 preempt A operator\n2 step", 1),
    ],
)
def test_what_cannot_be_fed_ends_the_comparison(judge, rows: str, skipped: int) -> None:
    found = judge(CLAIMS.format(more="") + A + rows, rules=(PLAN,))

    assert found[PLAN].skipped == skipped
    assert found[PLAN].violations == 1 - skipped


@pytest.mark.parametrize(
    ("more", "rows", "missing"),
    [
        ("prefix=true", "", "reuse.prefix=false"),
        ("stall_free=true prefill_first=true", "", "claims that the reference scheduler can keep"),
        ("", "2 take A row units=1", "a trace without take rows"),
        ("queue_timeout_ns=1s", "", "time_ns"),
    ],
)
def test_what_the_reference_scheduler_cannot_know_is_named(judge, more: str, rows: str, missing: str) -> None:
    found = judge(CLAIMS.format(more=more) + A + rows, rules=(PLAN,))

    assert found[PLAN].verdict == "not checkable"
    assert any(missing in word for word in found[PLAN].missing)


def test_it_is_judged_on_request_alone(judge) -> None:
    text = CLAIMS.format(more="") + A

    assert PLAN not in {result.id for result in judge(text).report.rules}
    assert [result.id for result in judge(text, rules=(PLAN,)).report.rules] == [PLAN]


SHARED = """
cfg kv_blocks=8 block_size=4 prefix=true
1 arrive A prompt=8 max=4
1 admit A cached=0 blocks=2 block_ids=0,1
1 schedule A start=0 tokens=8 blocks=2
1 step
2 arrive B prompt=9 max=4
2 schedule A start=8 tokens=1 blocks=3 block_ids=2
2 admit B cached=8 blocks=3 block_ids=0,1,3
2 schedule B start=8 tokens=1 blocks=3
"""


def test_shared_blocks_are_compared_where_ids_say_who_holds_what(judge) -> None:
    assert judge(SHARED + "2 step shared_blocks=2").broken == []
    assert judge(SHARED + "2 step shared_blocks=1").broken == ["stats/agree"]
    assert judge(SHARED + "2 step").broken == []
