"""Steps: where one begins, where its members are final, and where it ends, with the rules asked there.

Each test names the rule that it stands for; the rules themselves are those of spec/rules.
"""

# ruff: noqa: F405 (the names of layout.py are constants to the compiler, too many to import one by one)

from typing import Any

from batchspec.replay.compiled import compiled, whole
from batchspec.replay.fast.layout import *  # noqa: F403
from batchspec.replay.fast.questions import blocks_for, head, snapshot
from batchspec.replay.fast.table import remove

Array = Any


@compiled
def decide(R: Array, S: Array, C: Array, L: Array, K: Array, A: Array) -> bool:
    """The members of the step are final. False where one of the rules may be broken."""
    S[DECIDED] = 1
    S[DECIDED_AT] = S[DECISIONS]
    if K[PER_STEP]:
        C[R_CAPACITY] += 1
        if A[R_CAPACITY] and S[MEMBERS_RUN] > K[SEATS]:
            return False
    C[R_TOKEN_BUDGET] += 1
    return not (A[R_TOKEN_BUDGET] and S[TOKENS] > K[BUDGET])


@compiled
def turn(R: Array, S: Array, C: Array, L: Array, T: Array, K: Array, A: Array, step: int) -> bool:
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
def emit(R: Array, S: Array, C: Array, L: Array, r: int) -> None:
    """Count one output."""
    R[r, OUTPUTS] += 1
    S[EDGES] = 0


@compiled
def undone(R: Array, S: Array, C: Array, L: Array, K: Array) -> int:
    """Whether an empty step should not have been one (IdleStall._work): 1, 0; -1 where nobody can say."""
    if S[RUNS] > 0:
        return 0 if S[ENDED] > 0 else 1
    if S[ENDED] > 0 or S[PREEMPTED] > 0:
        return 0
    r = S[NEXT]
    if r >= 0 and S[NEXT_FITS] == 1:
        return 1
    if r < 0:
        r = whole(L[PRE_LIST, 0]) if S[PRES] > 0 else head(R, S, C, L)
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
def close(
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
        snapshot(R, S, C, L, K)
    if (not S[DECIDED] or S[DECIDED_AT] != S[DECISIONS]) and not decide(R, S, C, L, K, A):
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
        r = whole(L[MEMBER_LIST, place])
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
            r = whole(L[RUN_LIST, place])
            if R[r, MEMBER_AT] == now or R[r, ADMITTED_AT] == now or not R[r, DECODES]:
                continue
            if R[r, COMPUTED] == NIL or R[r, COMPUTED] <= 0:
                continue
            if R[r, COMPUTED] < R[r, PROMPT] + R[r, OUTPUTS] - 1:
                continue
            if decodes < 0:
                decodes = 0
                for other in range(S[MEMBERS_LISTED]):
                    m = whole(L[MEMBER_LIST, other])
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
            r = whole(L[RUN_LIST, 0])
            if blocks_for(R[r, PROMPT] + R[r, OUTPUTS], K[SIZE]) > K[TOTAL]:
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
            cause = whole(L[DUE_CAUSE, place])
            if L[DUE_GAVE, place] == 0 and not L[DUE_WAITS, place]:
                return False
            served = R[cause, MEMBER_AT] == now or R[cause, PREEMPTED_AT] == now
            if not served and R[cause, STATE] != AT_ENDED:
                return False
    if S[MEMBERS] > 0 or S[LIVE] == 0:
        S[EMPTY] = 0
        C[R_IDLE] += 1
    else:
        work = undone(R, S, C, L, K)
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
                r = whole(L[RUN_LIST, place])
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
