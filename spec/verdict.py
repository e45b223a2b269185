"""What a check says: findings, one result a rule, one report a trace. All of it is plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from batchspec.spec.events import RequestId

Verdict = Literal["conforms", "violates", "not checkable", "open"]
LEVELS: Final = ("L0", "L1", "L2", "L3", "L4")


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule at one event.

    `row` is the event's index in the trace (0 is the first row); `expected` and `observed` are
    short texts with the numbers behind them; `message` is one sentence that reads alone.
    A `consequence` follows from an earlier finding that the check had to repair.
    """

    rule: str
    step: int | None
    row: int | None
    requests: tuple[RequestId, ...]
    expected: str
    observed: str
    message: str
    consequence: bool = False


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The verdict of one rule on one trace.

    `checked` counts the instances judged, `skipped` those that a null kept from being judged,
    `missing` names the columns, options or levels that the rule needs and the trace lacks.
    """

    id: str
    verdict: Verdict
    checked: int = 0
    violations: int = 0
    skipped: int = 0
    waived: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a check found out. `truncated` is the step at which a cut trace breaks off."""

    trace: str
    level: str
    profile: str | None
    config: Mapping[str, Any]
    events: int
    steps: int
    requests: int
    truncated: int | None
    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...] = ()
    waived: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Literal["conforms", "violates"]:
        """`violates` if any rule does, else `conforms`."""
        broken = any(result.verdict == "violates" for result in self.rules)
        return "violates" if broken else "conforms"

    @property
    def count(self) -> int:
        """All violations, also those beyond the findings listed."""
        return sum(result.violations for result in self.rules)
