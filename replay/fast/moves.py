"""Moves: requests arrive, join, leave and end, with the rules that are asked of these rows.

Each test names or stands for a rule of spec/rules. A False is a doubt, never a finding.
"""

# ruff: noqa: F405 (the names of layout.py are constants to the compiler, too many to import one by one)

from typing import Any

from batchspec.replay.compiled import compiled, whole
from batchspec.replay.fast.layout import *  # noqa: F403
from batchspec.replay.fast.questions import blocks_for, budget_left, free_bounds, need_blocks
from batchspec.replay.fast.table import insert

Array = Any


@compiled
def count_position(R: Array, S: Array, C: Array, L: Array, K: Array, computed: int, sign: int) -> None:
    """The sum of ceil(c / b) over running requests, for traces without block counts."""
    if K[HAS_BLOCKS] or K[SIZE] == NIL:
        return
    if computed == NIL:
        S[UNKNOWN_POSITIONS] += sign
    else:
        S[POSITIONS] += sign * blocks_for(computed, K[SIZE])


@compiled
def leave_run(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    """Out of the running requests."""
    last = L[RUN_LIST, S[RUNS] - 1]
    place = R[r, PLACE_IN_RUN]
    L[RUN_LIST, place] = last
    R[last, PLACE_IN_RUN] = place
    S[RUNS] -= 1


@compiled
def leave_pre(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    """Out of the preempted requests, whose order stays."""
    place = 0
    while L[PRE_LIST, place] != r:
        place += 1
    for at in range(place, S[PRES] - 1):
        L[PRE_LIST, at] = L[PRE_LIST, at + 1]
    S[PRES] -= 1


@compiled
def leave_slot(
    R: Array, S: Array, C: Array, L: Array, slots: Array, r: int, free_from: int, pass_step: int
) -> None:
    """Give up the batch slot, to be taken again from a step on."""
    slot = R[r, SLOT]
    if slot == NIL:
        return
    slots[slot, 1] = free_from
    slots[slot, 2] = R[r, ID]
    slots[slot, 3] = pass_step
    if slots[slot, 0] == r:
        slots[slot, 0] = -1


@compiled
def take_back(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    """Undo a membership of this step."""
    if R[r, MEMBER_AT] == S[STEPS]:
        R[r, MEMBER_AT] = -1
        S[MEMBERS] -= 1
        S[MEMBERS_RUN] -= 1
        S[TOKENS] -= R[r, MEMBER_TOKENS]


@compiled
def causality(
    R: Array, S: Array, C: Array, L: Array, K: Array, A: Array, r: int, now: int, what: int
) -> bool:
    """time/causality: a later event of a request bears no earlier time."""
    if now == NIL or not K[CLOCK] or R[r, LAST_NS] == NIL:
        return True
    C[R_CAUSALITY] += 1
    if A[R_CAUSALITY] and now < R[r, LAST_NS]:
        return False
    R[r, LAST_NS] = max(now, R[r, LAST_NS])
    R[r, LAST_WHAT] = what
    return True


@compiled
def bound(R: Array, S: Array, C: Array, L: Array, K: Array, A: Array) -> bool:
    """memory/bound: what is held fits the pool."""
    if not A[R_BOUND]:
        return True
    C[R_BOUND] += 1
    return (S[HELD] if K[HAS_BLOCKS] else S[POSITIONS]) <= K[TOTAL]


@compiled
def join(
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
        most = free_bounds(R, S, C, L, K)[1]
        need = NIL
        if K[TEST] == NEED_STEP:
            if blocks != NIL and R[r, BLOCKS] != NIL:
                need = max(0, blocks - R[r, BLOCKS])
        else:
            need = need_blocks(R, S, C, L, K, r, budget_left(R, S, C, L, K))
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
    count_position(R, S, C, L, K, cached, 1)
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
    return bound(R, S, C, L, K, A)


@compiled
def end(
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
        leave_slot(R, S, C, L, slots, r, S[STEP] + (1 if kind == K_FINISH else 0), S[STEP])
        if kind == K_ABORT:
            take_back(R, S, C, L, r)
        else:
            S[LATE_SEATS] += 1
            if R[r, MEMBER_AT] == S[STEPS]:
                S[MEMBERS_RUN] -= 1
        leave_run(R, S, C, L, r)
        count_position(R, S, C, L, K, R[r, COMPUTED], -1)
    elif R[r, STATE] == AT_PREEMPTED:
        leave_pre(R, S, C, L, r)
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
def arrive(
    R: Array, S: Array, C: Array, L: Array, T: Array, K: Array, key: int, prompt: int, most: int, now: int
) -> None:
    """Enter a request into the books. There is room for it."""
    S[FREE] -= 1
    r = whole(L[FREE_LIST, S[FREE]])
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
    too_long = K[LONGEST] != NIL and prompt >= K[LONGEST]
    whole_prompts = not K[CHUNKED_UNSAID] and not K[CHUNKED]
    if too_long or (whole_prompts and K[BUDGET] != NIL and prompt > K[BUDGET]):
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
        if least != NIL and blocks_for(least, K[SIZE]) > K[TOTAL]:
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
def room(R: Array, S: Array, C: Array, L: Array) -> bool:
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
