"""`batchspec mutate`: what it prints, and its exit status."""

import json

import pytest

from batchspec.replay.cli import main
from batchspec.replay.commands import mutate as command
from batchspec.replay.mutation.aims import aimed
from batchspec.replay.mutation.campaign import campaign
from batchspec.replay.mutation.reason import GAP, Reason
from batchspec.replay.report.mutation import campaign_object, campaign_page, rules_page
from batchspec.spec.catalogue import RULES


def test_the_page_has_the_rates_the_killers_and_the_survivors(capsys) -> None:
    assert main(["mutate", "--number", "180", "--seed", "4"]) == 0
    text = capsys.readouterr().out
    first, second = text.split("\n")[:2]
    assert " of 180 faults killed (" in first
    assert first.endswith("in good traces of every mode, seed 4")
    assert "survivors: " in second
    for head in ("kind of fault", "level", "mode", "killed first by", "survivors  "):
        assert f"\n{head}" in text


def test_the_object_lists_each_survivor_with_its_reason(capsys) -> None:
    assert main(["mutate", "--number", "90", "--profile", "vllm-v1", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["faults"], told["profile"], told["seed"]) == (90, "vllm-v1", 0)
    assert told["killed"] + len(told["survivors"]) == 90
    assert sum(told["verdicts"].values()) == len(told["survivors"])
    assert sum(told["killers"].values()) == told["killed"]
    assert sum(kind["faults"] for kind in told["kinds"].values()) == 90
    assert all(one["why"] and one["argument"] for one in told["survivors"])


def test_each_survivor_can_be_listed(capsys) -> None:
    assert main(["mutate", "--number", "45", "--survivors"]) == 0
    text = capsys.readouterr().out
    assert text.count("\nseed ") == campaign_page(campaign(45), True).text().count("\nseed ") > 0


def test_the_table_of_rules(monkeypatch, capsys) -> None:
    some = {rule: RULES[rule] for rule in ("slots/range", "outputs/invariant")}
    monkeypatch.setattr(command, "RULES", some)
    assert main(["mutate", "--rules"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1 of 2 rules killed by a mutation of a good trace\n")
    assert "token values are in no trace" in text
    assert main(["mutate", "--rules", "--format", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["rules"]
    assert (first["id"], first["killed"], first["kind"]) == ("slots/range", True, aimed("slots/range").kind)
    assert (second["killed"], second.get("seed")) == (False, None)


def test_a_rule_that_no_mutation_breaks_and_a_gap_are_failures(monkeypatch, capsys) -> None:
    monkeypatch.setattr(command, "RULES", {"slots/range": RULES["slots/range"]})
    monkeypatch.setattr(command, "aimed", lambda rule, seed: None)
    assert main(["mutate", "--rules"]) == 1
    assert "not found" in capsys.readouterr().out
    new = Reason(GAP, "new", "no argument says why no rule speaks")
    monkeypatch.setattr("batchspec.replay.mutation.campaign.explained", lambda *_: new)
    assert main(["mutate", "--number", "90"]) == 1
    text = capsys.readouterr().out
    assert "no argument says why no rule speaks" in text


@pytest.mark.parametrize(
    "words", [["--profile", "vllm-v9"], ["--number", "0"], ["--format", "xml"], ["--seed", "-1"]]
)
def test_a_wrong_option_is_one_line(words: list[str], capsys) -> None:
    assert main(["mutate", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_campaign_without_survivors_has_a_page() -> None:
    result = campaign(9, levels=("L3",), kinds=("duplicate",), seed=1)
    result.survivors.clear()
    assert "0 survivors" in campaign_page(result).text()
    assert campaign_object(result)["survivors"] == []
    assert rules_page({}).text().startswith("0 of 0 rules killed")
