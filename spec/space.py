"""The space: which actions the spec allows in a state, and where each leads.

An action is a few rows of a trace. `enabled` asks the guards of the spec (the line and what fits: line.py;
victims: policies.py; needs: need.py), `apply` hands the rows to the effects of actions.py. So a path
through the space is a trace, and the checker, which judges it by the rules, must find nothing: the
tests hold the two against each other, action by action.

    action                rows                                         when
    arrive                arrive (the next of the script)              before the step's first decision
    abort                 cancel, abort                                as arrive, where `aborts` is asked for
    reject                reject                                       can never fit
    give up               abort memory                                 alone, and larger than the pool
    run                   schedule                                     runs, budget and blocks suffice
    evict                 preempt                                      mode, victim and cause are right
    join                  admit or resume, schedule                    next in line, seat, budget, blocks
    end the step          skip …, finish …, step                       nothing is owed; any set of stops

Taken together in one action is what commutes or what no scheduler takes apart: joining and its first
chunk, and all ends of a step. Room that was made for a request is used by it before anything else
happens. Arrivals and aborts stand before the decisions of their step: one that comes later is owed nothing
in it, as if it came in the next. A step in which nothing changes is no action.

Under `eager` the scheduler makes the policy's own choice at each point: those that run first, in the
order in which they joined, then the line, each with all the tokens that the budget leaves, and no step
ends while something can still be done. Only arrivals, stops and aborts are open then.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from batchspec.spec import actions
from batchspec.spec.events import Event
from batchspec.spec.frame import NOBODY, START, Frame, Job, Press, freeze_shares, thaw_shares
from batchspec.spec.induction import Sizes
from batchspec.spec.line import Line, blocks_fit, never_fits
from batchspec.spec.model import PREEMPTED, RUNNING, WAITING, Request, State
from batchspec.spec.naming import Rows, label_of, named
from batchspec.spec.need import blocks_for, need_tokens
from batchspec.spec.policies import FairShares, urgency, victim_of
from batchspec.spec.profile import Profile, parse_need
from batchspec.spec.scope import refuse_unmodelled
from batchspec.spec.sights import SIGHTS, Sight
from batchspec.spec.watches import SERVICE, iterations, preemptions, service


class Space:
    """The transition system of one profile over one script of requests.

    The guards are methods of their own, so that a model that must fail overrides exactly one of them.
    """

    watches: frozenset[str] = frozenset()
    """What is kept for a property, beyond what the future needs: `RAN`, `FRUITLESS`, `SERVICE`."""

    def __init__(
        self,
        profile: Profile,
        jobs: Sequence[Job],
        *,
        stops: bool = True,
        aborts: bool = False,
        eager: bool = False,
        symmetry: bool = False,
        watches: frozenset[str] = frozenset(),
    ) -> None:
        """Raises `ProfileError` for a claim that this model does not have."""
        refuse_unmodelled(profile)
        self.profile = profile
        self.jobs = tuple(jobs)
        self.stops, self.aborts, self.eager, self.symmetry = stops, aborts, eager, symmetry
        self.watches = self.watches | watches
        self.press = Press(profile, jobs, symmetry)
        limits, batching, preemption = profile.limits, profile.batching, profile.preemption
        self.blocks: int = limits.kv_blocks or 0
        self.size: int = limits.block_size or 1
        self.budget: int = limits.token_budget or 0
        self.chunked = batching.chunked_prefill is not False
        self.stall_free = bool(batching.stall_free)
        self.preempts = preemption.mode or "none"
        self.apart = preemption.admit_in_same_step is False
        self.skips = profile.admission.misfit == "skip"
        self.test = profile.admission.test or ""
        self.reserve = profile.admission.reserve or "step"
        self.owes = eager or bool(profile.admission.work_conserving)
        self.fresh_shares = self.shares_of(profile) if profile.admission.order == "fair" else None

    # -- as a system ---------------------------------------------------------------------------------

    @property
    def start(self) -> Frame:
        """Nobody has arrived."""
        return START

    @property
    def sights(self) -> Sequence[Sight]:
        """Those whose premise the profile claims."""
        return [sight for sight in SIGHTS if sight.applies(self.profile)]

    @property
    def says(self) -> str:
        """What is gone through."""
        return "the policy's own choices" if self.eager else "every interleaving that the rules allow"

    def over(self, frame: Frame) -> bool:
        """Everybody has arrived and ended."""
        return not frame.parts and frame.arrived == len(self.jobs)

    def tell(self, path: Iterable[Rows]) -> Iterator[Event]:
        """A path as a trace."""
        return named(path)

    def label(self, frame: Frame) -> str:
        """A state in words."""
        return label_of(frame)

    # -- guards ------------------------------------------------------------------------------------

    def enabled(self, frame: Frame) -> Iterator[Rows]:
        """The actions that the spec allows in this state, in a fixed order."""
        state = self.press.thaw(frame)
        if frame.owed != NOBODY:
            yield from self._on_its_behalf(state, frame)
            return
        if not frame.decided:
            yield from self._news(state, frame)
        if self.eager:
            chosen = next(self._decisions(state, frame), None)
            if chosen is not None:
                yield chosen
                return
        else:
            yield from self._decisions(state, frame)
        yield from self._ends_of_step(state, frame)

    def sizes(self) -> Sizes:
        """The sizes of the core model of the same configuration; without a host limit all positions fit."""
        prompt = tuple(job.prompt for job in self.jobs)
        most = tuple(job.max_tokens for job in self.jobs)
        limits = self.profile.limits
        need = sum(blocks_for(p + m, self.size) for p, m in zip(prompt, most, strict=True))
        host = need if limits.host_blocks is None else limits.host_blocks
        if self.preempts != "swap":
            host = 0
        return Sizes(self.blocks, self.size, limits.max_seqs, self.budget, host, prompt, most)

    def shares_of(self, profile: Profile) -> FairShares:
        """The counters of order `fair`."""
        return FairShares.of(profile)

    def rejects(self, state: State, record: Request) -> bool:
        """Whether a waiting request is refused: it can never fit."""
        return never_fits(state, record) is True

    def more_urgent(self, waiting: Request, running: Request) -> bool:
        """Whether one that waits may take the place of one that runs."""
        return urgency(waiting, self.profile) < urgency(running, self.profile)

    def in_line(self, state: State, frame: Frame) -> list[Request]:
        """Who may join, first in line first: one, or under `skip` those behind too."""
        line = Line(state)
        for record in state.records(state.waiting):
            line.enter(record)
        if line.returns in ("back", "arrival"):
            for record in state.records(state.preempted):
                line.enter(record, anew=False)
        line.shares = self._shares(frame)
        first = line.next()
        if first is None:
            return []
        if line.shares is not None:
            # Tenants with equal counters are equally next.
            tops = [line.first_of(name) for name in line.shares.queued if line.least_served(name)]
            others = [record for record in tops if record is not None and record.id != first.id]
            return [first] if self.eager or first.state == PREEMPTED else [first, *others]
        if not self.skips or first.state == PREEMPTED:
            return [first]
        return [first, *(record for record in line.in_order() if record.id != first.id)]

    def _shares(self, frame: Frame) -> FairShares | None:
        return None if self.fresh_shares is None else thaw_shares(self.fresh_shares, frame.shares)

    def _news(self, state: State, frame: Frame) -> Iterator[Rows]:
        if frame.arrived < len(self.jobs):
            job = self.jobs[frame.arrived]
            yield (
                Event(
                    1,
                    "arrive",
                    len(frame.parts),
                    prompt_tokens=job.prompt,
                    max_tokens=job.max_tokens,
                    priority=job.priority,
                    tenant=job.tenant,
                ),
            )
        if self.aborts:
            for request, record in state.live.items():
                yield (Event(1, "cancel", request), _abort(record, "client"))

    def _decisions(self, state: State, frame: Frame) -> Iterator[Rows]:
        for record in state.records(state.waiting):
            if self.rejects(state, record):
                yield (Event(1, "reject", record.id, reason="too_long"),)
        runs = [record for record in state.records(state.running) if record.id not in state.members]
        for record in runs:
            if len(state.running) == 1 and self.hold(record, (record.computed or 0) + 1) > self.blocks:
                yield (_abort(record, "memory"),)
                continue
            yield from self._run(state, record)
            yield from self._evict_for(state, record)
        yield from self._join(state, frame)

    def _run(self, state: State, record: Request) -> Iterator[Rows]:
        """A part of this step's pass for one that runs, of every length that is allowed."""
        free = state.free_now() or 0
        for tokens in self._chunks(state, record):
            blocks = self.hold(record, (record.computed or 0) + tokens)
            if blocks - (record.blocks or 0) <= free:
                yield (_schedule(record, record.computed or 0, tokens, blocks),)

    def _evict_for(self, state: State, needy: Request) -> Iterator[Rows]:
        """A preemption that makes room for one that runs, or that takes itself out."""
        budget = state.budget_left() or 0
        if self.preempts == "none" or (self.apart and state.admitted) or (self.eager and budget < 1):
            return
        chunks = list(self._chunks(state, needy))
        end = (needy.computed or 0) + max(chunks, default=1)
        if self.hold(needy, end) - (needy.blocks or 0) <= (state.free_now() or 0):
            return
        for victim in self._victims(state, needy):
            # A member gives its tokens back as well. Without any budget nobody else makes room.
            if budget > 0 or victim.id == needy.id or victim.id in state.members:
                yield (self._preempt(state, victim, needy),)

    def _victims(self, state: State, needy: Request) -> list[Request]:
        """The policy's victim, and those that are as good; nobody for one that runs alone."""
        runs = list(state.records(state.running))
        victim = victim_of(runs, needy, self.profile)
        if victim is None or len(runs) < 2:
            return []
        policy = self.profile.preemption.victim
        if self.eager or policy not in ("fewest-outputs", "least-urgent"):
            return [victim]
        if policy == "fewest-outputs":
            return [record for record in runs if record.outputs == victim.outputs]
        level = [record for record in runs if urgency(record, self.profile) == urgency(victim, self.profile)]
        latest = max(level, key=lambda record: record.joined or 0)
        return [victim] if latest.id == victim.id else [victim, latest]

    def _preempt(self, state: State, victim: Request, cause: Request) -> Event:
        limit, how = self.profile.limits.host_blocks, self.preempts
        computed = victim.computed or 0
        if victim.id in state.members:
            computed -= state.members[victim.id].tokens or 0
        if limit is not None and state.swapped_blocks + blocks_for(computed, self.size) > limit:
            how = "recompute"
        return Event(1, "preempt", victim.id, blocks=0, reason=how, cause=cause.id)

    def _join(self, state: State, frame: Frame) -> Iterator[Rows]:
        """The first in line joins, with its first part; or a more urgent one makes room for itself."""
        budget = state.budget_left() or 0
        if budget < 1 or (self.apart and frame.evicted):
            return
        seats = state.free_seats() or 0
        tied = self.fresh_shares is not None
        for record in self.in_line(state, frame):
            if self.rejects(state, record):
                continue
            rows = list(self._joining(state, record)) if seats > 0 else []
            if rows:
                yield from rows
                if not tied:
                    return
            if self.profile.preemption.for_waiting:
                yield from self._evict_for_waiting(state, record)
            if not self.skips and not tied:
                return

    def _joining(self, state: State, record: Request) -> Iterator[Rows]:
        watermark: int = self.profile.value("admission.watermark_blocks") if state.running else 0
        word, _ = parse_need(self.test)
        if word != "step" and not blocks_fit(state, record, state.budget_left()):
            return
        free = (state.free_now() or 0) - watermark
        start = (record.computed or 0) if record.swapped else 0
        for tokens in self._chunks(state, record):
            blocks = self.hold(record, start + tokens)
            if word == "step" and blocks - (record.blocks or 0) > free:
                continue
            kind = "admit" if record.state == WAITING else "resume"
            yield (
                Event(1, kind, record.id, cached=start, blocks=blocks),
                _schedule(record, start, tokens, blocks),
            )

    def _evict_for_waiting(self, state: State, needy: Request) -> Iterator[Rows]:
        """Room for one that waits, by preemption of less urgent ones, if all of them together suffice."""
        mine = [record for record in state.records(state.running) if self.more_urgent(needy, record)]
        victims = [record for record in mine if record.id not in state.members] or mine
        if not victims or needy.id in state.preempted_now:
            return
        room = (state.free_now() or 0) + sum(record.blocks or 0 for record in mine)
        if self.hold(needy, (needy.computed or 0) + 1) > room:
            return
        worst = max(victims, key=lambda record: (urgency(record, self.profile), record.number))
        yield (self._preempt(state, worst, needy),)

    def _on_its_behalf(self, state: State, frame: Frame) -> Iterator[Rows]:
        """Room was made for this request: it goes on, or more room is made."""
        needy = state.live[frame.owed]
        if needy.state == RUNNING:
            rows = [*self._run(state, needy), *self._evict_for(state, needy)]
        else:
            rows = list(self._joining(state, needy)) or list(self._evict_for_waiting(state, needy))
        yield from rows[:1] if self.eager else rows

    def _chunks(self, state: State, record: Request) -> Sequence[int]:
        """The lengths that this step's part of a request may have, longest first."""
        start = (record.computed or 0) if record.state == RUNNING or record.swapped else 0
        left, budget = (record.known or 0) - start, state.budget_left() or 0
        most = min(left, budget)
        if most < 1 or (not self.chunked and most < left):
            return ()
        return range(most, most - 1 if self.eager or not self.chunked else 0, -1)

    def hold(self, record: Request, end: int) -> int:
        """The blocks that a request holds once positions up to `end` are computed: the reservation."""
        known = record.known or 0
        allowed = (record.max_tokens or 0) - (record.outputs or 0)
        tokens = need_tokens(self.reserve, known=known, step_end=end, allowed=allowed)
        return max(blocks_for(max(end, tokens or 0), self.size), record.blocks or 0)

    # -- the end of a step -------------------------------------------------------------------------

    def _ends_of_step(self, state: State, frame: Frame) -> Iterator[Rows]:
        """Every way in which this step may end: who of those that emit stops."""
        if self.owes and next(self._join(state, frame), None) is not None:
            return
        skips = self._passed_over(state)
        if skips is None or not (state.decisions or skips):
            return
        emits = [state.live[request] for request, part in state.members.items() if part.reaches]
        emits.sort(key=lambda record: record.number)
        must = [record for record in emits if (record.outputs or 0) + 1 >= (record.max_tokens or 0)]
        may = [record for record in emits if record not in must] if self.stops else []
        for count in range(len(may) + 1):
            for some in combinations(may, count):
                ends = sorted([*must, *some], key=lambda record: record.number)
                finishes = [_finish(record, "length" if record in must else "stop") for record in ends]
                gone = sum(record.blocks or 0 for record in ends)
                running = len(state.running) - len(ends)
                free = self.blocks - state.held + gone
                waiting = len(state.live) - len(state.running)
                row = Event(1, "step", free_blocks=free, waiting=waiting, running=running)
                yield (*skips, *finishes, row)

    def _passed_over(self, state: State) -> Rows | None:
        """Rows that say why a decode is left out; None where it is owed its part (`stall_free`)."""
        rows = []
        free, budget = state.free_now() or 0, state.budget_left() or 0
        for record in state.records(state.running):
            decodes = record.prefilled and record.outputs
            if record.id in state.members or not decodes or not state.members:
                continue
            short = self.hold(record, (record.computed or 0) + 1) - (record.blocks or 0) > free
            if self.stall_free and not short and budget > 0:
                return None
            if short or budget < 1:
                rows.append(Event(1, "skip", record.id, reason="memory" if short else "budget"))
        return tuple(rows)

    # -- effects -----------------------------------------------------------------------------------

    def apply(self, frame: Frame, rows: Rows) -> Frame:
        """Where an action leads. The rows must be one of those that `enabled` gives for this state."""
        after = self._after(frame, rows)
        return service(frame, after, rows, self.jobs, self.profile) if SERVICE in self.watches else after

    def _after(self, frame: Frame, rows: Rows) -> Frame:
        state = self.press.thaw(frame)
        shares = self._shares(frame)
        ends: list[tuple[int, str]] = []
        owed, evicted = frame.owed, frame.evicted
        for event in rows:
            kind = event.event
            if kind == "step":
                return self._close(state, frame, event, shares, ends)
            if kind == "finish":
                self._emit(state, int(event.subject), shares)
            record = state.live.get(event.subject)
            if kind in ("finish", "abort", "reject"):
                ends.append((int(event.subject), kind))
            if shares is not None:
                _account(shares, event, record, self.jobs[frame.arrived].tenant if kind == "arrive" else None)
            actions.EFFECTS[kind](state, event)
            if kind == "preempt":
                evicted = True
                owed = int(event.cause or 0) if event.cause != event.request else NOBODY
            elif kind == "schedule" and event.request == owed:
                owed = NOBODY
        if ends:
            return self._without(state, frame, shares, ends)
        frozen = None if shares is None else freeze_shares(shares)
        arrived = frame.arrived + (rows[0].event == "arrive")
        after = self.press.freeze(state, frame, arrived=arrived, owed=owed, evicted=evicted, shares=frozen)
        return preemptions(after, rows, self.watches) if self.watches else after

    def _close(
        self, state: State, frame: Frame, event: Event, shares: FairShares | None, ends: list[tuple[int, str]]
    ) -> Frame:
        emitted = list(state.emitted)
        for request in list(state.members):
            if request in state.live and self._emit(state, int(request), shares):
                emitted.append(request)
        actions.close_step(state, event)
        if shares is not None:
            shares.end_step()
        ran = {int(request) for request in state.members}
        actions.open_step(state, 2)
        fresh = frame._replace(decided=False, evicted=False, owed=NOBODY, begun=False)
        if self.watches:
            fresh = iterations(fresh, ran, {int(request) for request in emitted}, self.watches)
        return self._without(state, fresh, shares, ends)

    def _without(
        self, state: State, frame: Frame, shares: FairShares | None, ends: list[tuple[int, str]]
    ) -> Frame:
        """The frame after some have ended: those that stay move up."""
        ended = self.press.farewell(frame, ends)
        frozen = None if shares is None else freeze_shares(shares)
        return self.press.freeze(state, frame, ended=ended, shares=frozen)

    def _emit(self, state: State, request: int, shares: FairShares | None) -> bool:
        tokens = actions.derived_output(state, request)
        if tokens and shares is not None:
            shares.emit(state.live[request].tenant, tokens)
        return bool(tokens)


def _account(shares: FairShares, event: Event, record: Request | None, arriving: str | None) -> None:
    """What an action means for the counters: who enters and leaves the queue, what a prompt costs."""
    if event.event == "arrive":
        shares.enter(arriving)
    elif record is not None and record.state == WAITING and event.event in ("admit", "reject", "abort"):
        shares.leave(record.tenant)
        if event.event == "admit" and record.first_admit is None:
            shares.admit(record.tenant, record.prompt or 0)


def _schedule(record: Request, start: int, tokens: int, blocks: int) -> Event:
    return Event(1, "schedule", record.id, start=start, tokens=tokens, blocks=blocks)


def _finish(record: Request, reason: str) -> Event:
    return Event(1, "finish", record.id, blocks=0, output_tokens=(record.outputs or 0) + 1, reason=reason)


def _abort(record: Request, reason: str) -> Event:
    return Event(1, "abort", record.id, blocks=0, output_tokens=record.outputs, reason=reason)
