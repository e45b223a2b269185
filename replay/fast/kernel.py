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

from batchspec.replay.compiled import compiled, whole
from batchspec.replay.fast.layout import *  # noqa: F403
from batchspec.replay.fast.moves import arrive, causality, count_position, end, join, leave_pre, room
from batchspec.replay.fast.preempts import preempt
from batchspec.replay.fast.questions import blocks_for, head, snapshot
from batchspec.replay.fast.steps import close, decide, emit, turn
from batchspec.replay.fast.table import find

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
    return whole(values[row])


@compiled
def _wide(values: Array, mask: Array, bit: int, row: int) -> int:
    if values.size == 0 or not _valid(mask, bit, row):
        return NIL
    return whole(values[row])


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
        arrive(R, S, C, L, T, K, key, one, two, now)
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
            if (A[R_ORDER] or A[R_HEAD_OF_LINE] or A[R_OVERTAKING]) and head(R, S, C, L) != r:
                return False
        else:
            C[SKIPS + R_ORDER] += 1
        C[R_RESUME_FIRST] += 1
        if A[R_RESUME_FIRST] and S[PRES] > 0:
            return False
        if not causality(R, S, C, L, K, A, r, now, 1):
            return False
        S[WAITS] -= 1
        return join(R, S, C, L, slots, K, A, r, one, two, blocks)
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
        leave_pre(R, S, C, L, r)
        return join(R, S, C, L, slots, K, A, r, one, two, blocks)
    if kind == K_PREEMPT:
        if state != AT_RUNNING:
            return False
        if not (reason == W_RECOMPUTE or (reason == W_NONE and K[RECOMPUTES])):
            return False
        return preempt(R, S, C, L, slots, T, K, A, r, cause != NIL, cause, blocks)
    if state == AT_ENDED:
        return False
    if kind == K_REJECT:
        if state != AT_WAITING or not causality(R, S, C, L, K, A, r, now, 2):
            return False
        # admission/never-fit: refused as too long, and within the longest; whether it fits is not told here
        told = reason == W_TOO_LONG and R[r, MAX_TOKENS] != NIL and K[LONGEST] != NIL
        if told and A[R_NEVER_FIT] and R[r, PROMPT] + R[r, MAX_TOKENS] <= K[LONGEST]:
            return False
        return end(R, S, C, L, slots, K, A, r, NIL, reason, blocks, kind)
    if S[DECISIONS] > 0 and S[SNAPPED_AT] != S[DECISIONS]:
        snapshot(R, S, C, L, K)
    if kind == K_FINISH:
        if S[DECISIONS] > 0 and not S[DECIDED]:
            if not decide(R, S, C, L, K, A):
                return False
        elif S[SNAPPED_AT] < 0:
            snapshot(R, S, C, L, K)
        if state != AT_RUNNING:
            return False
        if R[r, MEMBER_AT] == S[STEPS] and R[r, MEMBER_REACHES]:
            emit(R, S, C, L, r)
    if not causality(R, S, C, L, K, A, r, now, 2):
        return False
    return end(R, S, C, L, slots, K, A, r, one, reason, blocks, kind)


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
    need = blocks_for(end + K[LOOKAHEAD], K[SIZE])
    if after <= need or (K[RESERVE] == NEED_FULL and R[r, MAX_TOKENS] == NIL):
        return False
    reserved = 0
    if K[RESERVE] == NEED_KNOWN:
        reserved = blocks_for(known + K[RESERVE_MORE], K[SIZE])
    elif K[RESERVE] == NEED_FULL:
        reserved = blocks_for(R[r, PROMPT] + R[r, MAX_TOKENS], K[SIZE])
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
            key, start, tokens = requests[i], whole(starts[i]), whole(counts[i])
            if tokens < 1:  # batch/empty-member
                return _doubt(S, i)
            if some_drafts and _narrow(drafts, draft_mask, draft_bit, i) > 0:
                return _doubt(S, i)
            r = whole(-1)
            if guess < guesses:
                r = L[MEMBER_LIST, guess]
                guess += 1
                if R[r, ID] != key and guess < guesses:
                    r = L[MEMBER_LIST, guess]
                    guess += 1
                if R[r, ID] != key or R[r, STATE] != AT_RUNNING:
                    r = whole(-1)
            if r < 0:
                at = whole((np.uint64(key) * _MIX) >> _SHIFT) & mask_of_table
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
                after, mine = whole(blocks[i]), R[r, BLOCKS]
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
                count_position(R, S, C, L, K, computed, -1)
                count_position(R, S, C, L, K, end, 1)
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
        if kind == K_ARRIVE and not room(R, S, C, L):
            _scheduled(R, S, C, L, scheduled)
            return FULL
        if not opened or step != current:
            if not opened:
                S[BOUNDARY] = row + i
                if current != NIL and step <= current:
                    return DOUBT
            elif step < current or not close(R, S, C, L, K, A, False, NIL, NIL, NIL, NIL):
                return DOUBT
            guess, guesses = 0, listed
            if not turn(R, S, C, L, T, K, A, step):
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
            told = close(
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
        elif kind in (K_ADMIT, K_RESUME):
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
