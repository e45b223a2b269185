"""How a finding reads: the text of one finding a rule, pinned, and what every text must have.

Who changes a message reads the whole snapshot once as a stranger would: with the trace's words, and
without knowing this project.
"""

import re
from collections.abc import Iterator

import pytest
from syrupy.assertion import SnapshotAssertion

from batchspec.replay.cli import main
from batchspec.replay.examples import judged
from batchspec.replay.report.context import around
from batchspec.replay.report.page import Page
from batchspec.replay.report.text import finding_lines
from batchspec.spec.catalogue import RULES
from batchspec.spec.examples import example
from batchspec.spec.sometimes import SOMETIMES
from batchspec.spec.verdict import Finding

SHOWN = [rule for rule in RULES if example(rule) is not None]


def finding_of(rule: str) -> tuple[Finding, str]:
    """The first finding of a rule's failing example, and its text."""
    shown = example(rule)
    assert shown is not None
    trace, report = judged(shown.failing, rule)
    finding = next(item for item in report.findings if item.rule == rule)
    page = Page()
    stretch = around(trace, [finding]).get(finding.row or 0)
    finding_lines(page, finding, RULES[rule].sentence, stretch, "batchspec check scenario.txt")
    return finding, page.text()


def words_of(finding: Finding) -> Iterator[str]:
    yield from (finding.message, finding.expected, finding.observed)


@pytest.mark.parametrize("rule", SHOWN)
def test_the_text_of_one_finding(rule: str, snapshot: SnapshotAssertion) -> None:
    assert finding_of(rule)[1] == snapshot


@pytest.mark.parametrize("rule", SHOWN)
def test_it_says_what_was_seen_and_what_should_have_been(rule: str) -> None:
    finding, text = finding_of(rule)

    assert finding.step is not None
    assert finding.row is not None
    assert finding.message
    assert finding.expected
    assert finding.observed
    assert finding.expected != finding.observed
    assert f"[{rule}]" in text
    assert "\n    >" in text, "the row at fault is marked among the events"


@pytest.mark.parametrize("rule", SHOWN)
def test_it_names_the_requests_it_is_about(rule: str) -> None:
    finding, _ = finding_of(rule)

    said = " ".join(words_of(finding))
    assert all(re.search(rf"\b{request}\b", said) for request in finding.requests)


@pytest.mark.parametrize("rule", SHOWN)
def test_its_numbers_agree_with_their_nouns(rule: str) -> None:
    finding, _ = finding_of(rule)

    for words in words_of(finding):
        assert not re.search(r"\b1 (blocks|tokens|steps|requests|positions|times|units|members)\b", words), (
            words
        )
        assert "None" not in words
        assert not re.search(r"[<{\[](class|function|Request|Event)", words)


@pytest.mark.parametrize("rule", RULES)
def test_rules_id_shows_the_rule_its_examples_and_the_finding(
    rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", rule]) == 0

    said = capsys.readouterr().out
    flat = " ".join(said.split())
    assert said.startswith(f"{rule}\n")
    for part in (RULES[rule].sentence, RULES[rule].source, "kind: ", "level: ", "claims: ", "columns: "):
        assert " ".join(part.split()) in flat
    shown = example(rule)
    if shown is None:
        assert "no trace can show it" in flat
    else:
        finding, _ = finding_of(rule)
        assert all(f"    {line}" in said for text in shown for line in text.splitlines())
        assert finding.message in flat
        assert "what a check says of it" in said


def test_the_list_ends_with_what_must_be_possible(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0

    said = capsys.readouterr().out
    possible = " ".join(said[said.index("\nsometimes") :].split())
    assert all(item.id in possible and item.sentence in possible for item in SOMETIMES.values())


@pytest.mark.parametrize(("rule", "told"), [("fairness/overtaking", True), ("slots/reuse", False)])
def test_rules_that_a_table_of_requests_can_put_to_the_test_say_so(
    rule: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", rule]) == 0
    assert ("L0: a table of requests is enough" in capsys.readouterr().out) is told


def test_a_rule_explained(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["rules", "memory/coverage"]) == 0
    assert capsys.readouterr().out == snapshot
