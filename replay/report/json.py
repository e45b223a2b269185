"""The JSON report: one object a check, in the shape that `schema.json` beside this module describes."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from batchspec.replay.coverage import Coverage
from batchspec.replay.report.coverage import coverage_object
from batchspec.spec.verdict import Finding, Report, RuleResult

SCHEMA_VERSION: Final = 1


def report_object(report: Report, coverage: Coverage | None = None) -> dict[str, Any]:
    """One report as plain data, every key of the contract present; `coverage` only where it was asked for."""
    data = {
        "schema": SCHEMA_VERSION,
        "version": version("batchspec"),
        "verdict": report.verdict,
        "trace": report.trace,
        "level": report.level,
        "profile": report.profile,
        "config": dict(report.config),
        "events": report.events,
        "steps": report.steps,
        "requests": report.requests,
        "truncated": report.truncated,
        "waived": report.waived,
        "rules": [_rule(result) for result in report.rules],
        "findings": [_finding(finding) for finding in report.findings],
    }
    if coverage is not None:
        data["coverage"] = coverage_object(coverage)
    return data


def reports_object(
    reports: Sequence[Report],
    unusable: Mapping[str, str],
    covers: Sequence[Coverage] = (),
    merged: Coverage | None = None,
) -> dict[str, Any]:
    """Several traces in one object. `unusable` has the error of each trace that could not be read.

    The verdict is `violates` where any trace violates, null where none does and one is unusable.
    `covers` has the coverage of each report, and `merged` that of all, where it was asked for.
    """
    broken = any(report.verdict == "violates" for report in reports)
    data = {
        "schema": SCHEMA_VERSION,
        "version": version("batchspec"),
        "verdict": "violates" if broken else None if unusable else "conforms",
        "traces": [
            report_object(report, covers[number] if covers else None) for number, report in enumerate(reports)
        ],
        "unusable": [{"trace": trace, "error": error} for trace, error in unusable.items()],
    }
    if merged is not None:
        data["coverage"] = coverage_object(merged)
    return data


def to_json(data: Mapping[str, Any]) -> str:
    """The text of one object, ASCII only, ended by a line break."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _rule(result: RuleResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "verdict": result.verdict,
        "checked": result.checked,
        "violations": result.violations,
        "missing": list(result.missing),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "step": finding.step,
        "row": finding.row,
        "requests": list(finding.requests),
        "expected": finding.expected,
        "observed": finding.observed,
        "message": finding.message,
        "consequence": finding.consequence,
    }
