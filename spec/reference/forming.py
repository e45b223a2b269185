"""Forming a batch where none runs: how many waiting requests start it, and from when on.

Source: Triton's dynamic batcher (docs/user_guide/batcher.md and GetDynamicBatch in core), for requests
of size 1: the largest preferred size that the queue fills leaves at once; a batch that is full, that
nothing can be added to, or whose oldest request has waited the window leaves as it is; else it waits.
"""

from batchspec.spec.reference.board import Board
from batchspec.spec.reference.joining import blocks_wanted


def batch_size(board: Board) -> int:
    """How many requests, in the policy's order, start a batch now; 0 while it waits for company."""
    s = board.settings
    most = min(len(board.queue), s.max_seqs)
    if s.mode == "static" or not most:
        return most
    late = 0 < s.window_ns <= board.now_ns - _oldest_ns(board, most)
    marks = [size for size in s.preferred_sizes if size <= most]
    if marks and not late:
        return max(marks)
    leaves = late or not s.window_ns or most >= min(max(s.preferred_sizes), s.max_seqs)
    return most if leaves or _fitting(board, most) < most else 0


def window_end_ns(board: Board) -> int | None:
    """When a batch that waits for company leaves without it; None where none waits."""
    s = board.settings
    if s.mode != "dynamic" or board.running or not len(board.queue):
        return None
    return _oldest_ns(board, min(len(board.queue), s.max_seqs)) + s.window_ns


def _oldest_ns(board: Board, count: int) -> int:
    return min(job.arrived_ns for job, _ in zip(board.queue.in_order(), range(count), strict=False))


def _fitting(board: Board, most: int) -> int:
    """How many of the first `most` requests fit together, found without admitting any of them."""
    s = board.settings
    budget = min(s.budget, s.prefill_budget)
    free = board.pool.free if board.pool is not None else 0
    shares = board.shares_tokens.copy() if board.shares_tokens is not None else None
    for count, job in enumerate(board.queue.in_order(shares)):
        if count >= most:
            break
        missing = job.known - max(job.computed, job.kept)
        tokens = min(missing, budget)
        if tokens < 1 or (tokens < missing and not s.chunked):
            return count
        budget -= tokens
        if board.pool is not None:
            tested, held = blocks_wanted(board, job, max(job.computed, job.kept), tokens)
            watermark = s.watermark if count else 0
            if tested - job.blocks + watermark > free:
                return count
            free -= held - job.blocks
        if shares is not None and job.first_admit is None:
            shares.admit(job.tenant, job.prompt)
    return most
