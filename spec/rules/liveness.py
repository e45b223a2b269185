"""Rules of liveness: with work to do the engine works, and everyone who runs gets a turn."""

from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx

from batchspec.spec.events import Event, RequestId
from batchspec.spec.line import never_fits
from batchspec.spec.model import Member, Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.rules.preemption import by_operator
from batchspec.spec.words import count, duration, ordinal


class IdleStall(Rule):
    """With schedulable work the engine does not run empty steps for more than K steps."""

    id = "liveness/idle-stall"
    sentence = (
        "With schedulable work (a running request, a ready one that fits, or one that could fit while "
        "nothing at all is under way) the engine runs no more than K empty steps in a row; where the profile "
        "gives this rule a bound of its own, no more than that under a pass or transfer that does not end."
    )
    kind = "bounded"
    source = "vLLM issues 39734 and 31857; LMDeploy PR 4100; llama.cpp issue 14073; Dynamo issue 11016"

    def __init__(self, *args: Any) -> None:
        """Nothing has stalled."""
        super().__init__(*args)
        self._empty = 0
        self._lingering = 0
        # What is under way takes as long as it takes: only a bound declared for this very rule covers it.
        self._bound = (self.profile.patience.rules or {}).get(self.id)
        self._wall = self.profile.patience.wall_ns
        self._worked_ns: int | None = None

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Who is ready shows in the reasons of skip rows, where there are any."""
        return ("reason",) if "skip" in kinds and "reason" not in columns else ()

    def hook(self, name: str) -> Callable[..., None] | None:
        """Rows are looked at only where a wall bound is claimed."""
        return None if name == "before_any" and self._wall is None else super().hook(name)

    def before_any(self, event: Event, record: Request | None) -> None:
        """With a wall bound: no row of the engine's for too long while somebody could run."""
        now = event.time_ns
        if self._wall is None or event.event == "cancel":
            return
        if event.event == "arrive":
            if not self._idle_owed():
                # Nobody was kept waiting before; an arrival without a time leaves open since when one is.
                self._worked_ns = now if now is None else max(now, self._worked_ns or now)
            return
        if now is None:
            return
        last = self._worked_ns
        if last is not None and now - last > self._wall and self._idle_owed():
            state = self.state
            waits = [*state.running, *state.preempted, *state.waiting]
            self.flag(
                f"{waits[0]} could run, and for {duration(now - last)} nothing happens",
                *waits[:4],
                expected=f"a step within {duration(self._wall)} while anybody could run",
                observed=f"no row of the engine's between {last} ns and {now} ns; {self._who()}",
            )
        self._worked_ns = now

    def _idle_owed(self) -> bool:
        state = self.state
        return bool(state.waiting or state.running or state.preempted) and not (
            state.in_flight or state.transfers or (state.parked and not state.waiting)
        )

    def closing(self, event: Event | None) -> None:
        """Count empty steps with work to do."""
        state = self.state
        if state.members or not state.live:
            self._empty = self._lingering = 0
            self.checked += 1
            return
        work = self._work()
        if work is None:
            self._empty = 0
            self._linger()
            return
        self._lingering = 0
        self.checked += 1
        self._empty += 1
        if self._empty == self.patience + 1:
            request, why = work
            place = f"step {state.step} is the {ordinal(self._empty)} empty one in a row"
            others = [name for name in (state.running or state.preempted or state.waiting) if name != request]
            self.flag(
                f"{place} although {request} {why}",
                request,
                *others[:3],
                expected=f"at most {self.patience} empty steps in a row",
                observed=self._who() + (state.fit_text if request == state.next_in_line else ""),
            )

    def _linger(self) -> None:
        """Count empty steps under a pass or transfer that does not end."""
        state = self.state
        if self._bound is None or not (state.in_flight or state.transfers):
            self._lingering = 0
            return
        self.checked += 1
        self._lingering += 1
        if self._lingering == self._bound + 1:
            request = next(iter(state.transfers), None)
            what = f"pass {next(iter(state.in_flight))}" if request is None else f"the transfer of {request}"
            self.flag(
                f"step {state.step} is the {ordinal(self._lingering)} empty one in a row, and {what} has not "
                "ended",
                *([] if request is None else [request]),
                expected=f"at most {self._bound} empty steps in a row under what is on its way",
                observed=f"passes in flight: {len(state.in_flight)}, requests with a transfer: "
                f"{len(state.transfers)}; {self._who()}",
            )

    def _work(self) -> tuple[RequestId, str] | None:
        """For whom and why this empty step should not have been one; None where nothing says so."""
        state = self.state
        under_way = state.in_flight or state.transfers or state.lagged
        if state.running:
            able = [
                record.id
                for record in state.records(state.running)
                if state.skips.get(record.id) not in ("not_ready", "in_flight")
                and not state.awaits_output(record)
            ]
            if able and not under_way and not state.ended_now:
                first = next((request for request in able if request not in state.skips), able[0])
                return first, "runs and has something to compute"
            return None
        if state.mode == "dynamic" or under_way or state.ended_now or state.preempted_now:
            return None
        if state.next_in_line is not None and state.next_fits:
            return state.next_in_line, "is next in line and fits"
        return self._deadlock(state.next_in_line if state.next_in_line is not None else self._anyone())

    def _anyone(self) -> RequestId | None:
        state = self.state
        names = (*state.preempted, *state.waiting)
        ready = [name for name in names if name not in state.skips]
        short = [name for name in names if state.skips.get(name) in ("memory", "slots", "budget")]
        candidate = next(iter(ready or short), None)
        record = state.live.get(candidate) if candidate is not None else None
        if record is None or (record.late and record.arrived == state.step):
            return None
        return candidate

    def _deadlock(self, request: RequestId | None) -> tuple[RequestId, str] | None:
        """Nothing is under way that could change anything, and still somebody waits who could run."""
        state = self.state
        record = state.live.get(request) if request is not None else None
        if record is None or state.parked or state.pinned is None or state.pinned:
            return None
        if state.held_by_ended or (state.profile.limits.host_blocks and state.swapped_blocks):
            return None
        hopeless = never_fits(state, record)
        if hopeless is None and not self._held():
            # Whether it could ever run nobody can say, and nobody is seen to keep anything from it.
            self.skipped += 1
            return None
        if hopeless:
            return None  # admission/never-fit
        return record.id, "waits and nothing is under way that it could wait for"

    def _held(self) -> bool:
        """Whether something is out although nobody runs: those who wait keep it from each other."""
        state = self.state
        return bool(state.held or state.owners or any(state.resources.values()))

    def lacking(self) -> tuple[str, ...]:
        """Whether a request could ever run takes the pool, and what a request needs of it."""
        limits = self.profile.limits
        sizes = {"limits.kv_blocks": limits.kv_blocks, "limits.block_size": limits.block_size}
        words = [path for path, size in sizes.items() if size is None]
        return tuple(words if self.state.has_blocks else [*words, "blocks"])

    def _who(self) -> str:
        state = self.state
        return (
            f"{len(state.running)} running, {len(state.preempted)} preempted, {len(state.waiting)} waiting, "
            f"{len(state.parked)} parked"
        )

    def open(self) -> bool:
        """The bound has not run out."""
        return 0 < self._empty <= self.patience or 0 < self._lingering <= (self._bound or 0)


class StarvedMember(Rule):
    """A running request is a member at least once in any K + 1 consecutive steps."""

    id = "liveness/starved-member"
    sentence = (
        "A running request is a member with at least one position in at least one of any K + 1 consecutive "
        "steps."
    )
    kind = "bounded"
    source = "SGLang issue 32549 (decodes starve while prompts come); nano-vllm PR 271; vLLM PR 42722"

    def __init__(self, *args: Any) -> None:
        """Everyone had a turn."""
        super().__init__(*args)
        self._missed: dict[RequestId, int] = {}

    @classmethod
    def missing(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> tuple[str, ...]:
        """A prefill-first engine claims it only with a bound of its own."""
        if profile.batching.prefill_first and cls.id not in (profile.patience.rules or {}):
            return (f"patience.rules.{cls.id}",)
        if profile.batching.mode in ("static", "dynamic"):
            return ("batching.mode=continuous",)
        return ()

    def closing(self, event: Event | None) -> None:
        """Count the steps that each running request has missed."""
        state = self.state
        members = state.members
        if not self._missed and len(members) == len(state.running) and not state.overlaps:
            self.checked += len(members)
            if all(part.tokens != 0 for part in members.values()):
                return
        if not members and (state.in_flight or state.transfers):
            return  # an empty step under a pass or transfer puts nobody behind anybody
        missed: dict[RequestId, int] = {}
        for record in state.records(state.running):
            request = record.id
            self.checked += 1
            part = members.get(request)
            if part is not None and part.tokens != 0:
                continue
            if state.skips.get(request) in ("not_ready", "in_flight"):
                continue
            if state.awaits_output(record):
                continue
            steps = self._missed.get(request, 0) + 1
            missed[request] = steps
            if steps == self.patience + 1:
                self.flag(
                    f"{request} runs and has computed nothing for {steps} steps",
                    request,
                    expected=f"a membership in any {self.patience + 1} consecutive steps",
                    observed=f"{steps} steps without one; members now: "
                    + (", ".join(map(str, list(members)[:6])) or "none"),
                )
        self._missed = missed

    def open(self) -> bool:
        """The bound has not run out for somebody."""
        return any(steps <= self.patience for steps in self._missed.values())


class Livelock(Rule):
    """No cycle of preemptions without progress among a set of requests."""

    id = "liveness/livelock"
    sentence = (
        "No requests preempt each other in a circle for more than K steps while no request makes progress."
    )
    kind = "bounded"
    columns = ("cause",)
    source = "vLLM PR 54530 (equals would swap for ever); Dynamo issue 11016"

    def __init__(self, *args: Any) -> None:
        """No preemption since the last progress."""
        super().__init__(*args)
        self._edges: dict[RequestId, dict[RequestId, None]] = {}
        self._since = 0
        self._told = False

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Progress shows in outputs."""
        if "output" in kinds or "preempt" not in kinds:
            return ()
        return [name for name in ("start", "tokens", "prompt_tokens") if name not in columns]

    def emitted(self, record: Request, tokens: int, member: Member | None) -> None:
        """Any new token is progress: the window begins anew."""
        if tokens > 0 and (self._edges or self._told):
            self._edges = {}
            self._told = False

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """One more edge from who gains to who loses."""
        if event.cause is None or event.cause == event.request or by_operator(event) or record is None:
            return
        self.checked += 1
        if not self._edges:
            self._since = self.state.steps
        self._edges.setdefault(event.cause, {})[record.id] = None
        if self._told or self.state.steps - self._since < self.patience:
            return
        graph = nx.DiGraph([(cause, victim) for cause, row in self._edges.items() for victim in row])
        circle = next((part for part in nx.strongly_connected_components(graph) if len(part) > 1), None)
        if circle is None:
            return
        self._told = True
        names = sorted(circle, key=str)
        self.flag(
            f"{', '.join(map(str, names))} preempt each other in a circle, and nobody emits a token",
            *names,
            expected=f"a token within {count(self.patience, 'step')}, or no circle",
            observed=f"no token for {count(self.state.steps - self._since, 'step')}",
        )


RULES = (IdleStall, StarvedMember, Livelock)
