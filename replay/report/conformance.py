"""The report of a conformance suite as text: the findings with their scenarios, then every rule."""

import re
from collections.abc import Sequence
from typing import Final

from batchspec.replay.conform.artifacts import folder_of
from batchspec.replay.conform.case import Case
from batchspec.replay.conform.kinds import ALL_RULES, obligation
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.search import Found
from batchspec.replay.report.context import around
from batchspec.replay.report.page import Page, count
from batchspec.replay.report.text import finding_lines, state_of
from batchspec.traces.scenario import format_scenario

SHOWN_LINES: Final = 60
"""A scenario of more lines is shown to here; the files of the finding have all of it."""

_QUIET: Final = re.compile(r"\d+ step( |$)(?!.*tokens=)")
_STYLES: Final = {"violates": "bold red", "conforms": "green"}


def conformance_page(result: Result, files: str | None = None) -> Page:
    """A suite's result as a page. `files` is the folder that the findings were written to."""
    page = Page()
    against = f" (profile {result.profile})" if result.profile else " (claims of its own)"
    page.add(f"{result.name}: ", (result.verdict, _STYLES[result.verdict]), against)
    sizes = (count(result.runs, "run"), count(result.steps, "step"), count(result.requests, "request"))
    page.add(
        f"level {result.level}, {', '.join(sizes)}; seed {result.seed}, {count(result.examples, 'example')}"
    )
    if result.refused:
        page.add(f"{count(result.refused, 'case')} left out: the factory cannot have such sizes")
    for found in (*result.broken_must, *result.broken_should):
        page.gap()
        _finding(page, found, files)
    page.gap()
    _rules(page, result)
    page.gap()
    _verdict(page, result)
    return page


def finding_page(found: Found, files: str | None = None) -> Page:
    """One finding as a page of its own."""
    page = Page()
    _finding(page, found, files)
    return page


def _finding(page: Page, found: Found, files: str | None) -> None:
    finding = found.finding
    word = obligation(finding.rule)
    page.add((f"{word} ", "bold red" if word == "MUST" else "yellow"), *_origin(found))
    stretch = around(found.judged.run.trace, [finding])
    where = "scenario.txt" if files is None else f"{files}/{folder_of(finding.rule)}/trace.parquet"
    rows = None if finding.row is None else stretch.get(finding.row)
    finding_lines(page, finding, ALL_RULES[finding.rule].sentence, rows, f"batchspec check {where}")
    page.add("requests:", indent=2)
    page.table(
        ("id", "arrival", "prompt", "max", "outputs", ""), _requests(found.judged.case), "lrrrr", indent=4
    )
    page.add("scenario:", indent=2)
    lines = quieted(format_scenario(found.judged.run.trace).splitlines())
    for line in lines[:SHOWN_LINES]:
        page.add(line, indent=4)
    if len(lines) > SHOWN_LINES:
        page.add(f"… {len(lines) - SHOWN_LINES} more lines", indent=4)
    if files is not None:
        page.add(f"files:      {files}/{folder_of(finding.rule)}", indent=2)


def quieted(lines: Sequence[str]) -> list[str]:
    """Lines of a scenario, with stretches of steps in which nothing happens left out."""
    kept: list[str] = []
    quiet: list[str] = []
    for line in [*lines, ""]:
        if _QUIET.match(line):
            quiet.append(line)
            continue
        if len(quiet) > 4:
            quiet = [quiet[0], f"… {len(quiet) - 2} steps in which nothing happens", quiet[-1]]
        kept += [*quiet, line]
        quiet = []
    return kept[:-1]


def _origin(found: Found) -> tuple[str, ...]:
    again = f"seen in {found.again + 1} of {found.runs + 1} runs of this case"
    return (f"found by {found.origin}, {again}",)


def _requests(case: Case) -> Sequence[tuple[object, ...]]:
    rows = []
    for script in case.scripts:
        request = script.request
        notes = [f"priority {request.priority}"] if request.priority else []
        if request.tenant is not None:
            notes.append(f"tenant {request.tenant}")
        if script.abort_ns is not None:
            moment = "while a pass runs" if script.abort_in_flight else "between two steps"
            notes.append(f"cancelled {script.abort_ns} ns after its arrival, {moment}")
        if script.accept:
            notes.append(f"{count(script.accept, 'draft')} hold")
        rows.append(
            (
                request.id,
                request.arrival_ns,
                len(request.prompt),
                request.max_tokens,
                script.outputs,
                ", ".join(notes),
            )
        )
    return rows


def _rules(page: Page, result: Result) -> None:
    order = ("violates", "open", "conforms", "not exercised", "not checkable")
    results = sorted(result.rules, key=lambda item: order.index(state_of(item)))
    rows = [
        (
            state_of(item),
            obligation(item.id),
            item.id,
            f"{item.checked:,}" if item.checked else "",
            f"{item.waived:,} waived" if item.waived else ", ".join(f"needs {word}" for word in item.missing),
        )
        for item in results
    ]
    page.table(("verdict", "", "rule", "judged", ""), rows, "lllr", indent=0)


def _verdict(page: Page, result: Result) -> None:
    states = [state_of(item) for item in result.rules]
    judged = sum(state in ("violates", "conforms", "open") for state in states)
    broken = [f"{len(result.broken_must)} MUST", f"{len(result.broken_should)} SHOULD"]
    page.add(
        "verdict: ",
        (result.verdict, _STYLES[result.verdict]),
        f"; broken: {', '.join(broken)}; {judged} rules judged, ",
        f"{states.count('not exercised')} not exercised, {states.count('not checkable')} not checkable",
    )
