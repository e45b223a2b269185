"""The deletion law: what a trace does not say, no rule may assume; what a profile leaves out, none may claim.

A correct trace that says less is still a correct trace. Take any column out of it, or any one value, or
any one claim: no rule may speak; some become not checkable, or skip. The traces are those of the
reference scheduler in every mode, order, preemption, lag and speculation, at every level, and the passing
examples. (The clean twins of the faults are put through the same in tests/scenarios.)
"""

from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.replay.checker import check
from batchspec.replay.examples import judged
from batchspec.replay.generate import Run, random_run
from batchspec.replay.simulate import header_of
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import COLUMNS, Event, column_of
from batchspec.spec.examples import example
from batchspec.spec.profile import GROUPS, Profile
from batchspec.spec.verdict import LEVELS, Report
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace

FIELDS = [name for name in Event._fields if name not in ("step", "event", "request")]
SHOWN = [rule for rule in RULES if example(rule) is not None]
LEVEL_NAMES = LEVELS[1:]

# A null that has a meaning of its own: `pass` = `step`, no drafts, and nothing held any more.
MEANING = {
    "pass_": frozenset({"output", "finish", "dispatch", "complete"}),
    "drafts": frozenset({"schedule"}),
    "blocks": frozenset({"preempt", "finish", "abort", "release"}),
    "block_ids": frozenset({"preempt", "finish", "abort", "release"}),
}


# Claims that allow something: whoever leaves them out is held to the rule without the exception.
EXCEPTIONS = frozenset(
    {
        "reuse.prefix",
        "reuse.same_pass",
        "reuse.ordered_passes",
        "batching.lookahead",
        "batching.preferred_sizes",
        "batching.mixed",
        "fairness.weights",
    }
)


@cache
def run_of(seed: int, level: str) -> tuple[Run, tuple[Event, ...], Header]:
    run = random_run(Random(seed))
    events = tuple(run.events(level))
    recorded = any(event.event == "output" for event in events)
    return run, events, header_of(run.profile, recorded=recorded, complete=True)


def without(events: tuple[Event, ...], field: str) -> list[Event]:
    return [event._replace(**{field: None}) for event in events]


def said(events: tuple[Event, ...], field: str) -> bool:
    return any(getattr(event, field) is not None for event in events)


def alarms(report: Report) -> list[str]:
    return [f"{finding.rule}, step {finding.step}: {finding.message}" for finding in report.findings]


@given(st.integers(0, 10_000), st.sampled_from(LEVEL_NAMES), st.sampled_from(FIELDS))
def test_no_column_is_missed_with_an_alarm(seed: int, level: str, field: str) -> None:
    run, events, header = run_of(seed, level)

    report = check(Trace.from_events(without(events, field), header), run.profile)

    assert alarms(report) == []


@given(st.integers(0, 10_000), st.sampled_from(LEVEL_NAMES), st.sets(st.sampled_from(FIELDS), min_size=2))
def test_nor_are_several(seed: int, level: str, fields: set[str]) -> None:
    run, events, header = run_of(seed, level)
    for field in sorted(fields):
        events = tuple(without(events, field))

    report = check(Trace.from_events(events, header), run.profile)

    assert alarms(report) == []


@given(st.integers(0, 10_000), st.sampled_from(LEVEL_NAMES), st.randoms(use_true_random=False))
def test_nor_is_one_value(seed: int, level: str, random: Random) -> None:
    run, events, header = run_of(seed, level)
    cells = [
        (row, field)
        for row, event in enumerate(events)
        for field in FIELDS
        if getattr(event, field) is not None and event.event not in MEANING.get(field, ())
    ]
    row, field = random.choice(cells)
    less = [*events[:row], events[row]._replace(**{field: None}), *events[row + 1 :]]

    report = check(Trace.from_events(less, header), run.profile)

    assert alarms(report) == []


def options(profile: Profile) -> list[tuple[str, str]]:
    """What a profile claims, less the claims with a stated default and those that allow something."""
    return [
        (group, name)
        for group, table in profile.to_dict().items()
        for name in table
        if GROUPS[group].__dataclass_fields__[name].metadata["default"] is None
        and f"{group}.{name}" not in EXCEPTIONS
    ]


def claiming_less(profile: Profile, group: str, name: str) -> Profile:
    claims = profile.to_dict()
    del claims[group][name]
    return Profile.from_dict(claims)


@given(st.integers(0, 10_000), st.sampled_from(LEVEL_NAMES), st.randoms(use_true_random=False))
def test_nor_is_a_claim(seed: int, level: str, random: Random) -> None:
    run, events, header = run_of(seed, level)
    less = claiming_less(run.profile, *random.choice(options(run.profile)))

    report = check(Trace.from_events(events, header), less)

    assert alarms(report) == []


def passing(rule: str) -> tuple[tuple[Event, ...], Header, Profile]:
    shown = example(rule)
    assert shown is not None
    trace, report = judged(shown.passing, rule)
    assert trace.header is not None
    return tuple(trace.events()), trace.header, Profile.from_dict(report.config)


@pytest.mark.parametrize("rule", SHOWN)
def test_a_passing_example_that_says_less_still_passes(rule: str) -> None:
    events, header, profile = passing(rule)
    asked = (rule,) if RULES[rule].opt_in else None
    for field in FIELDS:
        if said(events, field):
            report = check(Trace.from_events(without(events, field), header), profile, rules=asked)
            assert alarms(report) == [], f"without {column_of(field)}"


@pytest.mark.parametrize("rule", SHOWN)
def test_a_column_that_a_rule_names_is_one_that_it_misses(rule: str) -> None:
    """A rule says which columns it reads: without any of them it is not checkable, and names it."""
    events, header, profile = passing(rule)
    for column in RULES[rule].columns:
        assert column in COLUMNS
        less = Trace.from_events(without(events, "pass_" if column == "pass" else column), header)
        result = check(less, profile, rules=(rule,)).rules[0]
        assert result.verdict == "not checkable"
        assert column in result.missing


@pytest.mark.parametrize("rule", SHOWN)
def test_a_claim_that_a_rule_names_is_one_that_it_misses(rule: str) -> None:
    events, header, profile = passing(rule)
    for item in RULES[rule].premise:
        group, _, name = item.partition("=")[0].partition(".")
        less = claiming_less(profile, group, name)
        result = check(Trace.from_events(events, header), less, rules=(rule,)).rules[0]
        assert result.verdict == "not checkable"
        assert item in result.missing
