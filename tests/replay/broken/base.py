"""A small scheduler that is right, with a hook wherever one of the broken ones goes wrong.

It does what a profile claims about: mode (continuous, static), order (fcfs, sjf, priority), chunked and
mixed batches, the admission test and reserve, preemption by recompute or none, victims, the place a
victim returns to, shared prefixes, and one or two passes in flight.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from batchspec.replay import harness
from batchspec.replay.harness import Capabilities, Outcome, Plan, Refused, Request, Results
from batchspec.spec.events import Event, RequestId
from batchspec.spec.need import blocks_for, need_tokens, never_fits
from batchspec.spec.profile import Profile


@dataclass(eq=False)
class Job:
    """One request. `computed` positions, `flying` tokens not read yet, `decodes` since its last join."""

    request: Request
    number: int
    place: int
    computed: int = 0
    outputs: list[int] = field(default_factory=list)
    flying: int = 0
    blocks: list[int] = field(default_factory=list)
    slot: int = -1
    state: str = "waiting"
    joined: int = -1
    first_joined: int = -1
    again: bool = False
    ended: bool = False
    decodes: bool = False

    @property
    def id(self) -> RequestId:
        return self.request.id

    @property
    def tokens(self) -> list[int]:
        return [*self.request.prompt, *self.outputs]

    @property
    def known(self) -> int:
        return len(self.request.prompt) + len(self.outputs) + self.flying

    @property
    def allowed(self) -> int:
        return self.request.max_tokens - len(self.outputs) - self.flying


class Pool:
    """Blocks with reference counts, and the contents of full ones."""

    def __init__(self, blocks: int) -> None:
        self.refs = [0] * blocks
        self.content: dict[tuple[int, ...], int] = {}
        self.key_of: dict[int, tuple[int, ...]] = {}

    @property
    def free(self) -> int:
        return self.refs.count(0)

    @property
    def shared(self) -> int:
        return sum(max(0, refs - 1) for refs in self.refs)

    def take(self, count: int) -> list[int]:
        """Plain blocks before those with content, so that content lives long."""
        free = [block for block, refs in enumerate(self.refs) if refs == 0]
        free.sort(key=lambda block: block in self.key_of)
        taken = free[:count]
        for block in taken:
            self.refs[block] = 1
            self.content.pop(self.key_of.pop(block, ()), None)
        return taken

    def give(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.refs[block] -= 1

    def keep(self, block: int, key: tuple[int, ...]) -> None:
        if key not in self.content and block not in self.key_of:
            self.content[key] = block
            self.key_of[block] = key


class Scheduler:
    """The scheduler that is right. `shows` is `none`, `counts` or `ids`."""

    recorded = False
    """Whether outputs are rows of their own where they need not be."""

    def __init__(self, profile: Profile, shows: str = "ids") -> None:
        limits, reuse = profile.limits, profile.reuse
        self.profile = profile
        self.seats = limits.max_seqs or 0
        self.budget = limits.token_budget or 0
        self.size = limits.block_size or 1
        self.pool = Pool(limits.kv_blocks or 0)
        self.depth = profile.value("reuse.depth")
        self.shares = bool(reuse.prefix)
        self.chunked = bool(profile.batching.chunked_prefill)
        self.mixed = profile.batching.mixed is not False
        self.static = profile.batching.mode == "static"
        self.jobs: dict[RequestId, Job] = {}
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.slots = list(range(self.seats))
        self.late_slots: list[int] = []
        self.rows: list[Event] = []
        self.members: dict[RequestId, tuple[Job, int, int]] = {}
        self.emitting: set[RequestId] = set()
        self.fresh: list[int] = []
        self.left = 0
        self.step = 0
        self.arrivals = 0
        self.places = 0
        self.joins = 0
        self.preempted_now = False
        self.capabilities = Capabilities(
            name="small",
            blocks=shows,
            depth=self.depth,
            outputs="recorded" if self.depth > 1 or self.recorded else "derived",
            seats=True,
            priority=True,
            tenants=True,
            prefix=self.shares,
        )

    # -- what a client does ------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        if request.id in self.jobs:
            raise Refused("error", "this id is live")
        if not request.prompt or request.max_tokens < 1:
            raise Refused("error", "a prompt and a token to emit are needed")
        if self.never_fits(request):
            raise Refused("too_long")
        job = Job(request, self.arrivals, self.places)
        self.arrivals += 1
        self.places += 1
        self.jobs[request.id] = job
        self.waiting.append(job)

    def never_fits(self, request: Request) -> bool:
        return never_fits(self.profile, len(request.prompt), request.max_tokens) is not None

    def abort(self, request: RequestId) -> list[Event]:
        job = self.jobs[request]
        self.withdraw(job)
        if job.state == "running" and self.profile.value("reuse.slot_lag"):
            # Its seat comes back a step later, when the next plan has been made without it.
            self.late_slots.append(job.slot)
        return [harness.aborted(request, "client", **self.ends(job))]

    def withdraw(self, job: Job) -> None:
        """A member that is cancelled while its pass runs emits nothing any more."""
        self.members.pop(job.id, None)

    # -- the plan ----------------------------------------------------------------------------------

    def plan(self) -> Plan:
        self.step += 1
        self.rows = []
        self.members = {}
        self.emitting = set()
        self.left = self.budget
        self.preempted_now = False
        self.decoding = False
        for job in list(self.running):
            if job.state == "running" and not self.prefills_wait(job):
                self.run(job)
        if self.may_admit_now():
            self.admit_waiting()
        self.slots += self.late_slots
        self.late_slots = []
        return Plan(self.rows, **self.counters())

    def prefills_wait(self, job: Job) -> bool:
        """Without mixed batches decodes run in steps of their own, when no prompt is under way."""
        if self.mixed:
            return False
        prompts = any(not other.decodes for other in self.running)
        return prompts and job.decodes

    def run(self, job: Job) -> None:
        tokens = self.part(job)
        if tokens > 0 and self.grow(job, tokens):
            self.decoding = self.decoding or job.decodes
            self.schedule(job, tokens)

    def part(self, job: Job) -> int:
        """Positions that a running request computes now."""
        if job.allowed <= 0:
            return 0
        missing = job.known - job.computed
        return min(missing, self.left) if self.chunked or missing <= self.left else 0

    def grow(self, job: Job, tokens: int) -> bool:
        """Blocks for the positions of this step; others make room. False where it had to go itself."""
        need = self.blocks(job.computed + tokens) - len(job.blocks)
        if need > 0:
            while self.short(need):
                victim = self.victim(job)
                if victim is None:
                    return False
                if victim is job and self.outgrown(job):
                    self.gives_up(job)
                    return False
                self.preempt(victim, job)
                if victim is job:
                    return False
            self.granted(job, self.pool.take(need))
        return True

    def outgrown(self, job: Job) -> bool:
        """Whether the whole pool is too small for what is known of it."""
        return self.blocks(job.known) > len(self.pool.refs)

    def gives_up(self, job: Job) -> None:
        self.rows.append(harness.aborted(job.id, "memory", **self.ends(job)))

    def blocks(self, positions: int) -> int:
        return blocks_for(positions, self.size)

    def short(self, need: int) -> bool:
        return self.pool.free < need

    def granted(self, job: Job, blocks: list[int]) -> None:
        job.blocks += blocks
        self.fresh = blocks

    def victim(self, job: Job) -> Job | None:
        if self.profile.preemption.mode == "none":
            return None
        if self.profile.preemption.victim == "least-urgent":
            return max(self.running, key=lambda other: (self.urgency(other), other.joined))
        return max(self.running, key=lambda other: other.joined)

    def urgency(self, job: Job) -> int:
        return -job.request.priority if self.profile.admission.urgent == "high" else job.request.priority

    def preempt(self, victim: Job, cause: Job) -> None:
        part = self.members.pop(victim.id, None)
        if part is not None:
            self.left += part[2]
        self.take_back(victim, part)
        returned = self.vacate(victim)
        self.rows.append(harness.preempt(victim.id, cause=cause.id, **self.shown(0, returned)))
        victim.state = "preempted"
        victim.again = True
        victim.computed = 0
        victim.decodes = False
        self.preempted_now = True
        self.comes_back(victim)

    def take_back(self, job: Job, part: tuple[Job, int, int] | None) -> None:
        """A token that a planned pass would have emitted is not in flight."""
        if part is not None and job.id in self.emitting:
            job.flying -= 1
            self.emitting.discard(job.id)

    def comes_back(self, job: Job) -> None:
        if self.profile.preemption.resume == "back":
            job.place = self.places
            self.places += 1
        self.waiting.append(job)

    def vacate(self, job: Job) -> list[int]:
        """Seat and blocks come back. The ids of the blocks."""
        blocks, job.blocks = job.blocks, []
        self.pool.give(reversed(blocks))
        self.running.remove(job)
        if job.slot not in self.late_slots:
            self.slots.append(job.slot)
        job.slot = -1
        return blocks

    # -- admission ---------------------------------------------------------------------------------

    def may_admit_now(self) -> bool:
        if self.static and self.running:
            return False
        if not self.mixed and self.decoding:
            return False
        return not self.preempted_now or bool(self.profile.preemption.admit_in_same_step)

    def admit_waiting(self) -> None:
        for job in self.line():
            if not self.slots or self.left <= 0:
                break
            if self.outgrown(job):
                self.gives_up(job)
                continue
            if not self.join(job) and not self.goes_on(job):
                break

    def line(self) -> list[Job]:
        """Who waits, in the policy's order; preempted ones in front where they return there."""
        return sorted(self.waiting, key=self.rank)

    def rank(self, job: Job) -> tuple[Any, ...]:
        front = job.again and self.profile.preemption.resume == "front"
        order = self.profile.admission.order
        key: tuple[Any, ...] = (job.place,)
        if order == "priority":
            key = (self.urgency(job), job.place)
        elif order == "sjf":
            key = (len(job.request.prompt) + job.request.max_tokens, job.place)
        return (not front, *((job.first_joined,) if front else key))

    def goes_on(self, job: Job) -> bool:
        """Whether others are looked at behind this one, which does not fit."""
        first = job.again and self.profile.preemption.resume == "front"
        return self.profile.admission.misfit == "skip" and not first

    def join(self, job: Job) -> bool:
        """Admit or resume a job into this step, if it fits."""
        hits = self.hits(job)
        cached = len(hits) * self.size
        tokens = min(job.known - cached, self.left)
        if not self.chunked and tokens < job.known - cached:
            return False
        if tokens <= 0 or not self.fits(job, hits, cached + tokens):
            return False
        for block in hits:
            self.pool.refs[block] += 1
        new = self.pool.take(self.reserved(job, cached + tokens) - len(hits))
        job.blocks = [*hits, *new]
        self.waiting.remove(job)
        self.running.append(job)
        job.slot = self.slots.pop(0)
        job.computed = cached
        job.joined = self.joins
        if job.first_joined < 0:
            job.first_joined = job.joined
        self.joins += 1
        resumes = job.state == "preempted"
        job.state = "running"
        say = harness.resume if resumes else harness.admit
        shown = self.shown(len(job.blocks), job.blocks)
        self.rows.append(say(job.id, slot=job.slot, cached=cached, **shown))
        self.fresh = []
        self.schedule(job, tokens)
        return True

    def hits(self, job: Job) -> list[int]:
        """Cached blocks of its leading tokens; the last token is always computed."""
        found = []
        if self.shares:
            for end in range(self.size, len(job.tokens), self.size):
                block = self.pool.content.get(tuple(job.tokens[:end]))
                if block is None:
                    break
                found.append(block)
        return found

    def fits(self, job: Job, hits: list[int], end: int) -> bool:
        gained = sum(self.pool.refs[block] > 0 for block in hits)
        want = max(self.tested(job, end), self.reserved(job, end))
        watermark = self.profile.value("admission.watermark_blocks") if self.running else 0
        return want + watermark - gained <= self.pool.free

    def tested(self, job: Job, end: int) -> int:
        return self.need(self.profile.admission.test or "step", job, end)

    def reserved(self, job: Job, end: int) -> int:
        return max(self.blocks(end), self.need(self.profile.admission.reserve or "step", job, end))

    def need(self, need: str, job: Job, end: int) -> int:
        return self.blocks(need_tokens(need, known=job.known, step_end=end, allowed=job.allowed) or end)

    # -- the pass ----------------------------------------------------------------------------------

    def schedule(self, job: Job, tokens: int) -> None:
        start = job.computed
        self.write_schedule(job, start, tokens)
        self.left -= tokens
        self.members[job.id] = (job, start, tokens)
        job.computed = start + tokens
        if job.computed >= job.known:
            job.decodes = True
            self.emitting.add(job.id)
            job.flying += 1

    def write_schedule(self, job: Job, start: int, tokens: int) -> None:
        shown = self.shown(len(job.blocks), self.fresh)
        self.rows.append(harness.schedule(job.id, tokens, start=start, **shown))
        self.fresh = []

    # -- results -----------------------------------------------------------------------------------

    def commit(self, results: Results) -> Outcome:
        rows: list[Event] = []
        for name, tokens in results.tokens.items():
            job = self.jobs.get(name)
            if job is None or job.ended:
                continue
            part = next((row for row in results.plan.members if row.request == name), None)
            if self.shares and part is not None and job.state == "running":
                self.publish(job, part.start or 0, part.tokens or 0)
            if tokens:
                job.flying -= 1
                job.outputs += tokens
                if self.capabilities.outputs == "recorded":
                    rows.append(harness.output(name, len(tokens)))
                reason = self.end_after(job, tokens[-1])
                if reason:
                    rows += self.finish(job, reason)
        return Outcome(rows, **self.counters())

    def publish(self, job: Job, start: int, tokens: int) -> None:
        for index in range(start // self.size, (start + tokens) // self.size):
            self.pool.keep(job.blocks[index], tuple(job.tokens[: (index + 1) * self.size]))

    def end_after(self, job: Job, token: int) -> str | None:
        if len(job.outputs) >= job.request.max_tokens:
            return "length"
        return "stop" if token == job.request.stop_token else None

    def finish(self, job: Job, reason: str) -> list[Event]:
        return [harness.finish(job.id, reason, **self.ends(job))]

    def ends(self, job: Job) -> dict[str, Any]:
        """Everything that a request held comes back; what its last row says."""
        returned: list[int] = []
        if job.state == "running":
            returned = self.vacate(job)
        else:
            self.waiting.remove(job)
        job.ended = True
        job.state = "ended"
        del self.jobs[job.id]
        return {"output_tokens": len(job.outputs), **self.shown(0, returned)}

    # -- what it shows -----------------------------------------------------------------------------

    def shown(self, count: int, ids: Iterable[int]) -> dict[str, Any]:
        blocks = self.capabilities.blocks
        shown: dict[str, Any] = {} if blocks == "none" else {"blocks": count}
        if blocks == "ids":
            shown["block_ids"] = list(ids)
        return shown

    def counters(self) -> dict[str, int]:
        counters = {"waiting": len(self.waiting), "running": len(self.running)}
        if self.capabilities.blocks != "none":
            counters |= {"free_blocks": self.pool.free, "shared_blocks": self.pool.shared}
        return counters


def make(profile: Profile) -> Scheduler:
    return Scheduler(profile)
