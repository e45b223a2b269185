"""The actions of the space (spec/space.py) over packed states, as compiled loops.

Function by function the same questions in the same order; numbers instead of records. Who fits, who is next
and who is a victim is read from the tables that the spec filled. What the tests hold against each
other: for every reachable frame the states that both say come next, each as often as the other.
"""

from batchspec.replay.compiled import compiled
from batchspec.replay.packed.joining import evict_for_waiting, join, joining
from batchspec.replay.packed.memory import (
    ABORTED,
    ABORTS,
    ADMITTED,
    ANEW,
    APART,
    ARRIVED,
    BEGUN,
    BLOCKS,
    COMPUTED,
    COUNTERS,
    DECIDED,
    EAGER,
    EVICTED,
    FINISHED,
    FREE,
    HELD,
    JOB,
    JOBS,
    LEFT_OVER,
    LIVE,
    MADE,
    MEMBERS,
    MOST,
    ORDER,
    OUTPUTS,
    OUTPUTS_KEPT,
    OWED,
    OWES,
    PARTS,
    PREEMPTS,
    REFUSED,
    REJECTED,
    RUN_NOW,
    RUNS,
    RUNS_IN_ORDER,
    STALL_FREE,
    STOPS,
    TIES,
    TIES_NONE,
    TIES_OUTPUTS,
    TIES_SELF,
    TIES_URGENCY,
    TOKENS,
    VICTIM,
    W_Q,
    WAITS,
    WHERE,
    WIDTH,
    Memory,
)
from batchspec.replay.packed.moves import (
    EARLY,
    FAIR,
    FAR,
    FINISHES,
    arrive,
    begin,
    emits,
    hold,
    known,
    leave,
    longest,
    preempt,
    put,
    remove,
    schedule,
    shortest,
    survey,
    tenant,
    urgency,
)


@compiled
def actions_of(m: Memory) -> int:
    """How many actions the state on the desk has; where each leads lies at `m[NEXT]`, in words."""
    survey(m)
    count = 0
    if m[OWED]:
        count = _on_its_behalf(m, PARTS + (m[OWED] - 1) * WIDTH)
        return min(count, 1) if m[EAGER] else count
    if not m[DECIDED]:
        if m[ARRIVED] < m[JOBS]:
            count = arrive(m, count)
        if m[ABORTS]:
            for one in range(m[LIVE]):
                count = leave(m, count, one, ABORTED)
    news = count
    count = _decisions(m, count)
    if m[EAGER] and count > news:
        return news + 1
    return _ends_of_step(m, count)


@compiled
def _decisions(m: Memory, count: int) -> int:
    for one in range(m[LIVE]):
        part = PARTS + one * WIDTH
        if m[part + WHERE] == WAITS and m[m[REFUSED] + m[part + JOB]]:
            count = leave(m, count, one, REJECTED)
    for nth in range(m[RUN_NOW]):
        part = m[RUNS_IN_ORDER + nth]
        if m[part + TOKENS]:
            continue
        if m[RUN_NOW] == 1 and hold(m, part, m[part + COMPUTED] + 1) > m[BLOCKS]:
            count = leave(m, count, (part - PARTS) // WIDTH, ABORTED)
            continue
        count = _run(m, count, part)
        count = _evict_for(m, count, part)
    return join(m, count)


@compiled
def _on_its_behalf(m: Memory, needy: int) -> int:
    if m[needy + WHERE] == RUNS:
        return _evict_for(m, _run(m, 0, needy), needy)
    count = joining(m, 0, needy)
    return count if count else evict_for_waiting(m, 0, needy)


@compiled
def _run(m: Memory, count: int, part: int) -> int:
    most = longest(m, part)
    if not most:
        return count
    for tokens in range(most, shortest(m, most) - 1, -1):
        blocks = hold(m, part, m[part + COMPUTED] + tokens)
        if blocks - m[part + HELD] <= m[FREE]:
            begin(m)
            schedule(m, part, m[part + COMPUTED], tokens, blocks)
            count = put(m, count, 0)
    return count


# -- preemption --------------------------------------------------------------------------------------


@compiled
def _evict_for(m: Memory, count: int, needy: int) -> int:
    if not m[PREEMPTS] or (m[APART] and m[ANEW]) or (m[EAGER] and m[LEFT_OVER] < 1):
        return count
    end = m[needy + COMPUTED] + max(longest(m, needy), 1)
    if hold(m, needy, end) - m[needy + HELD] <= m[FREE] or m[RUN_NOW] < 2:
        return count
    victim = needy if m[TIES] == TIES_SELF else _victim(m)
    ties = TIES_NONE if m[EAGER] else m[TIES]
    if ties != TIES_OUTPUTS:
        count = _make_room(m, count, victim, needy)
    latest = victim
    for nth in range(m[RUN_NOW]):
        other = m[RUNS_IN_ORDER + nth]
        if ties == TIES_OUTPUTS and m[other + OUTPUTS] == m[victim + OUTPUTS]:
            count = _make_room(m, count, other, needy)
        if ties == TIES_URGENCY and urgency(m, other) == urgency(m, victim):
            latest = other
    return count if latest == victim else _make_room(m, count, latest, needy)


@compiled
def _victim(m: Memory) -> int:
    best, found = FAR, 0
    for nth in range(m[RUN_NOW]):
        part = m[RUNS_IN_ORDER + nth]
        row = m[part + JOB] * m[OUTPUTS_KEPT] + m[part + OUTPUTS]
        rank = m[m[VICTIM] + (row * m[JOBS] + (part - PARTS) // WIDTH) * m[JOBS] + nth]
        if rank < best:
            best, found = rank, part
    return found


@compiled
def _make_room(m: Memory, count: int, victim: int, needy: int) -> int:
    """A member gives its tokens back as well; without any budget nobody else makes room."""
    if m[LEFT_OVER] > 0 or victim == needy or m[victim + TOKENS]:
        return preempt(m, count, victim, needy)
    return count


# -- the end of a step -------------------------------------------------------------------------------


@compiled
def _ends_of_step(m: Memory, count: int) -> int:
    if not m[DECIDED] or (m[OWES] and join(m, count) > count) or (m[STALL_FREE] and _is_owed(m)):
        return count
    must = may = 0
    for one in range(m[LIVE]):
        part = PARTS + one * WIDTH
        if emits(m, part):
            if m[part + OUTPUTS] + 1 >= m[m[MOST] + m[part + JOB]]:
                must |= 1 << one
            elif m[STOPS]:
                may |= 1 << one
    some = may
    while True:
        count = _close(m, count, must | some)
        if not some:
            return count
        some = (some - 1) & may


@compiled
def _is_owed(m: Memory) -> bool:
    """Whether a decode that fits is left out (`stall_free`)."""
    for nth in range(m[RUN_NOW]):
        part = m[RUNS_IN_ORDER + nth]
        computed = m[part + COMPUTED]
        decodes = computed > 0 and computed >= known(m, part) - 1 and m[part + OUTPUTS] > 0
        if m[part + TOKENS] or not decodes or not m[MEMBERS]:
            continue
        if hold(m, part, computed + 1) - m[part + HELD] <= m[FREE] and m[LEFT_OVER] > 0:
            return True
    return False


@compiled
def _close(m: Memory, count: int, ends: int) -> int:
    begin(m)
    finished = 0
    for one in range(m[LIVE]):
        part = PARTS + one * WIDTH
        if emits(m, part):
            m[MADE + part + OUTPUTS] += 1
            if m[ORDER] == FAIR:
                m[MADE + COUNTERS + tenant(m, part)] += m[W_Q]
        m[MADE + part + TOKENS] = m[MADE + part + ADMITTED] = 0
    for one in range(m[LIVE] - 1, -1, -1):
        if ends >> one & 1:
            remove(m, one, FINISHED)
            finished += 1
    m[MADE + DECIDED] = m[MADE + EVICTED] = m[MADE + OWED] = m[MADE + BEGUN] = 0
    shown = 0
    if finished:
        shown = FINISHES | (EARLY if finished < m[RUN_NOW] else 0)
    return put(m, count, shown)
