"""The layout of the fast checker's books: which number stands where in its arrays.

The kernel keeps everything in integers: one row of `R` a live request, one entry of `S` a fact about the
trace so far, one of `K` a claim of the profile. `NIL` stands for what is None in the spec's own books.
A compiled function takes these names as constants, so each is a plain number at the top of this module.
"""

from typing import Final

NIL: Final = -(1 << 62)
"""None."""

# -- kinds of events, as the kernel knows them -------------------------------------------------------
K_STRANGE: Final = 0
K_ARRIVE: Final = 1
K_ADMIT: Final = 2
K_SCHEDULE: Final = 3
K_PREEMPT: Final = 4
K_RESUME: Final = 5
K_FINISH: Final = 6
K_ABORT: Final = 7
K_REJECT: Final = 8
K_STEP: Final = 9
K_SURPRISE: Final = 10
"""A kind that was not expected in this trace, and whose presence alone changes what rules say."""

KINDS: Final = {
    "arrive": K_ARRIVE,
    "admit": K_ADMIT,
    "schedule": K_SCHEDULE,
    "preempt": K_PREEMPT,
    "resume": K_RESUME,
    "finish": K_FINISH,
    "abort": K_ABORT,
    "reject": K_REJECT,
    "step": K_STEP,
}

# -- reasons that the kernel tells apart -------------------------------------------------------------
W_OTHER: Final = 0
W_RECOMPUTE: Final = 1
W_LENGTH: Final = 2
W_ERROR: Final = 3
W_MEMORY: Final = 4
W_NONE: Final = 5
W_TOO_LONG: Final = 6

REASONS: Final = {
    "recompute": W_RECOMPUTE,
    "length": W_LENGTH,
    "error": W_ERROR,
    "memory": W_MEMORY,
    "too_long": W_TOO_LONG,
}

# -- states of a request -----------------------------------------------------------------------------
AT_WAITING: Final = 0
AT_RUNNING: Final = 1
AT_PREEMPTED: Final = 2
AT_ENDED: Final = 3
"""Ended in this step: it is forgotten when the next one begins."""

# -- a request: columns of R. What every pass touches stands first, in two lines of the cache ---------
ID: Final = 0
NUMBER: Final = 1
STATE: Final = 2
ADOPTS: Final = 3
COMPUTED: Final = 4
OUTPUTS: Final = 5
BLOCKS: Final = 6
PROMPT: Final = 7
MEMBER_AT: Final = 8
MEMBER_TOKENS: Final = 9
MEMBER_REACHES: Final = 10
BEFORE: Final = 11
DECODES: Final = 12
ADMITTED_AT: Final = 13
PREEMPTED_AT: Final = 14
PLACE_IN_RUN: Final = 15
MAX_TOKENS: Final = 16
ARRIVED: Final = 17
ARRIVED_NS: Final = 18
SLOT: Final = 19
FIRST_ADMIT: Final = 20
JOINED: Final = 21
PREEMPTIONS: Final = 22
LATE: Final = 23
MISSED: Final = 24
MISSED_AT: Final = 25
LEAST: Final = 26
THRASH_KNOWN: Final = 27
THRASH_TIMES: Final = 28
KEPT: Final = 29
LAST_NS: Final = 30
LAST_WHAT: Final = 31
NEVER: Final = 32
R_WIDTH: Final = 33

NEVER_NO: Final = 0
NEVER_YES: Final = 1
NEVER_UNSAID: Final = 2

WHATS: Final = ("arrival", "admit")
"""The words of `LAST_WHAT`."""

# -- the trace so far: entries of S ------------------------------------------------------------------
STEP: Final = 0
STEPS: Final = 1
OPEN: Final = 2
BOUNDARY: Final = 3
ARRIVALS: Final = 4
JOINS: Final = 5
LIVE: Final = 6
FREE: Final = 7
RUNS: Final = 8
PRES: Final = 9
W_HEAD: Final = 10
W_TAIL: Final = 11
WAITS: Final = 12
MEMBERS: Final = 13
MEMBERS_LISTED: Final = 14
MEMBERS_RUN: Final = 15
TOKENS: Final = 16
DECIDED: Final = 17
DECIDED_AT: Final = 18
DECISIONS: Final = 19
SNAPPED_AT: Final = 20
ADMITTED: Final = 21
PREEMPTED: Final = 22
ENDED: Final = 23
LATE_SEATS: Final = 24
NEXT: Final = 25
NEXT_NUMBER: Final = 26
NEXT_FITS: Final = 27
HELD: Final = 28
POSITIONS: Final = 29
UNKNOWN_POSITIONS: Final = 30
LAST_CLOCK: Final = 31
ENDS: Final = 32
ENDS_OLD: Final = 33
DUES: Final = 34
EDGES: Final = 35
EDGES_SINCE: Final = 36
EMPTY: Final = 37
MISSES: Final = 38
WAIT_NEXT: Final = 39
WAIT_NUMBER: Final = 40
WAIT_COUNT: Final = 41
FIT_SEATS: Final = 42
FIT_BUDGET: Final = 43
FIT_NEED: Final = 44
FIT_FREE: Final = 45
WAIT_SEATS: Final = 46
WAIT_BUDGET: Final = 47
WAIT_NEED: Final = 48
WAIT_FREE: Final = 49
LEAK_TOLD: Final = 50
FAILED: Final = 51
FAILED_ABLE: Final = 52
SUBJECTS: Final = 53
EVENTS: Final = 54
WHY: Final = 55
STOPPED: Final = 56
SEEN: Final = 57
PINNED: Final = 58
FIRST_PREEMPTED: Final = 59
S_WIDTH: Final = 60

# -- claims: entries of K ----------------------------------------------------------------------------
TOTAL: Final = 0
SIZE: Final = 1
SEATS: Final = 2
BUDGET: Final = 3
PER_STEP: Final = 4
CHUNKED: Final = 5
ORDERED: Final = 6
TEST: Final = 7
TEST_MORE: Final = 8
RESERVE: Final = 9
RESERVE_MORE: Final = 10
LOOKAHEAD: Final = 11
WATERMARK: Final = 12
HEADROOM: Final = 13
VICTIM: Final = 14
FRONT: Final = 15
SAME_STEP: Final = 16
RECOMPUTES: Final = 17
NO_PREFIX: Final = 18
CLOCK: Final = 19
HAS_BLOCKS: Final = 20
LONGEST: Final = 21
IDLE_K: Final = 22
STARVED_K: Final = 23
NEEDLESS_K: Final = 24
THRASH_K: Final = 25
LIVELOCK_K: Final = 26
PINS: Final = 27
CHUNKED_UNSAID: Final = 28
K_WIDTH: Final = 29

NEED_NONE: Final = -1
NEED_STEP: Final = 0
NEED_KNOWN: Final = 1
NEED_FULL: Final = 2
NEED_PREDICTED: Final = 3

V_LATEST_ADMITTED: Final = 1
V_LATEST_ARRIVED: Final = 2
V_FEWEST_OUTPUTS: Final = 3
V_SELF: Final = 4
V_NEWEST_DENIED: Final = 5

VICTIMS: Final = {
    "latest-admitted": V_LATEST_ADMITTED,
    "latest-arrived": V_LATEST_ARRIVED,
    "fewest-outputs": V_FEWEST_OUTPUTS,
    "self": V_SELF,
    "newest-denied": V_NEWEST_DENIED,
}

# -- rules: entries of A (judged here) and of C (instances judged, then those that a null kept out) ----
R_UNKNOWN: Final = 0
R_TRANSITION: Final = 1
R_DUPLICATE: Final = 2
R_AFTER_END: Final = 3
R_UNFINISHED: Final = 4
R_ABORT_TARGET: Final = 5
R_BACKWARDS: Final = 6
R_CAUSALITY: Final = 7
R_MEMBERSHIP: Final = 8
R_CAPACITY: Final = 9
R_TOKEN_BUDGET: Final = 10
R_EMPTY_MEMBER: Final = 11
R_NO_STALL: Final = 12
R_SLOT_EXCLUSIVE: Final = 13
R_SLOT_RANGE: Final = 14
R_EARLY_REUSE: Final = 15
R_REUSE: Final = 16
R_POSITION: Final = 17
R_OVERRUN: Final = 18
R_OUTPUT_COUNT: Final = 19
R_LOST: Final = 20
R_CHUNKING: Final = 21
R_BOUND: Final = 22
R_COVERAGE: Final = 23
R_WASTE: Final = 24
R_CONSERVATION: Final = 25
R_RELEASE: Final = 26
R_LEAK: Final = 27
R_ORDER: Final = 28
R_HEAD_OF_LINE: Final = 29
R_FIT: Final = 30
R_NEVER_FIT: Final = 31
R_NEEDLESS: Final = 32
R_PARKED: Final = 33
R_FORBIDDEN: Final = 34
R_CAUSE: Final = 35
R_VICTIM: Final = 36
R_USEFUL: Final = 37
R_RESUME_FIRST: Final = 38
R_NO_ADMISSION: Final = 39
R_THRASH: Final = 40
R_SWAP: Final = 41
R_OVERTAKING: Final = 42
R_IDLE: Final = 43
R_STARVED: Final = 44
R_LIVELOCK: Final = 45
R_STATS: Final = 46

RULES: Final = {
    "lifecycle/unknown-request": R_UNKNOWN,
    "lifecycle/legal-transition": R_TRANSITION,
    "lifecycle/duplicate-id": R_DUPLICATE,
    "lifecycle/after-end": R_AFTER_END,
    "lifecycle/unfinished": R_UNFINISHED,
    "lifecycle/abort-target": R_ABORT_TARGET,
    "time/backwards": R_BACKWARDS,
    "time/causality": R_CAUSALITY,
    "batch/membership": R_MEMBERSHIP,
    "batch/capacity": R_CAPACITY,
    "batch/token-budget": R_TOKEN_BUDGET,
    "batch/empty-member": R_EMPTY_MEMBER,
    "batch/no-stall": R_NO_STALL,
    "slots/exclusive": R_SLOT_EXCLUSIVE,
    "slots/range": R_SLOT_RANGE,
    "slots/early-reuse": R_EARLY_REUSE,
    "slots/reuse": R_REUSE,
    "tokens/position": R_POSITION,
    "tokens/overrun": R_OVERRUN,
    "tokens/output-count": R_OUTPUT_COUNT,
    "tokens/lost": R_LOST,
    "tokens/chunking": R_CHUNKING,
    "memory/bound": R_BOUND,
    "memory/coverage": R_COVERAGE,
    "memory/waste": R_WASTE,
    "memory/conservation": R_CONSERVATION,
    "memory/release": R_RELEASE,
    "memory/leak": R_LEAK,
    "admission/order": R_ORDER,
    "admission/head-of-line": R_HEAD_OF_LINE,
    "admission/fit": R_FIT,
    "admission/never-fit": R_NEVER_FIT,
    "admission/needless-wait": R_NEEDLESS,
    "admission/parked": R_PARKED,
    "preemption/forbidden": R_FORBIDDEN,
    "preemption/cause": R_CAUSE,
    "preemption/victim": R_VICTIM,
    "preemption/useful": R_USEFUL,
    "preemption/resume-first": R_RESUME_FIRST,
    "preemption/no-admission": R_NO_ADMISSION,
    "preemption/thrash": R_THRASH,
    "preemption/swap": R_SWAP,
    "fairness/overtaking": R_OVERTAKING,
    "liveness/idle-stall": R_IDLE,
    "liveness/starved-member": R_STARVED,
    "liveness/livelock": R_LIVELOCK,
    "stats/agree": R_STATS,
}
"""Every rule that the kernel judges, and its place."""
A_WIDTH: Final = 47
SKIPS: Final = A_WIDTH
"""Where in C the instances that a null kept out begin, in the same order."""

# -- lists: rows of L, each with one entry a live request at most --------------------------------------
FREE_LIST: Final = 0
RUN_LIST: Final = 1
PRE_LIST: Final = 2
MEMBER_LIST: Final = 3
ENDED_LIST: Final = 4
WAIT_LIST: Final = 5
WAIT_NUMBERS: Final = 6
END_STEP: Final = 7
END_ID: Final = 8
DUE_CAUSE: Final = 9
DUE_GAVE: Final = 10
DUE_WAITS: Final = 11
EDGE_CAUSE: Final = 12
EDGE_VICTIM: Final = 13
L_WIDTH: Final = 14

# -- narrow columns: entries of `Rows.narrow`, in this order -------------------------------------------
NARROW: Final = (
    "prompt_tokens",
    "max_tokens",
    "slot",
    "cached",
    "start",
    "tokens",
    "drafts",
    "blocks",
    "free_blocks",
    "waiting",
    "running",
    "output_tokens",
    "pinned_blocks",
)
N_PROMPT: Final = 0
N_MAX: Final = 1
N_SLOT: Final = 2
N_CACHED: Final = 3
N_START: Final = 4
N_TOKENS: Final = 5
N_DRAFTS: Final = 6
N_BLOCKS: Final = 7
N_FREE: Final = 8
N_WAITING: Final = 9
N_RUNNING: Final = 10
N_OUTPUTS: Final = 11
N_PINNED: Final = 12

WIDE: Final = ("request", "time_ns", "cause")
"""Columns of 64 bits: entries of `Rows.wide`, in this order."""
W_REQUEST: Final = 0
W_TIME: Final = 1
W_CAUSE: Final = 2
REQUEST_BIT: Final = 13
TIME_BIT: Final = 14
CAUSE_BIT: Final = 15
REASON_BIT: Final = 16
BITS: Final = 17
"""`Rows.bits` has the first bit of each bitmap: those of the narrow columns, then these."""

# -- how a run of the kernel ends ----------------------------------------------------------------------
DONE: Final = 0
"""All rows of the batch."""
FULL: Final = 1
"""An array is full: grow, and go on at `S[STOPPED]`."""
DOUBT: Final = 2
"""At `S[STOPPED]` something is wrong, or not to be told here: the readable checker must look."""
SURPRISE: Final = 3
"""A kind of event that changes what can be judged at all."""
