"""A candidate: some rows of a stretch, without some of its requests, as a trace that still adds up.

Where requests are left out, what the engine reported at the end of each step is put right for those that
are left: a reported figure stays as far from what the events give as it was. So a wrong figure stays wrong
by as much, and a right one stays right. A figure that the events cannot give is left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from batchspec.replay.checker import Walk
from batchspec.spec import opening
from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import State
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace

_COUNTERS: Final = ("free_blocks", "running", "waiting")
_FINDINGS: Final = 50

Figures = Mapping[str, int | None]
"""For one `step` row: how far each reported figure is from what the events give (None: nobody knows), and
how many requests were live."""


@dataclass(frozen=True, slots=True)
class Target:
    """The finding that must stay: its rule, its step, the requests that it names."""

    rule: str
    step: int | None
    requests: tuple[RequestId, ...]

    @classmethod
    def of(cls, finding: Finding) -> "Target":
        """The target that a finding is."""
        return cls(finding.rule, finding.step, finding.requests)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trace in memory. `rows` are (row of the stretch it came from, event); live rows come first."""

    rows: tuple[tuple[int, Event], ...]
    header: Header

    @classmethod
    def of(cls, trace: Trace) -> "Candidate":
        """The whole of a stretch."""
        header = trace.header or Header()
        if trace.outputs_recorded:
            header = replace(header, outputs="recorded")
        return cls(tuple(enumerate(trace.events())), header)

    @property
    def trace(self) -> Trace:
        """The same as a trace."""
        return Trace.from_events([event for _, event in self.rows], self.header)

    @property
    def requests(self) -> list[RequestId]:
        """Who occurs in it, in order."""
        return list(dict.fromkeys(event.request for _, event in self.rows if event.request is not None))

    @property
    def steps(self) -> list[int]:
        """The steps that it has rows of, live rows aside, in order."""
        return list(dict.fromkeys(event.step for _, event in self.rows if event.event != "live"))

    def without(self, gone: frozenset[RequestId]) -> "Candidate":
        """The same without some requests; the figures of `step` rows are as they were."""
        rows = []
        for row, event in self.rows:
            if event.request is not None and event.request in gone:
                continue
            rows.append((row, event._replace(cause=None) if event.cause in gone else event))
        return Candidate(tuple(rows), self._header_without(gone))

    def without_steps(self, gone: frozenset[int]) -> "Candidate":
        """The same without the rows of some steps; live rows stay."""
        kept = [(row, event) for row, event in self.rows if event.event == "live" or event.step not in gone]
        return replace(self, rows=tuple(kept))

    def _header_without(self, gone: frozenset[RequestId]) -> Header:
        told = self.header.extra.get(opening.KEY)
        if told is None:
            return self.header
        live = [event.subject for _, event in self.rows if event.event == "live"]
        less = opening.without(told, live, gone)
        return replace(self.header, extra={**self.header.extra, opening.KEY: less})


class Judge:
    """Says whether a candidate still shows the target, and counts the rows that this took.

    `sound` are rules by which a trace holds together; a candidate must not break more of them than the
    stretch itself does.
    """

    def __init__(self, base: Candidate, target: Target, profile: Profile, sound: Sequence[str]) -> None:
        """Judge the stretch itself first: it must show the target."""
        self.target = target
        self.fed = 0
        self._sound = tuple(rule for rule in sound if rule != target.rule)
        self._off: dict[int, Figures] = {}

        def noted(state: State, row: int, event: Event) -> Event:
            self._off[row] = _off(state, event)
            return event

        found = self._run(base, profile, noted, [])
        self._allowed = _counts(found)
        self.shown = self._shows(found)
        """Whether the stretch itself shows the target."""

    def judged(self, candidate: Candidate, profile: Profile) -> Candidate | None:
        """The candidate with its figures put right, if it still shows the target and holds together."""
        rows: list[tuple[int, Event]] = []

        def righted(state: State, row: int, event: Event) -> Event:
            return _righted(state, event, self._off.get(row, {}))

        found = self._run(candidate, profile, righted, rows)
        if not self._shows(found):
            return None
        counts = _counts(found)
        if any(counts.get(rule, 0) > self._allowed.get(rule, 0) for rule in self._sound):
            return None
        return replace(candidate, rows=tuple(rows))

    def finding(self, candidate: Candidate, profile: Profile) -> Finding | None:
        """The target as a check of the candidate tells it."""
        found = self._run(candidate, profile, lambda state, row, event: event, [])
        return next((finding for finding in found if Target.of(finding) == self.target), None)

    def _shows(self, found: Iterable[Finding]) -> bool:
        return any(Target.of(finding) == self.target for finding in found)

    def _run(
        self,
        candidate: Candidate,
        profile: Profile,
        at_step: Callable[[State, int, Event], Event],
        rows: list[tuple[int, Event]],
    ) -> tuple[Finding, ...]:
        trace = candidate.trace
        recorded = frozenset({"output"}) if trace.outputs_recorded else frozenset()
        walk = Walk(
            profile,
            trace.columns,
            frozenset(trace.kinds) | recorded,
            header=candidate.header,
            findings=_FINDINGS,
            rules=(self.target.rule, *self._sound),
        )
        for row, event in candidate.rows:
            told = at_step(walk.state, row, event) if event.event == "step" else event
            rows.append((row, told))
            walk.feed(told)
        self.fed += len(candidate.rows)
        return walk.report("", candidate.header.complete).findings


def _derived(state: State, event: Event) -> dict[str, int | None]:
    """What the events give for each figure of a `step` row, just before it."""
    return {
        "free_blocks": state.free_at_step(event),
        "running": len(state.running),
        "waiting": len(state.live) - len(state.running),
    }


def _off(state: State, event: Event) -> Figures:
    derived = _derived(state, event)
    out: dict[str, int | None] = {"live": len(state.live)}
    for name in _COUNTERS:
        said, given = getattr(event, name), derived[name]
        out[name] = None if said is None or given is None else said - given
    return out


def _righted(state: State, event: Event, off: Figures) -> Event:
    if off.get("live") != len(state.live) and state.shares and not state.has_ids:
        # How much of what is shared was shared with those left out, nobody knows.
        event = event._replace(shared_blocks=None)
    derived = _derived(state, event)
    changed: dict[str, Any] = {}
    for name in _COUNTERS:
        if getattr(event, name) is None:
            continue
        given, apart = derived[name], off.get(name)
        figure = None if given is None or apart is None else given + apart
        changed[name] = None if figure is None or figure < 0 else figure
    return event._replace(**changed) if changed else event


def _counts(found: Iterable[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in found:
        counts[finding.rule] = counts.get(finding.rule, 0) + 1
    return counts
