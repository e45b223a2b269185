"""Shrinking a recorded trace: the same finding, in as few requests and steps as show it."""

from pathlib import Path
from random import Random

import pytest

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.cli import main
from batchspec.replay.generate import random_run
from batchspec.replay.shrinking.search import Shrunk, shrink
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import Event
from batchspec.spec.examples import example
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.scenario import format_scenario, parse_scenario
from batchspec.traces.trace import Trace

FAULTS = sorted((Path(__file__).parents[1] / "scenarios" / "faults").glob("*.txt"))


def claims_of(trace: Trace) -> Profile:
    header = trace.header or Header()
    return claimed(header.profile, header.config) or Profile()


def shrunk(trace: Trace, rule: str) -> Shrunk:
    finding = check(trace, claims_of(trace), rules=(rule,)).findings[0]
    found = shrink(trace, claims_of(trace), finding)
    again = parse_scenario(format_scenario(found.trace))
    shown = check(again, claims_of(again), rules=(rule,), findings=50).findings
    assert any((f.rule, f.step, f.requests) == (rule, finding.step, finding.requests) for f in shown)
    assert again.num_rows <= trace.num_rows + 1
    assert found.whole
    return found


@pytest.mark.parametrize("rule", [rule for rule in RULES if example(rule)])
def test_the_failing_example_of_each_rule(rule: str) -> None:
    shown = example(rule)
    assert shown is not None
    shrunk(parse_scenario(shown.failing), rule)


@pytest.mark.parametrize(
    "path", [path for path in FAULTS if ".ok." not in path.name], ids=lambda path: path.stem
)
def test_every_fault(path: Path) -> None:
    trace = parse_scenario(path.read_text("utf-8"))
    findings = check(trace, claims_of(trace)).findings
    if findings:
        shrunk(trace, findings[0].rule)


def spoilt(seed: int, kind: str, **columns: int) -> Trace:
    """A run with one row changed in its middle."""
    run = random_run(Random(seed), "continuous", "fcfs")
    trace = run.trace("L3")
    events = list(trace.events())
    rows = [row for row, event in enumerate(events) if event.event == kind]
    row = rows[len(rows) // 2]
    changed = {name: getattr(events[row], name) + more for name, more in columns.items()}
    events[row] = events[row]._replace(**changed)
    return Trace.from_events(events, trace.header)


@pytest.mark.parametrize(
    ("rule", "kind", "columns"),
    [
        ("tokens/position", "schedule", {"start": 1}),
        ("stats/agree", "step", {"free_blocks": -1}),
        ("stats/agree", "step", {"running": 1}),
    ],
)
@pytest.mark.parametrize("seed", [5, 6, 8])
def test_a_fault_of_one_step_comes_to_that_step(
    seed: int, rule: str, kind: str, columns: dict[str, int]
) -> None:
    trace = spoilt(seed, kind, **columns)
    found = shrunk(trace, rule)
    steps = {event.step for event in found.trace.events()}
    requests = {event.request for event in found.trace.events() if event.request is not None}
    assert len(steps) <= 2
    assert len(requests) <= 1


def crowded(requests: int, steps: int) -> list[Event]:
    """Many requests that decode side by side; in the last step one takes the slot of another."""
    rows = [Event(1, "arrive", n, prompt_tokens=2, max_tokens=steps + 9) for n in range(requests)]
    for n in range(requests):
        rows += [Event(1, "admit", n, slot=n), Event(1, "schedule", n, start=0, tokens=2)]
    rows.append(Event(1, "step", running=requests, waiting=0))
    for step in range(2, steps):
        rows += [Event(step, "schedule", n, start=step, tokens=1) for n in range(requests)]
        rows.append(Event(step, "step", running=requests, waiting=0))
    rows += [Event(steps, "arrive", 9999, prompt_tokens=2, max_tokens=3), Event(steps, "admit", 9999, slot=7)]
    return rows


def test_two_requests_of_many_are_left_and_one_step_of_many() -> None:
    found = shrunk(Trace.from_events(crowded(40, 150)), "slots/exclusive")
    assert [(e.event, e.request) for e in found.trace.events()] == [
        ("live", 7),
        ("arrive", 9999),
        ("admit", 9999),
    ]
    assert found.window[0] < 40 * 150
    assert found.finding.rule == "slots/exclusive"


def test_claims_that_the_finding_does_not_need_are_left_out() -> None:
    config = {
        "limits": {"max_seqs": 2, "token_budget": 4, "kv_blocks": 8, "block_size": 4},
        "admission": {"order": "fcfs"},
    }
    text = "1 arrive A prompt=9\n1 admit A slot=0\n1 schedule A start=0 tokens=5 blocks=2\n1 step free=6\n"
    trace = Trace.from_events(list(parse_scenario(text).events()), Header(config=config))
    found = shrunk(trace, "batch/token-budget")
    assert found.trace.header is not None
    assert found.trace.header.config == {"limits": {"token_budget": 4}}


def test_a_search_that_runs_out_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchspec.replay.shrinking.search.MOST_FED", 1)
    trace = Trace.from_events(crowded(9, 9))
    finding = check(trace, rules=("slots/exclusive",)).findings[0]
    found = shrink(trace, Profile(), finding)
    assert not found.whole
    assert check(found.trace, rules=("slots/exclusive",)).findings


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "run.txt", tmp_path / "smallest.txt"
    source.write_text(format_scenario(Trace.from_events(crowded(9, 30))), "utf-8")
    command = ["shrink", str(source), "--rule", "slots/exclusive"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert main([*command, "--out", str(out)]) == 0
    assert out.read_text("utf-8") == printed
    assert main(["check", str(out), "--rule", "slots/exclusive"]) == 1
    capsys.readouterr()
    for wrong in (["--rule", "slots/range"], ["--rule", "slots"], ["--rule", "memory/bound"]):
        assert main(["shrink", str(source), *wrong]) == 2
    assert main([*command, "--step", "31"]) == 2
    assert capsys.readouterr().err.count("\n") == 4
