"""The reference checker: walks a trace through the spec's own actions and asks the rules.

A thin layer: each event finds its guard and effect in spec/actions.py and its rules by event kind; what
is right is said there alone. The books are changed in place, records are frozen.

    trace row          -> spec
    event kind         -> actions.LEGAL_FROM (guard), actions.EFFECTS (effect), Rule hooks by name
    first row of step  -> actions.open_step, Rule.opened
    step row, or next  -> Rule.decided, derived outputs, actions.close_step, Rule.closing
    end of file        -> Rule.over, verdicts
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from batchspec.spec import actions, opening
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import RESULTS, Event, RequestId
from batchspec.spec.line import Line, fits, free_bounds, need_blocks
from batchspec.spec.model import PREEMPTED, RUNNING, WAITING, Request, State
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.rules.lifecycle import GuardRule
from batchspec.spec.rules.time import Backwards
from batchspec.spec.verdict import Finding, Report, RuleResult, Verdict
from batchspec.spec.words import count
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace

Progress = Callable[[int, int], None]
Observer = Callable[[State, Event], None]
Waived = Callable[[Finding], bool]

_SNAPSHOT_AT: Final = frozenset({"abort", "release", "finish", "output", "give", "transfer_end"})
_MOVES: Final = frozenset(
    {"arrive", "live", "admit", "resume", "reject", "park", "ready", "preempt", "finish", "abort"}
)
_OF_CLIENTS: Final = frozenset({"arrive", "cancel", "live"})
"""Kinds whose time is that of a client's act, which may lie before their step."""
_PROGRESS_EVERY: Final = 20_000


def check(
    trace: Trace,
    profile: Profile | None = None,
    *,
    findings: int = 1,
    rules: Sequence[str] | None = None,
    waived: Waived | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
) -> Report:
    """Hold a trace against the spec under the claims of `profile` (None: no claim at all).

    `findings` is how many findings of each rule are listed, first ones first; all are counted. `rules`
    restricts the rules judged; those that are judged on request only must be named there. `progress` is
    called with (events so far, events in all), `observe` with the books as they stand before each event,
    and the event. Raises `TraceError` where the file turns out to be unreadable on the way.
    """
    walk = Walk(
        profile or Profile(),
        trace.columns,
        frozenset(trace.kinds) | ({"output"} if trace.outputs_recorded else set()),
        header=trace.header,
        findings=findings,
        rules=rules,
        waived=waived,
    )
    total = trace.num_rows
    if progress is None and observe is None:
        walk.feed_all(trace.events())
    else:
        for event in trace.events():
            if observe is not None:
                observe(walk.state, event)
            walk.feed(event)
            if progress is not None and walk.state.row % _PROGRESS_EVERY == 0:
                progress(walk.state.row, total)
    return walk.report(trace.path, trace.complete)


def check_events(
    events: Iterable[Event], profile: Profile | None = None, *, complete: bool = True, **options: Any
) -> Report:
    """`check` for events at hand, as of a trace whose header says `complete` and nothing else."""
    header = Header(complete=complete)
    return check(Trace.from_events(list(events), header), profile, **options)


class Walk:
    """One pass over one trace. Feed events in order, then ask for the report."""

    def __init__(
        self,
        profile: Profile,
        columns: frozenset[str],
        kinds: frozenset[str],
        *,
        header: Header | None = None,
        findings: int = 1,
        rules: Sequence[str] | None = None,
        waived: Waived | None = None,
    ) -> None:
        """Set up the books and the rules that this profile and these columns allow to be judged."""
        self._opening: Any = None if header is None else header.extra.get(opening.KEY)
        if self._opening is not None:
            columns |= opening.told_columns(self._opening)
            kinds |= opening.told_kinds(self._opening)
        self.profile = profile
        self.kinds = kinds
        self.columns = columns
        self.state = State(profile, columns, kinds)
        self.state.clock_runs = header is not None and header.clock in ("monotonic", "virtual")
        self.state.began_running = header is not None and header.begins == "running"
        self.line = Line(self.state)
        admission = profile.admission
        self._looks_on = (
            admission.misfit == "skip" and bool(admission.skip_ahead) and admission.order != "fair"
        )
        self._findings = findings
        self._waived = waived
        self._listed: dict[str, list[Finding]] = {}
        self._counts: dict[str, int] = {}
        self._waived_counts: dict[str, int] = {}
        self._tainted: dict[Any, None] = {}
        self._repaired: list[Any] = []
        self._events = 0
        self._subjects = 0
        self._open = self._beginning = False
        self._decided_at = -1
        self._snapped_at = -1
        chosen = [cls for name, cls in RULES.items() if (not cls.opt_in if rules is None else name in rules)]
        self.missing = {cls.id: cls.missing(profile, columns, kinds) for cls in chosen}
        self.rules: dict[str, Rule] = {
            cls.id: cls(self.state, self.line, self._sink) for cls in chosen if not self.missing[cls.id]
        }
        active = list(self.rules.values())
        self._guards = [rule for rule in active if isinstance(rule, GuardRule)]
        self._backwards = [rule for rule in active if isinstance(rule, Backwards)]
        anything = _hooks(active, "before_any")
        self._before = {kind: (*anything, *_hooks(active, f"before_{kind}")) for kind in actions.EFFECTS}
        self._before_schedule = self._before["schedule"]
        self._after = {kind: _hooks(active, f"after_{kind}") for kind in actions.EFFECTS}
        self._after_schedule = self._after["schedule"]
        self._emitted = _hooks(active, "emitted")
        self._deciders = _hooks(active, "decided")
        self._closers = _hooks(active, "closing")
        self._openers = _hooks(active, "opened")
        if self._opening is not None and not opening.live_told(self._opening):
            self._begin()

    # -- events ------------------------------------------------------------------------------------

    def feed_all(self, events: Iterable[Event]) -> None:
        """Feed a stream of events."""
        feed = self.feed
        for event in events:
            feed(event)

    def feed(self, event: Event) -> None:
        """Judge one event and put it into effect."""
        state = self.state
        self._events += 1
        step = event.step
        if step != state.step or not self._open:
            self._turn(event)
        else:
            state.row += 1
        kind = event.event
        if state.step_ns is None and event.time_ns is not None and kind not in _OF_CLIENTS:
            state.step_ns = event.time_ns
        if kind == "schedule":
            # By far the most rows are this one: a running request in its next pass.
            record = state.live.get(event.subject)
            if record is not None and record.state == RUNNING:
                self._subjects += 1
                for hook in self._before_schedule:
                    hook(event, record)
                actions.schedule(state, event)
                record = state.live[record.id]
                for hook in self._after_schedule:
                    hook(event, record)
                if self._tainted or self._repaired:
                    self._settle_taint(event)
                return
        if kind == "step":
            for hook in self._before["step"]:
                hook(event, None)
            self._close(event)
            return
        if kind in _SNAPSHOT_AT and state.decisions > 0 and self._snapped_at != state.decisions:
            self._snapshot()
        if kind in RESULTS:
            if state.decisions > 0 and not state.decided:
                self._decide()
            elif self._snapped_at < 0:
                self._snapshot()
            if kind == "finish" and event.pass_step == step:
                self._derive(event.request)
        request = event.request
        record = None
        if request is not None:
            self._subjects += 1
            record = state.live.get(request)
            if record is None or record.state not in actions.LEGAL_FROM[kind]:
                where = state.state_of(request)
                if where not in actions.legal_from(state, event):
                    for guard in self._guards:
                        guard.illegal(event, where)
        for hook in self._before[kind]:
            hook(event, record)
        if kind in _MOVES or (record is None and request is not None):
            self._move(event, record)
        else:
            actions.EFFECTS[kind](state, event)
        if kind == "schedule" and record is not None and record.state is not RUNNING:
            self.line.leave(record)
        if kind == "output" and record is not None:
            if event.tokens is None:
                self.line.charge()
            else:
                self._emit(state.live[record.id], event.tokens)
        after = self._after[kind]
        if after:
            record = state.live.get(request) if request is not None else None
            for hook in after:
                hook(event, record)
        if self._tainted or self._repaired:
            self._settle_taint(event)

    def _move(self, event: Event, record: Request | None) -> None:
        """Apply an event that may change who stands in the line."""
        state, line = self.state, self.line
        request = event.request
        if record is not None and self._stands(record) and event.event != "preempt":
            line.leave(record)
        actions.EFFECTS[event.event](state, event)
        now = state.live.get(request) if request is not None else None
        if now is None:
            return
        if event.event == "live":
            if self._stands(now):
                line.enter(now, anew=now.state == WAITING)
            if self._opening is not None and state.lives == opening.live_told(self._opening):
                self._begin()
        elif event.event in ("arrive", "ready"):
            line.enter(now)
        elif event.event == "preempt" and self._stands(now):
            line.enter(now, anew=False)
        elif event.event == "admit" and record is not None and record.first_admit is None:
            line.charge(now.tenant, prompt=now.prompt)

    def _begin(self) -> None:
        """Every `live` row is there: what the header says of the beginning beside them."""
        opening.begin(self.state, self.line, self._opening)
        self._opening = None

    def _stands(self, record: Request) -> bool:
        if record.state == WAITING:
            return True
        return record.state == PREEMPTED and self.line.returns in ("back", "arrival")

    def stand_before(self, step: int) -> None:
        """End the open step and bring the books to where `step` opens, before its first row."""
        if self._open:
            self._close(None)
        actions.open_step(self.state, step)

    # -- steps -------------------------------------------------------------------------------------

    def _turn(self, event: Event) -> None:
        """The first row of another step: the one before ends here, if no step row ended it."""
        state = self.state
        before = state.step
        if self._open:
            self._close(None)
        state.row += 1
        if before is not None and event.step < before:
            for rule in self._backwards:
                rule.fell(event, before)
        if not (self._beginning and before == event.step):
            actions.open_step(state, event.step)
            state.step_ns = None
        # The first step opens once everyone who was live is in the books.
        self._beginning = event.event == "live"
        if self._beginning:
            return
        state.next_in_line, state.next_fits, state.fit_text = None, None, ""
        self._open = True
        self._decided_at = self._snapped_at = -1
        for hook in self._openers:
            hook(event)

    def _close(self, event: Event | None) -> None:
        state = self.state
        if self._snapped_at != state.decisions:
            self._snapshot()
        if not state.decided or self._decided_at != state.decisions:
            self._decide()
        if not state.recorded:
            derive, live = actions.derived_output, state.live
            for request in state.members:
                tokens = derive(state, request)
                if tokens:
                    self._emit(live[request], tokens)
                elif tokens is None:
                    self.line.charge()
        actions.close_step(state, event)
        for hook in self._closers:
            hook(event)
        if self.line.shares is not None:
            self.line.shares.end_step()
        self._open = False
        if self._repaired:
            self._settle_taint(None)

    def _decide(self) -> None:
        self.state.decided = True
        self._decided_at = self.state.decisions
        for hook in self._deciders:
            hook()

    def _derive(self, request: RequestId | None) -> None:
        """Count the output that a member's pass produced, where the trace leaves it to be derived."""
        if request is None:
            return
        tokens = actions.derived_output(self.state, request)
        if tokens is None:
            self.line.charge()
        elif tokens:
            self._emit(self.state.live[request], tokens)

    def _emit(self, record: Request, tokens: int) -> None:
        if self.line.shares is not None:
            self.line.charge(record.tenant, tokens=tokens)
        if self._emitted:
            member = self.state.members.get(record.id)
            for hook in self._emitted:
                hook(record, tokens, member)

    def _snapshot(self) -> None:
        """Who is next, and does it fit, at the end of this step's decisions."""
        state, line = self.state, self.line
        self._snapped_at = state.decisions
        state.fit_text = ""
        state.fits_behind = None
        if not state.waiting and not state.preempted:
            state.next_in_line, state.next_fits = None, False
            return
        if line.is_undecided():
            state.next_in_line, state.next_fits = None, None
            return
        record = line.next(owed=True)
        if record is None:
            state.next_in_line, state.next_fits = None, False
            return
        state.next_in_line = record.id
        state.next_fits = fits(state, record)
        if state.next_fits:
            state.fit_text = self._fit_text(record)
        elif state.next_fits is False and self._looks_on and not state.preempted:
            self._look_past()

    def _look_past(self) -> None:
        """A policy that skips: who behind those that do not fit does?"""
        state = self.state
        if (state.free_seats() or 0) < 1 or (state.budget_left() or 0) < 1:
            return  # nobody fits
        passed: list[int] = []
        for record in self.line.in_order():
            verdict = fits(state, record)
            if verdict is None:
                return
            if verdict:
                state.fits_behind, state.passes_by = record.id, tuple(passed)
                state.fit_text = self._fit_text(record)
                return
            passed.append(record.number)

    def _fit_text(self, record: Request) -> str:
        state = self.state
        need = need_blocks(state, record, state.budget_left())
        return fit_text(state.free_seats(), state.budget_left(), need, free_bounds(state)[0])

    # -- findings ----------------------------------------------------------------------------------

    def _sink(self, rule: Rule, finding: Finding, about: tuple[Any, ...]) -> None:
        if self._tainted:
            named = any(request in self._tainted for request in finding.requests)
            thing = any(item in self._tainted for item in about)
            loose = not finding.requests and any(name in self.state.live for name in self._tainted)
            if named or thing or loose:
                finding = replace(finding, consequence=True)
        if rule.repairs:
            self._repaired.extend(finding.requests)
            self._repaired.extend(about)
        if self._waived is not None and self._waived(finding):
            self._waived_counts[rule.id] = self._waived_counts.get(rule.id, 0) + 1
            return
        self._counts[rule.id] = self._counts.get(rule.id, 0) + 1
        listed = self._listed.setdefault(rule.id, [])
        if len(listed) < self._findings:
            listed.append(finding)

    def _settle_taint(self, event: Event | None) -> None:
        """A repair taints what it changed from the next row on, until that is given up once more."""
        if event is not None and self._tainted:
            if event.event in ("finish", "abort", "reject"):
                self._tainted.pop(event.request, None)
            if event.event in ("finish", "abort", "preempt", "release"):
                for block in event.block_ids or ():
                    self._tainted.pop(("block", block), None)
                occupied = self.state.slots
                for item in [item for item in self._tainted if _is_slot(item) and item[1] not in occupied]:
                    del self._tainted[item]
        if self._repaired:
            ended = event is not None and event.event in ("finish", "abort", "reject")
            for item in self._repaired:
                if not (ended and event is not None and item == event.request):
                    self._tainted[item] = None
            self._repaired = []

    # -- verdicts ----------------------------------------------------------------------------------

    def so_far(self) -> tuple[dict[str, int], list[Finding]]:
        """Violations of each rule that has any, and the findings listed, while rows still come."""
        return dict(self._counts), [finding for listed in self._listed.values() for finding in listed]

    def report(self, name: str, complete: bool) -> Report:
        """The verdict of each rule, once every event was fed. To be asked for once."""
        state = self.state
        last = state.step
        if self._open and complete:
            self._close(None)
        for rule in self.rules.values():
            rule.over(complete)
        results = tuple(self._result(rule_id, complete) for rule_id in self.missing)
        listed = [finding for findings in self._listed.values() for finding in findings]
        order = {rule_id: place for place, rule_id in enumerate(self.missing)}
        listed.sort(key=lambda finding: (_row(finding), order[finding.rule]))
        return Report(
            trace=name,
            level=level_of(self.columns, self.kinds),
            profile=self.profile.name,
            config=self.profile.to_dict(),
            events=self._events,
            steps=state.steps,
            requests=state.arrivals,
            truncated=None if complete else last,
            rules=results,
            findings=tuple(listed),
            waived=sum(self._waived_counts.values()),
        )

    def _result(self, rule_id: str, complete: bool) -> RuleResult:
        missing = self.missing[rule_id]
        if missing:
            return RuleResult(rule_id, "not checkable", missing=missing)
        rule = self.rules[rule_id]
        count = self._counts.get(rule_id, 0)
        if isinstance(rule, GuardRule):
            rule.checked = self._subjects
        lacking = rule.lacking() if rule.skipped and not rule.checked and not count else ()
        if lacking:
            return RuleResult(rule_id, "not checkable", skipped=rule.skipped, missing=lacking)
        verdict: Verdict = "conforms"
        if count:
            verdict = "violates"
        elif rule.open() and not (complete and rule.kind == "end"):
            verdict = "open"
        return RuleResult(
            rule_id,
            verdict,
            checked=rule.checked,
            violations=count,
            skipped=rule.skipped,
            waived=self._waived_counts.get(rule_id, 0),
        )


def fit_text(seats: int | None, budget: int | None, need: int | None, free: int | None) -> str:
    """The figures behind "it fits", as a finding says them."""
    return f"; free seats {seats}, budget left {budget}, needs {count(need or 0, 'block')} of {free} free"


def level_of(columns: frozenset[str], kinds: frozenset[str]) -> str:
    """The level of observability of a trace with these columns and event kinds."""
    if "dispatch" in kinds and "complete" in kinds:
        return "L4"
    if "block_ids" in columns:
        return "L3"
    return "L2" if "blocks" in columns else "L1"


def _hooks(rules: Iterable[Rule], name: str) -> tuple[Callable[..., None], ...]:
    """The bound hooks of that name, of the rules that define it."""
    found = (rule.hook(name) for rule in rules)
    return tuple(hook for hook in found if hook is not None)


def _is_slot(item: Any) -> bool:
    return isinstance(item, tuple) and item[0] == "slot"


def _row(finding: Finding) -> int:
    return finding.row if finding.row is not None else 1 << 62
