"""The job: one request as the reference scheduler keeps it, from arrival to end."""

from dataclasses import dataclass, field
from typing import Final

from batchspec.spec.events import RequestId

WAITING: Final = "waiting"
PARKED: Final = "parked"
RUNNING: Final = "running"
PREEMPTED: Final = "preempted"
ENDED: Final = "ended"


@dataclass(slots=True, eq=False)
class Job:
    """One incarnation of a request. Lengths are tokens; ordinals count from 0 in trace order.

    `target` is the scripted length: the request stops after that many outputs, at most `max_tokens`.
    `computed` is c (on the host while it is swapped out), `table` its blocks in table order, `blocks`
    their number. `in_flight` tokens were computed by passes whose results have not come back yet.
    """

    id: RequestId
    number: int
    place: int
    prompt: int
    max_tokens: int
    target: int
    priority: int | None
    tenant: str | None
    arrived_ns: int
    predicted: int | None = None
    """The length that it is predicted to reach, prompt included, where admission rests on that."""
    keys: tuple[int, ...] = ()
    """Content keys of the prompt's leading blocks, where the workload gives them."""
    state: str = WAITING
    outputs: int = 0
    in_flight: int = 0
    computed: int = 0
    blocks: int = 0
    table: list[int] = field(default_factory=list)
    finished: bool = False
    slot: int | None = None
    joined: int | None = None
    first_admit: int | None = None
    decodes: bool = False
    """Whether it has emitted since it joined (or went on after a swap): its next pass is a decode."""
    last_step: int = 0
    """The step in which it was last a member, or joined."""
    preempted_in: int = 0
    preempted_at: int = 0
    """n at its last preemption."""
    futile: int = 0
    """How many times in a row it was preempted without a new token in between."""
    swapped: bool = False
    kept: int = 0
    """Positions in the blocks that it kept through a preemption."""
    passed: int = 0
    """How many later requests were admitted past it while it did not fit."""

    @property
    def known(self) -> int:
        """n = p + o + tokens in flight."""
        return self.prompt + self.outputs + self.in_flight

    @property
    def allowed(self) -> int:
        """Output tokens that may still be computed."""
        return self.max_tokens - self.outputs - self.in_flight
