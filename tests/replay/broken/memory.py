"""Broken schedulers: blocks, and who holds them.

Each is told in a sentence and is the small right scheduler with one hook replaced. Many are the smallest
form of a fault that was reported of a real engine.
"""

from pathlib import Path

from batchspec.replay import harness
from batchspec.replay.loading import load_file

listed = load_file(Path(__file__).with_name("fault.py"))
fault, Scheduler = listed.fault, listed.Scheduler
PREFIX = listed.PREFIX
base = listed.base


# -- memory -----------------------------------------------------------------------------------------


@fault("memory/bound")
class PromisesMoreThanThereIs(Scheduler):
    """The pool has one block more than the profile says."""

    def __init__(self, profile):
        super().__init__(profile)
        self.pool = base.Pool(profile.limits.kv_blocks + 1)


@fault("memory/coverage")
class RoundsDown(Scheduler):
    """Blocks for a position are counted without the one that it begins."""

    def blocks(self, positions):
        return max(1, positions // self.size)


@fault("memory/waste")
class TakesOneBlockAhead(Scheduler):
    """A request that grows takes a block for the next step as well, where there is one."""

    def grow(self, job, tokens):
        grown = super().grow(job, tokens)
        if grown and self.fresh and self.pool.free:
            more = self.pool.take(1)
            job.blocks += more
            self.fresh = [*self.fresh, *more]
        return grown


@fault("memory/conservation")
class CountsCachedBlocksAsHeld(Scheduler):
    """The free blocks that it reports leave out those whose content might be wanted again."""

    def counters(self):
        counters = super().counters()
        counters["free_blocks"] -= sum(self.pool.refs[block] == 0 for block in self.pool.content.values())
        return counters


@fault("memory/conservation")
class LosesTheRaggedTail(Scheduler):
    """At the end only full blocks come back."""

    def finish(self, job, reason):
        tail = job.blocks[-1] if job.computed % self.size else None
        rows = super().finish(job, reason)
        if tail is not None:
            self.pool.refs[tail] += 1
        return rows


@fault("memory/release")
class KeepsABlockOfTheVictim(Scheduler):
    """A victim's last block stays in its table."""

    def preempt(self, victim, cause):
        last = victim.blocks[-1:] if len(victim.blocks) > 1 else []
        super().preempt(victim, cause)
        if last:
            row = self.rows[-1]
            self.rows[-1] = row._replace(blocks=1, block_ids=row.block_ids[:-1])
            self.pool.refs[last[0]] += 1


@fault("memory/exclusive")
class HandsOutAnOwnedBlock(Scheduler):
    """A block that is needed while the pool is empty is taken from whoever is last in the batch."""

    def short(self, need):
        return False

    def grow(self, job, tokens):
        need = self.blocks(job.computed + tokens) - len(job.blocks) - self.pool.free
        if need > 0:
            donor = max(self.running, key=lambda other: len(other.blocks) if other is not job else -1)
            if donor is job or len(donor.blocks) < need:
                return False
            mine = self.pool.take(self.pool.free)
            stolen = donor.blocks[-need:]
            for block in stolen:
                self.pool.refs[block] += 1
            self.granted(job, mine + stolen)
            return True
        return super().grow(job, tokens)


@fault("memory/release-once")
class ReturnsABlockTwice(Scheduler):
    """The first block of a request that was ever preempted is returned when it is evicted and at its end."""

    def preempt(self, victim, cause):
        first = victim.blocks[0]
        super().preempt(victim, cause)
        victim.doubled = first

    def finish(self, job, reason):
        rows = super().finish(job, reason)
        first = getattr(job, "doubled", None)
        if first is None:
            return rows
        return [row._replace(block_ids=(*row.block_ids, first)) for row in rows]


@fault("memory/unwritten", overlay=PREFIX)
class SharesWhatIsNotComputed(Scheduler):
    """A block counts as cached as soon as it is planned, and its neighbour in the same step takes it over."""

    def schedule(self, job, tokens):
        super().schedule(job, tokens)
        self.publish(job, job.computed - tokens, tokens)

    def publish(self, job, start, tokens):
        known = len(job.tokens)
        for index in range(start // self.size, min(start + tokens, known) // self.size):
            self.pool.keep(job.blocks[index], tuple(job.tokens[: (index + 1) * self.size]))


@fault("memory/unwritten", overlay=PREFIX)
class KnowsABlockByItselfAlone(Scheduler):
    """The key of a block is made of its own tokens, not of all that stand before it."""

    def hits(self, job):
        found = []
        for end in range(self.size, len(job.tokens), self.size):
            block = self.pool.content.get(tuple(job.tokens[end - 1 : end]))
            if block is None:
                break
            found.append(block)
        return found

    def publish(self, job, start, tokens):
        for index in range(start // self.size, (start + tokens) // self.size):
            self.pool.keep(job.blocks[index], tuple(job.tokens[(index + 1) * self.size - 1 :][:1]))


@fault("tokens/position", overlay=PREFIX)
class FindsEverythingCached(Scheduler):
    """A prompt that is cached to its last token leaves nothing to compute."""

    def hits(self, job):
        found = super().hits(job)
        if found and len(found) * self.size + self.size == len(job.tokens) and not job.outputs:
            last = self.pool.content.get(tuple(job.tokens))
            found = found if last is None else [*found, last]
        return found

    def join(self, job):
        hits = self.hits(job)
        if len(hits) * self.size < job.known:
            return super().join(job)
        for block in hits:
            self.pool.refs[block] += 1
        job.blocks = hits
        self.waiting.remove(job)
        self.running.append(job)
        job.slot = self.slots.pop(0)
        job.computed = job.known
        job.joined = job.first_joined = self.joins
        self.joins += 1
        job.state = "running"
        shown = self.shown(len(hits), hits)
        self.rows.append(harness.admit(job.id, slot=job.slot, cached=job.computed, **shown))
        self.rows.append(harness.schedule(job.id, 0, start=job.computed, **self.shown(len(hits), [])))
        return True
