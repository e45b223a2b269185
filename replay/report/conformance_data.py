"""The result of a conformance suite for programs and pages: JSON, JUnit, SARIF, and markdown with a badge.

`conformance.schema.json` beside this module describes the JSON: an object as `check` prints one, with what
drove the scheduler and, for each finding, the case that shows it.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from batchspec.replay.conform.artifacts import folder_of
from batchspec.replay.conform.case import script_data
from batchspec.replay.conform.kinds import obligation
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.search import Found
from batchspec.replay.report.json import report_object
from batchspec.replay.report.junit import junit_xml
from batchspec.replay.report.page import count, plain
from batchspec.replay.report.sarif import Suppressed, sarif_object
from batchspec.replay.report.text import state_of
from batchspec.traces.scenario import format_scenario

_LEVELS: Final = {"MUST": "error", "SHOULD": "warning"}
_COLOURS: Final = {"conforms": "brightgreen", "violates": "red"}


def conformance_object(result: Result, files: str | None = None) -> dict[str, Any]:
    """The result as plain data. `files` is the folder that the findings were written to."""
    data = report_object(result.report())
    data["verdict"] = result.verdict
    data |= {
        "scheduler": result.scheduler,
        "scheduler_version": result.version,
        "subject": result.subject,
        "seed": result.seed,
        "examples": result.examples,
        "runs": result.runs,
        "refused": result.refused,
        "strict": result.strict,
    }
    for rule in data["rules"]:
        rule["obligation"] = obligation(rule["id"])
    for finding, found in zip(data["findings"], result.found, strict=True):
        finding |= _shown_by(found, files)
    return data


def _shown_by(found: Found, files: str | None) -> dict[str, Any]:
    case = found.judged.case
    return {
        "obligation": obligation(found.finding.rule),
        "origin": found.origin,
        "seen": [found.again + 1, found.runs + 1],
        "case": {
            "claims": case.profile.to_dict(),
            "requests": [script_data(script) for script in case.scripts],
        },
        "scenario": format_scenario(found.judged.run.trace),
        "files": None if files is None else f"{files}/{folder_of(found.finding.rule)}",
    }


def conformance_junit(results: Sequence[Result]) -> str:
    """JUnit: a suite a scheduler, a test case a rule. A broken SHOULD is a skipped test, unless it counts."""
    root = ET.fromstring(junit_xml([result.report() for result in results], {}))
    for suite, result in zip(root.findall("testsuite"), results, strict=True):
        properties = suite.find("properties")
        for item in () if properties is None else properties.findall("property"):
            if item.get("name") == "verdict":
                item.set("value", result.verdict)
        for case in suite.findall("testcase"):
            failure = case.find("failure")
            if failure is None or result.strict or obligation(case.get("name", "")) == "MUST":
                continue
            case.remove(failure)
            said = f"SHOULD, broken: {failure.get('message')}"
            ET.SubElement(case, "skipped", message=said)
            ET.SubElement(case, "system-out").text = failure.text
        _counted(suite)
    for name in ("failures", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root.findall("testsuite"))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counted(suite: ET.Element) -> None:
    for name, word in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(word) is not None for case in suite.findall("testcase"))))


def conformance_sarif(
    result: Result, waived: Suppressed = (), files: str | None = None, exit_code: int = 0
) -> dict[str, Any]:
    """SARIF: a result a finding, at its trace file; `error` for a MUST, `warning` for a SHOULD."""
    data = sarif_object([result.report()], {}, [tuple(waived)], exit_code)
    for entry in data["runs"][0]["results"]:
        entry["level"] = _LEVELS[obligation(entry["ruleId"])]
        if files is not None:
            uri = quote(f"{files}/{folder_of(entry['ruleId'])}/trace.parquet")
            entry["locations"][0]["physicalLocation"]["artifactLocation"] = {"uri": uri}
    for rule in data["runs"][0]["tool"]["driver"]["rules"]:
        rule["defaultConfiguration"] = {"level": _LEVELS[obligation(rule["id"])]}
        rule["properties"]["obligation"] = obligation(rule["id"])
    return data


def badge_markdown(result: Result) -> str:
    """One image for a page: green or red, with the profile."""
    words = [result.profile or "own claims", result.verdict]
    label, message = (quote(word.replace("-", "--").replace("_", "__").replace(" ", "_")) for word in words)
    colour = _COLOURS[result.verdict]
    if result.conforms and result.broken_should:
        colour = "yellowgreen"
    return f"![batchspec: {' '.join(words)}](https://img.shields.io/badge/{label}-{message}-{colour})"


def conformance_markdown(results: Iterable[Result]) -> str:
    """A badge, what was run, the findings, and a table of every rule that was judged."""
    return "\n".join(_markdown(result) for result in results)


def _markdown(result: Result) -> str:
    lines = [
        f"## {_cell(result.name)}",
        "",
        badge_markdown(result),
        "",
        f"Profile `{result.profile or 'own claims'}`, level {result.level}, {count(result.runs, 'run')}, "
        f"{count(result.steps, 'step')}, seed {result.seed}, {count(result.examples, 'example')}: "
        f"**{result.verdict}**.",
        "",
    ]
    findings: Mapping[str, Found] = {found.finding.rule: found for found in result.found}
    for found in (*result.broken_must, *result.broken_should):
        finding = found.finding
        lines.append(f"- {obligation(finding.rule)} `{finding.rule}`: {_cell(finding.message)}")
    if result.found:
        lines.append("")
    lines += ["| rule | | verdict | judged |", "| --- | --- | --- | ---: |"]
    for rule in result.rules:
        if rule.verdict != "not checkable":
            state = f"**{state_of(rule)}**" if rule.id in findings else state_of(rule)
            lines.append(f"| `{rule.id}` | {obligation(rule.id)} | {state} | {rule.checked:,} |")
    missing = [f"`{rule.id}`" for rule in result.rules if rule.verdict == "not checkable"]
    if missing:
        lines += ["", f"Not checkable: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def _cell(text: object) -> str:
    """Text of somebody else's in markdown: nothing in it is markup."""
    shown = plain(text)
    for mark in "\\`*_[]<>|#":
        shown = shown.replace(mark, f"\\{mark}")
    return shown
