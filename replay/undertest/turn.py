"""One step of a scheduler under test, with what its clients choose in it."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from batchspec.replay.drive import STEP_NS, token_of
from batchspec.replay.harness import Capabilities, Outcome, Plan, Refused, Request, Results, Scheduler
from batchspec.spec.events import Event, RequestId
from batchspec.spec.frame import Job
from batchspec.spec.naming import Rows, name_of

_STOP: Final = 1
_ENDS: Final = frozenset({"finish", "abort", "reject"})


@dataclass(frozen=True, slots=True)
class Client:
    """What is known of a live request: its limit, positions computed, tokens emitted."""

    prompt: int
    most: int
    computed: int = 0
    emitted: int = 0


@dataclass(eq=False)
class Moment:
    """A state, equal to others by `key`. `rows` is the trace that first led there, `crash` ended it."""

    scheduler: Scheduler
    clients: dict[RequestId, Client]
    arrived: int = 0
    step: int = 0
    quiet: int = 0
    rows: tuple[Event, ...] = ()
    crash: str | None = None
    key: object = None
    after: dict[Rows, "Moment"] = field(default_factory=dict)
    broken: frozenset[str] | None = None

    def __eq__(self, other: object) -> bool:  # noqa: D105
        return isinstance(other, Moment) and self.key == other.key

    def __hash__(self) -> int:  # noqa: D105
        return hash(self.key)


@dataclass(slots=True)
class Turn:
    """One step of a moment in the making; the moment is changed in place. `emits`: who emits in it."""

    moment: Moment
    plan: Plan = field(default_factory=Plan)
    emits: list[RequestId] = field(default_factory=list)

    @property
    def shows(self) -> Capabilities:
        """What the scheduler can do and show."""
        return self.moment.scheduler.capabilities

    def tell(self, row: Event) -> None:
        """A row of this step, and what it means for the client."""
        moment = self.moment
        now = moment.step * STEP_NS
        if row.event in _ENDS:
            moment.quiet = 0
            moment.clients.pop(row.subject, None)
        moment.rows = (*moment.rows, row._replace(step=moment.step, time_ns=now))

    def arrive(self, jobs: Sequence[Job]) -> None:
        """The next requests of the script."""
        moment, shows = self.moment, self.shows
        moment.quiet = 0 if jobs else moment.quiet + 1
        for number, job in enumerate(jobs, moment.arrived):
            name = name_of(number)
            prompt = tuple(token_of(f"prompt {name}", place) for place in range(job.prompt))
            now = moment.step * STEP_NS
            request = Request(name, prompt, job.max_tokens, _STOP, job.priority, job.tenant, now)
            self.tell(
                Event(
                    moment.step,
                    "arrive",
                    name,
                    prompt_tokens=job.prompt,
                    max_tokens=job.max_tokens,
                    priority=job.priority if shows.priority else None,
                    tenant=job.tenant if shows.tenants else None,
                )
            )
            moment.clients[name] = Client(job.prompt, job.max_tokens)
            try:
                moment.scheduler.add(request)
            except Refused as refusal:
                self.tell(Event(moment.step, "reject", name, reason=refusal.reason))
        moment.arrived += len(jobs)

    def cancel(self, name: RequestId) -> None:
        """A client goes away."""
        self.tell(Event(self.moment.step, "cancel", name))
        for row in self.moment.scheduler.abort(name):
            self.tell(row)

    def decide(self) -> None:
        """The scheduler's plan; who emits is known then."""
        moment = self.moment
        plan = moment.scheduler.plan()
        for row in plan.rows:
            client = moment.clients.get(row.subject)
            if client is not None and row.event == "schedule":
                start = client.computed if row.start is None else row.start
                end = start + (row.tokens or 0)
                row = row._replace(start=start, drafts=None if self.shows.outputs == "derived" else 0)
                moment.clients[row.subject] = replace(client, computed=end)
                if end >= client.prompt + client.emitted:
                    self.emits.append(row.subject)
            elif client is not None and row.event in ("admit", "resume"):
                moment.clients[row.subject] = replace(client, computed=row.cached or 0)
            elif row.event in ("preempt", "abort") and row.subject in self.emits:
                self.emits.remove(row.subject)
            self.tell(row)
        self.plan = plan

    def commit(self, stops: frozenset[RequestId]) -> None:
        """The tokens that were emitted, some of them the last; the scheduler's answer, and the step row."""
        moment, plan = self.moment, self.plan
        tokens: dict[RequestId, tuple[int, ...]] = {row.subject: () for row in plan.members}
        for name in self.emits:
            client = moment.clients[name]
            tokens[name] = (_STOP if name in stops else token_of(name, client.emitted),)
            moment.clients[name] = replace(client, emitted=client.emitted + 1)
            moment.quiet = 0
        outcome = moment.scheduler.commit(Results(plan, moment.step, tokens))
        for row in outcome.rows:
            self.tell(row)
        counted: Plan | Outcome = (
            plan if outcome == Outcome(rows=outcome.rows) and not outcome.rows else outcome
        )
        self.tell(
            Event(
                moment.step,
                "step",
                free_blocks=counted.free_blocks,
                waiting=counted.waiting,
                running=counted.running,
                pinned_blocks=counted.pinned_blocks,
                shared_blocks=counted.shared_blocks,
            )
        )

    def crashed(self, error: Exception) -> Moment:
        """The end of this way."""
        self.moment.crash = f"{type(error).__name__}: {error}"
        return self.moment


def copied(moment: Moment) -> Moment:
    """The same moment, to be changed."""
    return Moment(
        copy.deepcopy(moment.scheduler),
        dict(moment.clients),
        moment.arrived,
        moment.step,
        moment.quiet,
        moment.rows,
    )
