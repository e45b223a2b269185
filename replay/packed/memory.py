"""The memory of the packed form: one row of numbers with sizes, the spec's tables, and a state on the desk.

The compiled loops get this one array, and know by the addresses below what lies where. A state lies open on
the desk from `OLD` on: what concerns all, then eleven numbers a live request in the order of arrival. The
state that an action makes lies `MADE` further. Successors are kept packed, from `m[NEXT]` on.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Memory = NDArray[np.int64]

# Sizes and claims.
JOBS: Final = 0
BLOCKS: Final = 1
SEATS: Final = 2
BUDGET: Final = 3
SIZE: Final = 4
HOST: Final = 5
CHUNKED: Final = 6
EAGER: Final = 7
STOPS: Final = 8
ABORTS: Final = 9
SYMMETRY: Final = 10
OWES: Final = 11
STALL_FREE: Final = 12
PREEMPTS: Final = 13
APART: Final = 14
SKIPS: Final = 15
BY_STEP: Final = 16
WATERMARK: Final = 17
BARRIER: Final = 18
RETURNS: Final = 19
FOR_WAITING: Final = 20
ORDER: Final = 21
TIES: Final = 22
LIFT: Final = 23
W_P: Final = 24
W_Q: Final = 25
# Where the tables of the spec begin, each by job first, and how long their rows are.
PROMPT: Final = 32
MOST: Final = 33
URGENCY: Final = 34
TENANT: Final = 35
ENTRY: Final = 36
REFUSED: Final = 37
HOLD: Final = 38
NEED: Final = 39
RANK: Final = 40
VICTIM: Final = 41
OUTPUTS_KEPT: Final = 42
ENDS_KEPT: Final = 43
# How a state is packed: words a state, numbers that concern all, room for successors.
WORDS: Final = 48
COMMON: Final = 49
NEXT: Final = 50
SHOWN: Final = 51
ROOM: Final = 52

# Sums over the state on the desk, who runs (first to join first), and who may join.
FREE: Final = 56
LEFT_OVER: Final = 57
RUN_NOW: Final = 58
MEMBERS: Final = 59
ANEW: Final = 60
ON_HOST: Final = 61
RUNS_IN_ORDER: Final = 64
LINE: Final = 80
# Word, shift and mask of what concerns all; word and shift of each request; shift and mask inside one.
HEAD_WORD: Final = 96
HEAD_SHIFT: Final = 120
HEAD_MASK: Final = 144
PART_WORD: Final = 168
PART_SHIFT: Final = 184
FIELD_SHIFT: Final = 200
FIELD_MASK: Final = 212

OLD: Final = 256
MADE: Final = 256
# What concerns all. Positions, tenants and ordinals are kept plus one: 0 is nobody.
ARRIVED: Final = OLD
DECIDED: Final = OLD + 1
EVICTED: Final = OLD + 2
OWED: Final = OLD + 3
BEGUN: Final = OLD + 4
LIVE: Final = OLD + 5
ENDED: Final = OLD + 6
LEFT: Final = OLD + 7
COUNTERS: Final = OLD + 8
# What concerns one, from the address of its part on.
PARTS: Final = OLD + 24
JOB: Final = 0
WHERE: Final = 1
COMPUTED: Final = 2
OUTPUTS: Final = 3
HELD: Final = 4
SWAPPED: Final = 5
JOINED: Final = 6
FIRST: Final = 7
PLACE: Final = 8
TOKENS: Final = 9
ADMITTED: Final = 10
WIDTH: Final = 11
TABLES: Final = OLD + 2 * MADE

MOST_JOBS: Final = 16
NO_HOST_LIMIT: Final = -1
WAITS, RUNS, OUT = 1, 2, 3
FINISHED, ABORTED, REJECTED = 1, 2, 3
# Of several victims that are as good each may be taken: who is as good.
TIES_NONE, TIES_OUTPUTS, TIES_URGENCY, TIES_SELF = range(4)
VICTIM_TIES: Final = {"fewest-outputs": TIES_OUTPUTS, "least-urgent": TIES_URGENCY, "self": TIES_SELF}
