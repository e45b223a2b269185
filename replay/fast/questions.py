"""Questions: who is next, and does it fit? As spec/line.py answers them, on the books in arrays."""

# ruff: noqa: F405 (the names of layout.py are constants to the compiler, too many to import one by one)

from typing import Any

from batchspec.replay.compiled import compiled, whole
from batchspec.replay.fast.layout import *  # noqa: F403

Array = Any


@compiled
def blocks_for(tokens: int, size: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // size)


@compiled
def least_free(R: Array, S: Array, C: Array, L: Array, K: Array, room: int) -> int:
    """The least that can be free where no row counts blocks (spec/line.py)."""
    if K[RESERVE] == NEED_NONE or K[RESERVE] == NEED_PREDICTED:
        return NIL
    used = 0
    for place in range(S[RUNS]):
        r = L[RUN_LIST, place]
        known = R[r, PROMPT] + R[r, OUTPUTS]
        most = known + K[LOOKAHEAD]
        if K[RESERVE] == NEED_KNOWN:
            most += K[RESERVE_MORE]
        elif K[RESERVE] == NEED_FULL:
            if R[r, MAX_TOKENS] == NIL:
                return NIL
            most = max(most, R[r, PROMPT] + R[r, MAX_TOKENS])
        used += blocks_for(most, K[SIZE])
    return room - used


@compiled
def free_bounds(R: Array, S: Array, C: Array, L: Array, K: Array) -> tuple[int, int]:
    """The least and the most blocks that can be free now."""
    if K[TOTAL] == NIL:
        return NIL, NIL
    if K[HAS_BLOCKS]:
        free = K[TOTAL] - S[HELD] - S[PINNED]
        return free, free
    if K[SIZE] == NIL:
        return NIL, NIL
    room = K[TOTAL] - S[PINNED]
    most = room - S[POSITIONS] if S[UNKNOWN_POSITIONS] == 0 else NIL
    return least_free(R, S, C, L, K, room), most


@compiled
def free_seats(R: Array, S: Array, C: Array, L: Array, K: Array) -> int:
    """Seats that this step's decisions may take."""
    if K[SEATS] == NIL:
        return NIL
    if K[PER_STEP]:
        return K[SEATS] - S[MEMBERS]
    return K[SEATS] - S[RUNS] - S[LATE_SEATS]


@compiled
def budget_left(R: Array, S: Array, C: Array, L: Array, K: Array) -> int:
    """The token budget less this step's members."""
    return NIL if K[BUDGET] == NIL else K[BUDGET] - S[TOKENS]


@compiled
def need_blocks(R: Array, S: Array, C: Array, L: Array, K: Array, r: int, budget: int) -> int:
    """Blocks that `admission.test` asks for, what the request holds taken off."""
    if K[TEST] == NEED_NONE or K[SIZE] == NIL:
        return NIL
    known = R[r, PROMPT] + R[r, OUTPUTS]
    tokens = known
    if K[TEST] == NEED_STEP:
        if K[CHUNKED]:
            if budget == NIL:
                return NIL
            tokens = min(known, max(1, budget))
    elif K[TEST] == NEED_KNOWN:
        tokens = known + K[TEST_MORE]
    else:
        if R[r, MAX_TOKENS] == NIL:
            return NIL
        tokens = known + max(0, R[r, MAX_TOKENS] - R[r, OUTPUTS])
    held = R[r, BLOCKS] if R[r, BLOCKS] != NIL else 0
    return max(0, blocks_for(tokens, K[SIZE]) - held)


@compiled
def fits(R: Array, S: Array, C: Array, L: Array, K: Array, r: int) -> int:
    """1, 0, or -1 where a term of the sum is not known. `r` does not run."""
    seats, budget = free_seats(R, S, C, L, K), budget_left(R, S, C, L, K)
    if seats == NIL or budget == NIL:
        return -1
    if seats < 1 or budget < 1:
        return 0
    if not K[CHUNKED] and R[r, PROMPT] + R[r, OUTPUTS] > budget:
        return 0
    need = need_blocks(R, S, C, L, K, r, budget)
    least, most = free_bounds(R, S, C, L, K)
    if need == NIL:
        return -1
    wanted = need + (K[WATERMARK] if S[RUNS] > 0 else 0)
    if least != NIL and wanted <= least:
        return 1
    if most != NIL and wanted > most:
        return 0
    return -1


@compiled
def head(R: Array, S: Array, C: Array, L: Array) -> int:
    """The earliest arrival that waits, or -1."""
    size = L.shape[1]
    while S[W_HEAD] < S[W_TAIL]:
        at = S[W_HEAD] % size
        r = L[WAIT_LIST, at]
        if R[r, NUMBER] == L[WAIT_NUMBERS, at] and R[r, STATE] == AT_WAITING:
            return whole(r)
        S[W_HEAD] += 1
    return -1


@compiled
def returning(R: Array, S: Array, C: Array, L: Array) -> int:
    """The preempted request that was admitted first, or -1."""
    best = -1
    for place in range(S[PRES]):
        r = L[PRE_LIST, place]
        if best < 0 or R[r, FIRST_ADMIT] < R[best, FIRST_ADMIT]:
            best = whole(r)
    return best


@compiled
def snapshot(R: Array, S: Array, C: Array, L: Array, K: Array) -> None:
    """Who is next, and does it fit, at the end of this step's decisions (Walk._snapshot)."""
    S[SNAPPED_AT] = S[DECISIONS]
    S[NEXT] = -1
    S[NEXT_FITS] = 0
    if S[WAITS] == 0 and S[PRES] == 0:
        return
    if not K[ORDERED] or (not K[FRONT] and S[PRES] > 0):
        S[NEXT_FITS] = -1
        return
    r = returning(R, S, C, L) if K[FRONT] else -1
    if r < 0:
        r = head(R, S, C, L)
        if r >= 0 and R[r, LATE] and R[r, ARRIVED] == S[STEP]:
            r = -1
    if r < 0:
        return
    S[NEXT] = r
    S[NEXT_NUMBER] = R[r, NUMBER]
    S[NEXT_FITS] = fits(R, S, C, L, K, r)
    if S[NEXT_FITS] == 1:
        S[FIT_SEATS] = free_seats(R, S, C, L, K)
        S[FIT_BUDGET] = budget_left(R, S, C, L, K)
        S[FIT_NEED] = need_blocks(R, S, C, L, K, r, S[FIT_BUDGET])
        S[FIT_FREE] = free_bounds(R, S, C, L, K)[0]
