"""The SARIF report (version 2.1.0, OASIS): a result a finding, for code-scanning pages and editors.

A trace has no lines. A result points to the file, to line `row + 1` of its table of events, and to a
logical place `step N/row M`. A waived finding is a result with a suppression that gives the reason.
Rules that could not be judged, and how often each was, stand in the properties of the run.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from batchspec.replay.conform.kinds import ALL_RULES
from batchspec.replay.report.page import plain
from batchspec.replay.waivers import Waiver
from batchspec.spec.verdict import Finding, Report

SARIF_VERSION: Final = "2.1.0"
SCHEMA_URI: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

Suppressed = Iterable[tuple[Waiver, Finding, int]]
"""Each waiver that covered something in a trace, with the first finding it covered and their number."""


def sarif_object(
    reports: Sequence[Report],
    unusable: Mapping[str, str],
    waived: Sequence[Suppressed] = (),
    exit_code: int = 0,
) -> dict[str, Any]:
    """One SARIF log of one run. `waived` has, for each report, what waivers covered in its trace."""
    ids = list(dict.fromkeys(result.id for report in reports for result in report.rules))
    places = {rule_id: place for place, rule_id in enumerate(ids)}
    results = []
    for number, report in enumerate(reports):
        results += [_result(finding, report, places) for finding in report.findings]
        for waiver, finding, many in waived[number] if number < len(waived) else ():
            result = _result(finding, report, places)
            result["suppressions"] = [_suppression(waiver)]
            result["occurrenceCount"] = many
            results.append(result)
    run = {
        "tool": {"driver": {"name": "batchspec", "version": version("batchspec"), "rules": _rules(ids)}},
        "invocations": [_invocation(unusable, exit_code)],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": {"traces": [_verdicts(report) for report in reports]},
    }
    return {"$schema": SCHEMA_URI, "version": SARIF_VERSION, "runs": [run]}


def _rules(ids: Sequence[str]) -> list[dict[str, Any]]:
    described = []
    for rule_id in ids:
        rule = ALL_RULES[rule_id]
        described.append(
            {
                "id": rule_id,
                "shortDescription": {"text": rule.sentence},
                "help": {"text": f"Source: {rule.source}. Explained by: batchspec rules {rule_id}"},
                "defaultConfiguration": {"level": "error"},
                "properties": {"kind": rule.kind, "premise": list(rule.premise)},
            }
        )
    return described


def _result(finding: Finding, report: Report, places: Mapping[str, int]) -> dict[str, Any]:
    message = f"{finding.message}. Seen: {finding.observed}. Should be: {finding.expected}."
    # Code scanning shows no result without a line; what shows only at the end points to the last one.
    line = max(1, report.events) if finding.row is None else finding.row + 1
    physical = {"artifactLocation": {"uri": _uri(report.trace)}, "region": {"startLine": line}}
    step = "end of trace" if finding.step is None else f"step {finding.step}"
    place = step if finding.row is None else f"{step}/row {finding.row}"
    return {
        "ruleId": finding.rule,
        "ruleIndex": places[finding.rule],
        # What follows from a finding that the check had to mend is no second fault.
        "level": "note" if finding.consequence else "error",
        "message": {"text": plain(message, 10_000)},
        "locations": [
            {
                "physicalLocation": physical,
                "logicalLocations": [{"name": step, "fullyQualifiedName": place}],
            }
        ],
        "properties": {"requests": list(finding.requests), "step": finding.step, "row": finding.row},
    }


def _suppression(waiver: Waiver) -> dict[str, Any]:
    suppression: dict[str, Any] = {"kind": "external", "justification": waiver.reason}
    if waiver.link is not None:
        suppression["properties"] = {"link": waiver.link}
    return suppression


def _invocation(unusable: Mapping[str, str], exit_code: int) -> dict[str, Any]:
    invocation: dict[str, Any] = {"executionSuccessful": not unusable, "exitCode": exit_code}
    if unusable:
        invocation["toolExecutionNotifications"] = [
            {
                "level": "error",
                "message": {"text": error},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(trace)}}}],
            }
            for trace, error in unusable.items()
        ]
    return invocation


def _verdicts(report: Report) -> dict[str, Any]:
    return {
        "trace": report.trace,
        "verdict": report.verdict,
        "level": report.level,
        "profile": report.profile,
        "rules": {result.id: result.verdict for result in report.rules},
    }


def _uri(trace: str) -> str:
    """A URI reference for a path, absolute (`file:`) where the path is."""
    path = Path(trace)
    if path.is_absolute():
        return path.as_uri()
    # Bytes of a name that are no text come from the system as lone surrogates.
    return quote(path.as_posix().encode("utf-8", "surrogateescape"))
