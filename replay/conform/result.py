"""What a suite came to: plain data behind every report of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchspec.replay.conform.kinds import obligation
from batchspec.replay.conform.search import Found
from batchspec.replay.coverage import Coverage
from batchspec.spec.verdict import Finding, Report, RuleResult


@dataclass(frozen=True, slots=True)
class Result:
    """One scheduler under one profile.

    `rules` has the verdict of each rule over all runs, `found` each broken rule with its smallest case.
    `seed` and `examples` lead to the same runs again. `strict`: a broken SHOULD counts as well.
    """

    scheduler: str
    version: str
    subject: str
    profile: str | None
    claims: Mapping[str, Any]
    level: str
    seed: int
    examples: int
    runs: int
    refused: int
    events: int
    steps: int
    requests: int
    rules: tuple[RuleResult, ...]
    found: tuple[Found, ...]
    coverage: Coverage
    waived: int = 0
    strict: bool = False

    @property
    def broken_must(self) -> tuple[Found, ...]:
        """Findings against rules that a scheduler must keep."""
        return tuple(found for found in self.found if obligation(found.finding.rule) == "MUST")

    @property
    def broken_should(self) -> tuple[Found, ...]:
        """Findings against rules that it should keep."""
        return tuple(found for found in self.found if obligation(found.finding.rule) == "SHOULD")

    @property
    def conforms(self) -> bool:
        """Whether no MUST is broken, and under `strict` no SHOULD either."""
        return not (self.found if self.strict else self.broken_must)

    @property
    def verdict(self) -> str:
        """`conforms` or `violates`."""
        return "conforms" if self.conforms else "violates"

    @property
    def name(self) -> str:
        """Engine and version."""
        return f"{self.scheduler} {self.version}".strip()

    def report(self) -> Report:
        """The result in the shape of a check, for the formats that a check has."""
        findings: list[Finding] = [found.finding for found in self.found]
        return Report(
            trace=self.name,
            level=self.level,
            profile=self.profile,
            config=self.claims,
            events=self.events,
            steps=self.steps,
            requests=self.requests,
            truncated=None,
            rules=self.rules,
            findings=tuple(findings),
            waived=self.waived,
        )
