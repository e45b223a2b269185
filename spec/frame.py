"""The frame: a state of the spec as a value, with nothing in it that the future does not depend on.

The explorer must know two equal states when it sees them. `State` (model.py) counts steps, rows and
ordinals that only grow; a `Frame` keeps their order and drops the numbers. It is all that is kept of a
state: the books are built anew from it (`thaw`) before each action, so whatever is missing here cannot
have an influence, and what is here too much only costs states, never truth.

Requests are known by their position among those that live, in the order of arrival. `job` is the entry
of the script that a request came from. Under symmetry it is the first entry with equal values instead:
then two states that differ by an exchange of equal requests are one frame. That is sound because no
guard, effect or invariant reads an id, only the order of arrival, of admission and of place, which a
frame keeps, and the values of the job, which are equal.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, NamedTuple

from batchspec.spec.events import COLUMNS
from batchspec.spec.model import RUNNING, Member, Request, State
from batchspec.spec.moves import queue_of
from batchspec.spec.policies import FairShares
from batchspec.spec.profile import Profile

NOBODY: Final = -1
_COLUMNS: Final = frozenset(COLUMNS) - {"block_ids", "slot", "pass", "drafts", "pinned_blocks", "resource"}
_KINDS: Final = frozenset({"arrive", "admit", "schedule", "step"})


Shares = tuple[tuple[tuple[str, float], ...], tuple[tuple[str, int], ...], str | None]
"""Counters and queue of order `fair` between actions: (tenant, counter)…, (tenant, waiting)…, last left."""


@dataclass(frozen=True, slots=True)
class Job:
    """One entry of the script: a request that arrives once all before it have."""

    prompt: int
    max_tokens: int
    priority: int = 0
    tenant: str | None = None


class Part(NamedTuple):
    """One live request. Ordinals are ranks among those that live; `tokens` is this step's part, or -1.

    `ran` and `fruitless` are kept only where a property asks (see `Space.watches`): iterations so far,
    and preemptions since the last output.
    """

    job: int
    state: str
    computed: int
    outputs: int
    blocks: int
    swapped: bool
    joined: int
    first: int
    place: int
    tokens: int
    admitted: bool
    ran: int
    fruitless: int


class Frame(NamedTuple):
    """A state. `decided`: a decision of this step was made; `evicted`: somebody was preempted in it.

    `owed` is the position of the request for which room was made and which has not run since.
    `begun`: the batch of a mode with a barrier was begun in this step. `shares`: counters of order `fair`.
    `service`: what the first tenant was served beyond the second since both have requests waiting, and
    the least and the most that this has been; kept only where a property asks.
    """

    parts: tuple[Part, ...]
    arrived: int
    ended: tuple[tuple[int, str], ...]
    decided: bool = False
    evicted: bool = False
    owed: int = NOBODY
    begun: bool = False
    shares: Shares | None = None
    service: tuple[float, float, float] | None = None


START: Final = Frame((), 0, ())


class Press:
    """Makes books out of frames, and frames out of books, for one profile and one script."""

    def __init__(self, profile: Profile, jobs: Sequence[Job], symmetry: bool = False) -> None:
        """`symmetry`: exchange of equal requests makes no difference."""
        self.jobs = tuple(jobs)
        self.symmetry = symmetry
        self._blank = State(profile, _COLUMNS, _KINDS)
        self._first_equal = [self.jobs.index(job) for job in self.jobs]

    def entry(self, arrived: int) -> int:
        """Which entry of the script the next arrival is said to come from."""
        return self._first_equal[arrived] if self.symmetry else arrived

    def farewell(self, frame: Frame, ends: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
        """Who has ended and how, after these ends: (position, kind). Under symmetry the kind is not kept."""
        gone = [(frame.parts[place].job, "" if self.symmetry else kind) for place, kind in ends]
        return tuple(sorted((*frame.ended, *gone)))

    def thaw(self, frame: Frame) -> State:
        """Fresh books in that state, at step 1."""
        state = copy(self._blank)
        state.step = 1
        live: dict[int | str, Request] = {}
        state.live = live
        state.ended, state.skips = {}, {}
        state.waiting, state.parked, state.running, state.preempted = {}, {}, {}, {}
        state.members, state.admitted, state.preempted_now = {}, {}, {}
        state.ended_now, state.emitted = {}, {}
        state.retiring, state.lagged = copy(state.retiring), copy(state.lagged)
        state.held_by_ended, state.slots, state.tables, state.untold = {}, {}, {}, {}
        held = step_tokens = swapped = 0
        runs: list[tuple[int, int]] = []
        for number, part in enumerate(frame.parts):
            job = self.jobs[part.job]
            record = Request(
                number,
                number,
                job.prompt,
                job.max_tokens,
                job.priority,
                job.tenant,
                state=part.state,
                place=part.place,
                first_admit=part.first if part.first >= 0 else None,
                joined=part.joined if part.joined >= 0 else None,
                swapped=part.swapped,
                computed=part.computed,
                outputs=part.outputs,
                blocks=part.blocks,
            )
            live[number] = record
            held += part.blocks
            if part.state == RUNNING:
                runs.append((part.joined, number))
            else:
                queue_of(state, part.state)[number] = None
            if part.swapped:
                swapped += state.blocks_for(part.computed) or 0
            if part.tokens >= 0:
                start = part.computed - part.tokens
                reaches = part.computed >= job.prompt + part.outputs
                state.members[number] = Member(start, part.tokens, 0, reaches, start, 0)
                step_tokens += part.tokens
            if part.admitted:
                state.admitted[number] = "admit"
        for _, number in sorted(runs):
            state.running[number] = None
        count = len(frame.parts)
        state.held, state.step_tokens, state.swapped_blocks = held, step_tokens, swapped
        state.arrivals = state.places = state.joins = count
        state.decisions = int(frame.decided)
        state.batch_step = (1 if frame.begun else 0) if state.running else None
        return state

    def freeze(self, state: State, before: Frame, **changes: object) -> Frame:
        """The frame of these books. What they do not hold is taken from `before` and `changes`."""
        first = _ranks({request: record.first_admit for request, record in state.live.items()})
        joined = _ranks({request: state.live[request].joined for request in state.running})
        place = _ranks({request: record.place for request, record in state.live.items()})
        parts = []
        for request, record in state.live.items():
            number = int(request)
            known = number < len(before.parts)
            old = before.parts[number] if known else None
            member = state.members.get(request)
            parts.append(
                Part(
                    old.job if old is not None else self.entry(before.arrived),
                    record.state,
                    record.computed or 0,
                    record.outputs or 0,
                    record.blocks or 0,
                    bool(record.swapped),
                    joined.get(request, NOBODY),
                    first.get(request, NOBODY),
                    place.get(request, NOBODY),
                    member.tokens or 0 if member is not None else NOBODY,
                    request in state.admitted,
                    old.ran if old is not None else 0,
                    old.fruitless if old is not None else 0,
                )
            )
        begun = state.batch_step == state.step and bool(state.running) and state.barrier
        frame = before._replace(parts=tuple(parts), decided=state.decisions > 0, begun=begun)
        return frame._replace(**changes) if changes else frame  # type: ignore[arg-type]


def _ranks(ordinals: dict[int | str, int | None]) -> dict[int | str, int]:
    given = sorted((value, request) for request, value in ordinals.items() if value is not None)
    return {request: rank for rank, (_, request) in enumerate(given)}


def freeze_shares(shares: FairShares) -> Shares:
    """The counters as a value. What was emitted in a step is charged by its end: none is pending."""
    return tuple(sorted(shares.counters.items())), tuple(sorted(shares.queued.items())), shares.last_left


def thaw_shares(shares: FairShares, frozen: Shares | None) -> FairShares:
    """The counters of a frame, in a copy of `shares`."""
    other = shares.copy()
    if frozen is not None:
        other.counters, other.queued, other.last_left = dict(frozen[0]), dict(frozen[1]), frozen[2]
    return other
