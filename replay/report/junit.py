"""The JUnit report: a suite a trace, a test case a rule, for the test pages of CI systems.

A broken rule is a failure with its findings as text. What was not put to the test is no pass: not
checkable, open and not exercised rules are skipped tests with the reason. What a waiver covers stands in
the output of its rule's case, with the waiver's reason and link. A trace that could not be read is a
suite with one error. No times are written, so that the same report is the same text.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from batchspec.replay.report.page import count, plain
from batchspec.replay.waivers import Waiver
from batchspec.spec.verdict import Finding, Report, RuleResult

Suppressed = Iterable[tuple[Waiver, Finding, int]]
"""What waivers cover in one trace: the waiver, the first finding that it covers, and how many in all."""

_LONGEST: Final = 100_000
# What XML 1.0 cannot hold even as a reference; `plain` has written control characters as escapes before.
_NO_XML = re.compile("[\ufffe\uffff]")


def junit_xml(
    reports: Sequence[Report], unusable: Mapping[str, str], waived: Sequence[Suppressed] = ()
) -> str:
    """The XML text of a run. `unusable` has the error of each trace that could not be read, `waived`, for
    each report, what waivers covered in its trace."""
    several = len(reports) > 1
    covered = [*(list(one) for one in waived), *([] for _ in reports)]
    suites = [_suite(report, several, covered[number]) for number, report in enumerate(reports)]
    suites += [_unread(trace, error) for trace, error in unusable.items()]
    root = ET.Element("testsuites", name="batchspec")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(report: Report, several: bool, covered: Sequence[tuple[Waiver, Finding, int]]) -> ET.Element:
    suite = ET.Element("testsuite", name=_clean(report.trace))
    by_rule: dict[str, list[str]] = {}
    for waiver, finding, many in covered:
        by_rule.setdefault(finding.rule, []).extend(_waived(waiver, finding, many))
    cases = [_case(result, report, several, by_rule.get(result.id, [])) for result in report.rules]
    found = [case.find(word) is not None for word in ("failure", "skipped") for case in cases]
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(found[: len(cases)])))
    suite.set("errors", "0")
    suite.set("skipped", str(sum(found[len(cases) :])))
    properties = ET.SubElement(suite, "properties")
    sizes = {"events": report.events, "steps": report.steps, "requests": report.requests}
    facts = {"verdict": report.verdict, "level": report.level, "profile": report.profile or "", **sizes}
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    suite.extend(cases)
    if report.notes:
        ET.SubElement(suite, "system-out").text = _clean("\n".join(report.notes))
    return suite


def _case(result: RuleResult, report: Report, several: bool, waived: Sequence[str]) -> ET.Element:
    family, _, _ = result.id.partition("/")
    # GitLab tells cases apart by class and name alone, whatever suite they stand in.
    name = f"{result.id} ({report.trace})" if several else result.id
    case = ET.Element("testcase", classname=f"batchspec.{family}", name=_clean(name))
    if result.verdict == "violates":
        findings = [finding for finding in report.findings if finding.rule == result.id]
        message = findings[0].message if findings else count(result.violations, "violation")
        failure = ET.SubElement(case, "failure", type=result.id, message=_clean(message))
        lines = [line for finding in findings for line in _lines(finding)]
        if result.violations > len(findings):
            lines.append(f"{count(result.violations, 'violation')} in all")
        failure.text = _clean("\n".join(lines))
    elif result.verdict == "not checkable":
        _skip(case, "not checkable: needs " + ", ".join(result.missing))
    elif result.verdict == "open":
        _skip(case, "open: still within its bound when the trace ended")
    elif not result.checked:
        _skip(case, "not exercised: nothing in this trace puts it to the test")
    if result.waived:
        lines = [f"{count(result.waived, 'violation')} waived", *waived]
        ET.SubElement(case, "system-out").text = _clean("\n".join(lines))
    return case


def _waived(waiver: Waiver, finding: Finding, many: int) -> list[str]:
    link = f" ({waiver.link})" if waiver.link else ""
    lines = [*_lines(finding), f"  waived:     {waiver.reason}{link}"]
    return [*lines, f"  and {count(many - 1, 'more', 'more')}"] if many > 1 else lines


def _lines(finding: Finding) -> list[str]:
    place = "end of trace" if finding.step is None else f"step {finding.step}"
    if finding.row is not None:
        place += f", row {finding.row}"
    follows = " (a consequence of an earlier finding)" if finding.consequence else ""
    return [
        f"{place}: {finding.message}{follows}",
        f"  seen:       {finding.observed}",
        f"  should be:  {finding.expected}",
    ]


def _skip(case: ET.Element, why: str) -> None:
    ET.SubElement(case, "skipped", message=_clean(why))


def _unread(trace: str, error: str) -> ET.Element:
    suite = ET.Element("testsuite", name=_clean(trace), tests="1", failures="0", errors="1", skipped="0")
    case = ET.SubElement(suite, "testcase", classname="batchspec", name=_clean(f"can be read ({trace})"))
    ET.SubElement(case, "error", type="unusable", message=_clean(error))
    return suite


def _clean(text: object) -> str:
    lines = str(text).split("\n")
    return "\n".join(_NO_XML.sub("�", plain(line, _LONGEST)) for line in lines)
