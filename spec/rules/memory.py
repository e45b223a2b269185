"""Rules of memory by counts: the pool's bound, what each request needs, and that the books balance.

Source of the family: vLLM (SOSP'23) §4; G1 conservation: free + held (each block once) + pinned = N.
"""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.actions import preempt_mode
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


class Conservation(Rule):
    """free + distinct held + pinned = N at every step row."""

    id = "memory/conservation"
    sentence = "At every step row: reported free + distinct held + pinned blocks = the pool."
    premise = ("limits.kv_blocks",)
    columns = ("free_blocks",)
    level = "L2"
    source = "G1; SGLang-JAX PR 1000 (tail page lost); SGLang PR 10637 (drifting balance)"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Something must say what is held, and what is shared or pinned."""
        lacking = ["pass"] if hides_lag(profile, columns) else []
        if not {"blocks", "block_ids"} & columns:
            lacking.append("blocks")
        if profile.reuse.prefix and "block_ids" not in columns and "shared_blocks" not in columns:
            lacking.append("shared_blocks")
        return lacking

    def closing(self, event: Event | None) -> None:
        """Add up."""
        state = self.state
        if event is None:
            return
        if event.free_blocks is None or state.total_blocks is None:
            self.skipped += 1
            return
        if state.has_ids and state.untold:
            self.skipped += 1
            return
        if state.has_ids:
            held = len(state.owners)
        elif state.unknown_blocks:
            self.skipped += 1
            return
        elif state.shares:
            if event.shared_blocks is None:
                self.skipped += 1
                return
            held = state.held - event.shared_blocks
        else:
            held = state.held
        pinned, total = state.pinned, state.total_blocks
        found = event.free_blocks + held + (pinned or 0)
        if pinned is None and found <= total:
            self.skipped += 1
            return
        self.checked += 1
        if found != total:
            self.flag(
                f"free, held and pinned blocks add up to {found} at the end of step {event.step}, "
                f"the pool has {total}",
                expected=f"free + held + pinned = {total}",
                observed=f"free {event.free_blocks} + held {held} + pinned {pinned or 0} = {found}",
            )


class Release(Rule):
    """After preempt (recompute), finish, abort and reject a request holds nothing."""

    id = "memory/release"
    sentence = (
        "After preemption by recompute, finish, abort and reject a request holds nothing (with a block lag: "
        "once that has run out), and blocks pinned for a transfer come back after the transfer."
    )
    level = "L2"
    source = "vLLM (SOSP'23) §4.5, VL2; SGLang PR 10871; TensorRT-LLM issue 5820; vLLM issue 46283"

    def __init__(self, *args: Any) -> None:
        """No transfer has begun."""
        super().__init__(*args)
        self._baseline: int | None = None
        self._pinned_since: int | None = None
        self._ended: dict[RequestId, int] = {}
        rules = self.profile.patience.rules or {}
        self._deadline = rules.get(self.id)

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Counts, ids, or transfers with pins."""
        if {"blocks", "block_ids"} & columns or ("transfer_begin" in kinds and "pinned_blocks" in columns):
            return ()
        return ("blocks",)

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """Dropped KV holds no blocks, unless the engine keeps them."""
        mode = preempt_mode(self.state, event)
        if record is None or self.state.keeps_blocks or mode is None:
            return
        if mode == "swap" or self.state.block_lag:
            return
        self._holds(event, record.id, record.blocks)

    def after_finish(self, event: Event, record: Request | None) -> None:
        """An ended request holds no blocks, unless a lag lets it."""
        request = event.subject
        if event.request in self.state.transfers and self._deadline is not None:
            self._ended[request] = self.state.steps
        if not self.state.block_lag:
            self._holds(event, request, self.state.held_by_ended.get(request, 0))

    after_abort = after_finish
    after_reject = after_finish

    def _holds(self, event: Event, request: RequestId, blocks: int | None) -> None:
        table = [block for block in self.state.tables.get(request, ()) if block is not None]
        if blocks is None and not table:
            self.skipped += 1
            return
        self.checked += 1
        held = blocks or len(table)
        if held:
            self.flag(
                f"{request} still holds {count(held, 'block')} after its "
                + ("preemption" if event.event == "preempt" else event.event),
                request,
                expected="no blocks",
                observed=count(held, "block") + (f" ({', '.join(map(str, table[:8]))})" if table else ""),
            )

    def closing(self, event: Event | None) -> None:
        """Pins that outlive every transfer, and transfers that outlive their request for too long."""
        state = self.state
        if "transfer_begin" not in state.kinds:
            return
        self._outlived()
        if event is None or event.pinned_blocks is None:
            return
        if self._baseline is None or not state.transfers:
            self._baseline = self._baseline if self._baseline is not None else self._first(event)
        over = event.pinned_blocks > (self._baseline or 0) and not state.transfers and not state.live
        if not over:
            self._pinned_since = None
            return
        self._pinned_since = self._pinned_since if self._pinned_since is not None else state.steps
        if state.steps - self._pinned_since == self.patience:
            self.checked += 1
            self.flag(
                f"{count(event.pinned_blocks, 'block')} still pinned {count(self.patience, 'step')} after "
                "the last transfer ended",
                expected=count(self._baseline or 0, "pinned block"),
                observed=f"{event.pinned_blocks} pinned, no transfer under way, no live request",
            )

    def _first(self, event: Event) -> int:
        return 0 if self.state.transfers or self.state.ended else event.pinned_blocks or 0

    def _outlived(self) -> None:
        for request, since in list(self._ended.items()):
            if request not in self.state.transfers:
                self.checked += 1
                del self._ended[request]
            elif self.state.steps - since >= (self._deadline or 0):
                self.checked += 1
                del self._ended[request]
                self.flag(
                    f"{request} ended {count(self.state.steps - since, 'step')} ago and its transfer is "
                    "still under way",
                    request,
                    expected=f"the transfer's end and its blocks within {count(self._deadline or 0, 'step')}",
                    observed="blocks held for a transfer that does not end",
                )

    def open(self) -> bool:
        """A transfer of an ended request may still end within its bound."""
        return bool(self._ended)


class Leak(Rule):
    """With no live request everything is free."""

    id = "memory/leak"
    sentence = "With no live request all blocks are free and every unit of other resources is back."
    source = "SGLang PR 10871 (request row kept); vLLM V1 idle check; mini-sglang check_integrity"

    def __init__(self, *args: Any) -> None:
        """Nothing leaks yet."""
        super().__init__(*args)
        self._told = False

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Free blocks as reported, or another resource's ledger."""
        if "take" in kinds:
            return ()
        # The log of an engine's counters names no requests, so it does not say that none is live.
        lacking = [name for name in ("free_blocks", "request") if name not in columns]
        return lacking if profile.limits.kv_blocks is not None else [*lacking, "limits.kv_blocks"]

    def closing(self, event: Event | None) -> None:
        """Nobody is live: is everything back?"""
        state = self.state
        if state.live:
            self._told = False
            return
        out = {name: units for name, units in self._out().items() if units} if state.ledgers_told else {}
        if event is None or state.lagged or self._told:
            return
        if state.block_lag == "release" and not out:
            return
        free, total = event.free_blocks, state.total_blocks
        judged = free is not None and total is not None and state.pinned == 0
        if not judged and ("take" not in state.kinds or not state.ledgers_told):
            self.skipped += 1
            return
        self.checked += 1
        if judged and state.block_lag != "release" and free != total:
            self._told = True
            self.flag(
                f"no request is live in step {event.step}, and {free} of {total} blocks are free",
                expected=f"free_blocks {total}",
                observed=f"free_blocks {free}",
            )
        elif out:
            self._told = True
            names = ", ".join(f"{units} of {name}" for name, units in out.items())
            holders = [request for ledger in state.resources.values() for request in ledger]
            self.flag(
                f"no request is live in step {event.step}, and {names} did not come back",
                *holders[:4],
                expected="every unit given back",
                observed=f"still out: {names}",
            )

    def _out(self) -> dict[str, int]:
        return {name: sum(ledger.values()) for name, ledger in self.state.resources.items()}

    def over(self, complete: bool) -> None:
        """Where blocks wait for a release row, each ended request must have had its own."""
        state = self.state
        if state.block_lag != "release" or not complete:
            return
        self.checked += 1
        for request, blocks in state.held_by_ended.items():
            if blocks:
                self.flag(
                    f"{str(request).split(chr(0))[0]} ended and its {count(blocks, 'block')} never came back",
                    request,
                    expected="a release row for each ended request",
                    observed=f"{count(blocks, 'block')} held at the end of the trace",
                )


class HostBound(Rule):
    """Swapped positions fit the host pool."""

    id = "memory/host-bound"
    sentence = "The positions of swapped requests fit the host's blocks."
    premise = ("limits.host_blocks", "limits.block_size")
    columns = ("start", "tokens", "reason")
    source = "vLLM (SOSP'23) §4.5, VL3"

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """One more request on the host."""
        if record is None or not record.swapped:
            return
        if record.computed is None:
            self.skipped += 1
            return
        self.checked += 1
        used, limit = self.state.swapped_blocks, self.profile.limits.host_blocks or 0
        if used > limit:
            self.flag(
                f"swapped requests need {count(used, 'block')} on the host, it has {limit}",
                record.id,
                expected=f"at most {count(limit, 'host block')}",
                observed=f"{used} after the swap of {record.id} ({count(record.computed, 'position')})",
            )


RULES = (Bound, Coverage, Waste, Conservation, Release, Leak, HostBound)
