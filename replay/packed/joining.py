"""Who may join in the packed form, with how much, and who makes room for one that waits."""

from batchspec.replay.compiled import compiled
from batchspec.replay.packed.memory import (
    ADMITTED,
    APART,
    BARRIER,
    BEGUN,
    BY_STEP,
    COMPUTED,
    COUNTERS,
    EAGER,
    EVICTED,
    FIRST,
    FOR_WAITING,
    FREE,
    HELD,
    JOB,
    JOBS,
    JOINED,
    LEFT,
    LEFT_OVER,
    LINE,
    LIVE,
    MADE,
    NEED,
    ORDER,
    OUT,
    OUTPUTS,
    OUTPUTS_KEPT,
    PARTS,
    PLACE,
    PROMPT,
    RANK,
    REFUSED,
    RETURNS,
    RUN_NOW,
    RUNS,
    RUNS_IN_ORDER,
    SEATS,
    SKIPS,
    SWAPPED,
    TOKENS,
    W_P,
    WAITS,
    WATERMARK,
    WHERE,
    WIDTH,
    Memory,
)
from batchspec.replay.packed.moves import (
    BACK,
    BY_PRIORITY,
    COMES_BACK,
    FAIR,
    FAR,
    FRONT,
    TOGETHER,
    begin,
    hold,
    longest,
    preempt,
    put,
    schedule,
    shortest,
    tenant,
    urgency,
)


@compiled
def join(m: Memory, count: int) -> int:
    """The first in line joins, with its first part; or a more urgent one makes room for itself."""
    if m[LEFT_OVER] < 1 or (m[APART] and m[EVICTED]):
        return count
    seats = m[SEATS] - m[RUN_NOW]
    if m[BARRIER] and m[RUN_NOW] and not m[BEGUN]:
        seats = 0
    tied = m[ORDER] == FAIR
    for nth in range(_in_line(m)):
        part = m[LINE + nth]
        if m[m[REFUSED] + m[part + JOB]]:
            continue
        before = count
        if seats > 0:
            count = joining(m, count, part)
        if count > before and not tied:
            return count
        if m[FOR_WAITING]:
            count = evict_for_waiting(m, count, part)
        if not m[SKIPS] and not tied:
            return count
    return count


@compiled
def joining(m: Memory, count: int, part: int) -> int:
    """It joins, with a first part of every length that is allowed."""
    free = m[FREE]
    if m[RUN_NOW]:
        free -= m[WATERMARK]
    need = m[m[NEED] + m[part + JOB] * m[OUTPUTS_KEPT] + m[part + OUTPUTS]]
    most = longest(m, part)
    if not most or (not m[BY_STEP] and need > free):
        return count
    start = m[part + COMPUTED] if m[part + SWAPPED] else 0
    shown = TOGETHER if m[RUN_NOW] else 0
    if m[part + WHERE] == OUT:
        shown |= COMES_BACK
    for tokens in range(most, shortest(m, most) - 1, -1):
        blocks = hold(m, part, start + tokens)
        if m[BY_STEP] and blocks - m[part + HELD] > free:
            continue
        begin(m)
        _seat(m, part)
        schedule(m, part, start, tokens, blocks)
        count = put(m, count, shown)
    return count


@compiled
def _seat(m: Memory, part: int) -> None:
    if not m[part + FIRST]:
        before = 0
        for other in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
            before = max(before, m[other + FIRST])
        m[MADE + part + FIRST] = before + 1
        if m[ORDER] == FAIR:
            m[MADE + LEFT] = tenant(m, part) + 1
            m[MADE + COUNTERS + tenant(m, part)] += m[W_P] * m[m[PROMPT] + m[part + JOB]]
    m[MADE + part + WHERE] = RUNS
    m[MADE + part + SWAPPED] = 0
    m[MADE + part + JOINED] = m[RUN_NOW] + 1
    m[MADE + part + ADMITTED] = 1
    if m[BARRIER] and not m[RUN_NOW]:
        m[MADE + BEGUN] = 1


@compiled
def evict_for_waiting(m: Memory, count: int, needy: int) -> int:
    """Room for one that waits, by preemption of less urgent ones, if all of them together suffice."""
    mine, room, outside = urgency(m, needy), m[FREE], False
    for nth in range(m[RUN_NOW]):
        part = m[RUNS_IN_ORDER + nth]
        if mine < urgency(m, part):
            room += m[part + HELD]
            if not m[part + TOKENS]:
                outside = True
    worst, level = 0, -FAR
    for nth in range(m[RUN_NOW]):
        part = m[RUNS_IN_ORDER + nth]
        theirs = urgency(m, part)
        if mine >= theirs or (outside and m[part + TOKENS]):
            continue
        if theirs > level or (theirs == level and part > worst):
            worst, level = part, theirs
    if not worst or hold(m, needy, m[needy + COMPUTED] + 1) > room:
        return count
    return preempt(m, count, worst, needy)


# -- the line ----------------------------------------------------------------------------------------


@compiled
def _in_line(m: Memory) -> int:
    """Who may join: one, or under `skip`, and where counters are equal, others behind it."""
    returning, least = 0, FAR
    for part in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
        if m[part + WHERE] == OUT and m[RETURNS] <= FRONT:
            if m[RETURNS] < FRONT:
                return 0
            rank = m[part + FIRST]
            if m[ORDER] == BY_PRIORITY:
                rank += urgency(m, part) * WIDTH * WIDTH
            if rank < least:
                returning, least = part, rank
    count = _sorted_line(m)
    waiting = m[LINE] if count else 0
    if m[ORDER] == FAIR:
        waiting = _least_served(m, count)
    first = waiting
    if returning and waiting:
        if m[ORDER] != BY_PRIORITY or urgency(m, waiting) >= urgency(m, returning):
            first = returning
    elif returning:
        first = returning
    if not first:
        return 0
    if m[first + WHERE] != OUT:
        if m[ORDER] == FAIR and not m[EAGER]:
            return _equally_served(m, count, first)
        if m[ORDER] != FAIR and m[SKIPS]:
            return count
    m[LINE] = first
    return 1


@compiled
def _rank(m: Memory, part: int) -> int:
    return m[m[RANK] + m[part + JOB] * m[JOBS] + m[part + PLACE]]


@compiled
def _sorted_line(m: Memory) -> int:
    count = 0
    for part in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
        where = m[part + WHERE]
        if where == RUNS or (where == OUT and m[RETURNS] < BACK):
            continue
        rank, spot = _rank(m, part), count
        while spot and rank < _rank(m, m[LINE + spot - 1]):
            m[LINE + spot] = m[LINE + spot - 1]
            spot -= 1
        m[LINE + spot] = part
        count += 1
    return count


@compiled
def _least_served(m: Memory, count: int) -> int:
    """The first of the tenant with the least counter; of several the one whose place is first."""
    best, found = FAR, 0
    for nth in range(count):
        part = m[LINE + nth]
        if m[COUNTERS + tenant(m, part)] < best:
            best, found = m[COUNTERS + tenant(m, part)], part
    return found


@compiled
def _equally_served(m: Memory, count: int, first: int) -> int:
    """`first`, and the first of each tenant that waits and than which none that waits is served less."""
    least, waits = FAR, 0
    for part in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
        if m[part + WHERE] == WAITS:
            least = min(least, m[COUNTERS + tenant(m, part)])
            waits |= 1 << tenant(m, part)
    kept = seen = 0
    for nth in range(count):
        part = m[LINE + nth]
        mine = tenant(m, part)
        if seen >> mine & 1:
            continue
        seen |= 1 << mine
        if part == first or (waits >> mine & 1 and m[COUNTERS + mine] <= least):
            m[LINE + kept] = part
            kept += 1
    return kept
