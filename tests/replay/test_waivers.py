"""Waivers: what a file may say, what each covers, and what is told of those that cover nothing."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.waivers import Waived, Waiver, WaiverError, load_waivers, parse_waivers, remarks
from batchspec.spec.verdict import Finding, Report, RuleResult
from batchspec.traces.scenario import parse_scenario

TODAY = date(2026, 6, 30)
TWO_IN_A_SLOT = """\
1 arrive A prompt=6
1 arrive B prompt=4
1 arrive C prompt=4
1 admit A slot=0
1 admit B slot=0
2 admit C slot=0
"""


def found(rule: str = "slots/exclusive", step: int | None = 7, *requests: str | int) -> Finding:
    return Finding(rule, step, 3, requests or ("A",), "", "", "")


def judged(waivers: tuple[Waiver, ...]) -> tuple[Report, Waived]:
    trace = parse_scenario(TWO_IN_A_SLOT, "two.txt")
    waived = Waived(waivers, TODAY)
    return check(trace, claimed(None, None), findings=9, waived=waived), waived


@pytest.mark.parametrize(
    ("waiver", "covers"),
    [
        (Waiver(1, "slots/exclusive", "known"), True),
        (Waiver(1, "slots/range", "known"), False),
        (Waiver(1, "slots/exclusive", "known", request="A"), True),
        (Waiver(1, "slots/exclusive", "known", request="B"), False),
        (Waiver(1, "slots/exclusive", "known", steps=(7, 7)), True),
        (Waiver(1, "slots/exclusive", "known", steps=(0, 6)), False),
        (Waiver(1, "slots/exclusive", "known", steps=(8, 9)), False),
        (Waiver(1, "slots/exclusive", "known", request="A", steps=(8, 9)), False),
        (Waiver(1, "slots/exclusive", "known", expires=TODAY), True),
        (Waiver(1, "slots/exclusive", "known", expires=date(2026, 6, 29)), False),
    ],
)
def test_a_waiver_covers_what_it_names(waiver: Waiver, covers: bool) -> None:
    assert Waived([waiver], TODAY)(found()) is covers


def test_a_number_is_no_text_of_digits() -> None:
    waiver = Waiver(1, "slots/exclusive", "known", request=7)
    assert Waived([waiver], TODAY)(found("slots/exclusive", 7, 7))
    assert not Waived([waiver], TODAY)(found("slots/exclusive", 7, "7"))


def test_a_finding_at_the_end_of_the_trace_lies_in_no_range_of_steps() -> None:
    assert not Waiver(1, "slots/exclusive", "known", steps=(0, 1 << 60)).matches(found(step=None))


def test_a_waived_finding_breaks_nothing_and_is_counted_apart() -> None:
    bare, _ = judged(())
    assert bare.verdict == "violates"
    report, _ = judged((Waiver(1, "slots/exclusive", "known"),))
    assert (report.verdict, report.waived, report.findings) == ("conforms", 2, ())
    (result,) = [result for result in report.rules if result.id == "slots/exclusive"]
    assert (result.verdict, result.violations, result.waived) == ("conforms", 0, 2)


def test_the_first_violation_that_no_waiver_covers_is_listed() -> None:
    report, waived = judged((Waiver(1, "slots/exclusive", "known", steps=(1, 1)),))
    assert (report.verdict, report.waived) == ("violates", 1)
    assert [finding.step for finding in report.findings] == [2]
    assert [(waiver.number, finding.step, count) for waiver, finding, count in waived.covered()] == [
        (1, 1, 1)
    ]


def test_a_waiver_that_matches_nothing_is_told() -> None:
    report, waived = judged((Waiver(1, "slots/exclusive", "known"), Waiver(2, "time/backwards", "no more")))
    (remark,) = remarks([waived], [report])
    assert remark.startswith("waiver 2 (time/backwards) matches nothing: remove it")


def test_a_waiver_counts_as_used_if_one_of_several_traces_needs_it() -> None:
    report, waived = judged((Waiver(1, "slots/exclusive", "known"),))
    unused = Waived(waived.waivers, TODAY)
    assert remarks([unused, waived], [report, report]) == []


def test_a_waiver_of_a_rule_that_was_not_checkable_says_so() -> None:
    report, waived = judged((Waiver(1, "memory/exclusive", "known"),))
    (remark,) = remarks([waived], [report])
    assert remark == "waiver 1 (memory/exclusive) matches nothing: its rule was not checkable here"


def test_a_waiver_of_a_rule_that_nobody_asked_for_is_left_alone() -> None:
    report, _ = judged(())
    chosen = Waived([Waiver(1, "outputs/invariant", "x")], TODAY)
    only = [result for result in report.rules if result.id == "slots/range"]
    assert remarks([chosen], [Report("t", "L1", None, {}, 0, 0, 0, None, tuple(only))]) == []


def test_an_expired_waiver_covers_nothing_and_says_so() -> None:
    old = Waiver(1, "slots/exclusive", "known", request="B", expires=date(2026, 1, 31))
    report, waived = judged((old,))
    assert report.verdict == "violates"
    (remark,) = remarks([waived], [report])
    assert (
        remark
        == "waiver 1 (slots/exclusive, request B) expired on 2026-01-31 and no longer covers 2 violations"
    )
    report, waived = judged((Waiver(1, "time/backwards", "known", expires=date(2026, 1, 31)),))
    assert remarks([waived], [report])[0].endswith("anything; nothing matches it either: remove it")


def test_two_waivers_may_cover_the_same() -> None:
    waived = Waived(
        [Waiver(1, "slots/exclusive", "a"), Waiver(2, "slots/exclusive", "b", steps=(7, 7))], TODAY
    )
    assert waived(found())
    assert waived.counts == [1, 1]
    results = (RuleResult("slots/exclusive", "conforms", 1, waived=1),)
    assert remarks([waived], [Report("t", "L1", None, {}, 0, 0, 0, None, results)]) == []


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text(
        """
        [[waiver]]
        rule = "slots/reuse"
        reason = "  one step late by design  "
        link = "https://example.org/issues/12"
        request = "r7"
        steps = [10, 20]
        expires = 2027-01-31
        [[waiver]]
        rule = "batch/capacity"
        reason = "counts differ"
        request = 7
        steps = 3
        expires = "2027-02-01"
        """
    )
    assert load_waivers(path) == (
        Waiver(
            1,
            "slots/reuse",
            "one step late by design",
            "https://example.org/issues/12",
            "r7",
            (10, 20),
            date(2027, 1, 31),
        ),
        Waiver(2, "batch/capacity", "counts differ", None, 7, (3, 3), date(2027, 2, 1)),
    )


def test_a_file_without_waivers_waives_nothing() -> None:
    assert parse_waivers({}) == ()


GOOD: dict[str, Any] = {"rule": "slots/reuse", "reason": "known"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"waivers": []}, 'unknown key "waivers"; write each waiver as [[waiver]]'),
        ({"waiver": GOOD}, "write each waiver as [[waiver]], in double brackets"),
        ({"waiver": [3]}, "waiver 1: must be a table"),
        ({"waiver": [GOOD, {"reason": "x"}]}, "waiver 2: names no rule"),
        (
            {"waiver": [GOOD | {"rule": "slots/reus"}]},
            "unknown rule \"slots/reus\" (did you mean 'slots/reuse'?)",
        ),
        ({"waiver": [GOOD | {"rule": "x"}]}, "`batchspec rules` lists them"),
        ({"waiver": [GOOD | {"rule": 3}]}, "rule must be a text"),
        ({"waiver": [{"rule": "slots/reuse"}]}, "slots/reuse is waived without a reason"),
        ({"waiver": [GOOD | {"reason": " \n"}]}, "without a reason"),
        ({"waiver": [GOOD | {"resaon": "x"}]}, "unknown key \"resaon\" (did you mean 'reason'?)"),
        ({"waiver": [GOOD | {"link": 1}]}, "link must be a text"),
        ({"waiver": [GOOD | {"request": True}]}, "request must be an id"),
        ({"waiver": [GOOD | {"request": 1.5}]}, "request must be an id"),
        ({"waiver": [GOOD | {"steps": [3]}]}, "steps must be"),
        ({"waiver": [GOOD | {"steps": [3, 1]}]}, "steps must be"),
        ({"waiver": [GOOD | {"steps": [-1, 1]}]}, "steps must be"),
        ({"waiver": [GOOD | {"steps": True}]}, "steps must be"),
        ({"waiver": [GOOD | {"steps": "1"}]}, "steps must be"),
        ({"waiver": [GOOD | {"expires": "soon"}]}, 'expires must be a day such as 2027-01-31, not "soon"'),
        ({"waiver": [GOOD | {"expires": 2027}]}, "expires must be a day"),
    ],
)
def test_a_bad_entry_is_one_line_that_names_it(data: dict[str, Any], message: str) -> None:
    with pytest.raises(WaiverError) as error:
        parse_waivers(data, "w.toml")
    text = str(error.value)
    assert text.startswith("w.toml: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[[waiver", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"x=" + b"[" * 100_000, "not valid TOML"),
        (
            b"[[waiver]]\nrule='slots/reuse'\nreason='x'\nexpires=2027-01-31T10:00:00\n",
            "expires must be a day",
        ),
        (b"#" * (1 << 20) + b"##", "so it is no waiver file"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(raw: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_bytes(raw)
    with pytest.raises(WaiverError) as error:
        load_waivers(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WaiverError, match="cannot be read"):
        load_waivers(tmp_path / "none.toml")
