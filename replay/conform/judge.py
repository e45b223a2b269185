"""One case driven through a scheduler under test, and everything that is wrong with what came of it."""

from dataclasses import dataclass, replace

from batchspec.replay.checker import Waived, check
from batchspec.replay.conform.case import Case
from batchspec.replay.conform.kinds import Crash, Hang, Protocol, Stall
from batchspec.replay.coverage import Coverage
from batchspec.replay.drive import Run, attempt
from batchspec.replay.harness import Factory, Scheduler
from batchspec.spec.verdict import Finding, Report, RuleResult

CALL_S: float = 20.0
"""How long a call of the scheduler may take, in seconds, before it counts as hung."""

QUIET_STEPS: int = 100
"""Steps without news after which a small case has stalled."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a case: the run, and the check of its trace with the suite's own findings in front."""

    case: Case
    run: Run
    report: Report
    coverage: Coverage

    @property
    def broken(self) -> dict[str, Finding]:
        """The first finding of each rule that was broken, not as a mere consequence of another."""
        found: dict[str, Finding] = {}
        for finding in self.report.findings:
            if not finding.consequence:
                found.setdefault(finding.rule, finding)
        return found


def judge(
    factory: Factory, case: Case, *, waived: Waived | None = None, call_s: float | None = CALL_S
) -> Judged:
    """Make a scheduler for the case, drive it, check the trace.

    Raises `HarnessError` where the factory cannot have these limits. Whatever else the scheduler does
    is a finding. A scheduler that has a method `close` is told when it is no longer needed.
    """
    scheduler = factory(case.profile)
    patience = patience_of(case)
    try:
        run = attempt(scheduler, case.scripts, case.profile, stall_steps=patience, call_s=call_s)
    finally:
        closed(scheduler)
    coverage = Coverage()
    report = check(run.trace, case.profile, waived=waived, observe=coverage.observe)
    coverage.add(report, case.profile)
    report = _with_own(report, _own(run, patience), waived)
    return Judged(case, run, report, coverage)


def closed(scheduler: Scheduler) -> None:
    """Tell a scheduler that it is no longer needed, where it wants to know."""
    close = getattr(scheduler, "close", None)
    if close is not None:
        close()


def patience_of(case: Case) -> int:
    """Iterations without news after which nothing more will come: all prompts could be computed twice."""
    known = sum(len(script.request.prompt) + script.outputs for script in case.scripts)
    budget = case.profile.limits.token_budget or 1
    return QUIET_STEPS + 2 * (known // budget)


def _own(run: Run, patience: int) -> list[Finding]:
    """What the suite itself has to say of a run."""
    found: list[Finding] = []
    rows = run.trace.num_rows

    def flag(rule: str, message: str, expected: str, observed: str) -> None:
        row = rows - 1 if rows else None
        step = run.steps if rows else None
        found.append(Finding(rule, step, row, run.unfinished[:8], expected, observed, message))

    if run.crash is not None:
        flag(Crash.id, f"the scheduler raised {run.crash}", "no exception", run.crash)
    if run.hung is not None:
        flag(Hang.id, f"the scheduler hangs: {run.hung}", "an answer", run.hung)
    if run.broken is not None:
        flag(Protocol.id, f"an answer is none: {run.broken}", "rows that the protocol knows", run.broken)
    if run.stalled:
        names = ", ".join(map(str, run.unfinished[:4])) or "nobody"
        flag(
            Stall.id,
            f"nothing has happened for {patience} steps, and {names} never ended",
            "a token, an admission or an end",
            f"{len(run.unfinished)} live, {patience} steps without news",
        )
    return found


def _with_own(report: Report, own: list[Finding], waived: Waived | None) -> Report:
    """The report with the suite's rules in it, each judged once a run."""
    kept = [finding for finding in own if waived is None or not waived(finding)]
    results = []
    for rule in (Crash.id, Hang.id, Protocol.id, Stall.id):
        broken = sum(finding.rule == rule for finding in kept)
        let_off = sum(finding.rule == rule for finding in own) - broken
        results.append(RuleResult(rule, "violates" if broken else "conforms", 1, broken, 0, let_off))
    return replace(report, rules=(*results, *report.rules), findings=(*kept, *report.findings))
