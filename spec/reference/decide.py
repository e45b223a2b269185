"""The decisions of one step: who is a member, who joins, who is interrupted.

Running requests come first, then those that wait; where prefill goes first, prompts in progress and
those that wait come before the decodes. Sources: vLLM v1 (running before waiting, no admission in a
step that preempted), Sarathi-Serve algorithm 3 (decodes, prompts in progress, new prompts), and the
notes on engines in the profiles.
"""

from collections import Counter
from collections.abc import Callable

from batchspec.spec.events import RequestId
from batchspec.spec.need import blocks_for
from batchspec.spec.policies import urgency, victim_of
from batchspec.spec.reference.board import Board
from batchspec.spec.reference.forming import batch_size
from batchspec.spec.reference.job import PREEMPTED, RUNNING, Job
from batchspec.spec.reference.joining import blocks_wanted, plan_joining

Drafter = Callable[[RequestId, int], tuple[int, int]]
"""Drafts for a decode: (request, outputs so far) to (drafts proposed, how many of them are accepted)."""


class Decisions:
    """The decisions of one step on one board."""

    def __init__(self, board: Board, drafter: Drafter | None) -> None:
        """For the step that is open on the board."""
        self.board = board
        self.settings = board.settings
        self.drafter = drafter
        self.denied: list[Job] = []
        self.gave_up = False
        self.kept_tokens = 0

    def decide(self) -> None:
        """Write all decision rows of the step."""
        board, s = self.board, self.settings
        if s.mode != "continuous":
            if board.running:
                self._run(self._of_one_phase())
                self._settle_denied()
            else:
                self._admit(batch_size(board))
        elif s.prefill_first and not self._starves():
            self._prefill_first()
        else:
            turn = self._in_turn()
            self._run(turn if s.mixed else [job for job in turn if job.decodes] or turn)
            self._settle_denied()
            if s.mixed or not board.members:
                self._admit_if_allowed()

    # -- members -----------------------------------------------------------------------------------

    def _in_turn(self) -> list[Job]:
        """Running jobs in the order in which they are served: as they joined, whoever was left out
        of earlier steps before all others, and decodes before prompts where nothing may stall them."""
        jobs = list(self.board.running.values())
        before = self.board.step - 1
        if any(job.last_step < before for job in jobs):
            jobs.sort(key=lambda job: job.last_step)
        if self.settings.stall_free:
            jobs.sort(key=lambda job: not job.decodes)
        return jobs

    def _of_one_phase(self) -> list[Job]:
        """Those in turn; where phases do not mix, the prompts among them while there is one."""
        jobs = self._in_turn()
        prompts = [] if self.settings.mixed else [job for job in jobs if not job.decodes]
        return prompts or jobs

    def _run(self, jobs: list[Job]) -> None:
        after = len(jobs)
        for job in jobs:
            after -= 1
            if job.state == RUNNING:
                self._run_one(job, after)
        if self.denied and self.settings.victim == "newest-denied" and self.settings.preempts != "none":
            self._preempt_newest_denied()

    def _run_one(self, job: Job, after: int) -> None:
        """Make one running job a member, if budget and memory last. `after`: jobs still to come."""
        board, s = self.board, self.settings
        if job.allowed <= 0:
            # All its tokens are in flight.
            return
        if s.per_step_cap and len(board.members) >= s.max_seqs:
            return
        missing = job.known - job.computed
        tokens = min(missing, board.left)
        if not job.decodes:
            tokens = min(tokens, board.prefill_left)
        if tokens < 1 or (tokens < missing and not s.chunked):
            if s.stall_free:
                board.skip(job, "budget")
            return
        drafts, accepted = self._drafts(job, board.left - tokens - after) if job.decodes else (0, 0)
        if board.pool is None:
            board.schedule(job, tokens + drafts, drafts, accepted, 0)
            return
        end = job.computed + tokens
        spare = max(drafts, s.lookahead) if job.decodes else 0
        grow = max(0, blocks_for(end + spare, s.block_size) - job.blocks)
        if spare and grow > board.pool.free - self._decode_growth(job):
            # Drafts and lookahead are a luxury: nobody is interrupted for them.
            drafts = accepted = 0
            grow = max(0, blocks_for(end, s.block_size) - job.blocks)
        if grow <= board.pool.free or self._make_room(job, grow):
            board.schedule(job, tokens + drafts, drafts, accepted, grow)
        elif job in self.denied and s.preempts != "none":
            # Somebody may yet go for it: its tokens are kept for it.
            self.kept_tokens += tokens
            board.left -= tokens

    def _drafts(self, job: Job, room: int) -> tuple[int, int]:
        if self.drafter is None:
            return 0, 0
        proposed, accepted = self.drafter(job.id, job.outputs)
        drafts = max(0, min(proposed, room, job.allowed - 1))
        return drafts, min(accepted, drafts)

    # -- memory ------------------------------------------------------------------------------------

    def _make_room(self, job: Job, grow: int) -> bool:
        """Free `grow` blocks for a running job at the cost of others, or end, delay or interrupt it."""
        board, s = self.board, self.settings
        pool = board.pool
        if pool is None:
            return True
        if job.blocks + grow > pool.total:
            self._give_up(job)
            return False
        if s.keeps_blocks:
            self._reclaim(grow, job)
            if grow <= pool.free:
                return True
        alone = len(board.running) == 1
        lag = s.block_lag if isinstance(s.block_lag, int) else 1
        waited = board.step - job.last_step
        if grow <= pool.free + board.tables.late and (alone or waited <= lag):
            # What ended a moment ago is enough, once its lag has run out.
            board.skip(job, "memory")
            return False
        if s.preempts == "none" or s.victim == "newest-denied":
            self.denied.append(job)
            return False
        if alone:
            board.skip(job, "memory")
            return False
        while grow > pool.free:
            victim = victim_of(board.running.values(), job, s.profile) or job
            board.preempt(victim, job)
            if victim is job:
                return False
        self._make_headroom(job, grow)
        return True

    def _make_headroom(self, job: Job, grow: int) -> None:
        """Once somebody had to go, free some blocks more, so that the next step need not do it again."""
        board, s = self.board, self.settings
        while board.pool is not None and board.pool.free < grow + s.headroom and len(board.running) > 1:
            victim = victim_of(board.running.values(), job, s.profile)
            if victim is None or victim is job:
                return
            board.preempt(victim, job)

    def _reclaim(self, grow: int, needy: Job) -> None:
        """Take the blocks that other preempted jobs kept, the latest to return first."""
        board = self.board
        for job in reversed(list(board.queue.in_order())):
            if board.pool is None or grow <= board.pool.free:
                return
            if job.kept and job is not needy:
                board.reclaim(job)

    def _preempt_newest_denied(self) -> None:
        """Interrupt the newest of those that were denied a block, until the others go on."""
        board, denied = self.board, self.denied
        while denied and len(board.running) > 1:
            victim = victim_of(board.running.values(), denied[0], self.settings.profile, denied)
            if victim is None:
                return
            denied.remove(victim)
            board.preempt(victim, denied[0] if denied else victim)
            again, self.denied = denied, []
            board.left, self.kept_tokens = board.left + self.kept_tokens, 0
            for job in again:
                self._run_one(job, 0)
            denied = self.denied

    def _give_up(self, job: Job) -> bool:
        """End a request that memory keeps from going on: at most one in a step, for the others may
        go on once it is gone. Another one is left out of the step instead."""
        if self.gave_up:
            self.board.skip(job, "memory")
            return False
        self.gave_up = True
        self.board.abort(job, "memory")
        return True

    def _settle_denied(self) -> None:
        """Where nobody is interrupted, those denied a block wait; if that lasts, one of them ends."""
        board = self.board
        board.left += self.kept_tokens
        denied = self.denied
        # One may end in a step, so the sooner the more of them there are.
        patience = self.settings.patience - len(denied)
        stuck = [job for job in denied if board.step - job.last_step > patience]
        if not board.members and not board.flight:
            stuck = stuck or denied
        if stuck and not self.gave_up:
            last = max(stuck, key=lambda job: job.joined or 0)
            denied.remove(last)
            self._give_up(last)
            self.denied = []
            for job in denied:
                if self.settings.mixed or all(part.decode == job.decodes for part in board.members.values()):
                    self._run_one(job, 0)
        for job in denied:
            if job.id in board.members or job.state != RUNNING:
                continue
            board.skip(job, "memory")

    # -- prefill first -----------------------------------------------------------------------------

    def _prefill_first(self) -> None:
        board = self.board
        self._run([job for job in self._in_turn() if not job.decodes])
        self._admit_if_allowed()
        if self.settings.mixed or not board.members:
            self._run([job for job in self._in_turn() if job.decodes and job.id not in board.members])
        self._settle_denied()
        if self.settings.mixed or not board.members:
            # What the decodes left: fewer tokens, so perhaps fewer blocks for the next one.
            self._admit_if_allowed()

    def _starves(self) -> bool:
        """Whether prompts have kept a decode from running for as long as the profile allows."""
        board, bound = self.board, self.settings.starves_for
        return any(job.decodes and board.step - job.last_step >= bound for job in board.running.values())

    def _held_back(self, job: Job) -> int:
        """Blocks that the decodes of this step will need, where they are served after a joining job."""
        board, s = self.board, self.settings
        if not s.prefill_first or board.pool is None:
            return 0
        if not s.mixed and (board.members or not job.decodes):
            return 0
        return self._decode_growth(None)

    def _decode_growth(self, but: Job | None) -> int:
        """Blocks that the decodes which are not yet served in this step need, one token each."""
        board, size = self.board, self.settings.block_size
        return sum(
            max(0, blocks_for(job.computed + 1, size) - job.blocks)
            for job in board.running.values()
            if job is not but and job.decodes and job.allowed > 0 and job.id not in board.members
        )

    # -- admission ---------------------------------------------------------------------------------

    def _admit_if_allowed(self) -> None:
        if not self.board.preempted_now or self.settings.same_step:
            self._admit(len(self.board.queue))

    def _admit(self, most: int) -> None:
        """Admit and resume in the policy's order while the next one fits, at most so many."""
        board, s = self.board, self.settings
        passed: dict[Job, str] = {}
        told: set[Job] = set()
        for job in board.queue.in_order():
            if most < 1 or any(misfit.passed >= s.skip_ahead for misfit in passed):
                break
            if job.preempted_in == board.step:
                # It has just made room; to take it back would undo that.
                break
            held_back = self._held_back(job)
            if board.pool is not None and held_back > board.pool.free and not s.same_step:
                # A decode of this step will interrupt somebody, and then nobody may have joined.
                break
            plan = plan_joining(board, job, held_back)
            if isinstance(plan, str) and s.for_waiting:
                self._evict_for(job)
                plan = plan_joining(board, job, self._held_back(job))
            if isinstance(plan, str) and held_back and not isinstance(plan_joining(board, job), str):
                # Only decodes that are served later stand in its way; nobody passes it for that.
                break
            if isinstance(plan, str) and not board.running and s.keeps_blocks and board.pool is not None:
                missing = min(job.known - job.kept, board.left)
                self._reclaim(blocks_wanted(board, job, job.kept, missing)[0] - job.blocks, job)
                plan = plan_joining(board, job, self._held_back(job))
            if isinstance(plan, str):
                if self._can_never_join(job):
                    if self._give_up(job):
                        continue
                    break
                if not self._may_pass(job, plan):
                    break
                passed[job] = plan
                continue
            for misfit, why in passed.items():
                misfit.passed += 1
                if misfit not in told:
                    told.add(misfit)
                    board.skip(misfit, why)
            most -= 1
            board.join(job, plan)
            if s.mixed or not job.decodes:
                board.schedule(job, plan.tokens, 0, 0, 0)

    def _may_pass(self, job: Job, why: str) -> bool:
        """Whether those behind a request that does not fit may be looked at."""
        s = self.settings
        front = job.state == PREEMPTED and s.profile.preemption.resume == "front"
        # One that waits of its own accord, since coming back was futile before, is not passed for it.
        waits = job.futile > 0 and not s.conserves
        return s.skips and why != "slots" and not front and not waits and self.board.left > 0

    def _can_never_join(self, job: Job) -> bool:
        """Whether what the job has grown to is more than the engine can ever take in again."""
        board, s = self.board, self.settings
        if not s.chunked and job.known - max(job.computed, job.kept) > min(s.budget, s.prefill_budget):
            return True
        if board.pool is None:
            return False
        tested, _ = blocks_wanted(board, job, 0, job.known)
        return tested > board.pool.total

    def _evict_for(self, job: Job) -> None:
        """Interrupt strictly less urgent requests for a waiting one that lacks a seat or blocks, if
        that is sure to let it in. Nobody is interrupted for the tokens of one step alone."""
        board, s = self.board, self.settings
        level = urgency(job, s.profile)
        lesser = [other for other in board.running.values() if urgency(other, s.profile) > level]
        if not lesser or any(board.tables.lends(other) for other in lesser):
            return
        lacks = board.free_seats() < 1
        if board.pool is not None:
            tested, _ = blocks_wanted(board, job, max(job.computed, job.kept), 1)
            tested = max(tested, blocks_wanted(board, job, 0, min(job.known, s.budget))[0])
            watermark = s.watermark if len(lesser) < len(board.running) else 0
            holders = Counter(block for other in lesser for block in other.table)
            gain = sum(1 for block, count in holders.items() if board.pool.owned(block) == count)
            if tested - job.blocks + watermark > board.pool.free + gain:
                return
            lacks = lacks or tested - job.blocks + s.watermark > board.pool.free
        missing = 1 if s.chunked else job.known - max(job.computed, job.kept)
        tokens = sum(board.members[other.id].tokens for other in lesser if other.id in board.members)
        if not lacks or missing > min(board.left, board.prefill_left) + tokens:
            return
        while isinstance(plan_joining(board, job), str):
            victim = victim_of(board.running.values(), job, s.profile)
            if victim is None:
                return
            board.preempt(victim, job)
