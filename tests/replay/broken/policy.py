"""Broken schedulers: who is admitted, who is evicted, who comes back.

Each is told in a sentence and is the small right scheduler with one hook replaced. Many are the smallest
form of a fault that was reported of a real engine.
"""

from pathlib import Path

from batchspec.replay.loading import load_file

listed = load_file(Path(__file__).with_name("fault.py"))
fault, Scheduler = listed.fault, listed.Scheduler
PRIORITY = listed.PRIORITY
ORCA = listed.ORCA


# -- admission --------------------------------------------------------------------------------------


@fault("admission/order")
class LastComesFirst(Scheduler):
    """The queue is a stack."""

    def rank(self, job):
        return (not job.again, -job.place)


@fault("admission/order", PRIORITY)
class EqualsComeBackwards(Scheduler):
    """Among requests of one priority the youngest goes first."""

    def rank(self, job):
        return (self.urgency(job), -job.place)


@fault("admission/order", PRIORITY)
class TurnsPrioritiesAround(Scheduler):
    """High numbers are taken for the urgent ones."""

    def urgency(self, job):
        return -job.request.priority


@fault("admission/order", overlay={"admission": {"order": "sjf"}})
class ForgetsTheOutputs(Scheduler):
    """The shortest prompt goes first, not the shortest job."""

    def rank(self, job):
        return (not job.again, len(job.request.prompt), job.place)


@fault("admission/head-of-line")
class LooksBehindTheMisfit(Scheduler):
    """Who fits goes in, past the first that does not."""

    def goes_on(self, job):
        return not job.again


@fault("admission/fit")
class AsksForTheFirstChunkOnly(Scheduler):
    """Admission looks for the blocks of this step, where the profile promises the whole prompt."""

    def tested(self, job, end):
        return self.need("step", job, end)


@fault("admission/fit", overlay={"admission": {"watermark_blocks": 1}})
class ForgetsTheWatermark(Scheduler):
    """The blocks that are to be kept free are handed out at admission."""

    def fits(self, job, hits, end):
        gained = sum(self.pool.refs[block] > 0 for block in hits)
        return max(self.tested(job, end), self.reserved(job, end)) - gained <= self.pool.free


@fault("admission/needless-wait")
class LeavesTheLastSeatEmpty(Scheduler):
    """One seat is never given away while others are taken."""

    def admit_waiting(self):
        if len(self.slots) > 1 or not self.running:
            kept = [self.slots.pop()] if len(self.slots) > 1 else []
            super().admit_waiting()
            self.slots += kept


@fault("admission/needless-wait")
class WaitsForAnEmptyBatch(Scheduler):
    """A request that fits is let in only when few run."""

    def may_admit_now(self):
        return super().may_admit_now() and len(self.running) < 2


# -- preemption -------------------------------------------------------------------------------------


@fault("preemption/forbidden", ORCA)
class EvictsAnyway(Scheduler):
    """Who could wait for its turn evicts the last of the batch, where the profile says nobody is evicted."""

    def run(self, job):
        others = [other for other in self.running if other is not job and other.id not in self.members]
        if len(job.outputs) == 3 and others and self.waiting:
            self.preempt(others[-1], job)
        super().run(job)


@fault("preemption/cause")
class EvictsForTheLastBlock(Scheduler):
    """A request that needs the last free block evicts for it: the test is `<=` where it should be `<`."""

    def short(self, need):
        return self.pool.free < need or (self.pool.free == need and len(self.running) > 1)


@fault("preemption/victim")
class EvictsTheOldest(Scheduler):
    """The victim is the first of the batch, not the last."""

    def victim(self, job):
        return min(self.running, key=lambda other: other.joined)


@fault("preemption/victim", PRIORITY)
class EvictsTheUrgent(Scheduler):
    """The victim is the latest, whatever its priority."""

    def victim(self, job):
        return max(self.running, key=lambda other: other.joined)


@fault("preemption/useful")
class EvictsAndForgetsWhy(Scheduler):
    """Room is made for a request, which then is not run in that step."""

    def grow(self, job, tokens):
        before = self.preempted_now
        grown = super().grow(job, tokens)
        return grown and (before or not self.preempted_now)


@fault("preemption/resume-first")
class SendsVictimsToTheBack(Scheduler):
    """A victim goes behind everybody who waits, where the profile promises it the front."""

    def preempt(self, victim, cause):
        super().preempt(victim, cause)
        victim.again = False
        victim.place = self.places
        self.places += 1


@fault("preemption/no-admission")
class AdmitsBesideAPreemption(Scheduler):
    """A step that preempts admits."""

    def may_admit_now(self):
        return True


@fault("preemption/thrash")
class ComesBackForOneChunk(Scheduler):
    """A victim comes back as soon as its first chunk fits, and is evicted before it has got anywhere."""

    def tested(self, job, end):
        return self.need("step", job, end) if job.again else super().tested(job, end)


@fault("fairness/starvation", overlay={"admission": {"order": "sjf"}, "fairness": {"starvation_steps": 12}})
class PromisesAnEndOfWaiting(Scheduler):
    """Nobody is to wait for long, but the shortest job goes first for ever."""
