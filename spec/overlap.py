"""An engine that plans ahead, as a system to be explored: two passes in flight, results read a step late.

A step has two actions. In the first the batch is planned and dispatched while the pass before it still
runs; in the second that older pass completes, its outputs are read, and requests end:

    action      rows
    plan        arrive, schedule …, admit, schedule …, dispatch
    read        complete, output …, finish …, step

Where nothing is planned a step is a read alone. So a request that ends by pass k is already a member of
pass k + 1, which writes its blocks until the read of step k + 2. The state is the books of the spec
themselves, and every row is applied by the effects of actions.py; which blocks are free is what the books
say under the profile's `block_lag`. Open are arrivals and who stops. The scheduler is first come, first
served, reserves a request's whole length and never preempts.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from itertools import combinations
from typing import Any, Final

from batchspec.spec import actions
from batchspec.spec.errors import ProfileError
from batchspec.spec.events import COLUMNS, Event, RequestId
from batchspec.spec.frame import Job
from batchspec.spec.invariants import Invariant
from batchspec.spec.model import Member, Request, State
from batchspec.spec.naming import Rows, name_of
from batchspec.spec.need import blocks_for
from batchspec.spec.profile import Profile
from batchspec.spec.sights import Sight

_KINDS: Final = frozenset({"arrive", "admit", "schedule", "dispatch", "complete", "output", "finish", "step"})
_COLUMNS: Final = frozenset(COLUMNS) - {"slot", "drafts", "pinned_blocks", "resource", "block_hashes"}
DEPTH: Final = 2

Writes = tuple[tuple[int, tuple[tuple[RequestId, tuple[int, ...]], ...]], ...]
"""Pass in flight → member → the blocks that it had when the pass took off."""


class Flight:
    """A state: books, passes in flight, and whether the step is planned. Equal by what the future sees."""

    def __init__(self, books: State, arrived: int = 0, writes: Writes = (), planned: bool = False) -> None:
        """Books between two actions."""
        self.books, self.arrived, self.writes, self.planned = books, arrived, writes, planned
        self.key = self._key()

    def __eq__(self, other: object) -> bool:  # noqa: D105
        return isinstance(other, Flight) and self.key == other.key

    def __hash__(self) -> int:  # noqa: D105
        return self.key.__hash__()

    def _key(self) -> tuple[object, ...]:
        """Steps only as a distance from this one; of ordinals only the order in which the books have them."""
        books, now = self.books, self.books.step or 0
        return (
            self.arrived,
            self.planned,
            tuple(
                (request, record.state, record.computed, record.outputs, record.pending)
                for request, record in books.live.items()
            ),
            tuple(books.running),
            tuple((request, tuple(table)) for request, table in books.tables.items()),
            tuple((free_from - now, request) for free_from, request in books.lagged),
            tuple(free_from - now for free_from in books.retiring),
            tuple((number - now, members) for number, members in self.writes),
            tuple((number - now, tuple(parts.items())) for number, parts in _relative(books.passes, now)),
            tuple(books.ended),
        )


def _relative(
    passes: Mapping[int, Mapping[RequestId, Member]], now: int
) -> Iterator[tuple[int, dict[Any, Any]]]:
    for number, parts in passes.items():
        yield number, {request: part._replace(row=0) for request, part in parts.items()}


class Overlap:
    """The system. Raises `ProfileError` where sizes are missing, or claims are not of such an engine."""

    eager: bool = True
    sights: Sequence[Sight] = ()

    def __init__(self, profile: Profile, jobs: Sequence[Job], stops: bool = True) -> None:
        """`profile` claims the limits and `reuse`: depth 2, and the lags to be judged."""
        limits = profile.limits
        if None in (limits.max_seqs, limits.token_budget, limits.kv_blocks, limits.block_size):
            raise ProfileError(
                "a model of overlap needs every limit: max_seqs, token_budget, kv_blocks, block_size"
            )
        if profile.value("reuse.depth") != DEPTH or profile.value("reuse.block_lag") == "release":
            raise ProfileError("a model of overlap has reuse.depth = 2 and a block_lag in steps")
        self.profile, self.jobs, self.stops = profile, tuple(jobs), stops
        self.size: int = limits.block_size or 1
        self.blocks: int = limits.kv_blocks or 0
        books = State(profile, _COLUMNS, _KINDS)
        actions.open_step(books, 1)
        self.start = Flight(books)

    def over(self, flight: Flight) -> bool:
        """Everybody has come and gone, and nothing is in flight."""
        idle = not flight.books.live and not flight.writes and not flight.planned
        return idle and flight.arrived == len(self.jobs)

    def tell(self, path: Iterable[Rows]) -> Iterator[Event]:
        """The rows are a trace as they stand."""
        for rows in path:
            yield from rows

    def label(self, flight: Flight) -> str:
        """Each live request with its state and c."""
        live = (
            f"{request}:{record.state} c={record.computed}" for request, record in flight.books.live.items()
        )
        return ", ".join(live) or f"nobody, {flight.arrived} arrived"

    # -- guards ------------------------------------------------------------------------------------

    def enabled(self, flight: Flight) -> Iterator[Rows]:
        """A plan, with and without an arrival before it, or one read for each set of stops."""
        if flight.planned:
            yield from self._reads(flight)
            return
        rows = self._plan(flight, 0)
        if rows:
            yield rows
        elif not self._idle(flight):
            yield from self._reads(flight)
        if flight.arrived < len(self.jobs):
            yield self._plan(flight, 1)

    def _idle(self, flight: Flight) -> bool:
        books = flight.books
        return not (books.live or books.lagged or books.retiring or flight.writes)

    def _plan(self, flight: Flight, more: int) -> Rows:
        books = _copied(flight.books)
        step, rows = books.step or 1, []

        def take(row: Event) -> None:
            actions.EFFECTS[row.event](books, row)
            rows.append(row)

        for number in range(flight.arrived, flight.arrived + more):
            job = self.jobs[number]
            take(Event(step, "arrive", name_of(number), prompt_tokens=job.prompt, max_tokens=job.max_tokens))
        for record in list(books.records(books.running)):
            tokens = (record.known or 0) - (record.computed or 0)
            emitted = (record.outputs or 0) + record.pending
            if emitted < (record.max_tokens or 0) and tokens <= (books.budget_left() or 0):
                take(Event(step, "schedule", record.id, start=record.computed, tokens=tokens))
        for record in list(books.records(books.waiting)):
            need = blocks_for((record.prompt or 0) + (record.max_tokens or 0), self.size)
            free = [block for block in range(self.blocks) if block not in books.owners]
            tokens = record.prompt or 0
            if (books.free_seats() or 0) < 1 or need > len(free) or tokens > (books.budget_left() or 0):
                break
            ids = tuple(free[:need])
            take(Event(step, "admit", record.id, cached=0, blocks=need, block_ids=ids))
            take(Event(step, "schedule", record.id, start=0, tokens=tokens))
        if books.members:
            take(Event(step, "dispatch"))
        return tuple(rows)

    def _reads(self, flight: Flight) -> Iterator[Rows]:
        books, step = flight.books, flight.books.step or 1
        done = next((number for number, _ in flight.writes if number < step), None)
        if done is None:
            yield (Event(step, "step"),)
            return
        emits = [
            books.live[request]
            for request, part in books.passes.get(done, {}).items()
            if part.reaches and request in books.live
        ]
        must = [record for record in emits if (record.outputs or 0) + 1 >= (record.max_tokens or 0)]
        may = [record for record in emits if record not in must] if self.stops else []
        outputs = [Event(step, "output", record.id, tokens=1, pass_=done) for record in emits]
        for count in range(len(may) + 1):
            for some in combinations(may, count):
                ends = [_finish(step, done, record, record in must) for record in (*must, *some)]
                yield (Event(step, "complete", pass_=done), *outputs, *ends, Event(step, "step"))

    # -- effects -----------------------------------------------------------------------------------

    def apply(self, flight: Flight, rows: Rows) -> Flight:
        """Each row by the effect of the spec; a step that is read is followed by the next one."""
        books, writes = _copied(flight.books), list(flight.writes)
        arrived, planned = flight.arrived, rows[-1].event != "step"
        for row in rows:
            arrived += row.event == "arrive"
            actions.EFFECTS[row.event](books, row)
            if row.event == "dispatch":
                members = tuple(
                    (request, tuple(block for block in books.tables.get(request, ()) if block is not None))
                    for request in books.members
                )
                writes.append((row.step, members))
            elif row.event == "complete":
                writes = [flying for flying in writes if flying[0] != row.pass_step]
            elif row.event == "step":
                actions.open_step(books, row.step + 1)
        return Flight(books, arrived, tuple(writes), planned)


def _finish(step: int, done: int, record: Request, full: bool) -> Event:
    reason, outputs = "length" if full else "stop", (record.outputs or 0) + 1
    return Event(step, "finish", record.id, output_tokens=outputs, reason=reason, pass_=done)


def _copied(books: State) -> State:
    """Books of their own. What is in them are tuples, but for the containers."""
    other = copy(books)
    for name, value in vars(books).items():
        if isinstance(value, dict | list | deque):
            setattr(other, name, deepcopy(value))
    return other


def _apart(_: Overlap, flight: Flight) -> bool:
    for _number, members in flight.writes:
        for request, blocks in members:
            if any(set(flight.books.owners.get(block, ())) - {request} for block in blocks):
                return False
    return True


APART = Invariant(
    "memory/use-after-release",
    "No block that a pass in flight writes belongs to another request.",
    _apart,
)
"""Without ordered passes a block must come back no earlier than the last pass that may write it."""
