"""The first decision in which two runs differ: each kind of it, inputs named first."""

import json
from pathlib import Path

import pytest

from batchspec.replay.cli import main
from batchspec.replay.divergence import Comparison, compare
from batchspec.replay.simulate import trace_of
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.scenario import parse_scenario
from batchspec.traces.trace import Trace

BASE = """\
1 arrive A prompt=6 max=3
1 arrive B prompt=5 max=3
1 admit A slot=0 blocks=2
1 schedule A start=0 tokens=6 blocks=2
1 admit B slot=1 blocks=1
1 schedule B start=0 tokens=2 blocks=1
1 step free=0 waiting=0 running=2
2 schedule A start=6 tokens=1 blocks=2
2 preempt B recompute cause=A
2 step free=1
3 schedule A start=7 tokens=1 blocks=2
3 finish A length out=3
3 step free=3
"""


def held(old: str, new: str, base: str = BASE) -> Comparison:
    assert old in base
    return compare(parse_scenario(base), parse_scenario(base.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "aspect", "request_", "step"),
    [
        ("1 schedule B start=0 tokens=2", "1 schedule B start=0 tokens=1", "chunk size", "B", 1),
        ("1 admit B slot=1", "1 admit B slot=2", "slot", "B", 1),
        ("1 admit B slot=1", "1 admit B slot=1 cached=0", None, None, None),
        ("1 admit B slot=1 blocks=1", "1 admit B slot=1 blocks=2", "block count", "B", 1),
        ("1 admit B slot=1 blocks=1\n1 schedule B start=0 tokens=2 blocks=1\n", "", "admission", "B", 1),
        ("2 preempt B recompute cause=A", "2 preempt A recompute cause=B", "preemption victim", "A", 2),
        ("2 preempt B recompute cause=A\n", "", "preemption victim", "B", 2),
        ("2 preempt B recompute", "2 preempt B swap", "reason", "B", 2),
        ("3 finish A length out=3", "3 finish A stop out=2", "reason", "A", 3),
        ("3 finish A length out=3", "3 finish A length out=2", "output", "A", 3),
        ("3 finish A length out=3\n", "", "end", "A", 3),
        ("3 schedule A start=7 tokens=1 blocks=2\n3 finish A length out=3\n", "", "end", "A", 3),
        ("3 schedule A start=7", "3 schedule A start=8", "position", "A", 3),
        ("3 step free=3\n", "3 step free=2\n", None, None, None),
    ],
)
def test_each_kind_of_decision(
    old: str, new: str, aspect: str | None, request_: str | None, step: int | None
) -> None:
    found = held(old, new)
    one = found.divergence
    assert found.inputs == ()
    assert (one and one.aspect, one and one.request, one and one.step_a) == (aspect, request_, step)
    assert found.same == (aspect is None)


def test_the_order_of_admission_counts_the_order_of_other_rows_does_not() -> None:
    first = (
        "1 admit A slot=0\n1 admit B slot=1\n1 schedule A start=0 tokens=6\n1 schedule B start=0 tokens=2\n"
    )
    head = "1 arrive A prompt=6\n1 arrive B prompt=5\n"
    lines = first.splitlines(keepends=True)
    swapped = "".join([lines[1], lines[0], *lines[2:]])
    assert (one := compare(parse_scenario(head + first), parse_scenario(head + swapped)).divergence)
    assert one.aspect == "order of admission"
    moved = "".join([*lines[:2], lines[3], lines[2]])
    assert compare(parse_scenario(head + first), parse_scenario(head + moved)).same


def test_idle_steps_and_what_is_not_said_make_no_difference() -> None:
    shifted = BASE.replace("\n3 ", "\n9 ").replace("2 step free=1\n", "2 step free=1\n3..8 step free=1\n")
    assert compare(parse_scenario(BASE), parse_scenario(shifted)).same
    silent = (
        BASE.replace(" blocks=2", "").replace(" blocks=1", "").replace(" slot=0", "").replace(" slot=1", "")
    )
    assert compare(parse_scenario(BASE), parse_scenario(silent)).same


def test_other_names_are_aligned_by_order_of_arrival() -> None:
    other = BASE.replace(" A", " x1").replace(" B", " x2").replace("cause=A", "cause=x1")
    found = compare(parse_scenario(BASE), parse_scenario(other))
    assert found.same
    assert found.aligned_by == "order of arrival"
    changed = other.replace("tokens=2", "tokens=1")
    assert (one := compare(parse_scenario(BASE), parse_scenario(changed)).divergence)
    assert (one.aspect, one.request) == ("chunk size", "B")


def test_inputs_that_differ_are_named_first() -> None:
    found = held("1 arrive B prompt=5 max=3", "1 arrive B prompt=7 max=3")
    assert [(d.request, d.what, d.a, d.b) for d in found.inputs] == [("B", "prompt_tokens", 5, 7)]
    assert not found.same
    missing = held("1 arrive B prompt=5 max=3\n", "")
    assert [(d.request, d.what, d.a, d.b) for d in missing.inputs] == [("B", "arrivals", 1, 0)]
    late = held("1 arrive B prompt=5 max=3\n1 admit A slot=0 blocks=2\n", "1 admit A slot=0 blocks=2\n",
                BASE.replace("1 admit B slot=1 blocks=1\n1 schedule B start=0 tokens=2 blocks=1\n", "")
                    .replace("2 preempt B recompute cause=A\n", "") + "4 admit B slot=1\n")  # fmt: skip
    assert late.divergence is None
    swapped = held("1 arrive A prompt=6 max=3\n1 arrive B prompt=5 max=3\n",
                   "1 arrive B prompt=5 max=3\n1 arrive A prompt=6 max=3\n")  # fmt: skip
    assert [d.what for d in swapped.inputs] == ["order of arrival"]


def test_two_policies_over_one_workload_part_at_the_first_admission() -> None:
    records = [Record(f"r{n}", 0, prompt, 4) for n, prompt in enumerate((40, 8, 24, 4))]
    runs: list[Trace] = []
    for order in ("fcfs", "sjf"):
        limits = {"max_seqs": 1, "token_budget": 64, "kv_blocks": 32, "block_size": 4}
        profile = Profile.from_dict(
            {"limits": limits, "admission": {"order": order}, "batching": {"mode": "continuous"}}
        )
        runs.append(trace_of(records, profile))
    found = compare(*runs)
    assert found.inputs == ()
    assert [(d.what, d.a, d.b) for d in found.claims] == [("admission.order", "fcfs", "sjf")]
    assert (one := found.divergence)
    assert (one.aspect, one.step_a, one.step_b) == ("admission", 1, 1)
    assert one.a.startswith("admit r0")
    assert one.b.startswith("admit r3")
    assert compare(runs[0], runs[0]).same


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text(BASE, "utf-8")
    b.write_text(BASE.replace("tokens=2", "tokens=1"), "utf-8")
    assert main(["diff", str(a), str(a)]) == 0
    capsys.readouterr()
    assert main(["diff", str(a), str(b)]) == 1
    text = capsys.readouterr().out
    assert text.startswith("diverge: chunk size of B in step 1 of A, step 1 of B, after 0 equal steps\n")
    assert main(["diff", str(a), str(b), "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["divergence"]["aspect"], data["divergence"]["a"]["row"]) == (
        "diverge",
        "chunk size",
        5,
    )
    assert main(["diff", str(a), str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
