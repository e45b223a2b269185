"""Rules of memory by counts: the pool's bound, what each request needs, and that the books balance.

Source of the family: vLLM (SOSP'23) §4; G1 conservation: free + held (each block once) + pinned = N.
"""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request, hides_lag
from batchspec.spec.profile import Profile, parse_need
from batchspec.spec.rule import Rule
from batchspec.spec.words import count


class Bound(Rule):
    """Distinct blocks held ≤ N at every event."""

    id = "memory/bound"
    sentence = (
        "The distinct blocks held never exceed the pool, and the units of another resource that are out "
        "never exceed its capacity."
    )
    premise = ("limits.kv_blocks",)
    source = "vLLM (SOSP'23) §4.2; SGLang PR 30743; llama.cpp issue 23652"

    @classmethod
    def missing(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> tuple[str, ...]:
        """A capacity of other resources is enough to judge those."""
        if profile.limits.resources and "take" in kinds:
            return ()
        return super().missing(profile, columns, kinds)

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Ids, or counts (with `shared_blocks` where blocks are shared), or positions as a bound."""
        if hides_lag(profile, columns):
            return ("pass",)
        if "block_ids" in columns:
            return ()
        if "blocks" in columns:
            shares = profile.reuse.prefix and "shared_blocks" not in columns
            return ("shared_blocks",) if shares else ()
        if profile.reuse.prefix:
            return ("blocks",)
        lacking = ["limits.block_size"] if profile.limits.block_size is None else []
        return lacking + [name for name in ("start", "tokens") if name not in columns]

    def after_schedule(self, event: Event, record: Request | None) -> None:
        """Compare what is held, or what must be, with the pool."""
        state = self.state
        total = state.total_blocks
        if total is None:
            return
        if state.has_ids:
            held = len(state.owners)
        elif not state.has_blocks:
            held = state.positions
        elif state.shares:
            return  # known at step rows only
        else:
            held = state.held
        self.checked += 1
        if held > total:
            what = "blocks are held" if state.has_ids or state.has_blocks else "blocks are needed at least"
            self.flag(
                f"{held} {what} after the {event.event} of {event.request}, the pool has {total}",
                event.subject,
                expected=f"at most {total} blocks",
                observed=f"{held} blocks" + (f", {record.blocks} of them {record.id}'s" if record else ""),
            )

    after_admit = after_schedule
    after_resume = after_schedule
    after_park = after_schedule
    after_live = after_schedule

    def closing(self, event: Event | None) -> None:
        """Shared blocks are known at the step row."""
        state = self.state
        if event is None or not state.shares or state.has_ids or not state.has_blocks:
            return
        if event.shared_blocks is None or state.unknown_blocks or state.total_blocks is None:
            self.skipped += 1
            return
        self.checked += 1
        held = state.held - event.shared_blocks
        if held > state.total_blocks:
            self.flag(
                f"{held} distinct blocks are held at the end of step {event.step}, the pool has "
                f"{state.total_blocks}",
                expected=f"at most {state.total_blocks} blocks",
                observed=f"{state.held} held, {event.shared_blocks} shared",
            )

    def after_take(self, event: Event, record: Request | None) -> None:
        """Other resources have capacities too."""
        capacity = (self.profile.limits.resources or {}).get(event.resource or "")
        if not self.state.ledgers_told:
            self.skipped += 1
            return
        if capacity is None:
            return
        self.checked += 1
        out = sum(self.state.resources.get(event.resource or "", {}).values())
        if out > capacity:
            self.flag(
                f"{count(out, 'unit')} of {event.resource} are out, it has {capacity}",
                event.subject,
                expected=f"at most {count(capacity, 'unit')}",
                observed=f"{count(out, 'unit')} after {event.request} took {event.units}",
            )


class Coverage(Rule):
    """B(r)·b ≥ start + tokens for each member."""

    id = "memory/coverage"
    sentence = "Every position that a pass computes lies in a block that the request holds."
    premise = ("limits.block_size",)
    columns = ("start", "tokens", "blocks")
    level = "L2"
    source = "vLLM (SOSP'23) §4.3; LMCache issue 2327 (more positions than slots)"

    def __init__(self, *args: Any) -> None:
        """Nobody is short."""
        super().__init__(*args)
        self._short: list[tuple[RequestId, int, int, int]] = []

    def after_schedule(self, event: Event, record: Request | None) -> None:
        """Note who is short; judged once the step's members are final."""
        if record is None:
            return
        blocks, computed = record.blocks, record.computed
        if blocks is None or computed is None:
            self.skipped += 1
            return
        self.checked += 1
        size = self.state.block_size or 1
        if blocks * size < computed:
            self._short.append((record.id, blocks, computed, self.state.row))

    def decided(self) -> None:
        """Whoever is still a member."""
        if not self._short:
            return
        short, self._short = self._short, []
        size = self.state.block_size or 1
        for request, blocks, computed, row in short:
            if request in self.state.members:
                self.flag(
                    f"{request} holds no block for {count(computed - blocks * size, 'position')} of the pass",
                    request,
                    expected=f"{count(-(-computed // size), 'block')} for {count(computed, 'position')}",
                    observed=f"{count(blocks, 'block')} of {count(size, 'position')}",
                    row=row,
                )


class Waste(Rule):
    """B(r) grows no further than it needs."""

    id = "memory/waste"
    sentence = (
        "A request's blocks grow to what the pass, the lookahead or its reservation needs, and no further."
    )
    premise = ("limits.block_size", "admission.reserve")
    columns = ("start", "tokens", "blocks", "prompt_tokens")
    level = "L2"
    source = "vLLM (SOSP'23) §4.3, VL5; vLLM PR 10730 (block table past the longest sequence)"

    def __init__(self, *args: Any) -> None:
        """Nobody has joined."""
        super().__init__(*args)
        word, self._extra = parse_need(self.profile.admission.reserve or "step")
        self._word = word
        self._lookahead = self.profile.batching.lookahead or 0
        self._before: dict[RequestId, int | None] = {}

    @classmethod
    def missing(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> tuple[str, ...]:
        """Any reservation that can be computed from the trace will do."""
        lacking = []
        if profile.limits.block_size is None:
            lacking.append("limits.block_size")
        reserve = profile.admission.reserve
        if reserve is None or reserve in ("ratio", "peak"):
            lacking.append("admission.reserve")
        if reserve == "full" and "max_tokens" not in columns:
            lacking.append("max_tokens")
        return tuple(lacking + [name for name in cls.columns if name not in columns])

    def before_admit(self, event: Event, record: Request | None) -> None:
        """What it held before it joined is its to keep."""
        if record is not None:
            self._before[record.id] = record.blocks

    before_resume = before_admit

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """Compare the growth with the need."""
        if record is None:
            return
        blocks = event.blocks
        before = record.blocks
        if record.id in self._before:
            before = self._before.pop(record.id)
        if blocks is None or before is None or event.start is None or event.tokens is None:
            self.skipped += 1
            return
        self.checked += 1
        if blocks <= before:
            return
        size = self.state.block_size or 1
        need = -(-(event.start + event.tokens + self._lookahead) // size)
        if blocks <= need:
            return
        known = record.known
        if known is None or (self._word == "full" and record.max_tokens is None):
            return
        reserved = 0
        if self._word == "known":
            reserved = -(-(known + self._extra) // size)
        elif self._word == "full":
            reserved = -(-((record.prompt or 0) + (record.max_tokens or 0)) // size)
        most = max(need, reserved, before)
        if blocks > most:
            self.flag(
                f"{record.id} holds {count(blocks, 'block')} where {most} would do",
                record.id,
                expected=f"at most {count(most, 'block')} for {event.start + event.tokens} positions",
                observed=f"{count(blocks, 'block')}, {before} before",
            )

    def after_finish(self, event: Event, record: Request | None) -> None:
        """Forget one that never ran."""
        self._before.pop(event.subject, None)

    after_abort = after_finish


RULES = (Bound, Coverage, Waste)
