"""Invariants: the safety rules of memory, slots, batch and tokens as predicates over one state.

Each has the id of the rule that says the same of a trace. They are what the explorer judges in every
state, and what prove.py proves to be inductive.

Notation, per request: known length n = p + o, resident positions c, blocks held B. Engine: N blocks of
b positions, S seats, T tokens a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from batchspec.spec.frame import Frame
from batchspec.spec.model import PREEMPTED, RUNNING, WAITING

if TYPE_CHECKING:
    from batchspec.spec.space import Space

Holds = Callable[[Any, Any], bool]
"""Asked of a system and one of its states; those below of a `Space` and a `Frame`."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """A property of every reachable state. `id` is that of the rule, or a name of its own."""

    id: str
    sentence: str
    holds: Holds


def _bound(space: "Space", frame: Frame) -> bool:
    return sum(part.blocks for part in frame.parts) <= space.blocks


def _coverage(space: "Space", frame: Frame) -> bool:
    running = (part for part in frame.parts if part.state == RUNNING)
    return all(part.blocks * space.size >= part.computed for part in running)


def _waste(space: "Space", frame: Frame) -> bool:
    for part in frame.parts:
        job = space.jobs[part.job]
        if part.blocks * space.size >= job.prompt + job.max_tokens + space.size:
            return False
    return True


def _release(space: "Space", frame: Frame) -> bool:
    return all(part.blocks == 0 for part in frame.parts if part.state in (WAITING, PREEMPTED))


def _host(space: "Space", frame: Frame) -> bool:
    limit = space.profile.limits.host_blocks
    if limit is None:
        return True
    return sum(-(-part.computed // space.size) for part in frame.parts if part.swapped) <= limit


def _capacity(space: "Space", frame: Frame) -> bool:
    return sum(part.state == RUNNING for part in frame.parts) <= (space.profile.limits.max_seqs or 0)


def _budget(space: "Space", frame: Frame) -> bool:
    return sum(part.tokens for part in frame.parts if part.tokens > 0) <= space.budget


def _membership(space: "Space", frame: Frame) -> bool:
    return all(part.state == RUNNING and part.tokens >= 1 for part in frame.parts if part.tokens >= 0)


def _overrun(space: "Space", frame: Frame) -> bool:
    return all(0 <= part.computed <= space.jobs[part.job].prompt + part.outputs for part in frame.parts)


def _behind(space: "Space", frame: Frame) -> bool:
    """Between steps at least the newest token is still to be computed."""
    for part in frame.parts:
        known = space.jobs[part.job].prompt + part.outputs
        if part.tokens < 0 and part.computed >= known:
            return False
    return True


def _outputs(space: "Space", frame: Frame) -> bool:
    return all(0 <= part.outputs < space.jobs[part.job].max_tokens for part in frame.parts)


INVARIANTS = (
    Invariant("memory/bound", "Blocks held are at most N.", _bound),
    Invariant("memory/coverage", "Who runs holds the blocks of its resident positions: c ≤ B·b.", _coverage),
    Invariant("memory/waste", "Nobody holds a whole block beyond p + max_tokens.", _waste),
    Invariant("memory/release", "Who waits or was preempted holds nothing.", _release),
    Invariant("memory/host-bound", "Swapped positions fit the host pool.", _host),
    Invariant("batch/capacity", "At most S requests run.", _capacity),
    Invariant("batch/token-budget", "The parts of a step add up to at most T tokens.", _budget),
    Invariant("batch/membership", "Members run, and compute at least one position.", _membership),
    Invariant("tokens/overrun", "0 ≤ c ≤ n.", _overrun),
    Invariant(
        "tokens/position", "Who is no member of this step has c < n: its newest token is to come.", _behind
    ),
    Invariant("tokens/output-count", "A live request has emitted fewer than max_tokens.", _outputs),
)
"""Judged in every state."""


def in_order_of_arrival(space: "Space", frame: Frame) -> bool:
    """Whoever arrived earlier has run at least as many iterations (asks for `ran`), between two steps."""
    if frame.decided:
        return True
    runs = [part.ran for part in frame.parts]
    return all(earlier >= later for earlier, later in pairwise(runs))


ITERATION_ORDER = Invariant(
    "orca/iteration-order",
    "If x arrived before y, x has run at least as many iterations as y while x lives (Orca, OR6).",
    in_order_of_arrival,
)


def no_thrash(bound: int) -> Invariant:
    """Nobody is preempted more than `bound` times without an output in between (asks for `fruitless`)."""
    return Invariant(
        "preemption/thrash",
        f"Nobody is preempted more than {bound} times without an output in between.",
        lambda space, frame: all(part.fruitless <= bound for part in frame.parts),
    )


def _service_gap(space: "Space", frame: Frame) -> bool:
    if frame.service is None:
        return True
    w_p, w_q = space.profile.value("fairness.w_p"), space.profile.value("fairness.w_q")
    longest = max(job.prompt for job in space.jobs)
    unit = max(w_p * longest, w_q * space.blocks * space.size)
    return bool(frame.service[2] - frame.service[1] <= 2 * unit)


SERVICE_GAP = Invariant(
    "fairness/service-gap",
    "While both have requests waiting two tenants are served alike, but for 2U (VTC, theorem 4.4; asks for "
    "`service`).",
    _service_gap,
)
