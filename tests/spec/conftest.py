"""A trace as scenario text, judged: what most tests of the spec begin with."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.examples import judged
from batchspec.spec.examples import example
from batchspec.spec.verdict import Finding, Report, RuleResult
from batchspec.traces.scenario import parse_scenario


@dataclass(frozen=True)
class Judged:
    """A report, by rule."""

    report: Report

    def __getitem__(self, rule: str) -> RuleResult:
        return next(result for result in self.report.rules if result.id == rule)

    @property
    def broken(self) -> list[str]:
        """The broken rules, in the order of their first findings."""
        return list(dict.fromkeys(finding.rule for finding in self.report.findings))

    @property
    def open(self) -> set[str]:
        return {result.id for result in self.report.rules if result.verdict == "open"}

    def of(self, rule: str) -> list[Finding]:
        return [finding for finding in self.report.findings if finding.rule == rule]

    def steps(self, rule: str) -> list[int | None]:
        """The steps at which a rule is found broken."""
        return [finding.step for finding in self.of(rule)]


@pytest.fixture
def judge() -> Callable[..., Judged]:
    """Scenario text to verdicts, under the claims of the text alone; every finding is listed."""

    def run(text: str, rules: tuple[str, ...] | None = None) -> Judged:
        trace = parse_scenario(text)
        header = trace.header
        claims = claimed(header.profile, header.config) if header else None
        return Judged(check(trace, claims, findings=1000, rules=rules))

    return run


@pytest.fixture
def examples() -> Callable[[str], tuple[Judged, Judged]]:
    """A rule's passing and failing example, judged."""

    def run(rule: str) -> tuple[Judged, Judged]:
        shown = example(rule)
        assert shown is not None, f"{rule} has no examples"
        return Judged(judged(shown.passing, rule)[1]), Judged(judged(shown.failing, rule)[1])

    return run
