"""The SARIF report: the parts of version 2.1.0 that we write, held against their definition there.

SCHEMA has, in our words, what the OASIS schema says of these objects and no others: a key that we add
without looking it up there fails.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from batchspec.replay.report.json import to_json
from batchspec.replay.report.sarif import sarif_object
from batchspec.replay.waivers import Waiver
from batchspec.spec.catalogue import RULES
from batchspec.spec.verdict import Finding, Report, RuleResult


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


TEXT = {"type": "string"}
MESSAGE = closed(["text"], text={"type": "string", "minLength": 1})
BAG = {"type": "object"}
PLACE = closed(
    ["artifactLocation"],
    artifactLocation=closed(["uri"], uri={"type": "string", "pattern": r"^[!-~]+$"}),
    region=closed(["startLine"], startLine={"type": "integer", "minimum": 1}),
)
LOCATION = closed(
    ["physicalLocation"],
    physicalLocation=PLACE,
    logicalLocations={
        "type": "array",
        "items": closed(["name", "fullyQualifiedName"], name=TEXT, fullyQualifiedName=TEXT),
    },
)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
SCHEMA = closed(
    ["$schema", "version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": closed(
            ["tool", "results"],
            tool=closed(
                ["driver"],
                driver=closed(
                    ["name"],
                    name=TEXT,
                    version=TEXT,
                    rules={
                        "type": "array",
                        "uniqueItems": True,
                        "items": closed(
                            ["id"],
                            id=TEXT,
                            shortDescription=MESSAGE,
                            help=MESSAGE,
                            defaultConfiguration=closed([], level=LEVEL),
                            properties=BAG,
                        ),
                    },
                ),
            ),
            invocations={
                "type": "array",
                "items": closed(
                    ["executionSuccessful"],
                    executionSuccessful={"type": "boolean"},
                    exitCode={"type": "integer"},
                    toolExecutionNotifications={
                        "type": "array",
                        "items": closed(
                            ["message"],
                            level=LEVEL,
                            message=MESSAGE,
                            locations={"type": "array", "items": LOCATION},
                        ),
                    },
                ),
            },
            results={
                "type": "array",
                "items": closed(
                    ["message"],
                    ruleId=TEXT,
                    ruleIndex={"type": "integer", "minimum": -1},
                    level=LEVEL,
                    message=MESSAGE,
                    locations={"type": "array", "items": LOCATION},
                    occurrenceCount={"type": "integer", "minimum": 1},
                    suppressions={
                        "type": "array",
                        "uniqueItems": True,
                        "items": closed(
                            ["kind"],
                            kind={"enum": ["inSource", "external"]},
                            justification=TEXT,
                            properties=BAG,
                        ),
                    },
                    properties=BAG,
                ),
            },
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            properties=BAG,
        ),
    },
)
REPORT = Report(
    trace="runs/a run.parquet",
    level="L2",
    profile="vllm-v1",
    config={},
    events=14,
    steps=4,
    requests=2,
    truncated=None,
    rules=(
        RuleResult("slots/range", "conforms", 5),
        RuleResult("slots/reuse", "violates", 1, 1, waived=2),
        RuleResult("memory/leak", "violates", 1, 1),
    ),
    findings=(
        Finding("slots/reuse", 4, 13, ("A", 7), "one", "none", "a seat stayed empty"),
        Finding("memory/leak", None, None, (), "all free", "2 held", "2 blocks are missing", True),
    ),
)
WAIVED = (Waiver(1, "slots/reuse", "late by design", "https://example.org/1"), REPORT.findings[0], 2)


def run_of(log: dict[str, Any]) -> dict[str, Any]:
    """The one run of a log that fits the schema, as a reader of the printed text would see it."""
    read = json.loads(to_json(log))
    jsonschema.validate(read, SCHEMA, cls=jsonschema.Draft202012Validator)
    run: dict[str, Any] = read["runs"][0]
    return run


def test_a_finding_is_a_result_that_points_to_its_rule_and_its_row() -> None:
    run = run_of(sarif_object([REPORT], {}))
    first, second = run["results"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert first["level"] == "error"
    assert first["message"]["text"] == "a seat stayed empty. Seen: none. Should be: one."
    place = first["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "runs/a%20run.parquet"
    assert place["physicalLocation"]["region"]["startLine"] == 14
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "step 4/row 13"
    assert first["properties"]["requests"] == ["A", 7]
    assert second["level"] == "note"
    assert second["locations"][0]["physicalLocation"]["region"]["startLine"] == REPORT.events


def test_rules_are_described_in_the_words_of_the_catalogue() -> None:
    described = run_of(sarif_object([REPORT], {}))["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in described] == ["slots/range", "slots/reuse", "memory/leak"]
    for rule in described:
        assert rule["shortDescription"]["text"] == RULES[rule["id"]].sentence


def test_every_rule_can_be_described() -> None:
    results = tuple(RuleResult(rule, "conforms") for rule in RULES)
    run = run_of(sarif_object([replace(REPORT, rules=results, findings=())], {}))
    assert len(run["tool"]["driver"]["rules"]) == len(RULES)


def test_a_waived_finding_is_a_suppressed_result() -> None:
    run = run_of(sarif_object([REPORT], {}, [[WAIVED]]))
    (result,) = [result for result in run["results"] if "suppressions" in result]
    assert result["occurrenceCount"] == 2
    assert result["suppressions"] == [
        {
            "kind": "external",
            "justification": "late by design",
            "properties": {"link": "https://example.org/1"},
        }
    ]


def test_a_trace_that_could_not_be_read_is_a_notification() -> None:
    (invocation,) = run_of(sarif_object([REPORT], {"x": "x: no such file"}, exit_code=2))["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["exitCode"] == 2
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "x: no such file"
    (fine,) = run_of(sarif_object([REPORT], {}))["invocations"]
    assert fine == {"executionSuccessful": True, "exitCode": 0}


@pytest.mark.parametrize(
    ("trace", "uri"),
    [
        ("a#b?c.parquet", "a%23b%3Fc.parquet"),
        ("größe.parquet", "gr%C3%B6%C3%9Fe.parquet"),
        ("bad\udcff.parquet", "bad%FF.parquet"),
        ("/data/run.parquet", "file:///data/run.parquet"),
        ("<memory>", "%3Cmemory%3E"),
    ],
)
def test_a_path_is_a_uri(trace: str, uri: str) -> None:
    run = run_of(sarif_object([replace(REPORT, trace=trace)], {}))
    found = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert found == uri


def test_several_traces_are_one_run() -> None:
    run = run_of(sarif_object([REPORT, replace(REPORT, trace="b")], {}, [[WAIVED], []]))
    assert len(run["results"]) == 5
    assert [item["trace"] for item in run["properties"]["traces"]] == [REPORT.trace, "b"]


@pytest.mark.skipif("BATCHSPEC_DATA" not in os.environ, reason="BATCHSPEC_DATA names no folder")
def test_the_schema_of_the_standard_accepts_every_log() -> None:
    """The published schema itself, where it is: it says nothing of how it may be passed on."""
    path = Path(os.environ["BATCHSPEC_DATA"]) / "sarif-schema-2.1.0.json"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in the folder that BATCHSPEC_DATA names")
    schema = json.loads(path.read_text("utf-8"))
    validator = jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())
    unusable = {"x": "x: no such file"}
    for log in (
        sarif_object([REPORT], {}),
        sarif_object([REPORT], unusable, [[WAIVED]], 2),
        sarif_object([], unusable, exit_code=2),
    ):
        validator.validate(json.loads(to_json(log)))
