"""One case driven through a scheduler under test, and everything that is wrong with what came of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from batchspec.replay.checker import Waived, check
from batchspec.replay.conform.case import Case, permitted
from batchspec.replay.conform.kinds import Crash, Hang, Outputs, Protocol, Repeatable, Served, Stall
from batchspec.replay.coverage import Coverage
from batchspec.replay.drive import MAX_STEPS, STEP_NS, Run, Script, attempt
from batchspec.replay.harness import (
    Capabilities,
    Factory,
    HarnessError,
    Outcome,
    Plan,
    Request,
    Results,
    Scheduler,
)
from batchspec.replay.timelimit import TookTooLong
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding, Report, RuleResult

CALL_S: float = 20.0
"""How long a call of the scheduler may take, in seconds, before it counts as hung."""

_REFUSED_BY_POLICY = frozenset({"queue_full", "rate"})

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
    factory: Factory,
    case: Case,
    *,
    waived: Waived | None = None,
    call_s: float | None = CALL_S,
    step_ns: int = STEP_NS,
) -> Judged:
    """Make a scheduler for the case, drive it, check the trace.

    Raises `HarnessError` where the factory cannot have these limits. Whatever else the scheduler does
    is a finding. A scheduler that has a method `close` is told when it is no longer needed.
    """
    scheduler = made(factory, case.profile)
    patience = patience_of(case)
    try:
        run = attempt(
            scheduler,
            case.scripts,
            case.profile,
            step_ns=step_ns,
            stall_steps=patience,
            max_steps=MAX_STEPS + 4 * patience,
            call_s=call_s,
        )
    finally:
        closed(scheduler)
    coverage = Coverage()
    report = check(run.trace, case.profile, waived=waived, observe=coverage.observe)
    coverage.add(report, case.profile)
    report = _with_own(report, [*_own(run, patience), *_unserved(case, run)], waived)
    return Judged(case, run, report, coverage)


class _Unmade:
    """Stands for a scheduler that could not be made: the first call says why."""

    capabilities = Capabilities(name="unmade")

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def add(self, request: Request) -> None:
        raise self._error

    def abort(self, request: RequestId) -> list[Event]:
        raise self._error

    def plan(self) -> Plan:
        raise self._error

    def commit(self, results: Results) -> Outcome:
        raise self._error


def made(factory: Factory, profile: Profile) -> Scheduler:
    """A scheduler for these limits; where the factory fails, one that fails as it did.

    Raises `HarnessError` where the factory cannot have them.
    """
    try:
        return factory(profile)
    except HarnessError:
        raise
    except (Exception, SystemExit, TookTooLong) as error:  # somebody else's code
        return _Unmade(error)


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


def repeated(one: Judged, other: Judged) -> Judged:
    """Two runs of one case judged by this one question: were the decisions the same?"""
    first, second = list(one.run.trace.events()), list(other.run.trace.events())
    at = next((row for row, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    if at is None and len(first) != len(second):
        at = min(len(first), len(second)) - 1
    found = []
    if at is not None:
        row = first[at]
        names = () if row.request is None else (row.request,)
        seen = f"{row.event} at first, {second[at].event} the second time"
        message = f"the same calls led to other decisions from step {row.step} on"
        found.append(Finding(Repeatable.id, row.step, at, names, "the same rows", seen, message))
    verdict = RuleResult(Repeatable.id, "violates" if found else "conforms", 1, len(found))
    return replace(one, report=replace(one.report, rules=(verdict,), findings=tuple(found)))


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


def _unserved(case: Case, run: Run) -> Iterator[Finding]:
    """Requests that were refused, failed, or ended elsewhere than their script says; the first of each."""
    scripts = {script.request.id: script for script in case.scripts}
    recorded = run.trace.outputs_recorded
    emitted: dict[RequestId, int] = {}
    seen: set[str] = set()

    def flag(
        rule: str, row: int, event: Event, message: str, expected: str, observed: str
    ) -> Iterator[Finding]:
        if rule not in seen:
            seen.add(rule)
            yield Finding(rule, event.step, row, (event.subject,), expected, observed, message)

    for row, event in enumerate(run.trace.events()):
        script = scripts.get(event.subject)
        if script is None:
            continue
        name = event.subject
        if event.event == "output":
            emitted[name] = emitted.get(name, 0) + (event.tokens or 0)
        elif event.event == "reject" and event.reason not in _REFUSED_BY_POLICY and _could_run(case, script):
            yield from flag(
                Served.id,
                row,
                event,
                f"{name} is refused ({event.reason}), though it could run to its end",
                "its admission",
                f"reject, {event.reason}; prompt {len(script.request.prompt)}, "
                f"max_tokens {script.request.max_tokens}",
            )
        elif event.event in ("finish", "abort") and event.reason in ("error", "memory"):
            overcommits = event.reason == "memory" and _overcommits(case.profile)
            if not overcommits and _could_run(case, script):
                yield from flag(
                    Served.id,
                    row,
                    event,
                    f"{name} is ended ({event.reason}), though it could run to its end",
                    f"{script.outputs} outputs",
                    f"{event.event}, {event.reason}",
                )
        elif event.event == "finish":
            outputs = emitted.get(name, 0) if recorded else event.output_tokens
            reason = "length" if script.outputs == script.request.max_tokens else "stop"
            if outputs is not None and (outputs, event.reason) != (script.outputs, reason):
                yield from flag(
                    Outputs.id,
                    row,
                    event,
                    f"{name} ends after {outputs} outputs ({event.reason}), "
                    f"not after {script.outputs} ({reason})",
                    f"{script.outputs} outputs, {reason}",
                    f"{outputs} outputs, {event.reason}",
                )


def _overcommits(profile: Profile) -> bool:
    """Whether the policy itself may run out of memory with nobody to interrupt."""
    return profile.preemption.mode == "none" and profile.admission.reserve != "full"


def _could_run(case: Case, script: Script) -> bool:
    return permitted(replace(case, scripts=(script,)))


def _with_own(report: Report, own: list[Finding], waived: Waived | None) -> Report:
    """The report with the suite's rules in it, each judged once a run."""
    kept = [finding for finding in own if waived is None or not waived(finding)]
    results = []
    for rule in (Crash.id, Hang.id, Protocol.id, Stall.id, Outputs.id, Served.id):
        broken = sum(finding.rule == rule for finding in kept)
        let_off = sum(finding.rule == rule for finding in own) - broken
        results.append(RuleResult(rule, "violates" if broken else "conforms", 1, broken, 0, let_off))
    return replace(report, rules=(*results, *report.rules), findings=(*kept, *report.findings))
