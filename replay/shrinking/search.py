"""The search for the smallest trace that shows a finding: a window first, then requests, steps and claims.

1. The finding: a check of the trace by that rule alone, by whichever checker is quicker.
2. A window: the steps up to the finding, as few before it as suffice, cut out with `live` rows. Windows are
   tried from 64 steps on, each sixteen times as long as the last.
3. Delta debugging (Zeller and Hildebrandt, 2002) over the requests, then over the steps, then the window
   once more, until nothing more can be left out.
4. Claims and header: every option that the finding does not need is left out.

Everything is tried in a fixed order, so the same trace comes to the same scenario.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from batchspec.replay.cutting import cut, cut_rows
from batchspec.replay.shrinking.candidate import Candidate, Judge, Target
from batchspec.spec import opening
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import TraceError
from batchspec.spec.events import RequestId
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace

FIRST_WINDOW: Final = 64
WIDER: Final = 16
MOST_FED: Final = 20_000_000
"""Rows that the search may feed to the checker in all; what it has by then is the answer."""

SOUND: Final = tuple(
    name
    for name, rule in RULES.items()
    if name.partition("/")[0] in ("lifecycle", "tokens") and not rule.opt_in
)
"""Rules by which a trace holds together: nothing happens to nobody, positions follow each other."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest trace found. `of` are the figures of the whole: events, steps, requests.

    `whole` is False where the search was ended before it was through.
    """

    trace: Trace
    finding: Finding
    window: tuple[int, int, int]
    fed: int
    whole: bool


def shrink(trace: Trace, profile: Profile, finding: Finding) -> Shrunk:
    """Shrink a trace to what shows `finding`, one that a check of it under `profile` lists.

    Raises `TraceError` where no stretch of the trace shows the finding.
    """
    base, judge = _window(trace, profile, finding)
    window = (len(base.rows), len(base.steps), len(base.requests))
    best = judge.judged(base, profile) or base
    search = _Search(judge, profile)
    while True:
        size = len(best.rows)
        best = search.later(best)
        best = search.requests(best, frozenset(finding.requests))
        best = search.steps(best)
        if len(best.rows) == size or search.exhausted:
            break
    best = search.plainer(best)
    shown = judge.finding(best, search.profile)
    return Shrunk(best.trace, shown or finding, window, judge.fed, not search.exhausted)


# -- the window ------------------------------------------------------------------------------------


def _window(trace: Trace, profile: Profile, finding: Finding) -> tuple[Candidate, Judge]:
    """The shortest of a few windows that shows the finding, and the judge of what is made of it."""
    target = Target.of(finding)
    row = trace.num_rows - 1 if finding.row is None else finding.row
    last = trace.num_rows if RULES[finding.rule].kind == "end" else row + 1
    step = finding.step if finding.step is not None else next(trace.events(row, row + 1)).step
    length = FIRST_WINDOW
    while True:
        first, begin = _row_of(trace, step - length, row)
        # What shows only once a step is over shows with the first row of the next.
        for end in dict.fromkeys(
            (last, min(last + 1, trace.num_rows), trace.num_rows if not begin else last)
        ):
            base = Candidate.of(cut_rows(trace, profile, begin, end, first).held())
            judge = Judge(base, target, profile, SOUND)
            if judge.shown:
                return base, judge
        if not begin:
            raise TraceError(
                f"{trace.path}: {finding.rule} at step {finding.step} shows in no stretch of the trace"
            )
        length *= WIDER


def _row_of(trace: Trace, step: int, before: int) -> tuple[int, int]:
    """The first step that is not before `step`, and its first row; at most row `before`."""
    at = 0
    for _, batch in trace.raw(0, before + 1, ["step"], 1 << 16):
        steps = np.asarray(batch.column(0).cast("int64").fill_null(0))
        found = np.flatnonzero(steps >= step)
        if found.size:
            return int(steps[found[0]]), at + int(found[0])
        at += batch.num_rows
    return step, before


# -- delta debugging -------------------------------------------------------------------------------


class _Search:
    """What is left out, one kind of thing after the other. `profile` are the claims that are left."""

    def __init__(self, judge: Judge, profile: Profile) -> None:
        self._judge = judge
        self.profile = profile

    @property
    def exhausted(self) -> bool:
        """Whether the search has had its share of rows."""
        return self._judge.fed >= MOST_FED

    def _try(self, candidate: Candidate) -> Candidate | None:
        return None if self.exhausted else self._judge.judged(candidate, self.profile)

    def later(self, best: Candidate) -> Candidate:
        """Begin as late as possible: one step before the finding, two, four …, then halves between."""
        steps = best.steps
        good, bad = 0, len(steps)
        back = 1
        while good < len(steps) - back:
            found = self._begun(best, steps[len(steps) - back])
            if found is not None:
                good, last = len(steps) - back, found
                break
            bad = len(steps) - back
            back *= 2
        else:
            last = best
        while bad - good > 1:
            middle = (good + bad) // 2
            found = self._begun(best, steps[middle])
            if found is None:
                bad = middle
            else:
                good, last = middle, found
        return last

    def _begun(self, best: Candidate, step: int) -> Candidate | None:
        """The same from a step on, as a stretch of it."""
        live = sum(event.event == "live" for _, event in best.rows)
        stretch = cut(best.trace, self.profile, step)
        if not stretch.first or stretch.first < live:
            return None
        rows = [(-1, event) for event in stretch.live] + list(best.rows[stretch.first :])
        return self._try(Candidate(tuple(rows), stretch.header))

    def requests(self, best: Candidate, needed: frozenset[RequestId]) -> Candidate:
        """As few requests as possible."""
        names = [name for name in best.requests if name not in needed]

        def attempt(kept: Sequence[RequestId]) -> Candidate | None:
            held = {*kept, *needed}
            return self._try(best.without(frozenset(name for name in best.requests if name not in held)))

        return self._fewest(names, attempt) or best

    def steps(self, best: Candidate) -> Candidate:
        """As few steps as possible; that of the finding stays."""
        numbers = [step for step in best.steps if step != self._judge.target.step]

        def attempt(kept: Sequence[int]) -> Candidate | None:
            return self._try(best.without_steps(frozenset(numbers) - frozenset(kept)))

        return self._fewest(numbers, attempt) or best

    def _fewest(
        self, items: Sequence[T], attempt: Callable[[Sequence[T]], Candidate | None]
    ) -> Candidate | None:
        """ddmin: the candidate of a subset of which no single item can be left out; None: of all items."""
        if not items:
            return None
        if (found := attempt([])) is not None:
            return found
        kept, best, parts = list(items), None, 2
        while len(kept) > 1 and not self.exhausted:
            size = -(-len(kept) // parts)
            for at in range(0, len(kept), size):
                less = [*kept[:at], *kept[at + size :]]
                found = attempt(less)
                if found is not None:
                    kept, best, parts = less, found, max(parts - 1, 2)
                    break
            else:
                if size == 1:
                    break
                parts = min(2 * parts, len(kept))
        return best

    # -- what is said about it ---------------------------------------------------------------------

    def plainer(self, best: Candidate) -> Candidate:
        """Without claims, figures of the opening and words of the header that the finding does not need."""
        header = replace(
            best.header, profile=None, started_at=None, extra=_only_opening(best.header), hash_block=None
        )
        best = self._try(replace(best, header=header)) or best
        data = self.profile.to_dict()
        for group in list(data):
            data = self._claimed(best, {name: table for name, table in data.items() if name != group}) or data
            for option in list(data.get(group, ())):
                less = {name: value for name, value in data[group].items() if name != option}
                data = self._claimed(best, {**data, group: less}) or data
        best = replace(best, header=replace(best.header, config={g: t for g, t in data.items() if t}))
        told = best.header.extra.get(opening.KEY)
        for key in list(told or ()):
            if key == "live" or told is None:
                continue
            less = {name: value for name, value in told.items() if name != key}
            extra = {opening.KEY: less} if set(less) != {"live"} else {}
            found = self._try(replace(best, header=replace(best.header, extra=extra)))
            if found is not None:
                best, told = found, less
        return best

    def _claimed(self, best: Candidate, data: dict[str, Any]) -> dict[str, Any] | None:
        """These claims, if the finding shows under them alone."""
        less = Profile.from_dict(data)
        if self.exhausted or self._judge.judged(best, less) is None:
            return None
        self.profile = less
        return data


def _only_opening(header: Header) -> dict[str, Any]:
    told = header.extra.get(opening.KEY)
    return {} if told is None else {opening.KEY: told}
