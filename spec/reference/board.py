"""The board: the scheduler's books, with one method for each action.

A method changes the books and writes the row that says so, in that order of trust: what is written is
what was done. No method asks whether it is wise or allowed; that is decide.py.
"""

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

from batchspec.spec.events import Event, RequestId
from batchspec.spec.need import blocks_for
from batchspec.spec.policies import FairShares
from batchspec.spec.rates import RateLimits
from batchspec.spec.records import Record
from batchspec.spec.reference.job import ENDED, PARKED, PREEMPTED, RUNNING, WAITING, Job
from batchspec.spec.reference.queue import WaitingQueue
from batchspec.spec.reference.settings import UNBOUNDED, Settings
from batchspec.spec.reference.tables import Tables
from batchspec.spec.verdict import LEVELS


class Member(NamedTuple):
    """One job's part in a pass: positions [start, start + tokens), `emits` tokens unless it is taken back."""

    job: Job
    start: int
    tokens: int
    drafts: int
    emits: int
    decode: bool


class Joining(NamedTuple):
    """With what a job joins: positions taken over, tokens of this step, cached blocks, new blocks."""

    cached: int
    tokens: int
    hits: list[int]
    new_blocks: int


class StepShape(NamedTuple):
    """What one forward pass computes, for a cost model. `kv_positions`: positions that attention reads."""

    members: int = 0
    tokens: int = 0
    decodes: int = 0
    kv_positions: int = 0


class Board:
    """Requests, batch, queue, seats, blocks and counters at one moment of one step."""

    def __init__(self, settings: Settings, level: str, recorded: bool) -> None:
        """Empty books. `recorded`: every emitted token has an `output` row of its own."""
        profile = settings.profile
        self.settings: Final = settings
        self.recorded: Final = recorded
        paged = settings.total_blocks is not None
        self.shows_blocks: Final = paged and level >= LEVELS[2]
        self.shows_ids: Final = paged and level >= LEVELS[3]
        self.shows_passes: Final = level >= LEVELS[4]
        self.shares_tokens: Final = FairShares.of(profile) if settings.order == "fair" else None
        self.rates: Final = RateLimits.of(profile)
        self.queue: Final = WaitingQueue(profile, self.shares_tokens)
        self.tables: Final = Tables(settings)
        self.pool: Final = self.tables.pool
        self.step = 0
        self.now_ns = 0
        self.rows: list[Event] = []
        self.jobs: dict[RequestId, Job] = {}
        self.running: dict[RequestId, Job] = {}
        self.arrivals = 0
        self.places = 0
        self.joins = 0
        self.host_used = 0
        self.emitted = 0
        # Seats: free numbers, and those that come back in a later step.
        seated = settings.max_seqs < UNBOUNDED and not settings.per_step_cap
        self._slots: list[int] | None = list(range(settings.max_seqs)) if seated else None
        if self._slots:
            heapify(self._slots)
        self.late_seats: deque[tuple[int, int | None]] = deque()
        self.unreleased: list[Job] = []
        # Responses that leave in the order of arrival, by ordinal; finished ones wait for earlier ones.
        self._undelivered: dict[int, Job] = {}
        # This step
        self.members: dict[RequestId, Member] = {}
        self.left = 0
        self.prefill_left = 0
        self.preempted_now: dict[RequestId, Job] = {}
        self.flight: deque[tuple[int, list[Member]]] = deque()

    # -- the step ----------------------------------------------------------------------------------

    def open(self, step: int, now_ns: int) -> None:
        """Begin an iteration: the budget is full, and what its lag held back may be taken again."""
        self.step = step
        self.now_ns = now_ns
        self.rows = []
        self.members = {}
        self.left = self.settings.budget
        self.prefill_left = self.settings.prefill_budget
        self.preempted_now = {}
        self.tables.open(step)
        while self.late_seats and self.late_seats[0][0] <= step:
            self._free_slot(self.late_seats.popleft()[1])
        for job in self.unreleased:
            self._write("release", job, **self._returned(job))
            self.tables.give_back(job)
        self.unreleased.clear()

    def close(self) -> Event:
        """End the iteration with the scheduler's own counts."""
        if self.shares_tokens is not None:
            self.shares_tokens.end_step()
        pool = self.pool if self.shows_blocks else None
        row = Event(
            step=self.step,
            event="step",
            time_ns=self.now_ns,
            waiting=len(self.jobs) - len(self.running),
            running=len(self.running),
            free_blocks=pool.free if pool else None,
            pinned_blocks=0 if pool else None,
            shared_blocks=self.tables.held - (pool.total - pool.free) if pool else None,
        )
        self.rows.append(row)
        return row

    def shape(self) -> StepShape:
        """What this step's pass computes."""
        tokens = decodes = positions = 0
        for member in self.members.values():
            tokens += member.tokens
            decodes += member.decode
            positions += member.start + member.tokens
        return StepShape(len(self.members), tokens, decodes, positions)

    # -- arrivals ----------------------------------------------------------------------------------

    def arrive(self, record: Record, arrived_ns: int, prediction: int | None = None) -> Job:
        """A request can be seen from now on. Its max_tokens is cut to what the model's length allows,
        and its predicted output tokens to max_tokens and to what the pool can ever hold."""
        prompt = record.prompt_tokens or 0
        target = record.output_tokens or 1
        max_tokens = target if record.max_tokens is None else record.max_tokens
        max_tokens = max(1, min(max_tokens, self.settings.max_model_len - prompt))
        if prediction is not None and self.pool is not None:
            room = self.pool.total * self.settings.block_size - prompt
            prediction = max(1, min(prediction, max_tokens, room))
        job = Job(
            id=record.request,
            number=self.arrivals,
            place=self.places,
            prompt=prompt,
            max_tokens=max_tokens,
            target=min(target, max_tokens),
            priority=record.priority,
            tenant=record.tenant,
            arrived_ns=arrived_ns,
            predicted=None if prediction is None else prompt + prediction,
        )
        self.arrivals += 1
        self.places += 1
        self.jobs[job.id] = job
        self.rows.append(
            Event(
                step=self.step,
                event="arrive",
                request=job.id,
                time_ns=arrived_ns,
                prompt_tokens=prompt,
                max_tokens=max_tokens,
                priority=job.priority,
                tenant=job.tenant,
                prediction=prediction,
            )
        )
        if self.settings.in_order:
            self._undelivered[job.number] = job
        self._enqueue(job)
        return job

    def cancel(self, job: Job) -> None:
        """The client asked for an end."""
        self._write("cancel", job)

    def reject(self, job: Job, reason: str) -> None:
        """Refuse a waiting request for good."""
        self._dequeue(job)
        self._write("reject", job, reason=reason)
        self._forget(job)
        self._deliver(job)

    def park(self, job: Job, reason: str) -> None:
        """Set a waiting request aside."""
        self._dequeue(job)
        job.state = PARKED
        self._write("park", job, reason=reason)

    def ready(self, job: Job) -> None:
        """What a parked request waited for has come: it waits like any other, at its own place."""
        job.state = WAITING
        self._write("ready", job)
        self._enqueue(job)

    def skip(self, job: Job, reason: str) -> None:
        """Say why a request was looked at and left out of this step."""
        self._write("skip", job, reason=reason)

    # -- the batch ---------------------------------------------------------------------------------

    def free_seats(self) -> int:
        """Seats that may be taken now."""
        if self.settings.per_step_cap:
            return self.settings.max_seqs - len(self.members)
        return self.settings.max_seqs - len(self.running) - len(self.late_seats)

    def join(self, job: Job, joining: Joining) -> None:
        """Admit a waiting job, or resume a preempted one, with the blocks it needs to begin."""
        kind = "admit" if job.state == WAITING else "resume"
        self._dequeue(job)
        if kind == "admit" and self.shares_tokens is not None:
            self.shares_tokens.admit(job.tenant, job.prompt)
        restored = 0
        if job.swapped:
            restored = blocks_for(job.computed, self.settings.block_size)
            self.host_used -= restored
            job.swapped = False
        job.state = RUNNING
        job.joined = self.joins
        job.first_admit = self.joins if job.first_admit is None else job.first_admit
        self.joins += 1
        job.computed = joining.cached
        job.kept = 0
        job.passed = 0
        job.last_step = self.step
        job.slot = heappop(self._slots) if self._slots else None
        self.running[job.id] = job
        granted = self.tables.grant(job, joining.hits, joining.new_blocks)
        self._write(
            kind,
            job,
            slot=job.slot,
            cached=joining.cached,
            blocks=job.blocks if self.shows_blocks else None,
            block_ids=granted if self.shows_ids else None,
            block_hashes=self.tables.keys(job, 0, len(joining.hits)) if self._shows_keys else None,
        )
        if restored:
            self._transfer(job, "swap_in", restored)

    def schedule(self, job: Job, tokens: int, drafts: int, accepted: int, new_blocks: int) -> None:
        """Make a running job a member of this step's pass."""
        start = job.computed
        end = start + tokens
        known = job.known
        granted = self.tables.grant(job, (), new_blocks) if new_blocks else ()
        keys = self.tables.fill(job, start, min(end, known)) if self.settings.shares else None
        emits = 1 + accepted if end >= known else 0
        self.members[job.id] = Member(job, start, tokens, drafts, emits, job.decodes)
        job.computed = end
        job.last_step = self.step
        self.left -= tokens
        if not job.decodes:
            self.prefill_left -= tokens
        if emits:
            job.in_flight += 1
            job.decodes = True
        self.rows.append(
            Event(
                self.step,
                "schedule",
                job.id,
                self.now_ns,
                start=start,
                tokens=tokens,
                drafts=drafts,
                blocks=job.blocks if self.shows_blocks else None,
                block_ids=granted if self.shows_ids else None,
                block_hashes=keys if self._shows_keys else None,
            )
        )

    def preempt(self, victim: Job, cause: Job) -> None:
        """Interrupt a running job: its KV is dropped, or goes to the host where there is room."""
        self._take_back(victim)
        s = self.settings
        host = blocks_for(victim.computed, s.block_size)
        swap = s.preempts == "swap" and victim.computed > 0 and self.host_used + host <= s.host_blocks
        victim.futile = victim.futile + 1 if victim.known == victim.preempted_at else 0
        victim.preempted_at = victim.known
        if swap:
            self._transfer(victim, "swap_out", host)
            victim.swapped = True
            self.host_used += host
        else:
            victim.kept = victim.computed if s.keeps_blocks else 0
            victim.computed = 0
            victim.decodes = False
        kept = bool(victim.kept)
        returned = {} if kept else self._returned(victim)
        if kept and self.shows_blocks:
            returned["blocks"] = victim.blocks
        if not kept:
            self.tables.give_back(victim)
        del self.running[victim.id]
        self._leave_seat(victim, self.step + s.slot_lag)
        victim.state = PREEMPTED
        victim.preempted_in = self.step
        if s.profile.preemption.resume == "back":
            victim.place = self.places
            self.places += 1
        self.preempted_now[victim.id] = victim
        self._write("preempt", victim, reason="swap" if swap else "recompute", cause=cause.id, **returned)
        self._enqueue(victim)

    def reclaim(self, job: Job) -> None:
        """Take the blocks that a preempted job kept."""
        self._write("release", job, **self._returned(job))
        self.tables.give_back(job)
        job.kept = 0

    # -- results -----------------------------------------------------------------------------------

    def land(self, number: int, member: Member) -> None:
        """The result of one member's pass: its tokens, and its end where it reaches its target."""
        job = member.job
        if job.state == ENDED or not member.emits:
            return
        emitted = min(member.emits, job.target - job.outputs)
        job.in_flight -= 1
        job.outputs += emitted
        self.emitted += emitted
        if member.drafts and job.state == RUNNING:
            job.computed -= member.drafts + 1 - emitted
        if self.shares_tokens is not None:
            self.shares_tokens.emit(job.tenant, emitted)
        if self.recorded:
            self._write("output", job, tokens=emitted, pass_=number)
        if job.outputs >= job.target:
            self.finish(job, number)

    def finish(self, job: Job, number: int) -> None:
        """Complete: the last token came from pass `number`."""
        reason = "length" if job.outputs >= job.max_tokens else "stop"
        job.finished = True
        held = self._end(job, number + 1)
        self._write(
            "finish",
            job,
            reason=reason,
            output_tokens=job.outputs,
            pass_=number if self.settings.depth > 1 else None,
            **held,
        )
        self._deliver(job)

    def abort(self, job: Job, reason: str) -> None:
        """End a live job before its time."""
        self._take_back(job)
        held = self._end(job, self.step)
        self._write("abort", job, reason=reason, output_tokens=job.outputs, **held)
        self._deliver(job)

    # -- parts that several actions share ----------------------------------------------------------

    def _write(self, kind: str, job: Job, **columns: Any) -> None:
        self.rows.append(Event(self.step, kind, job.id, self.now_ns, **columns))

    def _deliver(self, ended: Job) -> None:
        """Let the responses leave that waited for this end, in the order of arrival. An aborted or
        refused request has none."""
        if not self.settings.in_order:
            return
        if not ended.finished:
            del self._undelivered[ended.number]
        while self._undelivered:
            number, job = next(iter(self._undelivered.items()))
            if job.state != ENDED:
                return
            del self._undelivered[number]
            self._write("deliver", job)

    def _transfer(self, job: Job, reason: str, blocks: int) -> None:
        """Say that the leading blocks moved between device and host, at once."""
        if self.shows_passes and self.shows_ids:
            ids = tuple(job.table[:blocks])
            self._write("transfer_begin", job, reason=reason, block_ids=ids)
            self._write("transfer_end", job, reason=reason, block_ids=ids)

    def _enqueue(self, job: Job) -> None:
        self.queue.add(job)
        if self.shares_tokens is not None and job.state == WAITING:
            self.shares_tokens.enter(job.tenant)

    def _dequeue(self, job: Job) -> None:
        if job in self.queue:
            self.queue.remove(job)
            if self.shares_tokens is not None and job.state == WAITING:
                self.shares_tokens.leave(job.tenant)

    def _end(self, job: Job, free_from: int) -> dict[str, Any]:
        """Take a job out of the books; what its row says about blocks."""
        s = self.settings
        self._dequeue(job)
        if job.state == RUNNING:
            del self.running[job.id]
            self._leave_seat(job, free_from + s.slot_lag)
        if job.swapped:
            self.host_used -= blocks_for(job.computed, s.block_size)
        columns: dict[str, Any] = {}
        if job.table and s.block_lag:
            # The row states what is still held; the blocks come back later.
            columns = {"blocks": job.blocks} if self.shows_blocks else {}
            if s.block_lag == "release":
                self.unreleased.append(job)
            else:
                self.tables.give_back_later(job, free_from + int(s.block_lag))
        else:
            columns = self._returned(job)
            self.tables.give_back(job)
        self._forget(job)
        return columns

    def _forget(self, job: Job) -> None:
        job.state = ENDED
        del self.jobs[job.id]

    def _take_back(self, job: Job) -> None:
        """Undo a membership of this step: its tokens leave the sum, its positions were not computed."""
        member = self.members.pop(job.id, None)
        if member is None:
            return
        self.left += member.tokens
        job.computed = member.start
        job.decodes = member.decode
        if member.emits:
            job.in_flight -= 1
        if not member.decode:
            self.prefill_left += member.tokens
        self.tables.unfill(job)

    def _leave_seat(self, job: Job, free_from: int) -> None:
        if free_from > self.step:
            self.late_seats.append((free_from, job.slot))
        else:
            self._free_slot(job.slot)
        job.slot = None

    def _free_slot(self, slot: int | None) -> None:
        if slot is not None and self._slots is not None:
            heappush(self._slots, slot)

    @property
    def _shows_keys(self) -> bool:
        return self.shows_ids and self.settings.shares

    def _returned(self, job: Job) -> dict[str, Any]:
        """What a row says that returns every block of a job."""
        if not self.shows_blocks:
            return {}
        return {"blocks": 0, "block_ids": tuple(job.table) if self.shows_ids else None}
