"""The line: who the policy would take next, and whether that request fits.

Both questions are asked by many rules (admission, slot reuse, liveness, fairness), so they have one
home. `Line` follows the books and answers in O(log n): heaps with entries that are checked when they
come to the top. `fits` answers true, false, or None where a term of the sum is not known.

The order itself, and the counters of order `fair`, are those of policies.py.

Sources: trace format, "Step, in order", 9; rules, paragraphs on sjf, fair and skip_ahead.
"""

import heapq
from collections.abc import Iterator
from typing import Final

from batchspec.spec.events import RequestId
from batchspec.spec.model import PREEMPTED, WAITING, Request, State
from batchspec.spec.need import blocks_for
from batchspec.spec.need import never_fits as reason_never_to_fit
from batchspec.spec.policies import ORDERS, FairShares, Rank, urgency
from batchspec.spec.profile import parse_need

NOT_A_CANDIDATE: Final = frozenset({"not_ready", "in_flight", "policy"})
"""Reasons of a `skip` row that say: it was not its turn, whatever fits."""

FAR: Final = 64
"""How far the line is looked along, past those that do not fit."""

Entry = tuple[Rank, int, int, RequestId]


class Line:
    """The waiting line in the order of the policy."""

    def __init__(self, state: State) -> None:
        """An empty line over these books."""
        profile = state.profile
        self.state = state
        self.order = profile.admission.order
        self.urgent = profile.admission.urgent
        self.returns = profile.preemption.resume
        self.unordered: dict[RequestId, None] = {}
        self.heap: list[Entry] = []
        self.shares = FairShares.of(profile) if self.order == "fair" else None
        self.tenants: dict[str | None, list[Entry]] = {}
        # Whether every charge so far was known: one that is not makes all later comparisons a guess.
        self.charged = True

    # -- what changes the line ---------------------------------------------------------------------

    def enter(self, record: Request, anew: bool = True) -> None:
        """A request waits: it arrived, or its condition holds, or it was preempted to this line."""
        if self.order is None:
            return
        if anew and self.shares is not None:
            self.shares.enter(record.tenant)
        key = self.key(record)
        if key is None:
            self.unordered[record.id] = None
            return
        entry = (key, record.number, record.place, record.id)
        if self.shares is not None:
            heapq.heappush(self.tenants.setdefault(record.tenant, []), entry)
        else:
            heapq.heappush(self.heap, entry)

    def leave(self, record: Request) -> None:
        """A waiting request waits no more: admitted, ended or parked."""
        self.unordered.pop(record.id, None)
        if self.shares is not None and record.state == WAITING:
            self.shares.leave(record.tenant)

    def charge(self, tenant: str | None = None, prompt: int | None = None, tokens: int | None = None) -> None:
        """Order `fair`: a tenant's request was admitted, or emitted tokens; None where nobody knows."""
        if self.shares is None:
            return
        if tenant is None or (prompt is None and tokens is None):
            self.charged = False
        elif prompt is not None:
            self.shares.admit(tenant, prompt)
        elif tokens is not None:
            self.shares.emit(tenant, tokens)

    # -- questions ---------------------------------------------------------------------------------

    def key(self, record: Request) -> Rank | None:
        """What the policy orders by, least first; None where the trace does not say it."""
        if self.order == "sjf" and (record.prompt is None or record.max_tokens is None):
            return None  # an unknown limit makes the work unknown, and with it the order
        if self.order == "priority" and self.urgency(record) is None:
            return None
        if self.order == "fair" and record.tenant is None:
            return None
        return ORDERS[self.order or "fcfs"](record, self.state.profile)

    def urgency(self, record: Request) -> int | None:
        """Lower is more urgent; None where priority or its direction is not known."""
        if record.priority is None or self.state.profile.admission.urgent is None:
            return None
        return urgency(record, self.state.profile)

    def least_served(self, tenant: str | None) -> bool:
        """Order `fair`: nobody in the queue is served less than this tenant, but for rounding."""
        if self.shares is None:
            return True
        mine = self.shares.counter(tenant)
        slack = 1e-9 * (1 + abs(mine))
        return all(mine <= self.shares.counter(other) + slack for other in self.shares.queued)

    def next(self, owed: bool = False) -> Request | None:
        """The policy's next among the requests that wait and are ready, or None.

        With `owed`, requests that arrived after the first decision of this step are left out: they
        are owed nothing in it. None is also the answer where the order cannot be known (`is_known`).
        """
        if not self.is_known():
            return None
        waiting = self._first_waiting(owed)
        if self.returns not in ("front", None) or not self.state.preempted:
            return waiting
        if self.returns is None:
            return None
        returning = self._first_returning()
        if returning is None or waiting is None:
            return returning or waiting
        if self.order == "priority":
            mine, theirs = self.urgency(returning), self.urgency(waiting)
            if mine is None or theirs is None:
                return None
            return waiting if theirs < mine else returning
        return returning

    def first(self) -> Request | None:
        """The first of the line by the policy's order alone, preempted ones at the front left out."""
        return self._first_waiting(False) if self.is_known() else None

    def first_of(self, tenant: str | None) -> Request | None:
        """The first of one tenant's requests in the line (order `fair`)."""
        return self._top(self.tenants.get(tenant, []), False)

    def is_behind(self, record: Request, first: Request) -> bool:
        """Whether a request stands behind the first of the line, ties of counters aside."""
        if self.shares is None or not self.least_served(record.tenant):
            return True
        mine = self.first_of(record.tenant)
        return mine is not None and mine.id != record.id

    def earliest(self) -> Request | None:
        """The earliest arrival that waits and is ready, whatever the policy's order (fcfs: the first)."""
        for record in self.state.records(self.state.waiting):
            if self.state.skips.get(record.id) not in NOT_A_CANDIDATE:
                return record
        return None

    def in_order(self) -> Iterator[Request]:
        """The first `FAR` in the line that are owed their turn, in the policy's order (not fair)."""
        heap, seen = self.heap, set()
        front = [(heap[0], 0)] if heap else []
        for _ in range(FAR):
            if not front:
                return
            entry, at = heapq.heappop(front)
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heapq.heappush(front, (heap[child], child))
            if entry[1] not in seen and self._candidate(entry, True):
                seen.add(entry[1])
                yield self.state.live[entry[3]]

    def ahead_of(self, record: Request) -> list[Request]:
        """Everyone who waits, is a candidate and stands before this request."""
        mine = self.key(record)
        if mine is None or self.shares is not None:
            return []
        ahead = []
        for other in self.state.records(self.state.waiting):
            key = self.key(other)
            if key is not None and key < mine and self.state.skips.get(other.id) not in NOT_A_CANDIDATE:
                ahead.append(other)
        return ahead

    def is_known(self) -> bool:
        """Whether the order of everyone in the line is known."""
        return self.order is not None and not self.unordered and self.charged

    def is_undecided(self) -> bool:
        """Whether nobody can say who is next: an order or a place of return that is not known."""
        if not self.is_known():
            return True
        return self.returns is None and bool(self.state.preempted)

    def _candidate(self, entry: Entry, owed: bool) -> bool | None:
        """True: stands in the line now. False: does not stand in it any more. None: not its turn."""
        _, number, place, request = entry
        record = self.state.live.get(request)
        if record is None or record.number != number or record.place != place:
            return False
        if record.state != WAITING and not (
            record.state == PREEMPTED and self.returns in ("back", "arrival")
        ):
            return False
        if self.state.skips and self.state.skips.get(request) in NOT_A_CANDIDATE:
            return None
        if owed and record.late and record.arrived == self.state.step:
            return None
        return True

    def _top(self, heap: list[Entry], owed: bool) -> Request | None:
        aside: list[Entry] = []
        found = None
        while heap:
            stands = self._candidate(heap[0], owed)
            if stands:
                found = self.state.live[heap[0][3]]
                break
            entry = heapq.heappop(heap)
            if stands is None:
                aside.append(entry)
        for entry in aside:
            heapq.heappush(heap, entry)
        return found

    def _first_waiting(self, owed: bool) -> Request | None:
        if self.shares is None:
            return self._top(self.heap, owed)
        best: tuple[float, int, Request] | None = None
        for tenant in list(self.tenants):
            record = self._top(self.tenants[tenant], owed)
            if record is None:
                if not self.tenants[tenant]:
                    del self.tenants[tenant]
                continue
            entry = (self.shares.counter(tenant), record.place, record)
            if best is None or entry[:2] < best[:2]:
                best = entry
        return None if best is None else best[2]

    def _first_returning(self) -> Request | None:
        state = self.state
        best: Request | None = None
        best_key: Rank = ()
        for request in state.preempted:
            record = state.live[request]
            if state.skips and state.skips.get(request) in NOT_A_CANDIDATE:
                continue
            first = record.first_admit if record.first_admit is not None else record.number
            key: Rank = (first,)
            if self.order == "priority":
                urgency = self.urgency(record)
                key = (urgency if urgency is not None else 0, first)
            if best is None or key < best_key:
                best, best_key = record, key
        return best


# -- what fits -------------------------------------------------------------------------------------


def need_blocks(state: State, record: Request, free_tokens: int | None) -> int | None:
    """Blocks that `admission.test` asks for, no cache hit assumed, what it holds itself taken off.

    `free_tokens` is the budget left, the most that `test = "step"` can ask for. None where unknown.
    """
    test = state.profile.admission.test
    known = record.known
    if test is None or known is None or state.block_size is None:
        return None
    word, extra = parse_need(test)
    if word == "step":
        chunked = state.profile.batching.chunked_prefill
        done = record.computed or 0 if record.swapped else 0
        if chunked:
            if free_tokens is None:
                return None
            tokens = min(known, done + max(1, free_tokens))
        else:
            tokens = known
    elif word == "known":
        tokens = known + extra
    elif word == "full":
        if record.max_tokens is None or record.outputs is None:
            return None
        tokens = known + max(0, record.max_tokens - record.outputs)
    else:
        if record.prediction is None:
            return None
        tokens = max(known, (record.prompt or 0) + record.prediction)
    return max(0, blocks_for(tokens, state.block_size) - (record.blocks or 0))


def free_bounds(state: State) -> tuple[int | None, int | None]:
    """The least and the most blocks that can be free now, from whatever the trace shows.

    With block counts both are the exact figure. Where blocks are shared and only counted, the sum of
    counts bounds it from below. Without counts, what `admission.reserve` lets a running request hold
    bounds it from below, and the resident positions from above.
    """
    exact = state.free_now()
    if exact is not None:
        return exact, exact
    if state.total_blocks is None or state.pinned is None or state.block_size is None:
        return None, None
    room = state.total_blocks - state.pinned
    if state.has_blocks:
        return (None if state.unknown_blocks else room - state.held), None
    most = None
    if not state.shares and not state.unknown_positions:
        most = room - state.positions
    return _least_free(state, room), most


def _least_free(state: State, room: int) -> int | None:
    reserve = state.profile.admission.reserve
    hidden = state.parked or state.block_lag or (state.keeps_blocks and state.preempted)
    if reserve is None or hidden or "release" in state.kinds or state.block_size is None:
        return None
    word, extra = parse_need(reserve)
    if word in ("ratio", "peak"):
        return None
    lookahead = state.profile.batching.lookahead or 0
    used = 0
    for record in state.records(state.running):
        known = record.known
        if known is None or state.may_have_more(record):
            return None
        most = known + lookahead + (extra if word == "known" else 0)
        if word == "full":
            if record.max_tokens is None or record.prompt is None:
                return None
            most = max(most, record.prompt + record.max_tokens)
        used += blocks_for(most, state.block_size)
    return room - used


def fits(state: State, record: Request) -> bool | None:
    """Seat, budget and blocks suffice for this request at this row; None where that is not known."""
    profile = state.profile
    seats, budget = state.free_seats(), state.budget_left()
    if seats is None or budget is None:
        return None
    if seats < 1 or budget < 1:
        return False
    known = record.known
    if known is None:
        return None
    if profile.batching.mixed is False and any(
        member.reaches and member.tokens == 1 + member.drafts for member in state.members.values()
    ):
        # A step of decodes has no place for a prompt, whatever its budget.
        return None
    if not profile.batching.chunked_prefill and not record.swapped and known > budget:
        return False
    return _resources_fit(state, record, blocks_fit(state, record, budget))


def blocks_fit(state: State, record: Request, budget: int | None, headroom: int = 0) -> bool | None:
    """need + watermark + headroom <= free; the watermark only while another request runs.

    Where prefixes are shared and the test is `step`, a hit moves the step's part behind itself, which may
    then ask for up to all of n: what lies between is not known.
    """
    need = need_blocks(state, record, budget)
    least, most = free_bounds(state)
    if need is None:
        return None
    moved = 0
    if state.shares and state.profile.admission.test == "step" and record.known is not None:
        moved = max(0, (state.blocks_for(record.known) or 0) - (record.blocks or 0) - need)
    watermark: int = state.profile.value("admission.watermark_blocks")
    others = len(state.running) - (1 if record.id in state.running else 0)
    wanted = need + (watermark if others > 0 else 0) + headroom
    if least is not None and wanted + moved <= least:
        return True
    if most is not None and wanted > most:
        return False
    return None


def _resources_fit(state: State, record: Request, verdict: bool | None) -> bool | None:
    """Other resources: what a request will take is known only where nothing is out, or it holds some."""
    if verdict is not True or "take" not in state.kinds:
        return verdict
    for ledger in state.resources.values():
        if record.id not in ledger and any(ledger.values()):
            return None
    return True


def never_fits(state: State, record: Request) -> bool | None:
    """Larger than the empty pool, the model or an unchunked step can ever take; None if unknown."""
    if record.prompt is None:
        return None
    if reason_never_to_fit(state.profile, record.prompt, record.max_tokens) is not None:
        return True
    limits = state.profile.limits
    return None if limits.kv_blocks is None or limits.block_size is None else False
