"""The JSON report: the contract's keys, checked against the schema that is shipped with it."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import pytest

from batchspec.replay.report.json import report_object, reports_object, to_json
from batchspec.spec.verdict import Finding, Report, RuleResult

SCHEMA = json.loads(resources.files("batchspec.replay.report").joinpath("schema.json").read_text("utf-8"))
REPORT = Report(
    trace="run.parquet",
    level="L2",
    profile="vllm-v1",
    config={"limits": {"max_seqs": 2}},
    events=14,
    steps=4,
    requests=2,
    truncated=None,
    rules=(
        RuleResult("slots/reuse", "violates", 1, 1),
        RuleResult("memory/exclusive", "not checkable", missing=("block_ids",)),
    ),
    findings=(Finding("slots/reuse", 4, 13, ("A", 7), "one", "none", "a seat stayed empty"),),
)


def check(data: Any) -> Any:
    """Validate, as a reader of the printed text would see it."""
    read = json.loads(to_json(data))
    jsonschema.validate(read, SCHEMA, cls=jsonschema.Draft202012Validator)
    return read


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_one_report_has_exactly_the_keys_of_the_contract() -> None:
    data = check(report_object(REPORT))
    assert list(data) == [
        "schema",
        "version",
        "verdict",
        "trace",
        "level",
        "profile",
        "config",
        "events",
        "steps",
        "requests",
        "truncated",
        "waived",
        "rules",
        "findings",
    ]
    assert list(data["rules"][0]) == ["id", "verdict", "checked", "violations", "missing"]
    assert list(data["findings"][0]) == [
        "rule",
        "step",
        "row",
        "requests",
        "expected",
        "observed",
        "message",
        "consequence",
    ]
    assert data["verdict"] == "violates"
    assert data["findings"][0]["requests"] == ["A", 7]


@pytest.mark.parametrize(
    "report",
    [
        replace(REPORT, profile=None, config={}, truncated=3, rules=(), findings=()),
        replace(REPORT, level="L0", findings=(Finding("time/causality", None, 3, (), "", "", ""),)),
        replace(REPORT, trace="a\x1b[31m\n.parquet", findings=()),
    ],
)
def test_every_report_fits_the_schema(report: Report) -> None:
    check(report_object(report))


def test_several_traces_are_one_object() -> None:
    clean = replace(REPORT, rules=(), findings=())
    assert check(reports_object([clean, clean], {}))["verdict"] == "conforms"
    assert check(reports_object([clean, REPORT], {"x": "empty"}))["verdict"] == "violates"
    assert check(reports_object([clean], {"x": "empty"}))["verdict"] is None


def test_a_missing_key_does_not_fit_the_schema() -> None:
    data = report_object(REPORT)
    for key in list(data):
        with pytest.raises(jsonschema.ValidationError):
            check({name: value for name, value in data.items() if name != key})


def test_the_text_is_ascii() -> None:
    assert to_json(report_object(replace(REPORT, trace="größe \u202e"))).isascii()
