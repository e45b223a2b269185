"""The core model in other tools' languages: spin counts the same states and comes to the same verdict."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from batchspec.spec import promela as module
from batchspec.spec.errors import SpecError
from batchspec.spec.induction import CLAIMS, MOVES, RUNNING, Move, Sizes
from batchspec.spec.promela import promela, reachable, tla

SPIN = shutil.which("spin") and shutil.which("gcc")
with_spin = pytest.mark.skipif(not SPIN, reason="spin and gcc are not installed")

# Sizes are N, b, S, T, host, prompts, limits.
PINNED = {
    "one request": (Sizes(2, 1, 1, 2, 0, (1,), (2,)), (22, 92)),
    "two requests": (Sizes(3, 1, 2, 2, 0, (1, 2), (2, 1)), (1162, 8148)),
    "two requests, a host": (Sizes(3, 1, 2, 2, 1, (1, 2), (2, 1)), (1614, 13426)),
    "two requests, larger blocks": (Sizes(3, 2, 2, 3, 1, (3, 2), (2, 1)), (3444, 28634)),
    "one seat": (Sizes(3, 1, 1, 2, 0, (1, 2), (2, 1)), (286, 1623)),
}


def spin(text: str, folder: Path) -> tuple[int, int, int]:
    """States, transitions and errors that spin finds in a model."""
    (folder / "model.pml").write_text(text)
    limits = ["-DSAFETY", "-DNOREDUCE", "-DVECTORSZ=2048"]
    for command in (["spin", "-a", "model.pml"], ["gcc", "-w", *limits, "-o", "pan", "pan.c"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    done = subprocess.run(
        ["./pan", "-m100000", "-w20"], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    )
    numbers = [
        int(re.findall(pattern, done.stdout)[0])
        for pattern in (r"(\d+) states, stored", r"(\d+) transitions", r"errors: (\d+)")
    ]
    return numbers[0], numbers[1], numbers[2]


@pytest.mark.parametrize("name", PINNED)
def test_counts_are_pinned(name):
    sizes, counts = PINNED[name]

    assert reachable(sizes) == (*counts, True)


@with_spin
@pytest.mark.parametrize("name", PINNED)
def test_spin_finds_the_same_states_and_no_error(name, tmp_path):
    """One transition more: spin counts the first state as if a transition had led to it."""
    sizes, (states, transitions) = PINNED[name]

    assert spin(promela(sizes), tmp_path) == (states, transitions + 1, 0)


@with_spin
def test_spin_finds_the_same_fault(tmp_path, monkeypatch):
    """A run that does not look at the budget."""
    run = MOVES["run"]

    def blind(logic, sizes, books, at, given):
        return run.guard(logic, replace(sizes, budget=1000), books, at, given)

    monkeypatch.setitem(MOVES, "run", Move("run", blind, run.effect, run.choices))
    sizes = PINNED["two requests"][0]

    assert reachable(sizes)[2] is False
    assert spin(promela(sizes), tmp_path)[2] == 1


def test_sizes_beyond_a_byte_are_refused():
    with pytest.raises(SpecError, match="too large for an exhaustive search"):
        promela(Sizes(300, 1, 1, 1, 0, (1,), (1,)))


def test_tla_names_every_invariant_and_every_row_in_every_step():
    text = tla(PINNED["two requests"][0])
    actions = re.findall(r"^(\w+) ==\n((?:  /\\ .*\n)+)", text, re.MULTILINE)
    steps = [body for name, body in actions if name not in ("Init", "Next")]

    assert text.startswith("---- MODULE BatchCore ----\nEXTENDS Integers\n")
    assert text.endswith("====\n")
    assert len(steps) > 20
    assert all(body.count("' = ") == 9 for body in steps)
    assert text.count("(") == text.count(")")
    invariants = re.findall(r"^(\w+) == ", text, re.MULTILINE)
    assert len([name for name in invariants if name not in ("vars", "Spec")]) == len(CLAIMS)
    assert "True" not in text.replace("TRUE", "")
    assert str(RUNNING) in text
    assert module.TLA.equal == "="
