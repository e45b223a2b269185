"""Broken schedulers: ends, aborts and tokens of single requests.

Each is told in a sentence and is the small right scheduler with one hook replaced. Many are the smallest
form of a fault that was reported of a real engine.
"""

from pathlib import Path

from batchspec.replay import harness
from batchspec.replay.harness import Outcome
from batchspec.replay.loading import load_file
from batchspec.spec.need import blocks_for

listed = load_file(Path(__file__).with_name("fault.py"))
fault, Scheduler = listed.fault, listed.Scheduler
ASYNC = listed.ASYNC


# -- ends -------------------------------------------------------------------------------------------


@fault("tokens/output-count")
class CountsTheStopTokenTwice(Scheduler):
    """The last row of a request counts an output that was never emitted."""

    def finish(self, job, reason):
        rows = super().finish(job, reason)
        return [row._replace(output_tokens=row.output_tokens + 1) for row in rows]


@fault("conform/outputs")
class ForgetsToStop(Scheduler):
    """A stop token is an output like any other: every request runs on to max_tokens."""

    def end_after(self, job, token):
        return "length" if len(job.outputs) >= job.request.max_tokens else None


@fault("conform/outputs")
class StopsOneEarly(Scheduler):
    """The limit is compared before the token is counted."""

    def end_after(self, job, token):
        reason = super().end_after(job, token)
        early = job.request.max_tokens > 2 and len(job.outputs) == job.request.max_tokens - 1
        return "length" if early else reason


@fault("conform/stall")
class NeverEnds(Scheduler):
    """Nobody compares with the limit, and nobody looks for the stop token: tokens come for ever."""

    def end_after(self, job, token):
        return None

    def part(self, job):
        return min(job.known - job.computed, self.left)


@fault("lifecycle/after-end")
class FinishesTwice(Scheduler):
    """A stop token that is also the last allowed one ends the request once for each reason."""

    def finish(self, job, reason):
        rows = super().finish(job, reason)
        return rows * 2 if reason == "stop" else rows


@fault("conform/stall")
class LosesTheLastOfABatch(Scheduler):
    """Two requests that end in the same pass: the second is dropped from the books without a word."""

    def finish(self, job, reason):
        rows = super().finish(job, reason)
        ended_now = getattr(self, "ended_in", -1) == self.step
        self.ended_in = self.step
        return [] if ended_now else rows


@fault("conform/served")
class RefusesAFullPool(Scheduler):
    """A request that needs every block is refused: the test is `<` where it should be `<=`."""

    def never_fits(self, request):
        whole = len(request.prompt) + request.max_tokens
        return blocks_for(whole, self.size) >= len(self.pool.refs) or super().never_fits(request)


# -- aborts -----------------------------------------------------------------------------------------


@fault("lifecycle/abort-ignored")
class IgnoresAborts(Scheduler):
    """The client has gone, the request runs on."""

    def abort(self, request):
        return []


@fault("lifecycle/after-end")
class AbortsOnlyTheRunning(Scheduler):
    """A request that is cancelled while it waits keeps its place in the queue."""

    def abort(self, request):
        job = self.jobs[request]
        rows = super().abort(request)
        if job.joined < 0:
            self.waiting.append(job)
            job.state = "waiting"
        return rows


@fault("memory/conservation")
class AbortForgetsTheBlocks(Scheduler):
    """An aborted request gives its seat back, its blocks stay with nobody."""

    def abort(self, request):
        job = self.jobs[request]
        held = list(job.blocks)
        rows = super().abort(request)
        for block in held:
            self.pool.refs[block] += 1
        return rows


@fault("lifecycle/after-end")
class TellsTheAbortedMemberItsToken(Scheduler):
    """A cancel that comes while the pass runs ends the request, and then its token ends it again."""

    def commit(self, results):
        rows = []
        for name, tokens in results.tokens.items():
            if tokens and name not in self.jobs:
                rows.append(harness.finish(name, "stop", len(tokens)))
        done = super().commit(results)
        return Outcome([*rows, *done.rows], **self.counters())


# -- tokens -----------------------------------------------------------------------------------------


@fault("tokens/position")
class ResumesWhereItStood(Scheduler):
    """A request whose blocks were taken goes on at the position that it had reached."""

    def preempt(self, victim, cause):
        reached = victim.computed - (self.members[victim.id][2] if victim.id in self.members else 0)
        super().preempt(victim, cause)
        victim.reached = reached

    def write_schedule(self, job, start, tokens):
        reached = getattr(job, "reached", 0)
        job.reached = 0
        super().write_schedule(job, max(start, reached), tokens)


@fault("tokens/overrun")
class ComputesOneTooMany(Scheduler):
    """A prompt that ends on a block boundary is run one position further."""

    def write_schedule(self, job, start, tokens):
        over = not job.decodes and start + tokens == job.known and job.known % self.size == 0
        super().write_schedule(job, start, tokens + over)


@fault("tokens/overrun")
class LosesOutputsOnPreemption(Scheduler):
    """A victim keeps only its prompt: what it had emitted is computed, and sent, again."""

    def preempt(self, victim, cause):
        super().preempt(victim, cause)
        victim.lost = list(victim.outputs)

    def write_schedule(self, job, start, tokens):
        again = len(getattr(job, "lost", ()))
        super().write_schedule(job, start, tokens + again if again and start == 0 else tokens)


@fault("tokens/in-flight", ASYNC)
class ReadsAResultTwice(Scheduler):
    """The output of a pass is told once more when the request ends."""

    def commit(self, results):
        done = super().commit(results)
        ends = {row.request for row in done.rows if row.event == "finish"}
        rows = []
        for row in done.rows:
            rows += [row, row] if row.event == "output" and row.request in ends else [row]
        return Outcome(rows, **self.counters())


@fault("tokens/early-output")
class EmitsFromAChunk(Scheduler):
    """A pass that computes part of a prompt is said to have emitted a token."""

    recorded = True

    def commit(self, results):
        chunks = [name for name, tokens in results.tokens.items() if not tokens and name in self.jobs]
        done = super().commit(results)
        return Outcome([*(harness.output(name, 1) for name in chunks), *done.rows], **self.counters())
