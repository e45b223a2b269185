"""`batchspec prove`: what it prints, and how it says that the solver is missing."""

import json
from importlib.util import find_spec

import pytest

from batchspec.replay.cli import main
from batchspec.replay.commands import prove as command
from batchspec.replay.report.proofs import proofs_page
from batchspec.spec.counters import token_counter
from batchspec.spec.induction import CLAIMS, MOVES

solver = pytest.mark.skipif(find_spec("z3") is None, reason="needs the extra prove")


@solver
def test_every_rule_has_its_line(capsys):
    assert main(["prove", "--requests", "2"]) == 0

    out = capsys.readouterr().out
    assert out.startswith("proved: up to 2 requests, every size, any number of steps\n")
    assert [line.split()[1] for line in out.splitlines() if line.startswith("inductive")] == list(CLAIMS)
    bounds = [line for line in out.splitlines() if line.startswith("lemma")]
    assert bounds[0] == "lemma       fairness/service-gap, 4 tenants, every amount  147 of 147 steps"
    assert len(bounds) == 4
    assert "memory/exclusive            block ids: the model counts blocks" in out


@solver
def test_a_step_that_leads_out_is_a_scenario():
    from batchspec.spec.prove import prove

    alone = {"memory/coverage": CLAIMS["memory/coverage"]}
    text = proofs_page(prove(1, claims=alone, moves={"join": MOVES["join"]}), 1).text()

    assert text.startswith("not proved: up to 1 request")
    assert "memory/coverage holds before join and not after it:" in text
    assert "1 live A waiting" in text
    assert "1 admit A" in text


def test_without_the_solver_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)

    assert main(["prove"]) == 2
    assert capsys.readouterr().err == "batchspec: prove needs the solver z3: install batchspec[prove]\n"


@solver
def test_a_number_of_requests_that_makes_no_sense(capsys):
    assert main(["prove", "--requests", "0"]) == 2
    assert "1 to 64 requests, not 0" in capsys.readouterr().err


@solver
def test_as_one_object(capsys):
    assert main(["prove", "--requests", "1", "--format", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["requests"]) == ("proved", 1)
    assert {proof["claim"] for proof in found["proofs"]} == set(CLAIMS)
    assert all(proof["kept"] is True and proof["scenario"] is None for proof in found["proofs"])
    assert [lemma["parties"] for lemma in found["lemmas"]] == ["4 tenants", "2 flows", "3 flows", "4 flows"]


@solver
def test_a_bound_that_does_not_hold_says_in_which_state():
    from batchspec.spec.prove import prove_lemma

    lemma = token_counter(2, lift=False)
    text = proofs_page([], 1, [(lemma, list(prove_lemma(lemma)))]).text()

    assert text.startswith("not proved")
    assert "FAILS       fairness/service-gap, 2 tenants" in text
    assert "ahead of who waits holds before enter 0 and not after it: U " in text
