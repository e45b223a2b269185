"""The scheduler: who runs in the next step, who waits, who makes room.

A step is `schedule` (decide), a forward pass elsewhere, and `commit` (account). Deciding goes in a
fixed order: running decodes, then the partly done prefill, then the queue. Each decision is written
to the tape as it is made. All state is kept incrementally: a step costs a few operations a member
and nothing for the requests that wait.

Notation: n known tokens, c computed positions; blocks of b positions; a member with c + count = n
emits one token.
"""

from heapq import heappop, heappush

from batchspec.engine import tape as rows
from batchspec.engine.blocks import BlockPool, content_keys
from batchspec.engine.options import Options
from batchspec.engine.queues import Key, make_queue, urgency
from batchspec.engine.sequence import Plan, Request, Sequence, Status
from batchspec.engine.tape import Tape
from batchspec.spec.events import RequestId

LOOK_AHEAD = 256
"""Under `misfit = "skip"`: most requests looked at in a step, so that a long queue costs no more."""


class Scheduler:
    """Continuous, dynamic and static batching over paged KV blocks."""

    def __init__(self, options: Options, tape: Tape | None = None) -> None:
        """Nobody runs, nobody waits. Without a `tape` nothing is recorded."""
        self.options = options
        self.pool = BlockPool(options.kv_blocks)
        self.step = 0
        self.now = 0
        self.running: list[Sequence] = []
        self.sequences: dict[RequestId, Sequence] = {}
        self.preemptions = 0
        self.ended: list[tuple[Sequence, str]] = []
        """Sequences that ended since the caller last took them, with the reason."""
        self._queue = make_queue(options)
        self._urgency = urgency(options)
        self.record(tape)
        self._slots = list(range(options.max_seqs - 1, -1, -1))
        self._host = list(range(options.host_blocks - 1, -1, -1))
        self._places = 0
        self._admissions = 0
        self._ages: list[tuple[int, int, Sequence]] = []
        self._refused: list[tuple[Sequence, str]] = []
        self._batch_size = 0
        self._preempted_now = False
        self._num_preempted = 0

    @property
    def num_waiting(self) -> int:
        """Requests that arrived and do not run."""
        return len(self._queue)

    def record(self, tape: Tape | None) -> None:
        """From the next decision on write to `tape`; None writes nothing."""
        self._tape = tape
        self._write = tape.rows.append if tape is not None else None

    # What happens between two steps

    def begin(self, now: int) -> None:
        """Start the next step at `now`; arrivals and cancels that follow carry its number."""
        self.step += 1
        self.now = now

    def add(self, request: Request) -> Sequence:
        """Take in a request; where it can never run, this step's decisions begin with its rejection."""
        sequence = Sequence(request, self._places, self.options.max_model_len)
        self._places += 1
        if self._write:
            asked = (sequence.prompt_len, sequence.limit, request.priority, request.tenant)
            self._write((rows.ARRIVE, self.step, request.id, self.now, *asked))
        self.sequences[request.id] = sequence
        self._queue.push(sequence)
        if self._never_fits(sequence):
            self._refused.append((sequence, "too_long"))
        elif self.options.max_waiting is not None and len(self._queue) > self.options.max_waiting:
            self._refused.append((sequence, "queue_full"))
        elif self.options.mode == "dynamic":
            self._note_age(sequence)
        return sequence

    def cancel(self, request: RequestId) -> bool:
        """End a request because its client asked; False where it is not live."""
        sequence = self.sequences.get(request)
        if sequence is None:
            return False
        if self._write:
            self._write((rows.CANCEL, self.step, request, self.now))
        self._abort(sequence, "client")
        return True

    # A step

    def schedule(self) -> Plan:
        """Decide this step. Members are in the plan in the order of decision."""
        plan = Plan(self.step)
        self._preempted_now = False
        for sequence, reason in self._refused:
            if sequence.status is Status.WAITING:
                self._reject(sequence, reason)
        self._refused.clear()
        if self.running:
            self._plan_running(plan)
        else:
            self._batch_size = 0
        if len(self._queue):
            self._plan_waiting(plan)
        if self.options.mode != "continuous":
            self._pad(plan)
        return plan

    def commit(self, plan: Plan, emitters: list[Sequence], tokens: list[int], now: int) -> None:
        """Account for the pass: positions computed, tokens emitted by `emitters`, sequences that end."""
        self.now = now
        size, prefix = self.options.block_size, self.options.prefix
        for sequence, start, count in zip(plan.sequences, plan.starts, plan.counts, strict=True):
            sequence.computed = start + count
            if prefix:
                for index in range(start // size, (start + count) // size):
                    self.pool.keep(sequence.blocks[index], sequence.hashes[index])
        for sequence, token in zip(emitters, tokens, strict=True):
            sequence.tokens.append(token)
            self._queue.served(sequence, 0, 1)
            reason = sequence.end_after(token)
            if reason:
                self._finish(sequence, reason)
        if self._tape is not None:
            books = (self.pool.num_free, len(self._queue), len(self.running), self.pool.shared)
            self._tape.rows.append((rows.STEP, self.step, None, now, *books))
            self._tape.end_step()

    def next_deadline(self) -> int | None:
        """When a dynamic batch must start though it is not full; None where nothing waits for that."""
        ages = self._ages
        while ages and ages[0][2].status not in (Status.WAITING, Status.PREEMPTED):
            heappop(ages)
        return ages[0][0] + self.options.window_ns if ages and not self.running else None

    def _note_age(self, sequence: Sequence) -> None:
        if sequence.seen_ns < 0:
            sequence.seen_ns = self.now
        heappush(self._ages, (sequence.seen_ns, sequence.arrived, sequence))

    # Running requests

    def _plan_running(self, plan: Plan) -> None:
        budget = self.options.token_budget
        size, prefix = self.options.block_size, self.options.prefix
        step, now, write = self.step, self.now, self._write
        prefills: list[Sequence] = []
        for sequence in tuple(self.running):
            if sequence.status is not Status.RUNNING:
                continue  # made room for an earlier one
            start = sequence.computed
            if len(sequence.tokens) - start > 1:
                prefills.append(sequence)
                continue
            granted: list[int] | None = None
            if start >= len(sequence.blocks) * size:
                granted = self._grow(plan, sequence, 1)
                if granted is None:
                    continue
            plan.add(sequence, start, 1)
            keys = self._filled(sequence, start, start + 1) if prefix else None
            if write:
                held = len(sequence.blocks)
                write((rows.SCHEDULE, step, sequence.request.id, now, start, 1, held, granted, keys))
        for sequence in prefills:
            if sequence.status is not Status.RUNNING:
                continue
            count = min(len(sequence.tokens) - sequence.computed, budget - plan.tokens)
            if count <= 0:
                self._skip(sequence, "budget")
                continue
            granted = self._grow(plan, sequence, count)
            if granted is not None:
                self._join(plan, sequence, count, granted)

    def _grow(self, plan: Plan, sequence: Sequence, count: int) -> list[int] | None:
        """Blocks for `count` more positions, others making room; None where it had to leave itself."""
        size = self.options.block_size
        need = -(-(sequence.computed + count) // size) - len(sequence.blocks)
        if need <= 0:
            return []
        while self.pool.num_free < need:
            victim = self._victim(sequence)
            if victim is sequence and len(self.running) == 1:
                self._abort(sequence, "memory")  # alone, and the pool is too small for it
                return None
            self._preempt(plan, victim, sequence)
            if victim is sequence:
                return None
        granted = self.pool.grant(need)
        sequence.blocks += granted
        plan.grants.append(sequence)
        return granted

    def _victim(self, asking: Sequence) -> Sequence:
        kind = self.options.victim
        if kind == "self":
            return asking
        if kind == "latest-arrived":
            return max(self.running, key=lambda item: item.arrived)
        if kind == "fewest-outputs":
            return min(self.running, key=lambda item: (item.num_outputs, -item.prompt_len))
        if kind == "least-urgent":
            return max(self.running, key=lambda item: (self._urgency(item), item.admitted))
        return self.running[-1]

    def _preempt(self, plan: Plan, victim: Sequence, cause: Sequence) -> None:
        plan.drop(victim)
        self.preemptions += 1
        self._preempted_now = True
        swap = self._swap_out(plan, victim)
        if self._write:
            how = ("swap" if swap else "recompute", cause.request.id, 0, victim.blocks)
            self._write((rows.PREEMPT, self.step, victim.request.id, self.now, *how))
        if not swap:
            victim.computed = 0
        self._leave(victim)
        victim.status = Status.PREEMPTED
        self._num_preempted += 1
        if self.options.resume == "back":
            victim.place = self._places
            self._places += 1
        self._queue.push(victim)
        if self.options.mode == "dynamic":
            self._note_age(victim)

    def _swap_out(self, plan: Plan, victim: Sequence) -> bool:
        """Copy the victim's KV to the host; False where that is not the mode, or there is no room."""
        used = -(-victim.computed // self.options.block_size)
        if self.options.preemption != "swap" or used > len(self._host):
            return False
        if used:
            victim.host_blocks = [self._host.pop() for _ in range(used)]
            moved = victim.blocks[:used]
            plan.copies.append((True, moved, victim.host_blocks))
            self._transfer(victim, "swap_out", moved)
        return True

    # Waiting requests

    def _room(self) -> int:
        """How many requests the mode lets in now, memory and budget aside."""
        options, there = self.options, min(len(self._queue), self.options.max_seqs)
        if self._preempted_now and not options.admit_after_preempt:
            return 0
        if options.mode == "continuous":
            return there
        if self.running:
            return 0
        deadline = self.next_deadline()
        if options.mode == "static" or deadline is None or self._num_preempted:
            return there
        if options.window_ns and self.now >= deadline:
            return there
        sizes = options.preferred or (options.max_seqs,)
        return max((size for size in sizes if size <= there), default=0 if options.window_ns else there)

    def _plan_waiting(self, plan: Plan) -> None:
        room = self._room()
        passed: list[tuple[Sequence, Key]] = []
        while room and self._slots and plan.tokens < self.options.token_budget:
            sequence = self._queue.peek()
            if sequence is None:
                break
            if self._outgrown(sequence):
                self._abort(sequence, "memory")
            elif self._admit(plan, sequence):
                room -= 1
                for other, _ in passed:
                    other.passed_by += 1
            elif self._may_pass(sequence, len(passed)):
                passed.append((sequence, self._queue.set_aside(sequence)))
            else:
                break
            limit = self.options.skip_ahead
            if limit is not None and any(other.passed_by >= limit for other, _ in passed):
                break
        for sequence, place in passed:
            self._queue.put_back(sequence, place)
        if self.options.mode != "continuous" and plan.sequences:
            self._batch_size = max(self._batch_size, len(self.running))

    def _may_pass(self, sequence: Sequence, passed: int) -> bool:
        """May the requests behind one that does not fit be looked at?"""
        if not self.options.skip or passed >= LOOK_AHEAD:
            return False
        # Who was preempted comes back first: nobody may pass it.
        return sequence.status is Status.WAITING or self.options.resume != "front"

    def _admit(self, plan: Plan, sequence: Sequence) -> bool:
        """Let `sequence` join the batch and this step, if everything it needs is there."""
        if sequence.host_blocks:
            return self._admit_with(plan, sequence, [])
        hits = self._hits(sequence)
        # Taking over cached blocks can need more free blocks than a first chunk without them.
        return self._admit_with(plan, sequence, hits) or bool(hits and self._admit_with(plan, sequence, []))

    def _admit_with(self, plan: Plan, sequence: Sequence, hits: list[int]) -> bool:
        options, size = self.options, self.options.block_size
        n = len(sequence.tokens)
        cached = sequence.computed if sequence.host_blocks else len(hits) * size
        count = min(n - cached, options.token_budget - plan.tokens)
        if count < n - cached and not options.chunked:
            return False
        # What others hold and this one takes over needs no free block.
        gained = len(hits) - self.pool.unheld(hits)
        reach = cached + count
        test = self._blocks_for(options.test, sequence, reach)
        held = max(self._blocks_for(options.reserve, sequence, reach), -(-reach // size))
        watermark = options.watermark if self.running else 0
        if max(test + watermark, held) - gained > self.pool.num_free:
            return False
        self._queue.remove(sequence)
        self.pool.take_over(hits)
        sequence.blocks = hits + self.pool.grant(held - len(hits))
        plan.grants.append(sequence)
        self._enter(plan, sequence, cached, hits)
        self._join(plan, sequence, count, None)
        return True

    def _enter(self, plan: Plan, sequence: Sequence, cached: int, hits: list[int]) -> None:
        again = sequence.status is Status.PREEMPTED
        self._num_preempted -= again
        sequence.status = Status.RUNNING
        sequence.computed = cached
        sequence.slot = self._slots.pop()
        sequence.admitted = self._admissions
        self._admissions += 1
        self.running.append(sequence)
        if self._write:
            keys = sequence.hashes[: len(hits)] if hits else None
            held = (sequence.slot, cached, len(sequence.blocks), tuple(sequence.blocks), keys)
            kind = rows.RESUME if again else rows.ADMIT
            self._write((kind, self.step, sequence.request.id, self.now, *held))
        if not again:
            sequence.first_admitted = sequence.admitted
            self._queue.served(sequence, sequence.prompt_len, 0)
        if sequence.host_blocks:
            moved = sequence.blocks[: len(sequence.host_blocks)]
            plan.copies.append((False, moved, sequence.host_blocks))
            self._transfer(sequence, "swap_in", moved)
            self._host += sequence.host_blocks
            sequence.host_blocks = []

    def _join(self, plan: Plan, sequence: Sequence, count: int, granted: list[int] | None) -> None:
        start = sequence.computed
        plan.add(sequence, start, count)
        keys = self._filled(sequence, start, start + count)
        if self._write:
            part = (start, count, len(sequence.blocks), granted, keys)
            self._write((rows.SCHEDULE, self.step, sequence.request.id, self.now, *part))

    def _hits(self, sequence: Sequence) -> list[int]:
        """Blocks that already hold the leading tokens; the last token is always computed anew."""
        if not self.options.prefix:
            return []
        size = self.options.block_size
        blocks = (len(sequence.tokens) - 1) // size
        content_keys(sequence.tokens, size, sequence.hashes, blocks)
        return self.pool.find(sequence.hashes[:blocks])

    def _filled(self, sequence: Sequence, start: int, end: int) -> list[int] | None:
        """Content keys of the blocks that positions [start, end) make full."""
        size = self.options.block_size
        if not self.options.prefix or start // size == end // size:
            return None
        content_keys(sequence.tokens, size, sequence.hashes, end // size)
        return sequence.hashes[start // size : end // size]

    def _blocks_for(self, need: tuple[str, int], sequence: Sequence, reach: int) -> int:
        """Blocks of a need: `step` (up to `reach`), `known` (+k) or `full`."""
        word, extra = need
        if word == "step":
            positions = reach
        elif word == "known":
            positions = len(sequence.tokens) + extra
        else:
            positions = sequence.prompt_len + sequence.limit
        return -(-positions // self.options.block_size)

    def _never_fits(self, sequence: Sequence) -> bool:
        options, prompt = self.options, sequence.prompt_len
        if options.max_model_len is not None and prompt >= options.max_model_len:
            return True
        return (not options.chunked and prompt > options.token_budget) or self._outgrown(sequence)

    def _outgrown(self, sequence: Sequence) -> bool:
        """Is it too large for an empty pool?"""
        word, extra = self.options.test
        least = ("known", extra) if word == "step" else self.options.test
        return self._blocks_for(least, sequence, 0) > self.options.kv_blocks

    # Endings

    def _finish(self, sequence: Sequence, reason: str) -> None:
        self._end(rows.FINISH, sequence, reason)

    def _abort(self, sequence: Sequence, reason: str) -> None:
        self._end(rows.ABORT, sequence, reason)

    def _reject(self, sequence: Sequence, reason: str) -> None:
        self._queue.remove(sequence)
        if self._write:
            self._write((rows.REJECT, self.step, sequence.request.id, self.now, reason))
        self._forget(sequence, f"rejected: {reason}")

    def _end(self, kind: int, sequence: Sequence, reason: str) -> None:
        if self._write:
            books = (reason, sequence.num_outputs, 0, sequence.blocks)
            self._write((kind, self.step, sequence.request.id, self.now, *books))
        if sequence.status is Status.RUNNING:
            self._leave(sequence)
        else:
            self._queue.remove(sequence)
            self._num_preempted -= sequence.status is Status.PREEMPTED
            self._host += sequence.host_blocks
            sequence.host_blocks = []
        self._forget(sequence, reason)

    def _leave(self, sequence: Sequence) -> None:
        """Give back seat and blocks."""
        self.running.remove(sequence)
        self._slots.append(sequence.slot)
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.slot = -1

    def _forget(self, sequence: Sequence, reason: str) -> None:
        sequence.status = Status.ENDED
        del self.sequences[sequence.request.id]
        self.ended.append((sequence, reason))

    # Small things

    def _skip(self, sequence: Sequence, reason: str) -> None:
        if self._write:
            self._write((rows.SKIP, self.step, sequence.request.id, self.now, reason))

    def _transfer(self, sequence: Sequence, reason: str, blocks: list[int]) -> None:
        if self._write:
            for kind in (rows.TRANSFER_BEGIN, rows.TRANSFER_END):
                self._write((kind, self.step, sequence.request.id, self.now, reason, tuple(blocks)))

    def _pad(self, plan: Plan) -> None:
        """Rows that a padded batch computes for nothing: members that ended, and the gap to the longest."""
        if plan.counts:
            plan.padding = max(plan.counts) * self._batch_size - plan.tokens
