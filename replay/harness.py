"""The protocol of a scheduler under test: `add`, `abort`, `plan`, `commit`, and what it can show.

A scheduler under test is whatever plans batches: an adapter around an engine's scheduler object, a
program behind a pipe, or a class written for the occasion. It answers in the rows of a trace: each
decision is an `Event` made by one of the functions below, in the order in which it was made, for
order inside a step is what many rules rest on. The harness numbers and times them.

    def plan(self):
        rows = []
        for request in self.running:
            rows.append(schedule(request.id, 1))
        while self.queue and len(self.running) < self.seats:
            request = self.queue.pop(0)
            rows += [admit(request.id), schedule(request.id, len(request.prompt))]
        return Plan(rows, waiting=len(self.queue), running=len(self.running))

What a scheduler cannot say (slots, blocks, block ids) it leaves out; what a trace does not say, no
rule judges.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile


class HarnessError(BatchspecError):
    """A scheduler under test, or its adapter, does not keep the protocol; the line says how to mend it."""


class Refused(BatchspecError):
    """Raised by `add`: the scheduler does not take the request. `reason` is a word of `reject` rows."""

    def __init__(self, reason: str = "error", why: str = "") -> None:
        """`why` is a line for people; without it the reason alone."""
        super().__init__(why or reason)
        self.reason = reason


class SchedulerFailed(Exception):
    """Raised by an adapter whose scheduler fails elsewhere, as in a process of its own; one line says how."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as a client sends it. `prompt` are token ids; equal prefixes may share blocks.

    The request ends with `stop_token` or after `max_tokens` outputs, whichever comes first.
    `arrival_ns` is the harness's virtual clock.
    """

    id: RequestId
    prompt: tuple[int, ...]
    max_tokens: int
    stop_token: int
    priority: int = 0
    tenant: str | None = None
    arrival_ns: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a scheduler can do and show; the harness asks for no more, and judges no more.

    `blocks` is `none`, `counts` (`blocks` on rows, `free_blocks` on steps) or `ids` (`block_ids` too).
    `depth` is how many plans may be made before the first is committed (1: plan and commit alternate).
    `outputs` is `derived` where each member that reaches the end of what is known emits one token, and
    `recorded` where `commit` says what was emitted in `output` rows (needed with `depth` above 1 and
    with drafts), or `late` where a later plan does, in `output` rows with their `pass_`. `priority`,
    `tenants`, `prefix`, `abort`: whether such input has any effect.
    `seats` tells whether `slot` is on rows, `copies` whether `copy.deepcopy` gives a working copy.
    """

    name: str
    version: str = ""
    blocks: str = "none"
    depth: int = 1
    outputs: str = "derived"
    seats: bool = False
    priority: bool = False
    tenants: bool = False
    prefix: bool = False
    abort: bool = True
    drafts: bool = False
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One iteration's decisions in order, and the engine's own counters after them.

    Rows are of the kinds preempt, admit, resume, reject, park, ready, skip, schedule, release, take,
    give, transfer_begin, transfer_end and abort. A counter left `None` is not known.
    """

    rows: Sequence[Event] = ()
    free_blocks: int | None = None
    waiting: int | None = None
    running: int | None = None
    pinned_blocks: int | None = None
    shared_blocks: int | None = None

    @property
    def members(self) -> tuple[Event, ...]:
        """The `schedule` rows of those that are still members at the end of the plan."""
        found: dict[RequestId, Event] = {}
        for row in self.rows:
            if row.event == "schedule":
                found[row.subject] = row
            elif row.event in ("preempt", "abort"):
                found.pop(row.subject, None)
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Results:
    """What the device computed for one plan. `tokens`: request -> the token ids it emitted, in order.

    A member whose prompt is not complete after the step has no tokens. One that was aborted while the pass
    ran has them still, as from a device; they are dropped. `pass_` is the number of the
    step that planned it; rows of `commit` that tell of this pass need not repeat it.
    """

    plan: Plan
    pass_: int
    tokens: Mapping[RequestId, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a pass, and the counters then.

    Rows are of the kinds output, finish, deliver, release, give, abort, preempt and transfer_end.
    """

    rows: Sequence[Event] = ()
    free_blocks: int | None = None
    waiting: int | None = None
    running: int | None = None
    pinned_blocks: int | None = None
    shared_blocks: int | None = None


@runtime_checkable
class Scheduler(Protocol):
    """A scheduler under test. Calls come from one thread, in the order of a serving loop."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do and show; the same at every call."""

    def add(self, request: Request) -> None:
        """A request arrives. Raises `Refused` where the scheduler turns it away at once."""

    def abort(self, request: RequestId) -> Iterable[Event]:
        """The client ends a live request.

        The rows say what that changed at once (`abort`, `release`); none where it takes effect in a
        later `plan` or `commit`, whose rows then say so. May be called between `plan` and `commit`.
        """

    def plan(self) -> Plan:
        """Decide the next iteration. An empty plan is an answer too: nothing can run."""

    def commit(self, results: Results) -> Outcome:
        """Take the results of the oldest plan that has none yet. Called for empty plans as well."""


class Factory(Protocol):
    """Makes a scheduler for one run: `module:factory` on the command line names one.

    The profile holds the limits of the run (`limits.max_seqs`, `token_budget`, `kv_blocks`,
    `block_size`, `max_model_len` …) and the claims that it is judged by; a factory configures its
    engine accordingly. It raises `HarnessError` for a limit or claim that the engine cannot have.
    """

    def __call__(self, profile: Profile) -> Scheduler:
        """A fresh scheduler without requests.

        If it has a method `close`, that is called when it is no longer needed. A factory may have two
        attributes: `limits`, a table of options of `limits` and the values that it can have, and
        `variants`, claims to be laid over the profile, each of which the suite tries.
        """


# -- rows ------------------------------------------------------------------------------------------


def admit(
    request: RequestId,
    *,
    slot: int | None = None,
    cached: int | None = None,
    blocks: int | None = None,
    block_ids: Iterable[int] | None = None,
    block_hashes: Iterable[int] | None = None,
) -> Event:
    """Joins the running batch for the first time. `block_ids`: granted, taken over ones first.

    Where blocks are shared the harness fills in `block_hashes` itself, from the tokens.
    """
    ids, hashes = _ids(block_ids), _ids(block_hashes)
    return Event(
        0, "admit", request, slot=slot, cached=cached, blocks=blocks, block_ids=ids, block_hashes=hashes
    )


def resume(
    request: RequestId,
    *,
    slot: int | None = None,
    cached: int | None = None,
    blocks: int | None = None,
    block_ids: Iterable[int] | None = None,
    block_hashes: Iterable[int] | None = None,
) -> Event:
    """Joins again after a preemption."""
    ids, hashes = _ids(block_ids), _ids(block_hashes)
    return Event(
        0, "resume", request, slot=slot, cached=cached, blocks=blocks, block_ids=ids, block_hashes=hashes
    )


def schedule(
    request: RequestId,
    tokens: int,
    *,
    start: int | None = None,
    drafts: int | None = None,
    blocks: int | None = None,
    block_ids: Iterable[int] | None = None,
    block_hashes: Iterable[int] | None = None,
) -> Event:
    """Is a member of this iteration's pass with `tokens` positions from `start` on.

    `start` None: right behind what was computed so far. `blocks`: held after the grant, `block_ids`:
    newly granted.
    """
    return Event(
        0,
        "schedule",
        request,
        start=start,
        tokens=tokens,
        drafts=drafts,
        blocks=blocks,
        block_ids=_ids(block_ids),
        block_hashes=_ids(block_hashes),
    )


def preempt(
    request: RequestId,
    reason: str = "recompute",
    *,
    cause: RequestId | None = None,
    blocks: int | None = None,
    block_ids: Iterable[int] | None = None,
) -> Event:
    """Leaves the batch unfinished; `cause` is the request that it makes room for."""
    return Event(0, "preempt", request, reason=reason, cause=cause, blocks=blocks, block_ids=_ids(block_ids))


def reject(request: RequestId, reason: str = "error") -> Event:
    """Refused for good: `too_long`, `queue_full`, `rate` or `error`."""
    return Event(0, "reject", request, reason=reason)


def output(request: RequestId, tokens: int, *, pass_: int | None = None) -> Event:
    """Tokens emitted by a pass; only where outputs are recorded."""
    return Event(0, "output", request, tokens=tokens, pass_=pass_)


def finish(
    request: RequestId,
    reason: str,
    output_tokens: int | None = None,
    *,
    blocks: int | None = None,
    block_ids: Iterable[int] | None = None,
    pass_: int | None = None,
) -> Event:
    """Ended by itself: `stop`, `length` or `error`. `block_ids`: returned."""
    return Event(
        0,
        "finish",
        request,
        reason=reason,
        output_tokens=output_tokens,
        blocks=blocks,
        block_ids=_ids(block_ids),
        pass_=pass_,
    )


def aborted(
    request: RequestId,
    reason: str = "client",
    output_tokens: int | None = None,
    *,
    blocks: int | None = None,
    block_ids: Iterable[int] | None = None,
) -> Event:
    """Ended from outside, now."""
    return Event(
        0,
        "abort",
        request,
        reason=reason,
        output_tokens=output_tokens,
        blocks=blocks,
        block_ids=_ids(block_ids),
    )


def release(
    request: RequestId, *, blocks: int | None = None, block_ids: Iterable[int] | None = None
) -> Event:
    """Blocks come back without an end or a preemption of their own."""
    return Event(0, "release", request, blocks=blocks, block_ids=_ids(block_ids))


def skip(request: RequestId, reason: str) -> Event:
    """Looked at and left out of this iteration."""
    return Event(0, "skip", request, reason=reason)


def _ids(values: Iterable[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


_NUMBERS: Final = tuple(
    name
    for name in Event._fields
    if name not in ("event", "request", "cause", "reason", "tenant", "resource", "block_ids", "block_hashes")
)


def fault_of(row: Event) -> str | None:
    """Why a row is none, in words; None where it is sound. Whether it is right, the rules say."""
    if not isinstance(row, Event):
        return f"a row must be an Event (harness.admit, schedule, …), not {type(row).__name__}"
    for name in _NUMBERS:
        value = getattr(row, name)
        if value is not None and (type(value) is not int or not -(2**63) <= value < 2**63):
            return f"{row.event}: {name} must be a whole number, not {value!r:.40}"
    for name in ("block_ids", "block_hashes"):
        values = getattr(row, name)
        if values is not None and not all(type(value) is int and abs(value) < 2**63 for value in values):
            return f"{row.event}: {name} must be whole numbers"
    if type(row.request) not in (str, int) or not isinstance(row.reason, str | None):
        return f"{row.event}: request must be an id and reason a word"
    return None
