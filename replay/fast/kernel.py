"""The kernel: one pass over rows of integers that says of each whether it is right beyond doubt.

It walks the rows as the readable checker does (checker.py), keeps the same books in arrays (layout.py),
and counts what each rule judges. It never reports: where a row breaks a rule, or might, or cannot be
told here, it stops in doubt, and the readable checker judges that stretch anew from the last boundary
between two steps. So a row may be doubted without need, which costs time, but none is passed wrongly.

Each test below names the rule that it stands for; the rules themselves are those of spec/rules.
"""

# ruff: noqa: F405 (the names of layout.py are constants to the compiler, too many to import one by one)

from typing import Any, NamedTuple

import numpy as np

from batchspec.replay.fast.compiled import compiled
from batchspec.replay.fast.layout import *  # noqa: F403

Array = Any
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(20)


class Books(NamedTuple):
    """The arrays of the books: requests, facts, counts, lists, the table of live ids, and slots.

    All are of 64 bits. A function gets only those that it needs: to hand them over costs time.
    """

    R: Array
    S: Array
    C: Array
    L: Array
    T: Array
    slots: Array


class Rows(NamedTuple):
    """The columns of one batch: values, and where there are nulls a bitmap and its first bit.

    `kind_of` and `reason_of` turn the dictionary codes of this batch into those of layout.py.
    """

    step: Array
    kind: Array
    kind_of: Array
    reason: Array
    reason_of: Array
    reason_mask: Array
    wide: tuple[Array, ...]
    wide_masks: tuple[Array, ...]
    narrow: tuple[Array, ...]
    narrow_masks: tuple[Array, ...]
    bits: Array


@compiled
def _valid(mask: Array, bit: int, row: int) -> bool:
    if mask.size == 0:
        return True
    at = bit + row
    return bool((mask[at >> 3] >> (at & 7)) & 1)


@compiled
def _narrow(values: Array, mask: Array, bit: int, row: int) -> int:
    if values.size == 0 or not _valid(mask, bit, row):
        return NIL
    return np.int64(values[row])


@compiled
def _wide(values: Array, mask: Array, bit: int, row: int) -> int:
    if values.size == 0 or not _valid(mask, bit, row):
        return NIL
    return np.int64(values[row])


# -- the table of live ids ---------------------------------------------------------------------------


@compiled
def _home(key: int, size: int) -> int:
    return np.int64((np.uint64(key) * _MIX) >> _SHIFT) & (size - 1)


@compiled
def find(T: Array, key: int) -> int:
    """The place of a live request in R, or -1. T has ids and places, linear probing."""
    size = T.shape[1]
    at = _home(key, size)
    while T[1, at] >= 0:
        if T[0, at] == key:
            return np.int64(T[1, at])
        at = (at + 1) & (size - 1)
    return -1


@compiled
def insert(T: Array, key: int, value: int) -> None:
    """Enter a request under its id, which must not be there."""
    size = T.shape[1]
    at = _home(key, size)
    while T[1, at] >= 0:
        at = (at + 1) & (size - 1)
    T[0, at] = key
    T[1, at] = value


@compiled
def remove(T: Array, key: int) -> None:
    """Take a request out; those that stood behind it because of it move up."""
    size = T.shape[1]
    at = _home(key, size)
    while T[1, at] >= 0 and T[0, at] != key:
        at = (at + 1) & (size - 1)
    if T[1, at] < 0:
        return
    hole = at
    at = (at + 1) & (size - 1)
    while T[1, at] >= 0:
        home = _home(T[0, at], size)
        if ((at - home) & (size - 1)) >= ((at - hole) & (size - 1)):
            T[0, hole] = T[0, at]
            T[1, hole] = T[1, at]
            hole = at
        at = (at + 1) & (size - 1)
    T[1, hole] = -1


# -- questions (spec/line.py) --------------------------------------------------------------------------


@compiled
def _blocks_for(tokens: int, size: int) -> int:
    return -(-tokens // size)


@compiled
def _least_free(R: Array, S: Array, C: Array, L: Array, K: Array, room: int) -> int:
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
        used += _blocks_for(most, K[SIZE])
    return room - used


@compiled
def _free_bounds(R: Array, S: Array, C: Array, L: Array, K: Array) -> tuple[int, int]:
    if K[TOTAL] == NIL:
        return NIL, NIL
    if K[HAS_BLOCKS]:
        free = K[TOTAL] - S[HELD] - S[PINNED]
        return free, free
    if K[SIZE] == NIL:
        return NIL, NIL
    room = K[TOTAL] - S[PINNED]
    most = room - S[POSITIONS] if S[UNKNOWN_POSITIONS] == 0 else NIL
    return _least_free(R, S, C, L, K, room), most


@compiled
def _free_seats(R: Array, S: Array, C: Array, L: Array, K: Array) -> int:
    if K[SEATS] == NIL:
        return NIL
    if K[PER_STEP]:
        return K[SEATS] - S[MEMBERS]
    return K[SEATS] - S[RUNS] - S[LATE_SEATS]


@compiled
def _budget_left(R: Array, S: Array, C: Array, L: Array, K: Array) -> int:
    return NIL if K[BUDGET] == NIL else K[BUDGET] - S[TOKENS]


@compiled
def _need_blocks(R: Array, S: Array, C: Array, L: Array, K: Array, r: int, budget: int) -> int:
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
    return max(0, _blocks_for(tokens, K[SIZE]) - held)


@compiled
def _fits(R: Array, S: Array, C: Array, L: Array, K: Array, r: int) -> int:
    """1, 0, or -1 where a term of the sum is not known. `r` does not run."""
    seats, budget = _free_seats(R, S, C, L, K), _budget_left(R, S, C, L, K)
    if seats == NIL or budget == NIL:
        return -1
    if seats < 1 or budget < 1:
        return 0
    if not K[CHUNKED] and R[r, PROMPT] + R[r, OUTPUTS] > budget:
        return 0
    need = _need_blocks(R, S, C, L, K, r, budget)
    least, most = _free_bounds(R, S, C, L, K)
    if need == NIL:
        return -1
    wanted = need + (K[WATERMARK] if S[RUNS] > 0 else 0)
    if least != NIL and wanted <= least:
        return 1
    if most != NIL and wanted > most:
        return 0
    return -1


@compiled
def _head(R: Array, S: Array, C: Array, L: Array) -> int:
    """The earliest arrival that waits, or -1."""
    size = L.shape[1]
    while S[W_HEAD] < S[W_TAIL]:
        at = S[W_HEAD] % size
        r = L[WAIT_LIST, at]
        if R[r, NUMBER] == L[WAIT_NUMBERS, at] and R[r, STATE] == AT_WAITING:
            return np.int64(r)
        S[W_HEAD] += 1
    return -1


@compiled
def _returning(R: Array, S: Array, C: Array, L: Array) -> int:
    """The preempted request that was admitted first, or -1."""
    best = -1
    for place in range(S[PRES]):
        r = L[PRE_LIST, place]
        if best < 0 or R[r, FIRST_ADMIT] < R[best, FIRST_ADMIT]:
            best = np.int64(r)
    return best


@compiled
def _snapshot(R: Array, S: Array, C: Array, L: Array, K: Array) -> None:
    """Who is next, and does it fit, at the end of this step's decisions (Walk._snapshot)."""
    S[SNAPPED_AT] = S[DECISIONS]
    S[NEXT] = -1
    S[NEXT_FITS] = 0
    if S[WAITS] == 0 and S[PRES] == 0:
        return
    if not K[ORDERED] or (not K[FRONT] and S[PRES] > 0):
        S[NEXT_FITS] = -1
        return
    r = _returning(R, S, C, L) if K[FRONT] else -1
    if r < 0:
        r = _head(R, S, C, L)
        if r >= 0 and R[r, LATE] and R[r, ARRIVED] == S[STEP]:
            r = -1
    if r < 0:
        return
    S[NEXT] = r
    S[NEXT_NUMBER] = R[r, NUMBER]
    S[NEXT_FITS] = _fits(R, S, C, L, K, r)
    if S[NEXT_FITS] == 1:
        S[FIT_SEATS] = _free_seats(R, S, C, L, K)
        S[FIT_BUDGET] = _budget_left(R, S, C, L, K)
        S[FIT_NEED] = _need_blocks(R, S, C, L, K, r, S[FIT_BUDGET])
        S[FIT_FREE] = _free_bounds(R, S, C, L, K)[0]


@compiled
def _decide(R: Array, S: Array, C: Array, L: Array, K: Array, A: Array) -> bool:
    """The members of the step are final. False where one of the rules may be broken."""
    S[DECIDED] = 1
    S[DECIDED_AT] = S[DECISIONS]
    if K[PER_STEP]:
        C[R_CAPACITY] += 1
        if A[R_CAPACITY] and S[MEMBERS_RUN] > K[SEATS]:
            return False
    C[R_TOKEN_BUDGET] += 1
    return not (A[R_TOKEN_BUDGET] and S[TOKENS] > K[BUDGET])


# -- steps ---------------------------------------------------------------------------------------------


@compiled
def _turn(R: Array, S: Array, C: Array, L: Array, T: Array, K: Array, A: Array, step: int) -> bool:
    """The first row of the next step."""
    for place in range(S[ENDED]):
        r = L[ENDED_LIST, place]
        remove(T, R[r, ID])
        R[r, NUMBER] = -1
        L[FREE_LIST, S[FREE]] = r
        S[FREE] += 1
    S[ENDED] = 0
    S[STEP] = step
    S[STEPS] += 1
    S[OPEN] = 1
    S[MEMBERS] = S[MEMBERS_LISTED] = S[MEMBERS_RUN] = 0
    S[TOKENS] = S[DECIDED] = S[DECISIONS] = 0
    S[DECIDED_AT] = S[SNAPPED_AT] = -1
    S[ADMITTED] = S[PREEMPTED] = S[LATE_SEATS] = S[DUES] = 0
    S[FAILED] = S[FAILED_ABLE] = 0
    S[NEXT] = -1
    S[NEXT_FITS] = -1
    S[ENDS_OLD] = S[ENDS]
    C[R_BACKWARDS] += 1
    C[R_FORBIDDEN] += 1
    if A[R_NEEDLESS] and S[WAIT_NEXT] >= 0 and S[WAIT_COUNT] == K[NEEDLESS_K]:
        r = S[WAIT_NEXT]
        return R[r, NUMBER] != S[WAIT_NUMBER]
    return True


@compiled
def _emit(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    R[r, OUTPUTS] += 1
    S[EDGES] = 0


@compiled
def _work(R: Array, S: Array, C: Array, L: Array, K: Array) -> int:
    """Whether an empty step should not have been one (IdleStall._work): 1, 0; -1 where nobody can say."""
    if S[RUNS] > 0:
        return 0 if S[ENDED] > 0 else 1
    if S[ENDED] > 0 or S[PREEMPTED] > 0:
        return 0
    r = S[NEXT]
    if r >= 0 and S[NEXT_FITS] == 1:
        return 1
    if r < 0:
        r = np.int64(L[PRE_LIST, 0]) if S[PRES] > 0 else _head(R, S, C, L)
        if r < 0 or (R[r, LATE] and R[r, ARRIVED] == S[STEP]):
            return 0
    elif R[r, NUMBER] != S[NEXT_NUMBER] or R[r, STATE] == AT_ENDED:
        return 0
    if S[PINNED] != 0:
        return 0
    if R[r, NEVER] == NEVER_UNSAID and S[HELD] == 0:
        return -1
    return 0 if R[r, NEVER] == NEVER_YES else 1


@compiled
def _close(
    R: Array,
    S: Array,
    C: Array,
    L: Array,
    K: Array,
    A: Array,
    told: bool,
    free: int,
    waiting: int,
    running: int,
    pinned: int,
) -> bool:
    """The step ends; `told` with its own row and what that reports. False where a rule may be broken."""
    now = S[STEPS]
    if S[SNAPPED_AT] != S[DECISIONS]:
        _snapshot(R, S, C, L, K)
    if (not S[DECIDED] or S[DECIDED_AT] != S[DECISIONS]) and not _decide(R, S, C, L, K, A):
        return False
    if told:
        if pinned != NIL:
            S[PINNED] = pinned
        elif K[PINS]:
            return False
    # batch/no-stall asks who decoded before this step, so the outputs of this one come behind it.
    C[R_NO_STALL] += S[MEMBERS]
    behind = S[RUNS] - S[MEMBERS_RUN]
    if S[MEMBERS] > 0 and behind > 0:
        C[R_NO_STALL] += S[RUNS] - S[MEMBERS]
    decodes = -1
    first_emission = True
    for place in range(S[MEMBERS_LISTED]):
        r = np.int64(L[MEMBER_LIST, place])
        if R[r, MEMBER_AT] != now or R[r, STATE] != AT_RUNNING or not R[r, MEMBER_REACHES]:
            continue
        if first_emission:
            first_emission = False
            S[EDGES] = 0
        R[r, OUTPUTS] += 1
        if not R[r, DECODES]:
            R[r, DECODES] = 1
    # -- closing, rule by rule
    if S[FAILED] > 0:
        C[R_ABORT_TARGET] += 1
        if A[R_ABORT_TARGET] and S[FAILED] > 1 and S[FAILED_ABLE] > 0:
            return False
    if A[R_NO_STALL] and S[MEMBERS] > 0 and behind > 0:
        for place in range(S[RUNS]):
            r = np.int64(L[RUN_LIST, place])
            if R[r, MEMBER_AT] == now or R[r, ADMITTED_AT] == now or not R[r, DECODES]:
                continue
            if R[r, COMPUTED] == NIL or R[r, COMPUTED] <= 0:
                continue
            if R[r, COMPUTED] < R[r, PROMPT] + R[r, OUTPUTS] - 1:
                continue
            if decodes < 0:
                decodes = 0
                for other in range(S[MEMBERS_LISTED]):
                    m = np.int64(L[MEMBER_LIST, other])
                    if R[m, MEMBER_AT] == now and R[m, MEMBER_REACHES] and R[m, MEMBER_TOKENS] == 1:
                        decodes += 1
            if K[BUDGET] != NIL and decodes < K[BUDGET]:
                return False
    due = S[ENDS_OLD]
    if due > 0 and not (S[PREEMPTED] > 0 and not K[SAME_STEP]):
        mine = S[NEXT] >= 0 and R[S[NEXT], PREEMPTED_AT] == now
        if not mine:
            if S[ADMITTED] >= due or S[NEXT_FITS] == 0:
                C[R_REUSE] += 1
            elif S[NEXT_FITS] == -1:
                C[SKIPS + R_REUSE] += 1
            elif A[R_REUSE]:
                return False
            left = S[ENDS] - due
            for place in range(left):
                L[END_STEP, place] = L[END_STEP, due + place]
                L[END_ID, place] = L[END_ID, due + place]
            S[ENDS] = left
            S[ENDS_OLD] = 0
    if told:
        if free == NIL or K[TOTAL] == NIL:
            C[SKIPS + R_CONSERVATION] += 1
        else:
            C[R_CONSERVATION] += 1
            if A[R_CONSERVATION] and free + S[HELD] + S[PINNED] != K[TOTAL]:
                return False
    if S[LIVE] > 0:
        S[LEAK_TOLD] = 0
    elif told and not S[LEAK_TOLD]:
        if free == NIL or K[TOTAL] == NIL or S[PINNED] != 0:
            C[SKIPS + R_LEAK] += 1
        else:
            C[R_LEAK] += 1
            if A[R_LEAK] and free != K[TOTAL]:
                return False
    next_lives = S[NEXT] >= 0 and R[S[NEXT], NUMBER] == S[NEXT_NUMBER] and R[S[NEXT], STATE] != AT_ENDED
    if A[R_NEVER_FIT]:
        if next_lives and R[S[NEXT], STATE] != AT_RUNNING and R[S[NEXT], NEVER] == NEVER_YES:
            return False
        if S[RUNS] == 1 and S[MEMBERS] == 0 and K[TOTAL] != NIL and K[SIZE] != NIL:
            r = np.int64(L[RUN_LIST, 0])
            if _blocks_for(R[r, PROMPT] + R[r, OUTPUTS], K[SIZE]) > K[TOTAL]:
                return False
        if S[NEXT] >= 0:
            C[R_NEVER_FIT] += 1
    if not (S[PREEMPTED] > 0 and not K[SAME_STEP]):
        if S[NEXT] < 0:
            S[WAIT_NEXT] = -1
            S[WAIT_COUNT] = 0
        else:
            if S[NEXT_FITS] == -1:
                C[SKIPS + R_NEEDLESS] += 1
            else:
                C[R_NEEDLESS] += 1
            if S[NEXT_FITS] != 1 or not next_lives:
                S[WAIT_NEXT] = -1
                S[WAIT_COUNT] = 0
            else:
                again = S[WAIT_NEXT] == S[NEXT] and S[WAIT_NUMBER] == S[NEXT_NUMBER]
                S[WAIT_COUNT] = S[WAIT_COUNT] + 1 if again else 1
                S[WAIT_NEXT] = S[NEXT]
                S[WAIT_NUMBER] = S[NEXT_NUMBER]
                S[WAIT_SEATS] = S[FIT_SEATS]
                S[WAIT_BUDGET] = S[FIT_BUDGET]
                S[WAIT_NEED] = S[FIT_NEED]
                S[WAIT_FREE] = S[FIT_FREE]
    if A[R_USEFUL]:
        for place in range(S[DUES]):
            cause = np.int64(L[DUE_CAUSE, place])
            if L[DUE_GAVE, place] == 0 and not L[DUE_WAITS, place]:
                return False
            served = R[cause, MEMBER_AT] == now or R[cause, PREEMPTED_AT] == now
            if not served and R[cause, STATE] != AT_ENDED:
                return False
    if S[MEMBERS] > 0 or S[LIVE] == 0:
        S[EMPTY] = 0
        C[R_IDLE] += 1
    else:
        work = _work(R, S, C, L, K)
        if work == 1:
            C[R_IDLE] += 1
            S[EMPTY] += 1
            if A[R_IDLE] and S[EMPTY] == K[IDLE_K] + 1:
                return False
        else:
            if work == -1:
                C[SKIPS + R_IDLE] += 1
            S[EMPTY] = 0
    if S[MISSES] == 0 and S[MEMBERS] == S[RUNS]:
        C[R_STARVED] += S[MEMBERS]
    else:
        C[R_STARVED] += S[RUNS]
        S[MISSES] = 0
        if behind > 0:
            for place in range(S[RUNS]):
                r = np.int64(L[RUN_LIST, place])
                if R[r, MEMBER_AT] == now:
                    continue
                missed = R[r, MISSED] + 1 if R[r, MISSED_AT] == now - 1 else 1
                R[r, MISSED] = missed
                R[r, MISSED_AT] = now
                S[MISSES] += 1
                if A[R_STARVED] and missed == K[STARVED_K] + 1:
                    return False
    if told:
        if running != NIL:
            C[R_STATS] += 1
            if A[R_STATS] and running != S[RUNS]:
                return False
        if waiting != NIL:
            C[R_STATS] += 1
            if A[R_STATS] and waiting != S[LIVE] - S[RUNS]:
                return False
        if free != NIL and K[TOTAL] != NIL and K[HAS_BLOCKS]:
            C[R_STATS] += 1
            if A[R_STATS] and free != K[TOTAL] - S[HELD] - S[PINNED]:
                return False
    S[OPEN] = 0
    return True


# -- events --------------------------------------------------------------------------------------------


@compiled
def _count_position(R: Array, S: Array, C: Array, L: Array, K: Array, computed: int, sign: int) -> None:
    """The sum of ceil(c / b) over running requests, for traces without block counts."""
    if K[HAS_BLOCKS] or K[SIZE] == NIL:
        return
    if computed == NIL:
        S[UNKNOWN_POSITIONS] += sign
    else:
        S[POSITIONS] += sign * _blocks_for(computed, K[SIZE])


@compiled
def _leave_run(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    last = L[RUN_LIST, S[RUNS] - 1]
    place = R[r, PLACE_IN_RUN]
    L[RUN_LIST, place] = last
    R[last, PLACE_IN_RUN] = place
    S[RUNS] -= 1


@compiled
def _leave_pre(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    place = 0
    while L[PRE_LIST, place] != r:
        place += 1
    for at in range(place, S[PRES] - 1):
        L[PRE_LIST, at] = L[PRE_LIST, at + 1]
    S[PRES] -= 1


@compiled
def _leave_slot(
    R: Array, S: Array, C: Array, L: Array, slots: Array, r: int, free_from: int, pass_step: int
) -> None:
    slot = R[r, SLOT]
    if slot == NIL:
        return
    slots[slot, 1] = free_from
    slots[slot, 2] = R[r, ID]
    slots[slot, 3] = pass_step
    if slots[slot, 0] == r:
        slots[slot, 0] = -1


@compiled
def _take_back(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    """Undo a membership of this step."""
    if R[r, MEMBER_AT] == S[STEPS]:
        R[r, MEMBER_AT] = -1
        S[MEMBERS] -= 1
        S[MEMBERS_RUN] -= 1
        S[TOKENS] -= R[r, MEMBER_TOKENS]


@compiled
def _causality(
    R: Array, S: Array, C: Array, L: Array, K: Array, A: Array, r: int, now: int, what: int
) -> bool:
    if now == NIL or not K[CLOCK] or R[r, LAST_NS] == NIL:
        return True
    C[R_CAUSALITY] += 1
    if A[R_CAUSALITY] and now < R[r, LAST_NS]:
        return False
    R[r, LAST_NS] = max(now, R[r, LAST_NS])
    R[r, LAST_WHAT] = what
    return True


@compiled
def _join(
    R: Array,
    S: Array,
    C: Array,
    L: Array,
    slots: Array,
    K: Array,
    A: Array,
    r: int,
    slot: int,
    cached: int,
    blocks: int,
) -> bool:
    """An admit or a resume, its rules included."""
    known = R[r, PROMPT] + R[r, OUTPUTS]
    if slot == NIL:
        C[SKIPS + R_SLOT_EXCLUSIVE] += 1
        C[SKIPS + R_SLOT_RANGE] += 1
        C[SKIPS + R_EARLY_REUSE] += 1
    else:
        if slot < 0 or slot >= slots.shape[0]:
            return False
        C[R_SLOT_EXCLUSIVE] += 1
        C[R_SLOT_RANGE] += 1
        C[R_EARLY_REUSE] += 1
        if slots[slot, 0] >= 0:
            return False
        if A[R_SLOT_RANGE] and slot >= K[SEATS]:
            return False
        if slots[slot, 1] != NIL:
            if A[R_EARLY_REUSE] and S[STEP] < slots[slot, 1]:
                return False
            slots[slot, 1] = NIL
    if cached != NIL:
        C[R_POSITION] += 1
        if A[R_POSITION] and cached >= known:
            return False
    if A[R_FIT]:
        most = _free_bounds(R, S, C, L, K)[1]
        need = NIL
        if K[TEST] == NEED_STEP:
            if blocks != NIL and R[r, BLOCKS] != NIL:
                need = max(0, blocks - R[r, BLOCKS])
        else:
            need = _need_blocks(R, S, C, L, K, r, _budget_left(R, S, C, L, K))
        if need == NIL or most == NIL:
            C[SKIPS + R_FIT] += 1
        else:
            C[R_FIT] += 1
            if need + (K[WATERMARK] if S[RUNS] > 0 else 0) > most:
                return False
    C[R_NO_ADMISSION] += 1
    if A[R_NO_ADMISSION] and S[PREEMPTED] > 0:
        return False
    R[r, BEFORE] = R[r, BLOCKS]
    # -- in effect
    R[r, STATE] = AT_RUNNING
    R[r, JOINED] = S[JOINS]
    if R[r, FIRST_ADMIT] == NIL:
        R[r, FIRST_ADMIT] = S[JOINS]
    S[JOINS] += 1
    L[RUN_LIST, S[RUNS]] = r
    R[r, PLACE_IN_RUN] = S[RUNS]
    S[RUNS] += 1
    _count_position(R, S, C, L, K, cached, 1)
    R[r, SLOT] = slot
    R[r, COMPUTED] = cached
    R[r, ADOPTS] = 1 if cached == NIL else 0
    if slot != NIL:
        slots[slot, 0] = r
    if K[HAS_BLOCKS]:
        if blocks == NIL:
            return False
        S[HELD] += blocks - R[r, BLOCKS]
        R[r, BLOCKS] = blocks
    elif R[r, BLOCKS] == NIL:
        R[r, BLOCKS] = 0
    if R[r, ADMITTED_AT] != S[STEPS]:
        R[r, ADMITTED_AT] = S[STEPS]
        S[ADMITTED] += 1
    S[DECISIONS] += 1
    # -- after it
    if not K[PER_STEP]:
        C[R_CAPACITY] += 1
        if A[R_CAPACITY] and S[RUNS] > K[SEATS]:
            return False
    return _bound(R, S, C, L, K, A)


@compiled
def _bound(R: Array, S: Array, C: Array, L: Array, K: Array, A: Array) -> bool:
    if not A[R_BOUND]:
        return True
    C[R_BOUND] += 1
    return (S[HELD] if K[HAS_BLOCKS] else S[POSITIONS]) <= K[TOTAL]


@compiled
def _end(
    R: Array,
    S: Array,
    C: Array,
    L: Array,
    slots: Array,
    K: Array,
    A: Array,
    r: int,
    outputs: int,
    reason: int,
    blocks: int,
    kind: int,
) -> bool:
    """A finish, abort or reject, its rules included. `blocks` is what the row says is still held."""
    if blocks != NIL and blocks != 0:
        return False
    runs = R[r, STATE] == AT_RUNNING
    if kind != K_REJECT:
        limit, counted = R[r, MAX_TOKENS], R[r, OUTPUTS]
        if outputs == NIL and limit == NIL:
            C[SKIPS + R_OUTPUT_COUNT] += 1
        else:
            C[R_OUTPUT_COUNT] += 1
            if A[R_OUTPUT_COUNT]:
                if outputs != NIL and outputs != counted:
                    return False
                if limit != NIL:
                    if counted > limit:
                        return False
                    short = reason == W_LENGTH and counted != limit
                    if short and (K[LONGEST] == NIL or R[r, PROMPT] + counted < K[LONGEST]):
                        return False
        if R[r, LEAST] != NIL and outputs != NIL:
            C[R_LOST] += 1
            if A[R_LOST] and outputs < R[r, LEAST]:
                return False
        if reason == W_ERROR or (reason == W_MEMORY and kind == K_ABORT):
            S[FAILED] += 1
            if R[r, NEVER] != NEVER_YES:
                S[FAILED_ABLE] += 1
        if runs:
            if S[ENDS] >= L.shape[1]:
                return False
            L[END_STEP, S[ENDS]] = S[STEP]
            L[END_ID, S[ENDS]] = R[r, ID]
            S[ENDS] += 1
    C[R_RELEASE] += 1
    # -- in effect
    if runs:
        _leave_slot(R, S, C, L, slots, r, S[STEP] + (1 if kind == K_FINISH else 0), S[STEP])
        if kind == K_ABORT:
            _take_back(R, S, C, L, r)
        else:
            S[LATE_SEATS] += 1
            if R[r, MEMBER_AT] == S[STEPS]:
                S[MEMBERS_RUN] -= 1
        _leave_run(R, S, C, L, r)
        _count_position(R, S, C, L, K, R[r, COMPUTED], -1)
    elif R[r, STATE] == AT_PREEMPTED:
        _leave_pre(R, S, C, L, r)
    else:
        S[WAITS] -= 1
    if R[r, BLOCKS] != NIL:
        S[HELD] -= R[r, BLOCKS]
    R[r, STATE] = AT_ENDED
    L[ENDED_LIST, S[ENDED]] = r
    S[ENDED] += 1
    S[LIVE] -= 1
    if kind == K_REJECT:
        S[DECISIONS] += 1
    return True


@compiled
def _need_now(R: Array, S: Array, C: Array, L: Array, K: Array, r: int) -> int:
    """The most blocks that a running request can still ask for in this step (preemption/cause)."""
    if R[r, COMPUTED] == NIL or R[r, BLOCKS] == NIL:
        return NIL
    if R[r, MEMBER_AT] == S[STEPS]:
        return 0
    budget = _budget_left(R, S, C, L, K)
    left = max(1, R[r, PROMPT] + R[r, OUTPUTS] - R[r, COMPUTED])
    tokens = left if budget == NIL else min(left, max(1, budget))
    return _blocks_for(R[r, COMPUTED] + tokens + K[LOOKAHEAD], K[SIZE]) - R[r, BLOCKS]


@compiled
def _right_cause(R: Array, S: Array, C: Array, L: Array, K: Array, r: int, named: bool, cause: int) -> bool:
    """preemption/cause: its beneficiary needs more than is free."""
    least = _free_bounds(R, S, C, L, K)[0]
    if least == NIL:
        C[SKIPS + R_CAUSE] += 1
        return True
    known = named and cause >= 0
    most = NIL
    if known:
        if R[cause, STATE] != AT_RUNNING:
            return False
        most = _need_now(R, S, C, L, K, cause)
        if most == NIL:
            C[SKIPS + R_CAUSE] += 1
            return True
    else:
        for place in range(S[RUNS]):
            other = np.int64(L[RUN_LIST, place])
            if other != r and R[other, MEMBER_AT] == S[STEPS]:
                continue
            need = _need_now(R, S, C, L, K, other)
            if need == NIL:
                C[SKIPS + R_CAUSE] += 1
                return True
            most = max(most, need)
    C[R_CAUSE] += 1
    return most + K[HEADROOM] > least


@compiled
def _right_victim(R: Array, S: Array, C: Array, L: Array, K: Array, r: int, named: bool, cause: int) -> bool:
    """preemption/victim: the policy's victim."""
    if K[VICTIM] == V_SELF:
        if not named:
            C[SKIPS + R_VICTIM] += 1
            return True
        C[R_VICTIM] += 1
        return cause == r
    C[R_VICTIM] += 1
    if K[VICTIM] == V_NEWEST_DENIED:
        if S[RUNS] == 1 and S[WAITS] > 0 and S[PRES] == 0:
            return True
        return R[r, MEMBER_AT] != S[STEPS]
    for place in range(S[RUNS]):
        other = np.int64(L[RUN_LIST, place])
        if K[VICTIM] == V_LATEST_ADMITTED and R[other, JOINED] > R[r, JOINED]:
            return False
        if K[VICTIM] == V_LATEST_ARRIVED and R[other, NUMBER] > R[r, NUMBER]:
            return False
        if K[VICTIM] == V_FEWEST_OUTPUTS and R[other, OUTPUTS] < R[r, OUTPUTS]:
            return False
    return True


@compiled
def _preempt(
    R: Array,
    S: Array,
    C: Array,
    L: Array,
    slots: Array,
    T: Array,
    K: Array,
    A: Array,
    r: int,
    named: bool,
    cause_id: int,
    blocks: int,
) -> bool:
    if A[R_FORBIDDEN] or (blocks != NIL and blocks != 0):
        return False
    cause = find(T, cause_id) if named else -1
    if named and (cause < 0 or R[cause, STATE] == AT_ENDED):
        return False
    if A[R_CAUSE] and not _right_cause(R, S, C, L, K, r, named, cause):
        return False
    if A[R_VICTIM] and not _right_victim(R, S, C, L, K, r, named, cause):
        return False
    C[R_NO_ADMISSION] += 1
    if A[R_NO_ADMISSION] and S[ADMITTED] > 0:
        return False
    known = R[r, PROMPT] + R[r, OUTPUTS]
    C[R_THRASH] += 1
    if R[r, THRASH_KNOWN] == NIL or known > R[r, THRASH_KNOWN]:
        R[r, THRASH_KNOWN] = known
        R[r, THRASH_TIMES] = 0
    else:
        R[r, THRASH_TIMES] += 1
        if A[R_THRASH] and R[r, THRASH_TIMES] > K[THRASH_K]:
            return False
    R[r, LEAST] = R[r, OUTPUTS]
    held = R[r, BLOCKS]
    # -- in effect
    _take_back(R, S, C, L, r)
    _leave_slot(R, S, C, L, slots, r, S[STEP], S[STEP])
    _leave_run(R, S, C, L, r)
    _count_position(R, S, C, L, K, R[r, COMPUTED], -1)
    R[r, COMPUTED] = 0
    R[r, ADOPTS] = 0
    R[r, SLOT] = NIL
    R[r, PREEMPTIONS] += 1
    R[r, STATE] = AT_PREEMPTED
    L[PRE_LIST, S[PRES]] = r
    S[PRES] += 1
    if held != NIL:
        S[HELD] -= held
    R[r, BLOCKS] = 0
    if R[r, PREEMPTED_AT] != S[STEPS]:
        R[r, PREEMPTED_AT] = S[STEPS]
        S[PREEMPTED] += 1
    S[DECISIONS] += 1
    R[r, DECODES] = 0
    R[r, KEPT] = 1
    C[R_RELEASE] += 1
    if not named:
        C[SKIPS + R_USEFUL] += 1
        return True
    C[R_USEFUL] += 1
    if cause == r:
        return True
    C[R_LIVELOCK] += 1
    if S[DUES] >= L.shape[1] or S[EDGES] >= L.shape[1]:
        return False
    L[DUE_CAUSE, S[DUES]] = cause
    L[DUE_GAVE, S[DUES]] = -1 if not K[HAS_BLOCKS] else (1 if held > 0 else 0)
    L[DUE_WAITS, S[DUES]] = R[cause, STATE] != AT_RUNNING
    S[DUES] += 1
    if S[EDGES] == 0:
        S[EDGES_SINCE] = S[STEPS]
    L[EDGE_CAUSE, S[EDGES]] = cause_id
    L[EDGE_VICTIM, S[EDGES]] = R[r, ID]
    S[EDGES] += 1
    return not (A[R_LIVELOCK] and S[STEPS] - S[EDGES_SINCE] >= K[LIVELOCK_K])


@compiled
def _arrive(
    R: Array, S: Array, C: Array, L: Array, T: Array, K: Array, key: int, prompt: int, most: int, now: int
) -> None:
    """Enter a request into the books. There is room for it."""
    S[FREE] -= 1
    r = np.int64(L[FREE_LIST, S[FREE]])
    for column in range(R.shape[1]):
        R[r, column] = NIL
    R[r, ID] = key
    R[r, NUMBER] = S[ARRIVALS]
    R[r, STATE] = AT_WAITING
    R[r, ADOPTS] = 0
    R[r, COMPUTED] = 0
    R[r, OUTPUTS] = 0
    R[r, BLOCKS] = 0
    R[r, PROMPT] = prompt
    R[r, DECODES] = 0
    R[r, MAX_TOKENS] = most
    R[r, ARRIVED] = S[STEP]
    R[r, ARRIVED_NS] = now
    R[r, PREEMPTIONS] = 0
    R[r, LATE] = 1 if S[DECISIONS] > 0 else 0
    R[r, KEPT] = 0
    if K[CLOCK]:
        R[r, LAST_NS] = now
    R[r, LAST_WHAT] = 0
    never = NEVER_NO
    if K[LONGEST] != NIL and prompt >= K[LONGEST]:
        never = NEVER_YES
    elif not K[CHUNKED_UNSAID] and not K[CHUNKED] and K[BUDGET] != NIL and prompt > K[BUDGET]:
        never = NEVER_YES
    elif K[TOTAL] == NIL or K[SIZE] == NIL:
        never = NEVER_UNSAID
    else:
        least = prompt
        if K[TEST] == NEED_KNOWN:
            least = max(least, prompt + K[TEST_MORE])
        if K[RESERVE] == NEED_KNOWN:
            least = max(least, prompt + K[RESERVE_MORE])
        if K[TEST] == NEED_FULL or K[RESERVE] == NEED_FULL:
            least = max(least, prompt + most) if most != NIL else NIL
        if least != NIL and _blocks_for(least, K[SIZE]) > K[TOTAL]:
            never = NEVER_YES
    R[r, NEVER] = never
    S[ARRIVALS] += 1
    S[LIVE] += 1
    S[WAITS] += 1
    insert(T, key, r)
    at = S[W_TAIL] % L.shape[1]
    L[WAIT_LIST, at] = r
    L[WAIT_NUMBERS, at] = R[r, NUMBER]
    S[W_TAIL] += 1


@compiled
def _room(R: Array, S: Array, C: Array, L: Array) -> bool:
    """Is there room for one more request? The line is packed where it is full of those that left it."""
    if S[FREE] == 0:
        return False
    size = L.shape[1]
    if S[W_TAIL] - S[W_HEAD] >= size:
        kept = S[W_HEAD]
        for at in range(S[W_HEAD], S[W_TAIL]):
            place = at % size
            r = L[WAIT_LIST, place]
            if R[r, NUMBER] == L[WAIT_NUMBERS, place] and R[r, STATE] == AT_WAITING:
                L[WAIT_LIST, kept % size] = r
                L[WAIT_NUMBERS, kept % size] = L[WAIT_NUMBERS, place]
                kept += 1
        S[W_TAIL] = kept
    return S[W_TAIL] - S[W_HEAD] < size


@compiled
def _row(
    R: Array,
    S: Array,
    C: Array,
    L: Array,
    slots: Array,
    T: Array,
    K: Array,
    A: Array,
    kind: int,
    key: int,
    now: int,
    reason: int,
    one: int,
    two: int,
    blocks: int,
    cause: int,
) -> bool:
    """One row of any kind but `schedule` and `step`. False where it is in doubt.

    `one` and `two` are prompt and max tokens of an arrival, slot and cached of an admit or resume, and
    `one` the output tokens of an end.
    """
    S[SUBJECTS] += 1
    S[SEEN] |= 1 << kind
    r = find(T, key)
    if kind == K_ARRIVE:
        if r >= 0 or one == NIL:
            return False
        _arrive(R, S, C, L, T, K, key, one, two, now)
        return True
    if r < 0:
        return False
    state = R[r, STATE]
    if kind == K_ADMIT:
        if state != AT_WAITING:
            return False
        if K[ORDERED]:
            C[R_ORDER] += 1
            C[R_HEAD_OF_LINE] += 1
            C[R_OVERTAKING] += 1
            if (A[R_ORDER] or A[R_HEAD_OF_LINE] or A[R_OVERTAKING]) and _head(R, S, C, L) != r:
                return False
        else:
            C[SKIPS + R_ORDER] += 1
        C[R_RESUME_FIRST] += 1
        if A[R_RESUME_FIRST] and S[PRES] > 0:
            return False
        if not _causality(R, S, C, L, K, A, r, now, 1):
            return False
        S[WAITS] -= 1
        return _join(R, S, C, L, slots, K, A, r, one, two, blocks)
    if kind == K_RESUME:
        if state != AT_PREEMPTED:
            return False
        C[R_RESUME_FIRST] += 1
        if A[R_RESUME_FIRST]:
            for place in range(S[PRES]):
                if R[L[PRE_LIST, place], FIRST_ADMIT] < R[r, FIRST_ADMIT]:
                    return False
        if two != NIL and R[r, KEPT]:
            R[r, KEPT] = 0
            C[R_SWAP] += 1
            if A[R_SWAP] and two > 0 and K[NO_PREFIX]:
                return False
        _leave_pre(R, S, C, L, r)
        return _join(R, S, C, L, slots, K, A, r, one, two, blocks)
    if kind == K_PREEMPT:
        if state != AT_RUNNING:
            return False
        if not (reason == W_RECOMPUTE or (reason == W_NONE and K[RECOMPUTES])):
            return False
        return _preempt(R, S, C, L, slots, T, K, A, r, cause != NIL, cause, blocks)
    if state == AT_ENDED:
        return False
    if kind == K_REJECT:
        if state != AT_WAITING or not _causality(R, S, C, L, K, A, r, now, 2):
            return False
        if reason == W_TOO_LONG and A[R_NEVER_FIT] and R[r, MAX_TOKENS] != NIL and K[LONGEST] != NIL:
            if R[r, PROMPT] + R[r, MAX_TOKENS] <= K[LONGEST]:
                return False
        return _end(R, S, C, L, slots, K, A, r, NIL, reason, blocks, kind)
    if S[DECISIONS] > 0 and S[SNAPPED_AT] != S[DECISIONS]:
        _snapshot(R, S, C, L, K)
    if kind == K_FINISH:
        if S[DECISIONS] > 0 and not S[DECIDED]:
            if not _decide(R, S, C, L, K, A):
                return False
        elif S[SNAPPED_AT] < 0:
            _snapshot(R, S, C, L, K)
        if state != AT_RUNNING:
            return False
        if R[r, MEMBER_AT] == S[STEPS] and R[r, MEMBER_REACHES]:
            _emit(R, S, C, L, r)
    if not _causality(R, S, C, L, K, A, r, now, 2):
        return False
    return _end(R, S, C, L, slots, K, A, r, one, reason, blocks, kind)


@compiled
def _scheduled(R: Array, S: Array, C: Array, L: Array, rows: int) -> None:
    """One instance of each of these for each row that was scheduled."""
    if rows == 0:
        return
    S[SEEN] |= 1 << K_SCHEDULE
    S[SUBJECTS] += rows
    S[EVENTS] += rows
    C[R_MEMBERSHIP] += rows
    C[R_EMPTY_MEMBER] += rows
    C[R_POSITION] += rows
    C[R_OVERRUN] += rows
    C[R_CHUNKING] += rows
    C[R_COVERAGE] += rows
    C[R_WASTE] += rows
    C[R_BOUND] += rows


@compiled
def _adopts(
    R: Array, S: Array, C: Array, L: Array, K: Array, A: Array, r: int, start: int, known: int
) -> bool:
    """tokens/position and preemption/swap of a first pass after a join that did not say what is cached."""
    if start < 0 or start >= known:
        return False
    if R[r, KEPT]:
        R[r, KEPT] = 0
        C[R_SWAP] += 1
        return not (A[R_SWAP] and start > 0 and K[NO_PREFIX])
    return True


@compiled
def _wasted(
    R: Array, S: Array, C: Array, L: Array, K: Array, r: int, before: int, after: int, end: int, known: int
) -> bool:
    """memory/waste: more blocks than the pass, the lookahead or the reservation needs."""
    need = _blocks_for(end + K[LOOKAHEAD], K[SIZE])
    if after <= need or (K[RESERVE] == NEED_FULL and R[r, MAX_TOKENS] == NIL):
        return False
    reserved = 0
    if K[RESERVE] == NEED_KNOWN:
        reserved = _blocks_for(known + K[RESERVE_MORE], K[SIZE])
    elif K[RESERVE] == NEED_FULL:
        reserved = _blocks_for(R[r, PROMPT] + R[r, MAX_TOKENS], K[SIZE])
    return after > max(need, reserved, before)


@compiled
def _doubt(S: Array, row: int) -> int:
    S[STOPPED] = row
    return DOUBT


@compiled
def _settle(S: Array, run: int, tokens: int, held: int, listed: int) -> None:
    """Enter a run of `schedule` rows into the sums of their step."""
    S[MEMBERS] += run
    S[MEMBERS_RUN] += run
    S[DECISIONS] += run
    S[TOKENS] += tokens
    S[HELD] = held
    S[MEMBERS_LISTED] = listed


@compiled
def judge(b: Books, K: Array, A: Array, rows: Rows, first: int, last: int, row: int) -> int:
    """Judge the rows [first, last) of a batch whose first row is row `row` of the trace.

    Returns DONE, or why it stopped: then `S[STOPPED]` is the row of the batch at which it did. In doubt
    the books are of no more use: they have half of a row in them.
    """
    # Nearly all rows are `schedule`. They are judged in this loop, on names of its own: to take an array
    # out of the books costs more than all that is done with it here.
    R, S, C, L, T, slots = b.R, b.S, b.C, b.L, b.T, b.slots
    steps, kinds, kind_of = rows.step, rows.kind, rows.kind_of
    narrow, masks, bits = rows.narrow, rows.narrow_masks, rows.bits
    requests, request_mask, request_bit = rows.wide[W_REQUEST], rows.wide_masks[W_REQUEST], bits[REQUEST_BIT]
    times, time_mask, time_bit = rows.wide[W_TIME], rows.wide_masks[W_TIME], bits[TIME_BIT]
    starts, start_mask, start_bit = rows.narrow[N_START], rows.narrow_masks[N_START], bits[N_START]
    counts, count_mask, count_bit = rows.narrow[N_TOKENS], rows.narrow_masks[N_TOKENS], bits[N_TOKENS]
    drafts, draft_mask, draft_bit = rows.narrow[N_DRAFTS], rows.narrow_masks[N_DRAFTS], bits[N_DRAFTS]
    blocks, block_mask, block_bit = rows.narrow[N_BLOCKS], rows.narrow_masks[N_BLOCKS], bits[N_BLOCKS]
    clock, has_blocks, size, total = K[CLOCK], K[HAS_BLOCKS], K[SIZE], K[TOTAL]
    wastes, covers, bounds, chunks = A[R_WASTE], A[R_COVERAGE], A[R_BOUND], A[R_CHUNKING]
    nameless = requests.size == 0
    # To call a function with arrays costs as much as all else in this loop: nulls are looked up in place.
    unnamed, untimed = request_mask.size > 0, times.size == 0
    some_times, some_starts, some_counts = time_mask.size > 0, start_mask.size > 0, count_mask.size > 0
    some_blocks, some_drafts = block_mask.size > 0, drafts.size > 0
    lacking = nameless or starts.size == 0 or counts.size == 0 or (has_blocks and blocks.size == 0)
    mask_of_table = T.shape[1] - 1
    opened, current, ordinal = S[OPEN], S[STEP], S[STEPS]
    # What the rows of one run of `schedule` rows change is kept in names, and settled behind them.
    scheduled, run, tokens_run = 0, 0, 0
    held, listed, clock_now = S[HELD], S[MEMBERS_LISTED], S[LAST_CLOCK]
    # The members of a step come mostly in the order of the step before: the next of them is tried first.
    guess, guesses = 0, 0
    i = first - 1
    while i + 1 < last:
        i += 1
        kind = kind_of[kinds[i]]
        step = steps[i]
        now = NIL
        if not untimed:
            at = time_bit + i
            if not some_times or (time_mask[at >> 3] >> (at & 7)) & 1:
                now = times[i]
        if kind == K_SCHEDULE and opened and step == current:
            if clock and now != NIL:
                if now < clock_now and A[R_BACKWARDS]:
                    return _doubt(S, i)
                clock_now = now
            if lacking:
                return _doubt(S, i)
            if unnamed:
                at = request_bit + i
                if not (request_mask[at >> 3] >> (at & 7)) & 1:
                    return _doubt(S, i)
            if some_starts:
                at = start_bit + i
                if not (start_mask[at >> 3] >> (at & 7)) & 1:
                    return _doubt(S, i)
            if some_counts:
                at = count_bit + i
                if not (count_mask[at >> 3] >> (at & 7)) & 1:
                    return _doubt(S, i)
            if has_blocks and some_blocks:
                at = block_bit + i
                if not (block_mask[at >> 3] >> (at & 7)) & 1:
                    return _doubt(S, i)
            key, start, tokens = requests[i], np.int64(starts[i]), np.int64(counts[i])
            if tokens < 1:  # batch/empty-member
                return _doubt(S, i)
            if some_drafts and _narrow(drafts, draft_mask, draft_bit, i) > 0:
                return _doubt(S, i)
            r = np.int64(-1)
            if guess < guesses:
                r = L[MEMBER_LIST, guess]
                guess += 1
                if R[r, ID] != key and guess < guesses:
                    r = L[MEMBER_LIST, guess]
                    guess += 1
                if R[r, ID] != key or R[r, STATE] != AT_RUNNING:
                    r = np.int64(-1)
            if r < 0:
                at = np.int64((np.uint64(key) * _MIX) >> _SHIFT) & mask_of_table
                while T[1, at] >= 0 and T[0, at] != key:
                    at = (at + 1) & mask_of_table
                r = T[1, at]
                if r < 0 or R[r, STATE] != AT_RUNNING:
                    return _doubt(S, i)
            # batch/membership; twice also after a preempt and a resume in one step, which is rare
            if R[r, MEMBER_AT] == ordinal or R[r, PREEMPTED_AT] == ordinal:
                return _doubt(S, i)
            computed, known = R[r, COMPUTED], R[r, PROMPT] + R[r, OUTPUTS]
            end = start + tokens
            if computed == NIL:
                if not _adopts(R, S, C, L, K, A, r, start, known):
                    return _doubt(S, i)
            elif start != computed:  # tokens/position
                return _doubt(S, i)
            # tokens/overrun, tokens/chunking
            if end > known or (chunks and end < known):
                return _doubt(S, i)
            if has_blocks:
                after, mine = np.int64(blocks[i]), R[r, BLOCKS]
                before = mine
                if R[r, BEFORE] != NIL:
                    before = R[r, BEFORE]
                    R[r, BEFORE] = NIL
                if wastes and after > before and _wasted(R, S, C, L, K, r, before, after, end, known):
                    return _doubt(S, i)
                if covers and after * size < end:
                    return _doubt(S, i)
                held += after - mine
                R[r, BLOCKS] = after
                if bounds and held > total:
                    return _doubt(S, i)
            else:
                _count_position(R, S, C, L, K, computed, -1)
                _count_position(R, S, C, L, K, end, 1)
                R[r, BLOCKS] = NIL
                R[r, BEFORE] = NIL
                if bounds and S[POSITIONS] > total:
                    return _doubt(S, i)
            R[r, ADOPTS] = 0
            R[r, COMPUTED] = end
            R[r, MEMBER_AT] = ordinal
            R[r, MEMBER_TOKENS] = tokens
            R[r, MEMBER_REACHES] = end == known
            if listed >= guess:
                guesses = 0  # what was still to be tried is overwritten now
            L[MEMBER_LIST, listed] = r
            listed += 1
            tokens_run += tokens
            run += 1
            continue
        if run > 0:
            _settle(S, run, tokens_run, held, listed)
            scheduled += run
            run, tokens_run = 0, 0
        S[LAST_CLOCK] = clock_now
        S[STOPPED] = i
        if kind == K_ARRIVE and not _room(R, S, C, L):
            _scheduled(R, S, C, L, scheduled)
            return FULL
        if not opened or step != current:
            if not opened:
                S[BOUNDARY] = row + i
                if current != NIL and step <= current:
                    return DOUBT
            elif step < current or not _close(R, S, C, L, K, A, False, NIL, NIL, NIL, NIL):
                return DOUBT
            guess, guesses = 0, listed
            if not _turn(R, S, C, L, T, K, A, step):
                return DOUBT
            opened, current, ordinal, listed = 1, step, S[STEPS], 0
        if kind == K_SURPRISE:
            return SURPRISE
        if kind == K_STRANGE:
            return DOUBT
        if kind == K_SCHEDULE:
            i -= 1  # the first row of its step, which is open now: once more
            continue
        S[EVENTS] += 1
        if clock and now != NIL and kind != K_ARRIVE:
            if A[R_BACKWARDS] and S[LAST_CLOCK] != NIL and now < S[LAST_CLOCK]:
                return DOUBT
            clock_now = now
            S[LAST_CLOCK] = now
        if kind == K_STEP:
            S[SEEN] |= 1 << K_STEP
            told = _close(
                R,
                S,
                C,
                L,
                K,
                A,
                True,
                _narrow(narrow[N_FREE], masks[N_FREE], bits[N_FREE], i),
                _narrow(narrow[N_WAITING], masks[N_WAITING], bits[N_WAITING], i),
                _narrow(narrow[N_RUNNING], masks[N_RUNNING], bits[N_RUNNING], i),
                _narrow(narrow[N_PINNED], masks[N_PINNED], bits[N_PINNED], i),
            )
            if not told:
                return DOUBT
            opened = 0
            continue
        if nameless or not _valid(request_mask, request_bit, i):
            return DOUBT
        reason, one, two, cause = W_NONE, NIL, NIL, NIL
        held_after = _narrow(blocks, block_mask, block_bit, i)
        if kind == K_ARRIVE:
            one = _narrow(narrow[N_PROMPT], masks[N_PROMPT], bits[N_PROMPT], i)
            two = _narrow(narrow[N_MAX], masks[N_MAX], bits[N_MAX], i)
        elif kind == K_ADMIT or kind == K_RESUME:
            one = _narrow(narrow[N_SLOT], masks[N_SLOT], bits[N_SLOT], i)
            two = _narrow(narrow[N_CACHED], masks[N_CACHED], bits[N_CACHED], i)
        else:
            one = _narrow(narrow[N_OUTPUTS], masks[N_OUTPUTS], bits[N_OUTPUTS], i)
            if rows.reason.size > 0 and _valid(rows.reason_mask, bits[REASON_BIT], i):
                reason = rows.reason_of[rows.reason[i]]
            if kind == K_PREEMPT:
                cause = _wide(rows.wide[W_CAUSE], rows.wide_masks[W_CAUSE], bits[CAUSE_BIT], i)
        key = requests[i]
        if not _row(R, S, C, L, slots, T, K, A, kind, key, now, reason, one, two, held_after, cause):
            return DOUBT
        held = S[HELD]
    if run > 0:
        _settle(S, run, tokens_run, held, listed)
    S[LAST_CLOCK] = clock_now
    _scheduled(R, S, C, L, scheduled + run)
    S[STOPPED] = last
    return DONE
