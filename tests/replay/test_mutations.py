"""Faults put into good traces: what is changed, that it is found, and that what is not found is explained."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from batchspec.replay.checker import Walk
from batchspec.replay.generate import Run, random_run
from batchspec.replay.mutation import books
from batchspec.replay.mutation.aims import AIMS, OUT_OF_REACH, aimed
from batchspec.replay.mutation.campaign import campaign
from batchspec.replay.mutation.explain import explained
from batchspec.replay.mutation.faults import FAULTS, Fault, Mutant, mutant
from batchspec.replay.mutation.goods import EVENT_LEVELS, LEVELS, Good, good_of, random_good, table_of
from batchspec.replay.mutation.judges import judge_of
from batchspec.replay.mutation.reason import GAP, LEGAL, UNOBSERVABLE, Reason
from batchspec.replay.mutation.runs import open_order
from batchspec.replay.mutation.stretches import STRETCHES, stretched, uncounted
from batchspec.replay.mutation.tables import table_mutant
from batchspec.replay.simulate import trace_of
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import SpecError
from batchspec.spec.events import Event
from batchspec.spec.library import profile_names
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record


def drawn(seed: int, level: str = "L3") -> Good:
    good = random_good(Random(seed), level)
    assert isinstance(good, Good)
    return good


# -- the faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_what_it_says_and_nothing_else(kind: str) -> None:
    made = 0
    for seed in range(24):
        events = drawn(seed, EVENT_LEVELS[seed % 4]).events
        before = list(events)
        found = mutant(events, kind, Random(seed))
        assert events == before, "the good trace is not changed"
        if found is None:
            continue
        made += 1
        assert found == mutant(events, kind, Random(seed)), "same seed, same fault"
        assert found.events != events
        gone, come = Counter(events), Counter(found.events)
        assert gone - come == Counter(found.fault.before) - Counter(found.fault.after)
        assert come - gone == Counter(found.fault.after) - Counter(found.fault.before)
        assert found.fault.text
    assert made >= 6


@pytest.mark.parametrize("kind", STRETCHES)
def test_a_fault_of_a_stretch_changes_more_than_one_place_can(kind: str) -> None:
    made = 0
    for seed in range(200):
        events = uncounted(drawn(seed, "L1").events)
        found = stretched(events, kind, Random(seed))
        if found is not None:
            made += 1
            assert found.events != events
            assert found == stretched(events, kind, Random(seed))
            steps = [event.step for event in found.events]
            assert steps == sorted(steps), "the stretch is at fault, not the numbers of its steps"
        if made == 4:
            return
    assert made, kind


def test_without_its_counters_a_good_trace_is_good() -> None:
    for seed in range(8):
        good = drawn(seed, EVENT_LEVELS[seed % 4])
        assert good.judge(uncounted(good.events)).findings == ()


@pytest.mark.parametrize("level", LEVELS)
def test_good_traces_are_good(level: str) -> None:
    for seed in range(12):
        good = random_good(Random(seed), level)
        report = good.judge(good.events) if isinstance(good, Good) else good.judge(good.records)
        assert report.findings == ()
        assert report.level in (level, "L1"), "a run in which nobody is admitted tells of no block"


def test_a_table_has_the_times_and_lengths_of_its_run() -> None:
    run = replace(random_run(Random(3), "continuous", "fcfs"), parks={})
    table = table_of(run)
    assert [record.request for record in table.records] == [record.request for record in run.records]
    assert all(record.finish_ns is not None for record in table.records)
    fault = table_mutant(table.records, "shift", Random(1))
    assert fault is not None
    assert fault == table_mutant(table.records, "shift", Random(1))
    assert sum(one != other for one, other in zip(table.records, fault.records, strict=True)) == 1
    assert table_mutant(table.records, "slot", Random(1)) is None, "a table has no slots"
    assert table_mutant([], "drop", Random(1)) is None


# -- every rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in OUT_OF_REACH])
def test_some_mutation_of_a_good_trace_makes_the_rule_speak_first(rule: str) -> None:
    hit = aimed(rule)
    assert hit is not None
    assert hit.rule == rule
    assert hit.kind in (*FAULTS, *STRETCHES)


def test_a_rule_out_of_reach_is_one_that_no_trace_can_break() -> None:
    assert set(OUT_OF_REACH) == {"outputs/invariant"}
    for rule in OUT_OF_REACH:
        assert aimed(rule) is None
        for profile in (Profile(), random_run(Random(1)).profile):
            assert RULES[rule].missing(profile, frozenset(Event._fields), frozenset({"output", "admit"}))
    assert set(AIMS) <= set(RULES)


# -- campaigns -------------------------------------------------------------------------------------


def test_a_campaign_leaves_no_gap_unexplained() -> None:
    result = campaign(900, seed=0)
    assert result.gaps() == [], [one.text for one in result.gaps()]
    assert sum(result.tried.values()) == 900
    assert sum(result.killed.values()) + len(result.survivors) == 900
    assert set(result.by(0)) == set(FAULTS)
    assert set(result.by(1)) == set(LEVELS)
    assert set(result.by(2)) == {"static", "dynamic", "continuous"}
    assert all(killed for killed, _ in result.by(0).values())
    rate = sum(result.killed.values()) / 900
    assert rate > 0.65, "slots and blocks by any other name are the bulk of the rest"
    assert campaign(90, seed=3) == campaign(90, seed=3)


@pytest.mark.slow
def test_a_long_campaign_leaves_no_gap_unexplained() -> None:
    result = campaign(60_000, seed=11)
    assert result.gaps() == [], [(one.seed, one.text) for one in result.gaps()]


@pytest.mark.parametrize("profile", profile_names())
def test_faults_in_the_traces_of_a_shipped_profile(profile: str) -> None:
    result = campaign(45, profile=profile, levels=("L3", "L1"))
    assert result.profile == profile
    assert sum(result.killed.values()) > 20
    assert result.gaps() == []


def test_a_fault_that_no_row_can_have_is_said_to_be_none() -> None:
    with pytest.raises(SpecError, match="no row of these traces can have such a fault"):
        campaign(4, kinds=("slot",), levels=("L0",))


# -- explanations ----------------------------------------------------------------------------------

LIMITS = {"max_seqs": 3, "token_budget": 16, "kv_blocks": 12, "block_size": 4}
CLAIMS = {
    "limits": LIMITS,
    "batching": {"mode": "continuous", "chunked_prefill": True},
    "admission": {"order": "fcfs", "misfit": "stop", "test": "known", "reserve": "step"},
    "preemption": {"mode": "none"},
}


def simple(level: str = "L3", **groups: dict[str, object]) -> Good:
    """Two requests, one after the other arrives: A in slot 0, B in slot 1 of three."""
    claims = {group: {**table, **groups.get(group, {})} for group, table in CLAIMS.items()}
    claims |= {group: table for group, table in groups.items() if group not in claims}
    records = (Record("A", 0, 6, 4, 4), Record("B", 0, 5, 3, 3))
    return good_of(Run(Profile.from_dict(claims), records), level)


def row_of(good: Good, event: str, request: str | None = None, step: int | None = None) -> int:
    return next(
        row
        for row, one in enumerate(good.events)
        if one.event == event and request in (None, one.request) and step in (None, one.step)
    )


def with_value(good: Good, row: int, kind: str, column: str, value: object) -> Mutant:
    before = good.events[row]
    after = before._replace(**{column: value})
    fault = Fault(kind, row, column, (before,), (after,), "")
    return Mutant(fault, [*good.events[:row], after, *good.events[row + 1 :]])


def why(good: Good, found: Mutant) -> Reason:
    assert good.judge(found.events).findings == (), "only a survivor is explained"
    return explained(good, found)


def test_another_free_seat_is_as_good() -> None:
    good = simple()
    reason = why(good, with_value(good, row_of(good, "admit", "B"), "slot", "slot", 2))
    assert (reason.verdict, reason.argument) == (LEGAL, "renamed")


MEMORY = (*(rule for rule in RULES if rule.startswith("memory/")), "stats/agree")


def without_rule(monkeypatch: pytest.MonkeyPatch, *rules: str) -> None:
    """A spec that lacks some rules, as the checker sees it."""
    kept = {name: rule for name, rule in RULES.items() if name not in rules}
    monkeypatch.setattr("batchspec.replay.checker.RULES", kept)
    judge_of.cache_clear()


@pytest.mark.parametrize(
    ("rules", "event", "column", "value"),
    [
        (("slots/exclusive", "slots/early-reuse"), "admit", "slot", 0),
        (MEMORY, "admit", "block_ids", None),
        (("tokens/output-count",), "finish", "output_tokens", 9),
    ],
)
def test_a_spec_without_a_rule_has_a_gap(monkeypatch, rules, event, column, value) -> None:
    """The arguments do not rest on the rule that is missing."""
    good = simple()
    row = row_of(good, event, "B")
    if column == "block_ids":
        first = (
            good.events[row_of(good, "admit", "A")].block_ids
            or good.events[row_of(good, "schedule", "A")].block_ids
        )
        place = next(at for at, one in enumerate(good.events) if one.request == "B" and one.block_ids)
        row, value = place, (first[0], *good.events[place].block_ids[1:])
    found = with_value(good, row, "count", column, value)
    assert good.judge(found.events).findings
    without_rule(monkeypatch, *rules)
    assert good.judge(found.events).findings == ()
    reason = explained(good, found)
    # Without all of memory's rules nothing here reads a block id any more; elsewhere a rule still does.
    verdict = UNOBSERVABLE if column == "block_ids" else GAP
    assert reason.verdict == verdict, reason


def test_what_the_reference_scheduler_would_write_itself_is_legal() -> None:
    good = simple()
    reason = why(good, with_value(good, row_of(good, "arrive", "A"), "count", "priority", 5))
    assert (reason.verdict, reason.argument) == (LEGAL, "workload")


def test_two_rows_that_lead_to_the_same_books_may_change_places() -> None:
    good = simple()
    row = row_of(good, "schedule", "A", 2)
    one, other = good.events[row : row + 2]
    assert (other.event, other.request) == ("schedule", "B")
    events = [*good.events[:row], other, one, *good.events[row + 2 :]]
    reason = why(good, Mutant(Fault("order", row, None, (one, other), (other, one), ""), events))
    assert (reason.verdict, reason.argument) == (LEGAL, "books")


def swapped(good: Good, row: int, by: int = 1) -> Mutant:
    before = tuple(good.events[row : row + by + 1])
    after = (before[-1], *before[1:-1], before[0])
    events = [*good.events[:row], *after, *good.events[row + by + 1 :]]
    return Mutant(Fault("order", row, None, before, after, ""), events)


def test_an_arrival_at_another_moment_of_its_step_is_the_clients_doing() -> None:
    run = replace(simple().run, records=(Record("A", 0, 6, 4, 4), Record("B", 11, 5, 3, 3)))
    good = good_of(run, "L1")
    row = row_of(good, "arrive", "B")
    events = list(good.events)
    # Before the step's own rows it stands; behind A's decode it comes too late to be owed anything.
    place = row_of(good, "schedule", "A", good.events[row].step)
    assert place == row + 1
    reason = explained(good, swapped(good, row))
    assert reason.verdict == LEGAL
    assert reason.argument in ("workload", "moment"), "the scheduler decides the same"
    assert good.events == events


@pytest.mark.parametrize(
    ("order", "tenants", "verdict"),
    [
        ("fcfs", "ab", None),
        ("fair", "ab", True),
        ("fair", "aa", None),
        ("sjf", "ab", None),
        (None, "ab", True),
    ],
)
def test_who_is_admitted_first_is_open_only_where_the_policy_says_so(order, tenants, verdict) -> None:
    good = simple("L1")
    claims = {**CLAIMS, "admission": {**CLAIMS["admission"], "order": order}}
    if order is None:
        del claims["admission"]["order"]
    arrivals = [
        event._replace(tenant=tenants["AB".index(str(event.request))])
        for event in good.events
        if event.event == "arrive"
    ]
    admits = [event._replace(step=1) for event in good.events if event.event == "admit"]
    both = replace(good, profile=Profile.from_dict(claims), events=[*arrivals, *admits])
    row = len(arrivals)
    fault = Fault("order", row, None, tuple(admits), tuple(reversed(admits)), "")
    reason = open_order(both, Mutant(fault, [*arrivals, *reversed(admits)]))
    assert (reason is not None) is bool(verdict)


def test_a_row_that_may_be_left_out_says_less() -> None:
    good = simple()
    row = row_of(good, "step", step=1)
    events = [*good.events[:row], *good.events[row + 1 :]]
    reason = why(good, Mutant(Fault("drop", row, None, (good.events[row],), (), ""), events))
    assert (reason.verdict, reason.argument) == (LEGAL, "unsaid")


def test_a_model_may_stop_anywhere() -> None:
    good = simple()
    reason = why(good, with_value(good, row_of(good, "finish", "A"), "kind", "reason", "stop"))
    assert (reason.verdict, reason.argument) == (LEGAL, "outside")


def test_a_time_between_its_neighbours_is_as_good() -> None:
    good = simple()
    row = row_of(good, "schedule", "A", 2)
    now = good.events[row].time_ns
    assert now is not None
    reason = why(good, with_value(good, row, "shift", "time_ns", now)._replace(events=good.events))
    assert (reason.verdict, reason.argument) == (LEGAL, "clock")


def test_what_only_a_fuller_trace_could_contradict_is_unobservable() -> None:
    good = simple("L2", reuse={"prefix": True, "same_pass": True})
    row = row_of(good, "step", step=2)
    assert good.events[row].shared_blocks == 0
    bare = replace(good, events=[event._replace(free_blocks=None) for event in good.events])
    reason = why(bare, with_value(bare, row, "count", "shared_blocks", 1))
    assert (reason.verdict, reason.argument) == (UNOBSERVABLE, "level")
    assert "stats/agree" in reason.words or "memory/conservation" in reason.words


def test_a_refusal_is_judged_where_its_limit_is_claimed() -> None:
    records = (Record("A", 0, 40, 4, 4),)
    profile = Profile.from_dict({**CLAIMS, "limits": {**LIMITS, "kv_blocks": 8}})
    trace = trace_of(records, profile)
    assert trace.header is not None
    run = replace(random_run(Random(1)), profile=profile, records=records, aborts={}, parks={}, drafts=0)
    good = Good(run, "L3", profile, trace.header, list(trace.events()))
    reason = why(good, with_value(good, row_of(good, "reject"), "kind", "reason", "queue_full"))
    assert reason.verdict == UNOBSERVABLE
    assert "limits.max_waiting" in reason.words


def test_a_judge_is_found_where_there_is_one() -> None:
    judge_of.cache_clear()
    assert judge_of("step", "running") == "stats/agree"
    assert judge_of("admit", "slot") in ("slots/exclusive", "slots/range")
    assert judge_of("skip", "prediction") is None


def test_the_books_are_those_of_the_spec() -> None:
    """Two traces that tell of other runs do not meet."""
    good = simple()
    assert books.after_step(good, good.events, 1) == books.after_step(good, list(good.events), 1)
    later = [event._replace(blocks=3) if event.event == "schedule" else event for event in good.events]
    assert books.after_step(good, good.events, 1) != books.after_step(good, later, 1)
    assert Walk(good.profile, good.columns, good.kinds, rules=()).rules == {}
