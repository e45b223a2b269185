"""Preemptions, with the rules that are asked of them: is it needed, is it the right victim?"""

# ruff: noqa: F405 (the names of layout.py are constants to the compiler, too many to import one by one)

from typing import Any

from batchspec.replay.compiled import compiled, whole
from batchspec.replay.fast.layout import *  # noqa: F403
from batchspec.replay.fast.moves import count_position, leave_run, leave_slot, take_back
from batchspec.replay.fast.questions import blocks_for, budget_left, free_bounds
from batchspec.replay.fast.table import find

Array = Any


@compiled
def need_now(R: Array, S: Array, C: Array, L: Array, K: Array, r: int) -> int:
    """The most blocks that a running request can still ask for in this step (preemption/cause)."""
    if R[r, COMPUTED] == NIL or R[r, BLOCKS] == NIL:
        return NIL
    if R[r, MEMBER_AT] == S[STEPS]:
        return 0
    budget = budget_left(R, S, C, L, K)
    left = max(1, R[r, PROMPT] + R[r, OUTPUTS] - R[r, COMPUTED])
    tokens = left if budget == NIL else min(left, max(1, budget))
    return blocks_for(R[r, COMPUTED] + tokens + K[LOOKAHEAD], K[SIZE]) - R[r, BLOCKS]


@compiled
def right_cause(R: Array, S: Array, C: Array, L: Array, K: Array, r: int, named: bool, cause: int) -> bool:
    """preemption/cause: its beneficiary needs more than is free."""
    least = free_bounds(R, S, C, L, K)[0]
    if least == NIL:
        C[SKIPS + R_CAUSE] += 1
        return True
    known = named and cause >= 0
    most = NIL
    if known:
        if R[cause, STATE] != AT_RUNNING:
            return False
        most = need_now(R, S, C, L, K, cause)
        if most == NIL:
            C[SKIPS + R_CAUSE] += 1
            return True
    else:
        for place in range(S[RUNS]):
            other = whole(L[RUN_LIST, place])
            if other != r and R[other, MEMBER_AT] == S[STEPS]:
                continue
            need = need_now(R, S, C, L, K, other)
            if need == NIL:
                C[SKIPS + R_CAUSE] += 1
                return True
            most = max(most, need)
    C[R_CAUSE] += 1
    return most + K[HEADROOM] > least


@compiled
def right_victim(R: Array, S: Array, C: Array, L: Array, K: Array, r: int, named: bool, cause: int) -> bool:
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
        other = whole(L[RUN_LIST, place])
        if K[VICTIM] == V_LATEST_ADMITTED and R[other, JOINED] > R[r, JOINED]:
            return False
        if K[VICTIM] == V_LATEST_ARRIVED and R[other, NUMBER] > R[r, NUMBER]:
            return False
        if K[VICTIM] == V_FEWEST_OUTPUTS and R[other, OUTPUTS] < R[r, OUTPUTS]:
            return False
    return True


@compiled
def preempt(
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
    """A preemption by recompute, its rules included. `cause_id` counts where `named`."""
    if A[R_FORBIDDEN] or (blocks != NIL and blocks != 0):
        return False
    cause = find(T, cause_id) if named else -1
    if named and (cause < 0 or R[cause, STATE] == AT_ENDED):
        return False
    if A[R_CAUSE] and not right_cause(R, S, C, L, K, r, named, cause):
        return False
    if A[R_VICTIM] and not right_victim(R, S, C, L, K, r, named, cause):
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
    take_back(R, S, C, L, r)
    leave_slot(R, S, C, L, slots, r, S[STEP], S[STEP])
    leave_run(R, S, C, L, r)
    count_position(R, S, C, L, K, R[r, COMPUTED], -1)
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
