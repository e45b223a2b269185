"""The block tables: who holds which blocks, which come back later, and what the full ones contain."""

from collections import deque
from collections.abc import Iterable

from batchspec.spec.events import RequestId
from batchspec.spec.reference.job import Job
from batchspec.spec.reference.pool import BlockPool, mix
from batchspec.spec.reference.settings import Settings


class Tables:
    """Block tables over one pool; `pool` is None where memory is not limited, and nothing is held then."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is held."""
        self._settings = settings
        self.pool = BlockPool(settings.total_blocks) if settings.total_blocks is not None else None
        self.held = 0
        """Sum of the blocks in all tables; shared ones count once a table."""
        self.late = 0
        """Blocks that ended requests hold until their lag has run out."""
        self._late: deque[tuple[int, list[int]]] = deque()
        self._published: dict[RequestId, list[int]] = {}
        self._filled: dict[RequestId, tuple[Job, int, int]] = {}

    def open(self, step: int) -> None:
        """Begin a step: blocks whose lag has run out are free."""
        self._published = {}
        self._filled = {}
        while self._late and self._late[0][0] <= step:
            table = self._late.popleft()[1]
            self.late -= len(table)
            self._return(table)

    def grant(self, job: Job, hits: Iterable[int], new_blocks: int) -> tuple[int, ...]:
        """Give blocks to a job: those taken over first, then new ones. The ids, in table order."""
        if self.pool is None:
            return ()
        ids = list(hits)
        self.pool.take_over(ids)
        ids += self.pool.take(new_blocks)
        job.table += ids
        job.blocks += len(ids)
        self.held += len(ids)
        return tuple(ids)

    def give_back(self, job: Job) -> None:
        """A job returns all its blocks."""
        self._return(job.table)
        job.table = []
        job.blocks = 0

    def give_back_later(self, job: Job, step: int) -> None:
        """The same, but nobody may take them before that step."""
        self._late.append((step, job.table))
        self.late += len(job.table)

    def _return(self, table: list[int]) -> None:
        if self.pool is not None:
            self.pool.give_back(table)
        self.held -= len(table)

    # -- content -----------------------------------------------------------------------------------

    def key(self, job: Job, index: int) -> int:
        """The content key of a job's block: that of the prompt where it is known, else its own."""
        return job.keys[index] if index < len(job.keys) else mix(-1 - job.number, index)

    def keys(self, job: Job, first: int, end: int) -> tuple[int, ...]:
        """The content keys of blocks [first, end) of a job."""
        return tuple(self.key(job, index) for index in range(first, end))

    def fill(self, job: Job, start: int, end: int) -> tuple[int, ...]:
        """The keys of the blocks that positions [start, end) make full. Others may find them: under
        `same_pass` at once, else when the pass is over."""
        size = self._settings.block_size
        first, last = start // size, end // size
        if first >= last:
            return ()
        if self._settings.same_pass:
            self._publish(job, first, last)
        else:
            self._filled[job.id] = (job, first, last)
        return self.keys(job, first, last)

    def pass_over(self) -> None:
        """The pass of this step has filled its blocks."""
        for job, first, last in self._filled.values():
            self._publish(job, first, last)

    def unfill(self, job: Job) -> None:
        """A membership of this step is taken back: its blocks were not filled."""
        self._filled.pop(job.id, None)
        for block in self._published.pop(job.id, ()):
            if self.pool is not None:
                self.pool.forget(block)

    def lends(self, job: Job) -> bool:
        """Whether somebody took over a block that this job computes in this very pass."""
        pool, published = self.pool, self._published.get(job.id, ())
        return pool is not None and any(pool.owned(block) > 1 for block in published)

    def _publish(self, job: Job, first: int, last: int) -> None:
        if self.pool is None:
            return
        for index in range(first, last):
            block = job.table[index]
            if self.pool.publish(block, self.key(job, index)):
                self._published.setdefault(job.id, []).append(block)
