"""Joining: whether a waiting request may join the batch now, and with what.

The test is that of `admission.test`; what is then held is that of `admission.reserve`. Blocks found
in the prefix cache count as far as they help: a request never waits because of them.
"""

from batchspec.spec.need import blocks_for, need_tokens
from batchspec.spec.reference.board import Board, Joining
from batchspec.spec.reference.job import Job
from batchspec.spec.reference.pool import BlockPool


def plan_joining(board: Board, job: Job, held_back: int = 0) -> Joining | str:
    """What the job joins with, or the one word that says why it cannot: `slots`, `budget`, `memory`.

    `held_back` blocks are left for members that are scheduled later in this step.
    """
    if board.free_seats() < 1:
        return "slots"
    left = min(board.left, board.prefill_left)
    if left < 1:
        return "budget"
    if board.pool is None:
        cached = job.computed
        tokens = _tokens(board, job, cached, left)
        return Joining(cached, tokens, [], 0) if tokens else "budget"
    why = "budget"
    hits = find_hits(board, job, board.pool)
    for count in range(len(hits), -1, -1):
        cached = count * board.settings.block_size if count else max(job.computed, job.kept)
        tokens = _tokens(board, job, cached, left)
        if not tokens:
            continue
        joining = _with_blocks(board, board.pool, job, cached, tokens, hits[:count], held_back)
        if joining is not None:
            return joining
        why = "memory"
    if job.kept and board.settings.chunked:
        # It may also begin with no more blocks than a request that kept nothing.
        end = min(job.known, left)
        cached = min(job.kept, end - 1)
        return _with_blocks(board, board.pool, job, cached, end - cached, [], held_back) or why
    return why


def find_hits(board: Board, job: Job, pool: BlockPool) -> list[int]:
    """The cached blocks that a job may take over: whole ones, at most n - 1 positions, so that
    something is left to compute. A job that kept its KV takes over nothing."""
    if not board.settings.shares or job.computed or job.kept:
        return []
    most = (job.known - 1) // board.settings.block_size
    return pool.find(board.tables.key(job, index) for index in range(most))


def blocks_wanted(board: Board, job: Job, cached: int, tokens: int) -> tuple[int, int]:
    """Blocks that the test asks for, and blocks that are then held."""
    s = board.settings
    wanted = []
    for need in (s.test, s.reserve):
        positions = need_tokens(
            need,
            known=job.known,
            step_end=cached + tokens,
            allowed=job.allowed,
            predicted=job.predicted,
        )
        wanted.append(blocks_for(max(positions or 0, cached + tokens), s.block_size))
    if job.futile and not s.conserves:
        # It has come back for nothing before: now it waits until all of it fits, where that is allowed.
        wanted.append(blocks_for(job.known, s.block_size))
    return max(wanted), wanted[1]


def _with_blocks(
    board: Board, pool: BlockPool, job: Job, cached: int, tokens: int, hits: list[int], held_back: int
) -> Joining | None:
    tested, held = blocks_wanted(board, job, cached, tokens)
    others = sum(1 for block in hits if pool.owned(block))
    watermark = board.settings.watermark if board.running else 0
    if max(0, tested - others - job.blocks) + watermark > pool.free - held_back:
        return None
    return Joining(cached, tokens, hits, max(0, held - len(hits) - job.blocks))


def _tokens(board: Board, job: Job, cached: int, left: int) -> int:
    """Tokens of this step's part: all that is missing, or without chunked prefill all or nothing."""
    missing = job.known - cached
    if missing <= left:
        return missing
    return left if board.settings.chunked else 0
