"""Rules of fairness: nobody overtaken, starved, inverted or short-changed beyond what the policy allows."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.line import NOT_A_CANDIDATE, blocks_fit, free_bounds, need_blocks
from batchspec.spec.model import PARKED, RUNNING, WAITING, Member, Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.rules.admission import order_needs
from batchspec.spec.words import count


class Overtaking(Rule):
    """fcfs: nobody who arrived later is admitted before an earlier one that was ready."""

    id = "fairness/overtaking"
    sentence = (
        "First come first served: nobody who arrived later is admitted before an earlier one that was ready "
        "(past one misfit at most skip_ahead)."
    )
    premise = ("admission.order=fcfs", "admission.misfit")
    source = "Orca (OSDI'22) Algorithm 1, OR6; vLLM (SOSP'23) §4.5, VL1"

    def __init__(self, *args: Any) -> None:
        """Nobody was overtaken."""
        super().__init__(*args)
        self._passed: dict[tuple[RequestId, int], int] = {}
        self._stops = self.profile.admission.misfit == "stop"
        self._most = 0 if self._stops else self.profile.admission.skip_ahead or 0

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """How far a policy that skips may look ahead."""
        lacking = order_needs(profile, columns, kinds)
        if profile.admission.misfit == "skip" and profile.admission.skip_ahead is None:
            lacking.append("admission.skip_ahead")
        return lacking

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Compare with the earliest arrival that waits and is ready."""
        if record is None or record.state not in (WAITING, PARKED):
            return
        self.checked += 1
        first = self.line.earliest()
        if first is None or first.number >= record.number:
            return
        key = (first.id, first.number)
        self._passed[key] = self._passed.get(key, 0) + 1
        if self._passed[key] <= self._most:
            return
        self.flag(
            f"{record.id} overtakes {first.id}, which arrived earlier and is ready",
            record.id,
            first.id,
            expected=f"{first.id} first"
            if self._stops
            else f"at most {count(self._most, 'later request')} admitted before {first.id}",
            observed=f"{first.id} arrived in step {first.arrived}, {record.id} in step {record.arrived}; "
            f"{first.id} is overtaken {count(self._passed[key], 'time')}",
        )

    def after_admit(self, event: Event, record: Request | None) -> None:
        """Forget whoever is admitted."""
        if record is not None:
            self._passed.pop((record.id, record.number), None)


class PriorityInversion(Rule):
    """Nobody waits while a strictly less urgent request keeps what it needs."""

    id = "fairness/priority-inversion"
    sentence = (
        "No request waits beyond K steps while a strictly less urgent one keeps the seat or blocks it needs."
    )
    kind = "bounded"
    premise = ("preemption.for_waiting", "admission.order=priority", "limits.max_seqs")
    columns = ("priority",)
    source = "vLLM issues 40004 and 24365; SGLang priority preemption"

    def __init__(self, *args: Any) -> None:
        """Nobody waits."""
        super().__init__(*args)
        self._next: tuple[RequestId, int] | None = None
        self._count = 0

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """The direction of urgency."""
        return order_needs(profile, columns, kinds)

    def closing(self, event: Event | None) -> None:
        """Count the steps in which the most urgent waits behind a less urgent one that runs."""
        state = self.state
        request = state.next_in_line
        record = state.live.get(request) if request is not None else None
        if record is None or record.state == RUNNING or state.next_fits:
            self._next, self._count = None, 0
            return
        if (state.free_seats() or 0) > 0 and blocks_fit(state, record, 1) is not False:
            # It lacks tokens of this step, which nobody keeps; or nobody knows what it lacks.
            self._next, self._count = None, 0
            return
        mine = self.line.urgency(record)
        below = [
            other
            for other in state.records(state.running)
            if mine is not None and (theirs := self.line.urgency(other)) is not None and theirs > mine
        ]
        self.checked += 1
        if not below or not self._would_do(record, below):
            self._next, self._count = None, 0
            return
        key = (record.id, record.number)
        self._count = self._count + 1 if key == self._next else 1
        self._next = key
        self._holder = below[0]

    def _would_do(self, record: Request, below: Sequence[Request]) -> bool:
        """Whether the one that waits could have come in, had all the less urgent ones made room."""
        state, known = self.state, record.known
        parts = [state.members.get(other.id) for other in below]
        left = state.budget_left()
        if left is not None and known is not None:
            left += sum(part.tokens or 0 for part in parts if part is not None)
            if left < (known if self.profile.batching.chunked_prefill is False else 1):
                return False
        if state.total_blocks is None:
            return True
        need, (least, most) = need_blocks(state, record, 1), free_bounds(state)
        if need is None:
            return False
        watermark: int = self.profile.value("admission.watermark_blocks")
        if least is not None and need + watermark <= least:
            return True
        gain = self._gain(below)
        if most is None or gain is None:
            return False
        if len(below) == len(state.running):
            watermark = 0
        return need + watermark <= most + gain

    def _gain(self, below: Sequence[Request]) -> int | None:
        """Blocks that would come free if all of these went; None where that does not show."""
        state = self.state
        if state.shares:
            if not state.has_ids:
                return None
            # A block comes free only where none of its owners stays.
            names = {other.id for other in below}
            tables = [state.tables.get(name, ()) for name in names]
            blocks = {block for table in tables for block in table if block is not None}
            return sum(1 for block in blocks if names.issuperset(state.owners.get(block, ())))
        counts = [other.blocks for other in below]
        if None in counts or not (state.has_blocks or state.has_ids):
            return None
        return sum(blocks or 0 for blocks in counts)

    def opened(self, event: Event) -> None:
        """The bound has run out."""
        if self._next is None or self._count != self.patience:
            return
        record = self.state.live.get(self._next[0])
        if record is None or record.number != self._next[1]:
            return
        self._count += 1
        holder = self._holder
        self.flag(
            f"{record.id} (priority {record.priority}) waits {count(self.patience, 'step')} while "
            f"{holder.id} (priority {holder.priority}) runs",
            record.id,
            holder.id,
            expected=f"a preemption of a less urgent request within {count(self.patience, 'step')}",
            observed=f"{self.profile.admission.urgent} numbers are urgent; {record.id} still {record.state}",
        )

    def open(self) -> bool:
        """The bound has not run out for one that still waits."""
        if self._next is None or not 0 < self._count <= self.patience:
            return False
        record = self.state.live.get(self._next[0])
        return record is not None and record.number == self._next[1] and record.state != RUNNING


class ServiceGap(Rule):
    """|W_f - W_g| ≤ 2U while both are backlogged."""

    id = "fairness/service-gap"
    sentence = (
        "For tenants f and g both backlogged throughout [t1, t2) the services differ by at most 2U: "
        "|W_f - W_g| ≤ 2U, U = max(w_p · longest input, w_q · (N · b + S)), over the least weight where that "
        "is below 1."
    )
    kind = "end"
    premise = (
        "admission.order=fair",
        "admission.misfit=stop",
        "preemption.mode=none",
        "limits.kv_blocks",
        "limits.block_size",
    )
    columns = ("tenant", "prompt_tokens", "tokens")
    source = "VTC (OSDI'24) Theorem 4.4"

    def __init__(self, *args: Any) -> None:
        """No tenant is backlogged."""
        super().__init__(*args)
        self._w_p: float = self.profile.value("fairness.w_p")
        self._w_q: float = self.profile.value("fairness.w_q")
        self._weights = self.profile.fairness.weights or {}
        self._service: dict[str | None, float] = {}
        self._queued: dict[str | None, int] = {}
        self._pairs: dict[tuple[str | None, str | None], list[float]] = {}
        self._longest = 0
        self._records: list[tuple[float, int, int, tuple[str | None, str | None]]] = []
        self._top = -1.0
        self._cut = False

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Outputs must be recorded or derivable; shared blocks hold more tokens than N · b."""
        lacking = ["start"] if "output" not in kinds and "start" not in columns else []
        return [*lacking, "reuse.prefix=false"] if profile.reuse.prefix else lacking

    def before_admit(self, event: Event, record: Request | None) -> None:
        """The whole prompt counts once, at the first admission."""
        if record is not None and record.prompt is not None and record.first_admit is None:
            self._serve(record.tenant, self._w_p * record.prompt)

    def emitted(self, record: Request, tokens: int, member: Member | None) -> None:
        """Each output token counts as it is emitted."""
        self._serve(record.tenant, self._w_q * tokens)

    def after_arrive(self, event: Event, record: Request | None) -> None:
        """The longest input of the trace sets the bound."""
        if record is not None and record.prompt is not None:
            self._longest = max(self._longest, record.prompt)

    def _serve(self, tenant: str | None, units: float) -> None:
        self._service[tenant] = self._service.get(tenant, 0.0) + units / self._weights.get(
            tenant or "", self._weights.get("*", 1)
        )

    def closing(self, event: Event | None) -> None:
        """Follow the difference of each pair that is backlogged, and its extremes."""
        state = self.state
        backlogged = dict.fromkeys(
            record.tenant
            for record in state.records(state.waiting)
            if state.skips.get(record.id) not in NOT_A_CANDIDATE
        )
        if len(backlogged) < 2:
            self._pairs = {}
            return
        names = sorted(backlogged, key=str)
        pairs: dict[tuple[str | None, str | None], list[float]] = {}
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                gap = self._service.get(one, 0.0) - self._service.get(other, 0.0)
                extremes = self._pairs.get((one, other), [gap, gap])
                extremes = [min(extremes[0], gap), max(extremes[1], gap)]
                pairs[one, other] = extremes
                self.checked += 1
                spread = extremes[1] - extremes[0]
                if spread > self._top:
                    self._top = spread
                    self._records.append((spread, state.step or 0, state.row, (one, other)))
        self._pairs = pairs

    def over(self, complete: bool) -> None:
        """The first spread beyond 2U, now that the longest input is known; in a trace that was cut it
        may still come, and be as long as the pool."""
        self._cut = not complete
        size = _most_tokens(self.profile)
        bound = service_bound(self.profile, self._longest if complete else max(self._longest, size))
        for spread, step, row, pair in self._records:
            if spread > bound:
                self.flag(
                    f"the services of tenants {pair[0]} and {pair[1]} drift {spread:g} apart while both wait",
                    expected=f"at most 2U = {bound:g}",
                    observed=f"{spread:g} here, at most {self._top:g} in the trace",
                    step=step,
                    row=row,
                )
                return

    def open(self) -> bool:
        """The bound is known at the end of a complete trace."""
        return self._cut


def service_bound(profile: Profile, longest: int) -> float:
    """2U of VTC Theorem 4.4, in weighted tokens: how far the services of two backlogged tenants may drift
    apart where the longest input has `longest` tokens. Pool and block size must be known."""
    w_p, w_q = profile.value("fairness.w_p"), profile.value("fairness.w_q")
    # A charge is divided by its tenant's weight: light tenants move in longer strides.
    lightest = min([1.0, *(profile.fairness.weights or {}).values()])
    return float(2 * max(w_p * longest, w_q * _most_tokens(profile)) / lightest)


def _most_tokens(profile: Profile) -> int:
    """Tokens that can be served and unfinished: the pool's, and the newest of each running request, which
    is served but not yet resident."""
    limits = profile.limits
    return (limits.kv_blocks or 0) * (limits.block_size or 0) + (limits.max_seqs or 1)


RULES = (Overtaking, PriorityInversion, ServiceGap)
