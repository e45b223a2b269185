"""Broken schedulers: members, budget, seats and progress.

Each is told in a sentence and is the small right scheduler with one hook replaced. Many are the smallest
form of a fault that was reported of a real engine.
"""

from pathlib import Path

from batchspec.replay import harness
from batchspec.replay.harness import Plan
from batchspec.replay.loading import load_file

listed = load_file(Path(__file__).with_name("fault.py"))
fault, Scheduler = listed.fault, listed.Scheduler
ASYNC = listed.ASYNC
PRIORITY = listed.PRIORITY
STATIC = listed.STATIC
STALL_FREE = {"batching": {"stall_free": True}}


# -- the batch --------------------------------------------------------------------------------------


@fault("batch/token-budget")
class PromptsCostNothing(Scheduler):
    """The sum that is held against the budget is never raised by a prompt."""

    def join(self, job):
        left = self.left
        joined = super().join(job)
        self.left = left if left > 1 else self.left
        return joined


@fault("batch/token-budget")
class DecodesCostNothing(Scheduler):
    """Only prompts are charged to the budget; a prompt is cut to fill what decodes have used already."""

    def schedule(self, job, tokens):
        free = job.decodes
        super().schedule(job, tokens)
        self.left += tokens if free else 0


@fault("batch/capacity")
class ForgetsWhoRuns(Scheduler):
    """Admission counts the newcomers of the step, not the requests that run already."""

    def admit_waiting(self):
        new = list(self.slots)
        self.slots = [*range(self.seats)]
        super().admit_waiting()
        self.slots = [slot for slot in new if slot in self.slots]


@fault("batch/empty-member")
class RunsNothing(Scheduler):
    """A request for which the budget leaves nothing becomes a member all the same."""

    def run(self, job):
        if self.part(job) == 0 and job.allowed > 0:
            self.rows.append(
                harness.schedule(job.id, 0, start=job.computed, **self.shown(len(job.blocks), []))
            )
            return
        super().run(job)

    def part(self, job):
        return super().part(job) if job.decodes or self.left > self.size else 0


@fault("batch/membership")
class ListsAMemberTwice(Scheduler):
    """A prompt whose chunk ends on a block boundary is planned once more in the same step."""

    def schedule(self, job, tokens):
        super().schedule(job, tokens)
        if job.computed % self.size == 0 and job.computed < job.known and self.left:
            super().schedule(job, 1)


@fault("batch/membership", PRIORITY)
class KeepsTheVictimInThePlan(Scheduler):
    """A member that was planned and then evicted stays in the plan that goes to the device."""

    def preempt(self, victim, cause):
        part = self.members.get(victim.id)
        super().preempt(victim, cause)
        if part is not None:
            self.rows.append(harness.schedule(victim.id, part[2], start=part[1], **self.shown(0, [])))


@fault("batch/static-barrier", STATIC)
class FillsTheStaticBatch(Scheduler):
    """A seat that comes free is filled, though the batch still runs."""

    def may_admit_now(self):
        return True


@fault("batch/no-stall", overlay=STALL_FREE)
class PromptsGoFirst(Scheduler):
    """While a prompt is under way nobody decodes."""

    def run(self, job):
        if job.decodes and any(not other.decodes for other in self.running):
            return
        super().run(job)


@fault("batch/mixed", overlay={"batching": {"mixed": False}})
class MixesAfterAll(Scheduler):
    """Prompts join a step of decodes."""

    def may_admit_now(self):
        return not self.preempted_now


@fault("tokens/chunking", overlay={"batching": {"chunked_prefill": False}})
class CutsPrompts(Scheduler):
    """A prompt that does not fit the budget whole is cut after all."""

    def __init__(self, profile):
        super().__init__(profile)
        self.chunked = True


# -- seats ------------------------------------------------------------------------------------------


@fault("slots/exclusive")
class GivesASeatTwice(Scheduler):
    """A seat is taken from the list by number, and the list is not what is looked at."""

    def join(self, job):
        free = list(self.slots)
        joined = super().join(job)
        if joined and len(self.running) > 2:
            self.slots = free[:1] + free[2:] if len(free) > 1 else []
        return joined


@fault("slots/range")
class CountsSeatsFromOne(Scheduler):
    """Seats are numbered 1 to S."""

    def __init__(self, profile):
        super().__init__(profile)
        self.slots = list(range(1, self.seats + 1))


@fault("slots/reuse")
class RestsASeat(Scheduler):
    """A seat that came free is left empty for one step."""

    def finish(self, job, reason):
        slot = job.slot
        rows = super().finish(job, reason)
        self.slots.remove(slot)
        self.late_slots.append(slot)
        return rows


@fault("slots/early-reuse", ASYNC)
class GivesTheSeatWhileItsPassRuns(Scheduler):
    """The seat of an aborted request is given away at once, though a pass with it may be under way."""

    def abort(self, request):
        rows = super().abort(request)
        self.slots = [*self.late_slots, *self.slots]
        self.late_slots = []
        return rows


# -- progress ---------------------------------------------------------------------------------------


@fault("liveness/starved-member")
class RunsTheFirstTwo(Scheduler):
    """The third and later requests of the batch hold their seats and never run again."""

    def run(self, job):
        if job in self.running[:2]:
            super().run(job)


@fault("conform/stall")
class NeverComesBack(Scheduler):
    """A victim is put on a list that nobody looks at."""

    def comes_back(self, victim):
        self.waiting.append(victim)
        victim.again = True

    def line(self):
        return [job for job in super().line() if not job.again]


@fault("conform/crash")
class TripsOverItself(Scheduler):
    """A request that is its own victim is no longer where the loop looks for it."""

    def preempt(self, victim, cause):
        super().preempt(victim, cause)
        if victim is cause:
            self.running[self.running.index(victim)] = victim


@fault("conform/hang")
class LoopsForRoom(Scheduler):
    """Room is looked for until there is some."""

    def grow(self, job, tokens):
        need = self.blocks(job.computed + tokens) - len(job.blocks)
        while need > self.pool.free:
            pass
        return super().grow(job, tokens)


@fault("conform/protocol", ASYNC)
class AnswersWithAList(Scheduler):
    """A plan of nothing is an empty list."""

    def plan(self):
        plan = super().plan()
        return plan if plan.rows else []


@fault("stats/agree")
class ForgetsTheVictims(Scheduler):
    """The number of waiting requests leaves out those that were evicted."""

    def counters(self):
        counters = super().counters()
        counters["waiting"] = sum(job.state == "waiting" for job in self.waiting)
        return counters


@fault("liveness/idle-stall")
class SleepsAfterAPreemption(Scheduler):
    """After an eviction ten steps pass in which nothing runs."""

    rest = 0

    def plan(self):
        if self.rest:
            self.rest -= 1
            self.step += 1
            self.members = {}
            return Plan([], **self.counters())
        plan = super().plan()
        self.rest = 10 if self.preempted_now else 0
        return plan
