"""A stretch of a trace as a trace of its own: no false alarm, what shows inside it still shows."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchspec.replay import cutting
from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.cli import main
from batchspec.replay.cutting import books_before, cut
from batchspec.replay.generate import random_run
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import TraceError
from batchspec.spec.examples import example
from batchspec.spec.library import load_profile, profile_names
from batchspec.spec.opening import KEY, live_rows, opening_of
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.reader import open_trace
from batchspec.traces.scenario import format_scenario, parse_scenario
from batchspec.traces.trace import Trace

SCENARIOS = Path(__file__).parents[1] / "scenarios"
GOOD = [*sorted(SCENARIOS.glob("traps/*.txt")), *sorted(SCENARIOS.glob("faults/*.ok.txt"))]

RUN = """\
1 arrive A prompt=4 max=3
1 admit A slot=0
1 schedule A start=0 tokens=4
1 step
2 schedule A start=4 tokens=1
2 step
3 schedule A start=5 tokens=1
3 finish A length out=3
3 step
end
"""

HISTORY = {
    "lifecycle/abort-ignored",
    "time/backwards",
    "batch/no-stall",
    "batch/mixed",
    "slots/reuse",
    "tokens/in-flight",
    "admission/never-fit",
    "admission/needless-wait",
    "admission/parked",
    "preemption/thrash",
    "preemption/swap",
    "fairness/overtaking",
    "fairness/priority-inversion",
    "fairness/service-gap",
    "fairness/starvation",
    "fairness/rate-limit",
    "liveness/idle-stall",
    "liveness/starved-member",
    "liveness/livelock",
    "plan/reference",
}
"""Rules whose example shows only with more steps before it: they count, or compare with what was."""


def claims_of(trace: Trace) -> Profile:
    header = trace.header or Header()
    return claimed(header.profile, header.config) or Profile()


def steps_of(trace: Trace) -> list[int]:
    return sorted({event.step for event in trace.events()})


def alarms(trace: Trace, first: int, last: int | None = None) -> list[str]:
    """What a check of a stretch finds, by the claims that its own header makes."""
    stretch = cut(trace, claims_of(trace), first, last).held()
    report = check(stretch, claims_of(stretch))
    return [f"{first}-{last}: {f.rule}, step {f.step}: {f.message}" for f in report.findings]


@pytest.mark.parametrize("mode", ["static", "dynamic", "continuous"])
@pytest.mark.parametrize("order", ["fcfs", "sjf", "priority", "fair"])
@given(st.randoms(use_true_random=False), st.sampled_from(("L1", "L2", "L3", "L4")))
@settings(max_examples=6)
def test_a_stretch_of_a_run_conforms(mode: str, order: str, random: Random, level: str) -> None:
    trace = random_run(random, mode, order).trace(level)
    steps = steps_of(trace)
    for _ in range(4):
        first, last = sorted(random.choices(steps, k=2))
        assert alarms(trace, first, last) == []
    assert alarms(trace, random.choice(steps)) == []


@pytest.mark.parametrize("name", profile_names())
@given(st.randoms(use_true_random=False), st.sampled_from(("L2", "L3", "L4")))
@settings(max_examples=2)
def test_whatever_the_profile(name: str, random: Random, level: str) -> None:
    run = random_run(random, "continuous", "fcfs")
    claims = load_profile(name)
    limits = {"max_seqs": 4, "token_budget": 48, "block_size": 4, "kv_blocks": 24, "max_model_len": 48}
    run = replace(run, profile=claims.merged(Profile.from_dict({"limits": limits})), drafts=0)
    trace = run.trace(level)
    for first in random.sample(steps_of(trace), k=min(4, len(steps_of(trace)))):
        assert alarms(trace, first) == []


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_scenario_that_conforms_does_so_from_any_step_on(path: Path) -> None:
    trace = parse_scenario(path.read_text("utf-8"), path.stem)
    assert [found for first in steps_of(trace) for found in alarms(trace, first)] == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if example(rule)])
def test_so_does_the_good_example_of_each_rule(rule: str) -> None:
    shown = example(rule)
    assert shown is not None
    trace = parse_scenario(shown.passing)
    report = check(trace, claims_of(trace), rules=[rule])
    assert not report.findings
    for first in steps_of(trace):
        stretch = cut(trace, claims_of(trace), first).held()
        assert check(stretch, claims_of(trace), rules=[rule]).findings == ()


@pytest.mark.parametrize("rule", [rule for rule in RULES if example(rule) and rule not in HISTORY])
def test_what_needs_only_the_step_itself_is_found_in_the_step_alone(rule: str) -> None:
    shown = example(rule)
    assert shown is not None
    trace = parse_scenario(shown.failing)
    found = next(f for f in check(trace, claims_of(trace), rules=[rule]).findings)
    assert found.step is not None
    stretch = cut(trace, claims_of(trace), found.step, found.step).held()
    again = check(stretch, claims_of(stretch), rules=[rule]).findings
    assert [(f.rule, f.step, f.requests) for f in again] == [(found.rule, found.step, found.requests)]


@given(st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_the_rows_that_matter_come_to_the_books_of_all_rows(random: Random) -> None:
    run = random_run(random, "continuous", random.choice(["fcfs", "sjf", "priority"]))
    trace = run.trace("L3")
    step = random.choice(steps_of(trace))
    row, end = cutting.rows_of(trace, step, None)
    named = cutting._named(trace, row, end)
    told = []
    for small in (0, 10**9):
        walk = books_before(trace, run.profile, row, step, named, small=small)
        told.append((live_rows(walk.state, step), opening_of(walk.state, walk.line, named)))
    assert told[0] == told[1]


@given(st.randoms(use_true_random=False))
@settings(max_examples=8)
def test_a_stretch_of_a_stretch_is_the_shorter_stretch(random: Random) -> None:
    run = random_run(random, "continuous", random.choice(["fcfs", "sjf", "priority", "fair"]))
    trace = run.trace("L3")
    first, second = sorted(random.choices(steps_of(trace), k=2))
    once = cut(trace, run.profile, second)
    twice = cut(cut(trace, run.profile, first).held(), run.profile, second)
    assert list(twice.events()) == list(once.events())
    assert alarms(twice.held(), second) == []


def test_a_stretch_says_that_it_begins_in_the_middle_and_where_it_ends() -> None:
    trace = parse_scenario(RUN)
    inner, rest = cut(trace, None, 2, 2), cut(trace, None, 2)
    assert inner.header.begins == "running"
    assert (inner.header.complete, rest.header.complete) == (False, True)
    assert "2 live A running prompt=4 max=3 slot=0 start=4 out=1" in format_scenario(inner.held())
    assert cut(trace, None, 0).header.begins == "empty"


def test_no_step_there_is_no_stretch() -> None:
    trace = parse_scenario("1 arrive A prompt=4\n1 step\n")
    with pytest.raises(TraceError, match="no row in steps 7 to the end"):
        cut(trace, None, 7)


@pytest.mark.parametrize(
    "told",
    [
        1,
        {"live": -1},
        {"live": 1, "requests": {"7": {"place": 1}}},
        {"live": 1, "passes": [[1]]},
        {"live": 1, "ended": [["A", None, [1], [], False]]},
        {"live": 1, "pinned": "x"},
        {"live": 1, "kinds": "output"},
        {"live": 1, "holes": {"0": [1, None]}},
        {"live": 1, "units": [["row", 1, {}]]},
        {"live": 1, "requests": 3},
    ],
)
def test_an_opening_that_does_not_fit_is_one_line(told: object) -> None:
    trace = parse_scenario("header begins=running\n1 live A running prompt=4 start=4\n1 step\n")
    assert trace.header is not None
    header = Header(begins="running", extra={KEY: told})
    with pytest.raises(TraceError, match=r"^header: opening"):
        check(Trace.from_events(list(trace.events()), header))


def test_the_command_writes_what_a_check_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = random_run(Random(3), "continuous", "fcfs")
    whole = tmp_path / "whole.txt"
    whole.write_text(format_scenario(run.trace("L3")), "utf-8")
    for out in ("stretch.parquet", "stretch.txt"):
        assert main(["cut", str(whole), "--from", "5", "--to", "9", "--out", str(tmp_path / out)]) == 0
        assert main(["check", str(tmp_path / out)]) == 0
    assert open_trace(tmp_path / "stretch.parquet").kinds["live"] > 0
    capsys.readouterr()
    assert main(["cut", str(whole), "--from", "99999", "--out", str(tmp_path / "no.parquet")]) == 2
    assert main(["cut", str(whole), "--from", "5", "--out", str(tmp_path / "no.csv")]) == 2
    assert not list(tmp_path.glob("no*"))
    err = capsys.readouterr().err
    assert err.count("\n") == 2
