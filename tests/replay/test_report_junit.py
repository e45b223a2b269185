"""The JUnit report: one suite a trace, one case a rule, and no rule passes that was not put to the test."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from batchspec.replay.report.junit import junit_xml
from batchspec.replay.waivers import Waiver
from batchspec.spec.verdict import Finding, Report, RuleResult

REPORT = Report(
    trace="run.parquet",
    level="L2",
    profile="vllm-v1",
    config={},
    events=14,
    steps=4,
    requests=2,
    truncated=None,
    rules=(
        RuleResult("slots/reuse", "violates", 1, 3),
        RuleResult("slots/range", "conforms", 5),
        RuleResult("tokens/lost", "conforms", 0),
        RuleResult("liveness/idle-stall", "open", 2),
        RuleResult("memory/exclusive", "not checkable", missing=("block_ids", "cached")),
        RuleResult("batch/capacity", "conforms", 5, waived=2),
    ),
    findings=(
        Finding("slots/reuse", 4, 13, ("A",), "one admission", "none", "a seat stayed empty"),
        Finding("slots/reuse", None, None, (), "one <b>", "none", "and another", True),
    ),
    notes=("the clock of this trace runs backwards",),
)


def read(*reports: Report, unusable: dict[str, str] | None = None) -> ET.Element:
    return ET.fromstring(junit_xml(reports, unusable or {}))


def case(root: ET.Element, name: str) -> ET.Element:
    (found,) = root.findall(f".//testcase[@name='{name}']")
    return found


def test_the_counts_are_those_of_the_cases() -> None:
    root = read(REPORT, replace(REPORT, rules=REPORT.rules[1:2], findings=()), unusable={"x": "no file"})
    assert root.tag == "testsuites"
    for suite in root.findall("testsuite"):
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(name) == str(len(suite.findall(f"testcase/{tag}")))
    for name, total in (("tests", 8), ("failures", 1), ("errors", 1), ("skipped", 3)):
        assert root.get(name) == str(total)


def test_a_broken_rule_is_a_failure_with_its_findings() -> None:
    failure = case(read(REPORT), "slots/reuse").find("failure")
    assert failure is not None
    assert failure.get("message") == "a seat stayed empty"
    assert failure.text == (
        "step 4, row 13: a seat stayed empty\n"
        "  seen:       none\n"
        "  should be:  one admission\n"
        "end of trace: and another (a consequence of an earlier finding)\n"
        "  seen:       none\n"
        "  should be:  one <b>\n"
        "3 violations in all"
    )


def test_what_was_not_judged_is_skipped_with_the_reason() -> None:
    root = read(REPORT)
    why = {
        "tokens/lost": "not exercised: nothing in this trace puts it to the test",
        "liveness/idle-stall": "open: still within its bound when the trace ended",
        "memory/exclusive": "not checkable: needs block_ids, cached",
    }
    for rule, message in why.items():
        skipped = case(root, rule).find("skipped")
        assert skipped is not None
        assert skipped.get("message") == message
    assert list(case(root, "slots/range")) == []


def test_waived_violations_and_notes_are_said() -> None:
    root = read(REPORT)
    assert case(root, "batch/capacity").findtext("system-out") == "2 violations waived"
    assert root.findtext("testsuite/system-out") == "the clock of this trace runs backwards"
    properties = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert properties["verdict"] == "violates"
    assert properties["profile"] == "vllm-v1"


def test_a_trace_that_could_not_be_read_is_an_error() -> None:
    root = read(unusable={"x.parquet": "x.parquet: no such file or folder"})
    error = root.find("testsuite[@name='x.parquet']/testcase/error")
    assert error is not None
    assert error.get("message") == "x.parquet: no such file or folder"


def test_ids_from_strangers_are_valid_xml() -> None:
    evil = "\x00\x1b]]>&<\ufffe\uffff\ud800\u202e"
    finding = Finding("slots/reuse", 4, 13, (evil,), evil, evil, f"{evil} sits here")
    text = junit_xml([replace(REPORT, trace=evil, findings=(finding,), notes=(evil,))], {evil: evil})
    root = ET.fromstring(text.encode())
    assert "sits here" in (case(root, "slots/reuse")[0].get("message") or "")
    assert "\u202e" not in text


def test_the_same_report_is_the_same_text() -> None:
    assert junit_xml([REPORT], {}) == junit_xml([REPORT], {})
    assert junit_xml([REPORT], {}).startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ')


def test_cases_of_several_traces_can_be_told_apart_by_class_and_name() -> None:
    """GitLab knows a case by these two alone and shows one of those that are equal."""
    root = read(REPORT, replace(REPORT, trace="other.parquet"), unusable={"x": "no file", "y": "no file"})
    names = [(each.get("classname"), each.get("name")) for each in root.iter("testcase")]
    assert len(names) == len(set(names)) == 14
    assert ("batchspec.slots", "slots/reuse (other.parquet)") in names


def test_what_a_waiver_covers_comes_with_its_reason() -> None:
    finding = Finding("batch/capacity", 4, 9, ("A",), "at most 2", "3 running", "3 requests run")
    waiver = Waiver(1, "batch/capacity", "known <since> May", link="https://example.org/7")
    root = ET.fromstring(junit_xml([REPORT, REPORT], {}, [[(waiver, finding, 2)], []]))
    first, second = root.findall("testsuite")
    told = first.find("testcase[@name='batch/capacity (run.parquet)']/system-out")
    assert told is not None
    assert (told.text or "").split("\n") == [
        "2 violations waived",
        "step 4, row 9: 3 requests run",
        "  seen:       3 running",
        "  should be:  at most 2",
        "  waived:     known <since> May (https://example.org/7)",
        "  and 1 more",
    ]
    other = second.find("testcase[@name='batch/capacity (run.parquet)']/system-out")
    assert other is not None
    assert other.text == "2 violations waived"
