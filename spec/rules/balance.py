"""Rules of memory's balance: the books add up, everything comes back, and the host has a bound too.

Source of the family: vLLM (SOSP'23) §4; G1 conservation: free + held (each block once) + pinned = N.
"""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.actions import preempt_mode
from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request, hides_lag
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import count


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


RULES = (Conservation, Release, Leak, HostBound)
