"""The search: cases by chance, led to where rules are put to the test, each finding shrunk and run again.

Hypothesis draws the cases. In a third of them it is told after each how much of the spec it put to the test
and how near it came to the edge (`target`), and climbs from its best cases on; the rest is breadth. The
search goes on after a finding: what it looks for is the smallest case for each rule.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from batchspec.replay.checker import Waived
from batchspec.replay.conform.case import Case, permitted
from batchspec.replay.conform.directed import directed
from batchspec.replay.conform.judge import CALL_S, Judged, closed, judge, repeated
from batchspec.replay.conform.kinds import Hang
from batchspec.replay.conform.outside import Outside, outside, refused
from batchspec.replay.conform.shrink import shrink
from batchspec.replay.conform.sizes import Middle, Plain, sized
from batchspec.replay.coverage import Coverage
from batchspec.replay.drive import crash_line
from batchspec.replay.harness import Capabilities, Factory, HarnessError
from batchspec.replay.timelimit import TookTooLong
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding, RuleResult, Verdict

EXAMPLES: Final = 200
"""How many cases are drawn where nobody says otherwise."""

CLIMBED: Final = 3
"""One case in so many is drawn by the search that climbs; the others are as far apart as chance has it."""

SHRINK_RUNS: Final = 300
_HUNG_RUNS: Final = 12
"""A case that hangs takes its whole time limit, so few smaller ones are tried."""


@dataclass(frozen=True, slots=True)
class Found:
    """A broken rule with the smallest case that was seen to break it.

    `origin` says where it came from (`search`, or a directed case's name), `again` in how many of
    `runs` further runs of the same case the rule was broken again.
    """

    finding: Finding
    judged: Judged
    origin: str
    again: int
    runs: int

    @property
    def repeatable(self) -> bool:
        """Whether every run of the case shows it."""
        return self.again == self.runs


Judge = Callable[[Case], Judged]
"""How a case is judged: driven and checked, or by a question of its own."""


@dataclass
class Tally:
    """What all runs of a suite came to."""

    runs: int = 0
    refused: int = 0
    steps: int = 0
    rows: int = 0
    requests: int = 0
    level: str = "L0"
    coverage: Coverage = field(default_factory=Coverage)
    rules: dict[str, RuleResult] = field(default_factory=dict)
    broken: dict[str, tuple[Judged, str, Judge]] = field(default_factory=dict)
    """For each broken rule the smallest case so far, where it came from, and how it was judged."""

    ran: Callable[[int], None] | None = None
    """Called after each run with the rows so far, for a display of progress."""

    def add(self, judged: Judged, origin: str, how: Judge) -> None:
        """Count one run."""
        report = judged.report
        self.runs += 1
        self.steps += report.steps
        self.rows += report.events
        self.requests += report.requests
        self.level = max(self.level, report.level)
        self.coverage.merge([judged.coverage])
        for result in report.rules:
            before = self.rules.get(result.id)
            self.rules[result.id] = result if before is None else _together(before, result)
        for rule in judged.broken:
            best = self.broken.get(rule)
            if best is None or judged.case.size < best[0].case.size:
                self.broken[rule] = (judged, origin, how)
        if self.ran is not None:
            self.ran(self.rows)


class Subject:
    """A scheduler under test as the suite runs it: its factory, its claims, and how each case is judged."""

    def __init__(
        self,
        factory: Factory,
        claims: Profile,
        *,
        waived: Waived | None = None,
        call_s: float | None = CALL_S,
    ) -> None:
        """Raises `HarnessError` where the factory can have none of the sizes that the suite asks for."""
        self.factory = factory
        self.claims = claims
        self.waived = waived
        self.call_s = call_s
        self.variants, self.shows = _variants(factory, claims)

    def judge(self, case: Case) -> Judged:
        """One case."""
        return judge(self.factory, case, waived=self.waived, call_s=self.call_s)

    def judge_odd(self, test: Outside) -> Judge:
        """A case of input outside the contract, by its own question."""
        return lambda case: refused(replace(test, case=case), self.judge(case))

    def judge_twice(self, case: Case) -> Judged:
        """One case run twice: were the decisions the same?"""
        return repeated(self.judge(case), self.judge(case))


def direct(subject: Subject, tally: Tally) -> None:
    """Run the directed cases, and input outside the contract, under each variant of the claims."""
    for number, variant in enumerate(subject.variants):
        profile = sized(Middle(), variant, subject.factory)
        for test in directed(profile, subject.shows[number]):
            if not permitted(test.case):
                continue
            try:
                tally.add(subject.judge(test.case), test.name, subject.judge)
            except HarnessError:
                tally.refused += 1
    profile = sized(Middle(), subject.variants[0], subject.factory)
    for odd in outside(profile):
        how = subject.judge_odd(odd)
        try:
            tally.add(how(odd.case), odd.name, how)
        except HarnessError:
            tally.refused += 1


def repeat(subject: Subject, tally: Tally) -> None:
    """Run one busy case twice: are the decisions the same?"""
    profile = sized(Middle(), subject.variants[0], subject.factory)
    for test in directed(profile, subject.shows[0]):
        if test.family == "preemption" and permitted(test.case):
            with suppress(HarnessError):
                tally.add(subject.judge_twice(test.case), test.name, subject.judge_twice)


class _Enough(BaseException):
    """Ends a search early. Hypothesis would take an `Exception` for a failing example."""


def search(
    subject: Subject,
    tally: Tally,
    *,
    examples: int = EXAMPLES,
    seed: int = 0,
    until: Callable[[Tally], bool] | None = None,
) -> None:
    """Draw so many cases and count what came of them. Same seed and scheduler: the same cases.

    `until` ends the search as soon as it is true of the tally.
    Raises `HarnessError` without Hypothesis (extra `conform`).
    """
    try:
        import hypothesis
        from hypothesis import HealthCheck, Phase

        from batchspec.replay.conform.draws import cases
    except ImportError as error:
        raise HarnessError(
            "the search needs Hypothesis: pip install 'batchspec[conform]', or ask for --examples 0"
        ) from error

    def run(count: int, number: int, climb: bool) -> None:
        settings = hypothesis.settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.target] if climb else [Phase.generate],
            suppress_health_check=list(HealthCheck),
            derandomize=False,
        )

        @hypothesis.seed(number)
        @settings
        @hypothesis.given(cases(subject.variants, subject.shows, subject.factory))
        def one(case: Case) -> None:
            try:
                judged = subject.judge(case)
            except HarnessError:
                tally.refused += 1
                hypothesis.reject()
            tally.add(judged, "search", subject.judge)
            if until is not None and until(tally):
                raise _Enough
            if climb:
                for label, value in signals(judged).items():
                    hypothesis.target(value, label=label)

        one()

    climbed = examples // CLIMBED
    with suppress(_Enough):
        if examples - climbed:
            run(examples - climbed, seed, climb=False)
        if climbed:
            run(climbed, seed + 1, climb=True)
    if examples and not tally.runs:
        raise HarnessError("the factory refuses every size that the suite asks for; give sizes with --config")


def signals(judged: Judged) -> dict[str, float]:
    """How much a run put to the test, and how near it came to the edge: the higher the better."""
    coverage = judged.coverage
    events = list(judged.run.trace.events())
    return {
        "clauses": float(len(coverage.actions) + sum(1 for count in coverage.checked.values() if count)),
        "preemptions": float(coverage.actions["preempt", "running"]),
        "fullness": _fullness(events, judged.case.profile),
        "waiting": float(max((event.waiting or 0 for event in events), default=0)),
        "length": float(min(judged.run.steps, 200)),
    }


def settled(
    subject: Subject, tally: Tally, *, shrink_runs: int = SHRINK_RUNS, reruns: int = 2
) -> list[Found]:
    """Every broken rule with a case made small and run again, in the order of the catalogue of rules.

    A case that was made small for one rule may be where the next one begins.
    """
    small: list[Judged] = []
    found = []
    for rule in tally.rules:
        if rule not in tally.broken:
            continue
        judged, origin, how = tally.broken[rule]
        known = [other for other in small if rule in other.broken]
        judged = min([judged, *known], key=lambda other: other.case.size)
        if permitted(judged.case):
            judged = _smallest(subject, how, rule, judged, _HUNG_RUNS if rule == Hang.id else shrink_runs)
            small.append(judged)
        again = sum(_breaks(how, rule, judged.case) is not None for _ in range(reruns))
        found.append(Found(judged.broken[rule], judged, origin, again, reruns))
    return found


def _breaks(how: Judge, rule: str, case: Case) -> Judged | None:
    """The case judged, where it breaks the rule."""
    try:
        judged = how(case)
    except HarnessError:
        return None
    return judged if rule in judged.broken else None


def _smallest(subject: Subject, how: Judge, rule: str, judged: Judged, runs: int) -> Judged:
    best = [judged]

    def still(case: Case) -> bool:
        smaller = _breaks(how, rule, case)
        if smaller is None:
            return False
        best.append(smaller)
        return True

    def allowed(case: Case) -> bool:
        return permitted(case) and _keeps(case.profile, subject.claims)

    shrink(judged.case, still, runs=runs, allowed=allowed)
    return best[-1]


def _keeps(profile: Profile, claims: Profile) -> bool:
    """Whether limits that the user gave are as they were."""
    given = claims.to_dict().get("limits", {})
    return all(getattr(profile.limits, name) == value for name, value in given.items())


def _variants(factory: Factory, claims: Profile) -> tuple[list[Profile], dict[int, Capabilities]]:
    """The claims under each overlay that the factory names in `variants`, and what it then shows.

    Without `variants`, and where the profile says nothing of shared prefixes, they are tried as well.
    """
    overlays: Sequence[Mapping[str, Any]] = getattr(factory, "variants", ())
    variants: list[Profile] = []
    shows: dict[int, Capabilities] = {}
    for overlay in overlays or ({},):
        variant = claims.merged(Profile.from_dict(overlay, "factory.variants"))
        shows[len(variants)] = _shows(factory, variant)
        variants.append(variant)
    if not overlays and claims.reuse.prefix is None:
        shared = claims.merged(Profile.from_dict({"reuse": {"prefix": True}}))
        with suppress(HarnessError):
            seen = _shows(factory, shared)
            if seen.prefix and seen.blocks == "ids":
                shows[len(variants)] = seen
                variants.append(shared)
    return variants, shows


def _shows(factory: Factory, claims: Profile) -> Capabilities:
    try:
        scheduler = factory(sized(Plain(), claims, factory))
    except HarnessError:
        raise
    except (Exception, SystemExit, TookTooLong) as error:  # somebody else's code
        raise HarnessError(f"the factory failed: {crash_line(error)}") from error
    try:
        return scheduler.capabilities
    finally:
        closed(scheduler)


def _fullness(events: Sequence[Event], profile: Profile) -> float:
    total = profile.limits.kv_blocks
    free = [event.free_blocks for event in events if event.free_blocks is not None]
    if not free or not total:
        return 0.0
    return 1.0 - min(free) / total


def _together(one: RuleResult, other: RuleResult) -> RuleResult:
    """The verdict of a rule over two runs: broken in one is broken, judged in one is judged."""
    order: tuple[Verdict, ...] = ("violates", "conforms", "open", "not checkable")
    verdicts = {one.verdict, other.verdict}
    verdict = next(word for word in order if word in verdicts)
    return RuleResult(
        one.id,
        verdict,
        one.checked + other.checked,
        one.violations + other.violations,
        one.skipped + other.skipped,
        one.waived + other.waived,
        () if "not checkable" not in verdicts or len(verdicts) > 1 else one.missing,
    )
