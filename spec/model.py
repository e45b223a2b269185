"""The state that the rules speak about: requests as frozen records, and the engine's books over them.

`Request` is one incarnation of a request at one moment. `State` holds all of them, with the sums and
indexes that the rules need, kept up to date by the actions (actions.py). A value that the trace does
not give is `None`, and stays so: no rule assumes it.

Notation, as in the rules: prompt p, emitted outputs o, tokens in flight, known length n = p + o + in
flight, resident positions c (`computed`), blocks held B (`blocks`), position ranges half-open.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

WAITING: Final = "waiting"
PARKED: Final = "parked"
RUNNING: Final = "running"
PREEMPTED: Final = "preempted"
ENDED: Final = "ended"
UNKNOWN: Final = "unknown"


class Request(NamedTuple):
    """One incarnation of a request. Ordinals count arrivals and admissions in trace order."""

    id: RequestId
    number: int
    prompt: int | None = None
    max_tokens: int | None = None
    priority: int | None = None
    tenant: str | None = None
    arrived: int = 0
    arrived_ns: int | None = None
    prediction: int | None = None
    state: str = WAITING
    slot: int | None = None
    place: int = 0
    first_admit: int | None = None
    joined: int | None = None
    preemptions: int = 0
    swapped: bool = False
    adopts: bool = False
    cancelled: int | None = None
    late: bool = False
    computed: int | None = 0
    outputs: int | None = 0
    pending: int = 0
    blocks: int | None = 0

    def moved(self, computed: int | None, outputs: int | None, pending: int, blocks: int | None) -> "Request":
        """This record with new c, o, tokens in flight and B: the four that change at every step."""
        return tuple.__new__(Request, (*self[:-4], computed, outputs, pending, blocks))

    @property
    def known(self) -> int | None:
        """n = p + o + tokens in flight, or None where p or o is not known."""
        if self.prompt is None or self.outputs is None:
            return None
        return self.prompt + self.outputs + self.pending

    @property
    def prefilled(self) -> bool | None:
        """Whether every token but the newest is resident: the next pass is a decode."""
        known = self.known
        if known is None or self.computed is None:
            return None
        return self.computed >= known - 1 and self.computed > 0


class Member(NamedTuple):
    """One request's part in one forward pass. `reaches`: the pass computes the last known token."""

    start: int | None
    tokens: int | None
    drafts: int
    reaches: bool | None
    before: int | None
    row: int


class End(NamedTuple):
    """What is remembered of an incarnation that ended: how, in which pass, and what it still holds."""

    kind: str
    step: int
    pass_step: int
    number: int
    returned: bool
    reason: str | None


def hides_lag(profile: Profile, columns: frozenset[str]) -> bool:
    """Without a `pass` column nothing says from which pass an overlapping engine's `block_lag` counts."""
    lags = profile.value("reuse.block_lag") not in (0, "release")
    overlaps = profile.value("reuse.depth") > 1 or profile.value("reuse.slot_lag") > 0
    return lags and overlaps and "pass" not in columns


class State:
    """The engine's books at one row of the trace. Changed in place by actions, copied by the explorer.

    Attributes are grouped as the rules use them. Sums over requests with an unknown part carry a
    count of the unknown beside them (`unknown_blocks`), so that a rule can tell a figure from a bound.
    """

    def __init__(self, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> None:
        """Empty books for a trace that has these `columns` and event `kinds` somewhere in it."""
        self.profile = profile
        self.columns = columns
        self.kinds = kinds
        limits = profile.limits
        self.total_blocks = limits.kv_blocks
        self.block_size = limits.block_size
        self.max_seqs = limits.max_seqs
        self.token_budget = limits.token_budget
        self.slot_lag: int = profile.value("reuse.slot_lag")
        self.block_lag: int | str = profile.value("reuse.block_lag")
        self.overlap_member: int = profile.value("reuse.overlap_member")
        self.lag_known = not hides_lag(profile, columns)
        self.overlaps = self.slot_lag > 0 or profile.value("reuse.depth") > 1 or self.overlap_member > 0
        self.mode = profile.batching.mode
        self.barrier = self.mode in ("static", "dynamic")
        self.keeps_blocks: bool = profile.value("preemption.keeps_blocks")
        self.shares = bool(profile.reuse.prefix)
        self.recorded = "output" in kinds
        self.has_blocks = "blocks" in columns
        self.has_ids = "block_ids" in columns
        self.has_slots = "slot" in columns
        # Speculation shows only in recorded outputs. Without a `drafts` column nothing says that there
        # was none, so a null is read as 0 only where no output was recorded or the profile rules it out.
        self.drafts_known = not self.recorded or "drafts" in columns or profile.batching.lookahead == 0
        # Time and place. `clock_runs`: the header names a clock that never runs backwards
        self.clock_runs = False
        self.began_running = False
        self.step_ns: int | None = None
        self.row = -1
        self.step: int | None = None
        self.steps = 0
        self.first_row_of_step = 0
        # Requests
        self.live: dict[RequestId, Request] = {}
        self.ended: dict[RequestId, End] = {}
        self.waiting: dict[RequestId, None] = {}
        self.parked: dict[RequestId, None] = {}
        self.running: dict[RequestId, None] = {}
        self.preempted: dict[RequestId, None] = {}
        self.arrivals = 0
        self.places = 0
        self.joins = 0
        # This step
        self.members: dict[RequestId, Member] = {}
        self.step_tokens: int | None = 0
        self.decided = False
        self.decisions = 0
        self.skips: dict[RequestId, str | None] = {}
        self.admitted: dict[RequestId, str] = {}
        self.preempted_now: dict[RequestId, RequestId | None] = {}
        self.ended_now: dict[RequestId, str] = {}
        self.emitted: dict[RequestId, int | None] = {}
        # The line at the end of this step's decisions: who is next, and whether it fits
        self.next_in_line: RequestId | None = None
        self.next_fits: bool | None = None
        self.fit_text = ""
        # Under `misfit = skip`, where the next does not fit: the first that does, and whom it passes
        self.fits_behind: RequestId | None = None
        self.passes_by: tuple[int, ...] = ()
        # Passes in flight: pass -> request -> its part, until the output row settles it
        self.passes: dict[int, dict[RequestId, Member]] = {}
        self.in_flight: dict[int, None] = {}
        # Blocks
        self.held = 0
        self.unknown_blocks = 0
        self.held_by_ended: dict[RequestId, int | None] = {}
        self.lagged: deque[tuple[int, RequestId]] = deque()
        self.pinned: int | None = 0
        self.shared: int | None = None
        self.positions = 0
        self.unknown_positions = 0
        self.swapped_blocks = 0
        # Blocks by id
        self.owners: dict[int, tuple[RequestId, ...]] = {}
        self.tables: dict[RequestId, list[int | None]] = {}
        # Who ran when the trace began, of whom no row says which blocks it holds
        self.untold: dict[RequestId, None] = {}
        # Seats
        self.slots: dict[int, RequestId] = {}
        self.retiring: deque[int] = deque()
        self.batch_step: int | None = None
        # Other resources: resource -> request -> units out
        self.resources: dict[str, dict[RequestId, int]] = {}
        # Whether every take and give so far says of what and how much; whoever was live at the beginning
        # (the first `lives` arrivals) may hold units that no row speaks of
        self.ledgers_told = True
        self.lives = 0
        # Transfers: request -> direction -> block ids
        self.transfers: dict[RequestId, dict[str, tuple[int, ...] | None]] = {}

    # -- questions ---------------------------------------------------------------------------------

    def state_of(self, request: RequestId) -> str:
        """`waiting`, `parked`, `running`, `preempted`, `ended` or `unknown`."""
        record = self.live.get(request)
        if record is not None:
            return record.state
        return ENDED if request in self.ended else UNKNOWN

    def distinct_held(self) -> int | None:
        """Distinct blocks held at this row, ended requests within their lag included; None if unknown.

        By ids where the trace has them; by counts where nothing is shared; where blocks are shared
        and only counted, the figure is known at `step` rows alone (`shared_blocks`).
        """
        if not self.lag_known:
            return None
        if self.has_ids:
            return None if self.untold else len(self.owners)
        if self.unknown_blocks or not self.has_blocks:
            return None
        if not self.shares:
            return self.held
        return None if self.shared is None else self.held - self.shared

    def free_now(self) -> int | None:
        """free = N - distinct blocks held - pinned, or None where a term is unknown."""
        held = self.distinct_held()
        if held is None or self.total_blocks is None or self.pinned is None:
            return None
        return self.total_blocks - held - self.pinned

    def free_at_step(self, event: Event) -> int | None:
        """The free blocks that the events give at a `step` row, or None where a term is unknown."""
        if self.total_blocks is None or self.pinned is None or not self.lag_known:
            return None
        if self.has_ids:
            return None if self.untold else self.total_blocks - len(self.owners) - self.pinned
        if not self.has_blocks or self.unknown_blocks:
            return None
        shared = event.shared_blocks if self.shares else 0
        return None if shared is None else self.total_blocks - self.held + shared - self.pinned

    def free_seats(self) -> int | None:
        """Seats that this step's decisions may take: S - running - seats that ended too lately."""
        if self.max_seqs is None or self.step is None:
            return None
        if self.profile.value("limits.seqs_cap") == "per-step":
            return self.max_seqs - len(self.members)
        if self.barrier and self.running and self.batch_step != self.step:
            return 0
        late = sum(1 for free_from in self.retiring if free_from > self.step)
        return self.max_seqs - len(self.running) - late

    def budget_left(self) -> int | None:
        """T - tokens of this step's members so far, or None where a term is unknown."""
        if self.token_budget is None or self.step_tokens is None:
            return None
        return self.token_budget - self.step_tokens

    def awaits_output(self, record: Request) -> bool:
        """With overlap: a pass that may emit for this request is out, and its output not yet written."""
        if not self.overlaps:
            return False
        return record.pending > 0 or any(record.id in parts for parts in self.passes.values())

    def may_have_more(self, record: Request) -> bool:
        """With overlap: a pass is out of which the trace does not say whether it reaches n."""
        parts = (parts.get(record.id) for parts in self.passes.values())
        return any(part is not None and part.reaches is None for part in parts)

    def blocks_for(self, tokens: int) -> int | None:
        """ceil(tokens / b), or None without a block size."""
        return None if self.block_size is None else -(-tokens // self.block_size)

    def is_quiet(self) -> bool:
        """Nothing holds or moves anything: no running request, no block, no pass, no transfer."""
        return not (
            self.running
            or self.held
            or self.owners
            or self.held_by_ended
            or self.pinned
            or self.in_flight
            or self.parked
            or any(self.transfers.values())
            or any(any(ledger.values()) for ledger in self.resources.values())
        )

    def records(self, ids: dict[RequestId, Any]) -> Iterator[Request]:
        """The records of some live requests, in the order of `ids`."""
        live = self.live
        return (live[request] for request in ids)
