"""`batchspec explore`: what it prints, what it writes, and how it answers a request it cannot take."""

import json
from pathlib import Path

import networkx as nx
import pytest

from batchspec.replay import exploring
from batchspec.replay.checker import check
from batchspec.replay.cli import main
from batchspec.replay.compiled import available
from batchspec.replay.packed import search
from batchspec.replay.report.exploration import counterexample, exploration_page
from batchspec.spec.explore import explore
from batchspec.spec.frame import Job
from batchspec.spec.model import Request
from batchspec.spec.policies import urgency
from batchspec.spec.profile import Profile
from batchspec.spec.space import Space
from batchspec.traces.scenario import parse_scenario

SMALL = ["--max-seqs", "2", "--token-budget", "4", "--kv-blocks", "3", "--block-size", "2"]
TWO = ["--request", "3:2", "--request", "2:3"]


def test_a_profile_that_holds(capsys):
    assert main(["explore", *TWO, *SMALL]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "holds: every interleaving that the rules allow, 2 requests (profile vllm-v1)",
        "167 states, 344 transitions, depth 15",
        "reached:      runs together, leaves early, finishes, recomputes, comes back",
    ]


@pytest.mark.parametrize("name", ["states.graphml", "states.dot"])
def test_the_graph_of_states_is_written(name, tmp_path: Path, capsys):
    path = tmp_path / name

    assert main(["explore", *TWO, *SMALL, "--graph", str(path)]) == 0

    if path.suffix == ".graphml":
        assert nx.read_graphml(path).number_of_nodes() == 167
    else:
        assert path.read_text().count(" -> ") == 344


def test_a_search_that_is_cut_proves_nothing(capsys):
    assert main(["explore", *TWO, *SMALL, "--most", "20"]) == 0
    assert "CUT at the limit of states, so nothing is proved" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*TWO], "explore needs limits.max_seqs"),
        ([*SMALL], "--request"),
        (["--request", "3", *SMALL], "--request 3: write PROMPT:MAX"),
        (["--request", "0:1", *SMALL], "--request 0:1: write PROMPT:MAX"),
        ([*TWO, *SMALL, "--graph", "states.png"], "written as .graphml or .dot, not .png"),
        ([*TWO, *SMALL, "--profile", "vllm-v1-async"], "no model of reuse.slot_lag = 1"),
        ([*TWO, *SMALL, "--profile", "fastserve"], "explore needs a claim for"),
    ],
)
def test_what_cannot_be_explored_is_one_line(arguments, says, capsys):
    assert main(["explore", *arguments]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


class Equals(Space):
    """Must fail: a request that waits may take the place of one that is as urgent."""

    def more_urgent(self, waiting: Request, running: Request) -> bool:
        return urgency(waiting, self.profile) <= urgency(running, self.profile)


def test_a_counterexample_reads_as_a_picture_and_is_a_scenario(snapshot):
    profile = Profile.from_dict(
        {
            "name": "equals",
            "limits": {"max_seqs": 1, "token_budget": 2, "kv_blocks": 4, "block_size": 1},
            "admission": {"order": "priority", "urgent": "low", "misfit": "stop", "test": "step"},
            "preemption": {
                "mode": "recompute",
                "victim": "least-urgent",
                "resume": "arrival",
                "for_waiting": True,
                "admit_in_same_step": True,
            },
        }
    )
    space = Equals(profile, [Job(3, 1), Job(3, 1)], eager=True)
    found = explore(space)

    assert exploration_page(space, found).text() == snapshot
    trace = parse_scenario(counterexample(space, found) or "")
    report = check(trace, Profile.from_dict(trace.header.config))
    assert "preemption/cause" in {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    ("name", "begins"), [("core.pml", "byte where[2];"), ("core.tla", "---- MODULE core ----")]
)
def test_the_core_model_is_written(name, begins, tmp_path: Path, capsys):
    path = tmp_path / name

    assert main(["explore", *TWO, *SMALL, "--model", str(path)]) == 0
    assert path.read_text().startswith(begins)
    assert main(["explore", *TWO, *SMALL, "--model", str(tmp_path / "core.txt")]) == 2
    assert "written as .pml (spin) or .tla (TLA+)" in capsys.readouterr().err


def test_as_one_object(capsys):
    assert main(["explore", *TWO, *SMALL, "--format", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["engine"], found["profile"]) == ("holds", "readable", "vllm-v1")
    assert (found["states"], found["transitions"], found["depth"]) == (167, 344, 15)
    assert found["reached"]["comes back"] is True


def test_what_is_wrong_stands_in_the_object_as_a_scenario(tmp_path: Path, capsys):
    """A profile that never preempts, with requests that grow: nobody can go on."""
    claims = {"preemption": {"mode": "none"}, "limits": {"kv_blocks": 3, "block_size": 1}}
    config = tmp_path / "claims.json"
    config.write_text(json.dumps(claims))
    options = ["--max-seqs", "2", "--token-budget", "3", "--config", str(config), "--eager"]

    status = main(["explore", "--request", "2:2", "--request", "1:2", *options, "--format", "json"])

    found = json.loads(capsys.readouterr().out)
    assert (status, found["verdict"]) == (1, "fails")
    (stuck,) = found["stuck"]
    trace = parse_scenario(stuck["scenario"])
    assert check(trace, Profile.from_dict(trace.header.config)).steps > 0


@pytest.mark.skipif(not available(), reason="needs the extra fast")
def test_the_packed_engine_says_the_same(capsys):
    assert main(["explore", *TWO, *SMALL]) == 0
    readable = capsys.readouterr().out
    assert main(["explore", *TWO, *SMALL, "--engine", "packed"]) == 0
    assert capsys.readouterr().out == readable

    assert main(["explore", *TWO, *SMALL, "--engine", "packed", "--graph", "states.dot"]) == 2
    assert "keeps no graph of states" in capsys.readouterr().err


@pytest.mark.skipif(not available(), reason="needs the extra fast")
def test_a_large_space_is_gone_through_in_packed_form(capsys, monkeypatch):
    monkeypatch.setattr(exploring, "_SMALL", 100)

    assert main(["explore", *TWO, *SMALL, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["engine"], found["states"], found["transitions"]) == ("packed", 167, 344)


def test_without_numba_the_packed_engine_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(search, "available", lambda: False)
    monkeypatch.setattr(exploring, "_SMALL", 100)

    assert main(["explore", *TWO, *SMALL, "--engine", "packed"]) == 2
    assert "install batchspec[fast], or use the readable engine" in capsys.readouterr().err
    assert main(["explore", *TWO, *SMALL]) == 0
