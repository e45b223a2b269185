"""The invariants of spec/invariants.py over packed states, one bit each, in the same order."""

from typing import Final

from batchspec.replay.compiled import compiled
from batchspec.replay.packed.memory import (
    BLOCKS,
    BUDGET,
    COMPUTED,
    HELD,
    HOST,
    JOB,
    LIVE,
    MOST,
    NO_HOST_LIMIT,
    OUTPUTS,
    PARTS,
    PROMPT,
    RUNS,
    SEATS,
    SIZE,
    SWAPPED,
    TOKENS,
    WHERE,
    WIDTH,
    Memory,
)

BOUND, COVERAGE, WASTE, RELEASE, HOSTED, CAPACITY, TOTAL, MEMBERSHIP, OVERRUN, BEHIND, COUNTED = (
    1 << bit for bit in range(11)
)
CLAIM_IDS: Final = (
    "memory/bound",
    "memory/coverage",
    "memory/waste",
    "memory/release",
    "memory/host-bound",
    "batch/capacity",
    "batch/token-budget",
    "batch/membership",
    "tokens/overrun",
    "tokens/position",
    "tokens/output-count",
)


@compiled
def broken(m: Memory) -> int:
    """The invariants that a state does not keep."""
    size = m[SIZE]
    held = host = runs = tokens = found = 0
    for part in range(PARTS, PARTS + m[LIVE] * WIDTH, WIDTH):
        job, computed, mine = m[part + JOB], m[part + COMPUTED], m[part + HELD]
        known = m[m[PROMPT] + job] + m[part + OUTPUTS]
        held += mine
        if m[part + SWAPPED]:
            host += (computed + size - 1) // size
        if mine * size >= m[m[PROMPT] + job] + m[m[MOST] + job] + size:
            found |= WASTE
        if m[part + WHERE] == RUNS:
            runs += 1
            if mine * size < computed:
                found |= COVERAGE
        elif mine:
            found |= RELEASE
        if m[part + TOKENS]:
            tokens += m[part + TOKENS] - 1
            if m[part + WHERE] != RUNS or m[part + TOKENS] < 2:
                found |= MEMBERSHIP
        elif computed >= known:
            found |= BEHIND
        if computed < 0 or computed > known:
            found |= OVERRUN
        if m[part + OUTPUTS] >= m[m[MOST] + job]:
            found |= COUNTED
    if held > m[BLOCKS]:
        found |= BOUND
    if m[HOST] != NO_HOST_LIMIT and host > m[HOST]:
        found |= HOSTED
    if runs > m[SEATS]:
        found |= CAPACITY
    if tokens > m[BUDGET]:
        found |= TOTAL
    return found
