"""The closed loop: a scheduler under test, a stand-in for the model, and the trace of both.

The stand-in computes nothing. Each output token is scripted by the request and its place in the
output, as with a model that is asked greedily: what is computed again comes out the same. One
iteration of the loop is one step of the trace:

    arrivals, cancels -> plan -> cancels while the pass runs -> commit of the oldest plan -> step row

With `depth` 2 and more, that many plans are under way before the oldest one is committed.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from batchspec.replay.harness import (
    Capabilities,
    HarnessError,
    Outcome,
    Plan,
    Refused,
    Request,
    Results,
    Scheduler,
    SchedulerFailed,
    fault_of,
)
from batchspec.replay.timelimit import TimeLimit, TookTooLong
from batchspec.spec.events import Event, RequestId
from batchspec.spec.library import profile_names
from batchspec.spec.profile import Profile
from batchspec.spec.reference.pool import mix
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace

T = TypeVar("T")

STEP_NS: Final = 10
"""What an iteration takes on the virtual clock."""

STALL_STEPS: Final = 200
"""Iterations without a token, an end or news after which a run is over: it would go on for ever."""

MAX_STEPS: Final = 50_000
MAX_ROWS: Final = 2_000_000
"""Rows of a run; a scheduler that answers with more is stopped."""

_COUNTERS: Final = ("free_blocks", "waiting", "running", "pinned_blocks", "shared_blocks")
_PLANNED: Final = frozenset(
    {"preempt", "admit", "resume", "reject", "park", "ready", "skip", "schedule", "release", "take", "give"}
    | {"transfer_begin", "transfer_end", "abort", "finish", "output"}
)
_COMMITTED: Final = frozenset(
    {"output", "finish", "deliver", "release", "give", "abort", "preempt", "transfer_begin", "transfer_end"}
    | {"dispatch", "complete", "park", "ready", "skip", "reject", "take"}
)
_ABORTED: Final = frozenset({"abort", "release", "give", "finish", "transfer_begin", "transfer_end", "skip"})
_ENDS: Final = frozenset({"finish", "abort", "reject"})


@dataclass(frozen=True, slots=True)
class Script:
    """A request and what becomes of it: it emits `outputs` tokens, then stops by itself or at its limit.

    `outputs` below `request.max_tokens` ends with the stop token. `abort_ns` after its arrival its client
    ends it, `abort_in_flight` says whether between plan and commit. `accept` of the drafts proposed at
    each decode hold.
    """

    request: Request
    outputs: int
    abort_ns: int | None = None
    abort_in_flight: bool = False
    accept: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run came to: its trace, and why it ended where not all requests did.

    `crash` is the one line about an exception of the scheduler under test, `stalled` that nothing
    happened for many iterations, `unfinished` the requests that were still live. `broken` says in
    one line how an answer was none (`attempt` only: `drive` raises it), `hung` which call ran over its
    time limit.
    """

    trace: Trace
    steps: int
    unfinished: tuple[RequestId, ...] = ()
    crash: str | None = None
    stalled: bool = False
    broken: str | None = None
    hung: str | None = None


@dataclass(slots=True, eq=False)
class _Live:
    """The stand-in's view of a live request. `computed` positions, `emitted` and `flying` tokens."""

    script: Script
    computed: int = 0
    emitted: int = 0
    flying: int = 0

    @property
    def known(self) -> int:
        return len(self.script.request.prompt) + self.emitted + self.flying


@dataclass(slots=True)
class _Flight:
    """A pass whose results are not known yet. `emits`: request -> (whose, first output index, tokens)."""

    step: int
    plan: Plan
    emits: dict[RequestId, tuple[_Live, int, int]] = field(default_factory=dict)


def drive(
    scheduler: Scheduler,
    scripts: Iterable[Script],
    profile: Profile,
    *,
    step_ns: int = STEP_NS,
    stall_steps: int = STALL_STEPS,
    max_steps: int = MAX_STEPS,
) -> Run:
    """Serve `scripts` (in order of arrival) until all have ended or nothing goes on, and record it.

    The trace's header carries the profile, so it can be checked on its own. An exception of the
    scheduler ends the run and is told in `crash`. Raises `HarnessError` for rows that are no answer.
    """
    run = attempt(scheduler, scripts, profile, step_ns=step_ns, stall_steps=stall_steps, max_steps=max_steps)
    if run.broken is not None:
        raise HarnessError(run.broken)
    return run


def attempt(
    scheduler: Scheduler,
    scripts: Iterable[Script],
    profile: Profile,
    *,
    step_ns: int = STEP_NS,
    stall_steps: int = STALL_STEPS,
    max_steps: int = MAX_STEPS,
    call_s: float | None = None,
) -> Run:
    """`drive` that keeps the trace up to an answer that is none, and says in `broken` what it was.

    No call of the scheduler may take longer than `call_s` seconds.
    """
    loop = _Loop(scheduler, scripts, step_ns, TimeLimit(call_s), profile)
    crash = broken = hung = None
    stalled = False
    try:
        while loop.busy and loop.step < max_steps:
            loop.iterate()
            if loop.quiet >= stall_steps and not loop.coming:
                stalled = True
                break
        for _ in range(0 if loop.busy else _tail(profile)):
            loop.iterate()
    except HarnessError as error:
        broken = " ".join(str(error).split())
    except TookTooLong as late:
        hung = f"{loop.calling}() did not return within {late.seconds:g} s"
    # The scheduler under test is somebody else's code, and may even ask to end the program.
    except (Exception, SystemExit) as error:
        crash = crash_line(error)
    ended = (not loop.busy or stalled) and not (crash or broken or hung)
    shows = loop.shows
    header = header_of(profile, shows, complete=ended)
    trace = Trace.from_events(loop.rows, header, shows.name)
    return Run(trace, loop.step, tuple(loop.live), crash, stalled, broken, hung)


def _tail(profile: Profile) -> int:
    """Iterations after the last end in which blocks that come back late still do."""
    lag = profile.value("reuse.block_lag")
    return lag if isinstance(lag, int) else 1


def header_of(profile: Profile, shows: Capabilities, *, complete: bool) -> Header:
    """The header of a run: who produced it, under which claims."""
    return Header(
        producer_name=shows.name,
        producer_version=shows.version or None,
        clock="virtual",
        profile=profile.name if profile.name in profile_names() else None,
        config=profile.to_dict(),
        outputs="derived" if shows.outputs == "derived" else "recorded",
        complete=complete,
    )


def token_of(request: RequestId, index: int) -> int:
    """The token id at a place of the output; never 0, 1 or 2, which stop tokens may be."""
    name = request if isinstance(request, int) else int.from_bytes(str(request).encode()[:64], "big")
    return 3 + mix(name, index) % 29_000


class _Loop:
    """One run, iteration by iteration."""

    def __init__(
        self,
        scheduler: Scheduler,
        scripts: Iterable[Script],
        step_ns: int,
        limit: TimeLimit,
        profile: Profile,
    ) -> None:
        self.scheduler = scheduler
        self.calling = ""
        self.shows = scheduler.capabilities
        self.coming = deque(scripts)
        self.rows: list[Event] = []
        self.live: dict[RequestId, _Live] = {}
        self.step = 0
        self.quiet = 0
        self._now = 0
        self._step_ns = step_ns
        self._limit = limit
        shares = self.shows.blocks == "ids" and bool(profile.reuse.prefix)
        self._block = profile.limits.block_size if shares else None
        self._flight: deque[_Flight] = deque()
        self._cancelled: set[RequestId] = set()
        self._moved = False

    @property
    def busy(self) -> bool:
        """Whether anything is live, in flight or still to come."""
        return bool(self.coming or self.live or self._flight)

    def _call(self, call: Callable[..., T], *args: Any) -> T:
        """A call of the scheduler under test. `calling` is its name."""
        self.calling = call.__name__ if call is not _listed else "abort"
        return self._limit(call, *args)

    def iterate(self) -> None:
        """One step of the trace."""
        self.step += 1
        self._moved = False
        if not self.live and not self._flight and self.coming:
            self._now = max(self._now, self.coming[0].request.arrival_ns)
        self._arrive()
        self._cancel(in_flight=False)
        plan = self._call(self.scheduler.plan)
        if not isinstance(plan, Plan):
            raise HarnessError(f"plan() must return a Plan, not {type(plan).__name__}")
        flight = _Flight(self.step, plan)
        for row in plan.rows:
            self._decide(row, flight)
        self._flight.append(flight)
        told = len(self.rows)
        self._cancel(in_flight=True)
        self._now += self._step_ns
        counters: Plan | Outcome | None = None
        # Nothing runs beside an empty plan: the oldest pass is waited for, and empty plans in its wake.
        due = len(self._flight) >= self.shows.depth or not plan.members
        while self._flight and (due or not self._flight[0].plan.members):
            due = False
            done = self._commit(self._flight.popleft())
            if any(getattr(done, name) is not None for name in _COUNTERS):
                counters = done
        if counters is None:
            # What the plan counted stands only if nothing has changed since.
            counters = plan if len(self.rows) == told else Plan()
        values = {name: getattr(counters, name) for name in _COUNTERS}
        self._write(Event(self.step, "step", time_ns=self._now, **values))
        self.quiet = 0 if self._moved else self.quiet + 1
        if len(self.rows) > MAX_ROWS:
            raise HarnessError(f"more than {MAX_ROWS:,} rows in one run")

    # -- news --------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        while self.coming and self.coming[0].request.arrival_ns <= self._now:
            script = self.coming.popleft()
            request = script.request
            self._moved = True
            if request.id in self.live:
                # A second request under a live id: turned away it never was one, taken it is a fault.
                with suppress(Refused):
                    self._call(self.scheduler.add, request)
                    self._write(self._arrival(request))
                    self.live[request.id] = _Live(script)
                continue
            self._write(self._arrival(request))
            try:
                self._call(self.scheduler.add, request)
            except Refused as refusal:
                self._write(Event(self.step, "reject", request.id, time_ns=self._now, reason=refusal.reason))
            else:
                self.live[request.id] = _Live(script)

    def _arrival(self, request: Request) -> Event:
        return Event(
            self.step,
            "arrive",
            request.id,
            time_ns=self._now,
            prompt_tokens=len(request.prompt),
            max_tokens=request.max_tokens,
            priority=request.priority if self.shows.priority else None,
            tenant=request.tenant if self.shows.tenants else None,
        )

    def _cancel(self, *, in_flight: bool) -> None:
        if not self.shows.abort:
            return
        for name, live in list(self.live.items()):
            script = live.script
            if script.abort_ns is None or script.abort_in_flight is not in_flight or name in self._cancelled:
                continue
            if script.request.arrival_ns + script.abort_ns <= self._now:
                self._moved = True
                self._cancelled.add(name)
                self._write(Event(self.step, "cancel", name, time_ns=self._now))
                for row in self._call(_listed, self.scheduler.abort, name):
                    self._sound(row, _ABORTED, "the answer to an abort")
                    self._tell(row)

    # -- a plan and its results --------------------------------------------------------------------

    def _decide(self, row: Event, flight: _Flight) -> None:
        self._sound(row, _PLANNED, "a plan")
        live = self.live.get(row.subject)
        if row.event == "schedule" and live is not None:
            start = live.computed if row.start is None else row.start
            tokens = row.tokens or 0
            row = row._replace(start=start)
            if row.drafts is None and self.shows.outputs != "derived" and not self.shows.drafts:
                row = row._replace(drafts=0)
            if self._block is not None and tokens > 0 and start >= 0:
                filled = _keys(live.script, self._block, start, start + tokens - (row.drafts or 0))
                row = row._replace(block_hashes=filled or None)
            live.computed = start + tokens
            if start + tokens - (row.drafts or 0) >= live.known:
                count = 1 + min(row.drafts or 0, live.script.accept)
                flight.emits[row.subject] = (live, live.emitted + live.flying, count)
                live.flying += count
                live.computed = start + tokens - (row.drafts or 0) + count - 1
        elif row.event in ("admit", "resume") and live is not None:
            live.computed = row.cached or 0
            if self._block is not None and row.block_ids:
                taken = _keys(live.script, self._block, 0, live.computed)[: len(row.block_ids)]
                row = row._replace(block_hashes=taken or None)
        elif row.event in ("preempt", "abort"):
            self._drop(row.subject, flight)
        self._tell(row)

    def _sound(self, row: Event, kinds: frozenset[str], where: str) -> None:
        if (fault := fault_of(row)) is not None:
            raise HarnessError(f"{where}: {fault}")
        if row.event not in kinds:
            raise HarnessError(f"{where} cannot hold a row of the kind {row.event!r:.40}")

    def _drop(self, name: RequestId, flight: _Flight) -> None:
        """A member that was planned and then left the batch emits nothing in this pass."""
        live = self.live.get(name)
        if (emits := flight.emits.pop(name, None)) is not None and live is not None:
            live.flying -= emits[2]

    def _commit(self, flight: _Flight) -> Outcome:
        tokens: dict[RequestId, tuple[int, ...]] = {row.subject: () for row in flight.plan.members}
        for name, (live, first, count) in flight.emits.items():
            # The device does not know who was cancelled meanwhile: its token comes all the same.
            if self.live.get(name, live) is live:
                tokens[name] = tuple(_output(live.script, first + index) for index in range(count))
                live.flying -= count
                if self.shows.outputs != "recorded":
                    live.emitted += count
        outcome = self._call(self.scheduler.commit, Results(flight.plan, flight.step, tokens))
        if not isinstance(outcome, Outcome):
            raise HarnessError(f"commit() must return an Outcome, not {type(outcome).__name__}")
        for row in outcome.rows:
            self._sound(row, _COMMITTED, "the answer to a commit")
            if row.event in ("output", "finish") and row.pass_ is None and flight.step != self.step:
                row = row._replace(pass_=flight.step)
            if row.event == "output" and (whose := self.live.get(row.subject)) is not None:
                whose.emitted += row.tokens or 0
            self._tell(row)
        # Tokens beyond what was asked for bring nobody nearer to an end.
        news = (first < live.script.request.max_tokens for live, first, _ in flight.emits.values())
        self._moved = self._moved or any(news)
        return outcome

    # -- rows --------------------------------------------------------------------------------------

    def _tell(self, row: Event) -> None:
        if row.event in _ENDS:
            self._moved = True
            self.live.pop(row.subject, None)
            self._cancelled.discard(row.subject)
        self._write(row._replace(step=self.step, time_ns=self._now))

    def _write(self, row: Event) -> None:
        self.rows.append(row)


def _output(script: Script, index: int) -> int:
    """The output token at a place; behind the stop token too, for who does not stop."""
    request = script.request
    stops = script.outputs < request.max_tokens and index == script.outputs - 1
    return request.stop_token if stops else token_of(request.id, index)


def _keys(script: Script, block: int, start: int, end: int) -> tuple[int, ...]:
    """Content keys of the blocks that end in (start, end]: each stands for all tokens up to its end.

    They are made of the tokens themselves, so a scheduler that takes one content for another is found
    out, whatever keys it goes by.
    """
    prompt = script.request.prompt
    key = 0
    found = []
    for at in range(end):
        key = mix(key, prompt[at] if at < len(prompt) else _output(script, at - len(prompt)))
        if (at + 1) % block == 0 and at >= start:
            found.append(key)
    return tuple(found)


def _listed(abort: Callable[[RequestId], Iterable[Event]], request: RequestId) -> list[Event]:
    """All rows of an abort; a generator runs only when it is gone through."""
    return list(abort(request))


def crash_line(error: BaseException) -> str:
    """What went wrong in somebody else's code, and the line of theirs that it went wrong in."""
    if isinstance(error, SchedulerFailed):
        return " ".join(str(error).split())[:300]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"
