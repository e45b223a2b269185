"""What the actions of the packed form share: sums over the state on the desk, small questions, effects."""

from typing import Final

from batchspec.replay.compiled import compiled
from batchspec.replay.packed.layout import pack
from batchspec.replay.packed.memory import (
    ADMITTED,
    ANEW,
    ARRIVED,
    BEGUN,
    BLOCKS,
    BUDGET,
    CHUNKED,
    COMMON,
    COMPUTED,
    COUNTERS,
    DECIDED,
    EAGER,
    ENDED,
    ENDS_KEPT,
    ENTRY,
    EVICTED,
    FIRST,
    FREE,
    HELD,
    HOLD,
    HOST,
    JOB,
    JOINED,
    LEFT,
    LEFT_OVER,
    LIFT,
    LIVE,
    MADE,
    MEMBERS,
    NEXT,
    NO_HOST_LIMIT,
    OLD,
    ON_HOST,
    ORDER,
    OUT,
    OUTPUTS,
    OUTPUTS_KEPT,
    OWED,
    PARTS,
    PLACE,
    PREEMPTS,
    PROMPT,
    REJECTED,
    RETURNS,
    RUN_NOW,
    RUNS,
    RUNS_IN_ORDER,
    SHOWN,
    SIZE,
    SWAPPED,
    SYMMETRY,
    TENANT,
    TOKENS,
    URGENCY,
    WAITS,
    WHERE,
    WIDTH,
    WORDS,
    Memory,
)

SWAP: Final = 2
FRONT: Final = 1
BACK: Final = 2
BY_PRIORITY: Final = 2
FAIR: Final = 3
FAR: Final = 1 << 40

# What an action shows, by bit: the sights of spec/sights.py.
TOGETHER: Final = 1
EARLY: Final = 2
FINISHES: Final = 4
RECOMPUTES: Final = 8
SWAPPED_OUT: Final = 16
COMES_BACK: Final = 32
SIGHT_IDS: Final = ("runs together", "leaves early", "finishes", "recomputes", "swaps", "comes back")


@compiled
def survey(m: Memory) -> None:
    """Free blocks, budget, who runs, members, who was admitted, blocks on the host."""
    held = tokens = runs = members = anew = host = 0
    for part in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
        held += m[part + HELD]
        if m[part + WHERE] == RUNS:
            m[RUNS_IN_ORDER + m[part + JOINED] - 1] = part
            runs += 1
        if m[part + TOKENS]:
            tokens += m[part + TOKENS] - 1
            members += 1
        anew += m[part + ADMITTED]
        if m[part + SWAPPED]:
            host += blocks_for(m, m[part + COMPUTED])
    m[FREE] = m[BLOCKS] - held
    m[LEFT_OVER] = m[BUDGET] - tokens
    m[RUN_NOW], m[MEMBERS], m[ANEW], m[ON_HOST] = runs, members, anew, host


# -- small questions ---------------------------------------------------------------------------------


@compiled
def blocks_for(m: Memory, tokens: int) -> int:
    """Blocks of so many positions."""
    return (tokens + m[SIZE] - 1) // m[SIZE]


@compiled
def known(m: Memory, part: int) -> int:
    """n = p + o."""
    return m[m[PROMPT] + m[part + JOB]] + m[part + OUTPUTS]


@compiled
def hold(m: Memory, part: int, end: int) -> int:
    """The blocks held once positions up to `end` are computed."""
    row = m[part + JOB] * m[OUTPUTS_KEPT] + m[part + OUTPUTS]
    return max(m[m[HOLD] + row * m[ENDS_KEPT] + end], m[part + HELD])


@compiled
def tenant(m: Memory, part: int) -> int:
    """Whose request it is."""
    return m[m[TENANT] + m[part + JOB]]


@compiled
def urgency(m: Memory, part: int) -> int:
    """Lower is more urgent."""
    return m[m[URGENCY] + m[part + JOB]]


@compiled
def longest(m: Memory, part: int) -> int:
    """The longest part of this step, 0 for none."""
    start = m[part + COMPUTED]
    if m[part + WHERE] != RUNS and not m[part + SWAPPED]:
        start = 0
    left = known(m, part) - start
    most = min(left, m[LEFT_OVER])
    return 0 if most < 1 or (not m[CHUNKED] and most < left) else most


@compiled
def shortest(m: Memory, most: int) -> int:
    """The shortest where that is the longest: only chunks of a lazy scheduler may be shorter."""
    return most if m[EAGER] or not m[CHUNKED] else 1


@compiled
def emits(m: Memory, part: int) -> bool:
    """Its part of this step computes the last known token."""
    return bool(m[part + TOKENS] and m[part + COMPUTED] >= known(m, part))


# -- effects -----------------------------------------------------------------------------------------


@compiled
def begin(m: Memory) -> None:
    """The state to be made, so far the old one."""
    for at in range(OLD, OLD + m[COMMON]):
        m[MADE + at] = m[at]
    for at in range(PARTS, PARTS + m[LIVE] * WIDTH):
        m[MADE + at] = m[at]


@compiled
def put(m: Memory, count: int, shown: int) -> int:
    """It is made: the next of the successors."""
    pack(m, m[NEXT] + count * m[WORDS])
    m[m[SHOWN] + count] = shown
    return count + 1


@compiled
def remove(m: Memory, one: int, kind: int) -> None:
    """A request has ended: those behind it move up, and ordinals stay dense."""
    gone = MADE + PARTS + one * WIDTH
    joined, first, place = m[gone + JOINED], m[gone + FIRST], m[gone + PLACE]
    if not m[SYMMETRY]:
        m[MADE + ENDED] |= kind << (2 * m[gone + JOB])
    end = MADE + PARTS + m[MADE + LIVE] * WIDTH
    for at in range(gone + WIDTH, end):
        m[at - WIDTH] = m[at]
    m[MADE + LIVE] -= 1
    for part in range(MADE + PARTS, end - WIDTH, WIDTH):
        if joined and m[part + JOINED] > joined:
            m[part + JOINED] -= 1
        if first and m[part + FIRST] > first:
            m[part + FIRST] -= 1
        if m[part + PLACE] > place:
            m[part + PLACE] -= 1


@compiled
def leave(m: Memory, count: int, one: int, kind: int) -> int:
    """One ends outside of the end of a step."""
    begin(m)
    part = PARTS + one * WIDTH
    if m[ORDER] == FAIR and m[part + WHERE] == WAITS:
        m[MADE + LEFT] = tenant(m, part) + 1
    if m[part + WHERE] == RUNS and m[RUN_NOW] == 1:
        m[MADE + BEGUN] = 0
    remove(m, one, kind)
    if kind == REJECTED:
        m[MADE + DECIDED] = 1
    return put(m, count, 0)


@compiled
def arrive(m: Memory, count: int) -> int:
    """The next of the script."""
    begin(m)
    part = MADE + PARTS + m[LIVE] * WIDTH
    for field in range(WIDTH):
        m[part + field] = 0
    m[part + JOB] = m[m[ENTRY] + m[ARRIVED]]
    m[part + WHERE] = WAITS
    m[part + PLACE] = m[LIVE]
    if m[ORDER] == FAIR:
        _lift(m, tenant(m, part))
    m[MADE + ARRIVED] += 1
    m[MADE + LIVE] += 1
    return put(m, count, 0)


@compiled
def _lift(m: Memory, mine: int) -> None:
    """VT1: one that waits anew is lifted to the least of those that wait, or to the last that left."""
    least = FAR
    for part in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
        if m[part + WHERE] == WAITS:
            if tenant(m, part) == mine:
                return
            least = min(least, m[COUNTERS + tenant(m, part)])
    if least == FAR and m[LEFT]:
        least = m[COUNTERS + m[LEFT] - 1]
    if m[LIFT] and least != FAR:
        m[MADE + COUNTERS + mine] = max(m[COUNTERS + mine], least)


@compiled
def schedule(m: Memory, part: int, start: int, tokens: int, blocks: int) -> None:
    """A part of this step's pass; who was owed its turn has had it."""
    m[MADE + part + COMPUTED] = start + tokens
    m[MADE + part + TOKENS] = tokens + 1
    m[MADE + part + HELD] = blocks
    m[MADE + DECIDED] = 1
    if m[OWED] == (part - PARTS) // WIDTH + 1:
        m[MADE + OWED] = 0


@compiled
def preempt(m: Memory, count: int, victim: int, cause: int) -> int:
    """Out of the batch, to the host where there is room, for the sake of `cause`."""
    resident = m[victim + COMPUTED]
    if m[victim + TOKENS]:
        resident -= m[victim + TOKENS] - 1
    full = m[HOST] != NO_HOST_LIMIT and m[ON_HOST] + blocks_for(m, resident) > m[HOST]
    swaps = m[PREEMPTS] == SWAP and not full
    begin(m)
    made = MADE + victim
    m[made + WHERE] = OUT
    m[made + COMPUTED] = resident if swaps else 0
    m[made + SWAPPED] = 1 if swaps else 0
    m[made + TOKENS] = m[made + HELD] = m[made + JOINED] = 0
    back = m[RETURNS] == BACK
    for part in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
        if m[part + JOINED] > m[victim + JOINED]:
            m[MADE + part + JOINED] -= 1
        if back and m[part + PLACE] > m[victim + PLACE]:
            m[MADE + part + PLACE] -= 1
    if back:
        m[made + PLACE] = m[LIVE] - 1
    m[MADE + DECIDED] = m[MADE + EVICTED] = 1
    m[MADE + OWED] = 0 if cause == victim else (cause - PARTS) // WIDTH + 1
    if m[RUN_NOW] == 1:
        m[MADE + BEGUN] = 0
    return put(m, count, SWAPPED_OUT if swaps else RECOMPUTES)
