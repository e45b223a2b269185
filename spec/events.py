"""The event: one row of a trace, in the words of the trace format.

A trace is a sequence of events in the order in which things happened. `Event` names every column
once; readers, recorders and rules all take their column names from here. A null is `None`: what a
trace does not say, no rule may assume.
"""

from typing import Final, NamedTuple

RequestId = str | int


class Event(NamedTuple):
    """One event. Units: steps, tokens, blocks, nanoseconds; ids are the engine's own."""

    step: int
    event: str
    request: RequestId | None = None
    time_ns: int | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    priority: int | None = None
    tenant: str | None = None
    slot: int | None = None
    cached: int | None = None
    start: int | None = None
    tokens: int | None = None
    drafts: int | None = None
    blocks: int | None = None
    block_ids: tuple[int, ...] | None = None
    free_blocks: int | None = None
    waiting: int | None = None
    running: int | None = None
    output_tokens: int | None = None
    block_hashes: tuple[int, ...] | None = None
    reason: str | None = None
    cause: RequestId | None = None
    pass_: int | None = None
    resource: str | None = None
    units: int | None = None
    pinned_blocks: int | None = None
    shared_blocks: int | None = None
    prediction: int | None = None

    @property
    def subject(self) -> RequestId:
        """The request that the row is about, for a row that must have one. (0 is an id too.)"""
        return "" if self.request is None else self.request

    @property
    def pass_step(self) -> int:
        """The step whose forward pass this row belongs to: `pass`, else `step`."""
        return self.step if self.pass_ is None else self.pass_


def column_of(field: str) -> str:
    """The trace column of an `Event` field (`pass` is a keyword in Python, so its field is `pass_`)."""
    return "pass" if field == "pass_" else field


COLUMNS: Final[tuple[str, ...]] = tuple(column_of(field) for field in Event._fields)
"""Every column of a trace, in the order of `Event`'s fields."""

DECISIONS: Final = frozenset({"preempt", "admit", "resume", "reject", "park", "skip", "schedule"})
RESULTS: Final = frozenset({"output", "finish"})
WITHOUT_REQUEST: Final = frozenset({"step", "dispatch", "complete"})

KINDS: Final[tuple[str, ...]] = (
    "live",
    "arrive",
    "cancel",
    "abort",
    "preempt",
    "admit",
    "resume",
    "reject",
    "park",
    "ready",
    "skip",
    "schedule",
    "dispatch",
    "complete",
    "output",
    "finish",
    "deliver",
    "release",
    "take",
    "give",
    "transfer_begin",
    "transfer_end",
    "step",
)
"""Every event kind a trace may hold."""

REASONS: Final[dict[str, tuple[str, ...]]] = {
    "reject": ("too_long", "queue_full", "rate", "error"),
    "preempt": ("recompute", "swap", "operator"),
    "park": ("remote_kv", "grammar", "rate", "adapter", "encoder", "other"),
    "skip": ("budget", "memory", "slots", "not_ready", "in_flight", "policy"),
    "finish": ("stop", "length", "error", "migrated"),
    "abort": ("client", "timeout", "operator", "memory", "error"),
    "transfer_begin": ("send", "receive", "swap_out", "swap_in"),
    "transfer_end": ("send", "receive", "swap_out", "swap_in", "failed"),
    "live": ("waiting", "parked", "running", "preempted"),
}
"""The words that `reason` may hold, by event kind."""
