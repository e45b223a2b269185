"""Rules of admission: in the policy's order, only what fits, and whatever fits without needless wait."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.line import blocks_fit, free_bounds, need_blocks
from batchspec.spec.model import PARKED, WAITING, Request
from batchspec.spec.profile import Profile, parse_need
from batchspec.spec.rule import Rule
from batchspec.spec.words import count, ordinal

ORDER_COLUMNS = {
    "sjf": ("prompt_tokens", "max_tokens"),
    "priority": ("priority",),
    "fair": ("tenant", "prompt_tokens", "tokens"),
}


def order_needs(profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> list[str]:
    """What the policy's order is made of, and the trace or profile lacks."""
    lacking = [name for name in ORDER_COLUMNS.get(profile.admission.order or "", ()) if name not in columns]
    if profile.admission.order == "priority" and profile.admission.urgent is None:
        lacking.append("admission.urgent")
    if profile.admission.order == "fair" and "output" not in kinds and "start" not in columns:
        lacking.append("start")
    if "skip" in kinds and "reason" not in columns:
        lacking.append("reason")
    return lacking


class Order(Rule):
    """The admitted request is the policy's next."""

    id = "admission/order"
    sentence = (
        "The admitted request is the policy's next: fcfs the earliest arrival, sjf the least known work, "
        "priority the most urgent, fair the least served tenant's earliest."
    )
    premise = ("admission.order", "admission.misfit")
    source = "Orca (OSDI'22) Algorithm 1; VTC (OSDI'24) Algorithm 2, VT2; vLLM V1 priority queue"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """What the policy orders by."""
        return order_needs(profile, columns, kinds)

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Compare with whoever stands first in the line."""
        line = self.line
        if record is None or record.state not in (WAITING, PARKED):
            return
        if not line.is_known():
            self.skipped += 1
            return
        first = line.first()
        if first is None or first.id == record.id:
            self.checked += 1
            return
        if self.profile.admission.order == "fair" and line.least_served(record.tenant):
            mine = line.first_of(record.tenant)
            if mine is None or mine.id == record.id:
                self.checked += 1
                return
        fitting = passed_fits(self, first)
        if fitting is None and self.profile.admission.misfit == "skip":
            self.skipped += 1
            return
        self.checked += 1
        if fitting is False:
            return  # an admission past a misfit: admission/head-of-line
        self.flag(
            f"{record.id} is admitted before {first.id}, which is the policy's next",
            record.id,
            first.id,
            expected=f"{first.id} first ({self.profile.admission.order})",
            observed=f"{_shown(self, record)}, next: {_shown(self, first)}",
        )

    def before_resume(self, event: Event, record: Request | None) -> None:
        """A preempted request that stands in the line (back, arrival) keeps its place there."""
        if record is not None and self.profile.preemption.resume in ("back", "arrival"):
            first = self.line.first()
            if not self.line.is_known():
                self.skipped += 1
                return
            self.checked += 1
            if first is not None and first.id != record.id and first.place < record.place:
                if passed_fits(self, first) is not True:
                    return
                self.flag(
                    f"{record.id} is resumed before {first.id}, which is the policy's next",
                    record.id,
                    first.id,
                    expected=f"{first.id} first",
                    observed=f"{_shown(self, record)}, next: {_shown(self, first)}",
                )


def passed_fits(rule: Rule, first: Request) -> bool | None:
    """Whether the request that is passed over fits now: seat and budget are there, blocks may not be."""
    state = rule.state
    budget, known = state.budget_left(), first.known
    whole = not rule.profile.batching.chunked_prefill and state.token_budget is not None
    if whole and budget is not None and known is not None and known > budget:
        return False
    if rule.profile.admission.test is None or rule.profile.limits.kv_blocks is None:
        return None
    fitting = blocks_fit(state, first, budget)
    # A prompt that must be computed whole needs the budget for it, and that is not known here.
    return None if fitting and whole and (budget is None or known is None) else fitting


def _shown(rule: Rule, record: Request) -> str:
    return f"{record.id} ({_place(rule, record)})"


def _place(rule: Rule, record: Request) -> str:
    order = rule.profile.admission.order
    arrival = f"{ordinal(record.number + 1)} arrival"
    if order == "priority":
        return f"priority {record.priority}, {arrival}"
    if order == "sjf":
        return f"work {(record.prompt or 0) + (record.max_tokens or 0)}, {arrival}"
    if order == "fair" and rule.line.shares is not None:
        return f"tenant {record.tenant} at {rule.line.shares.counter(record.tenant):g}, {arrival}"
    return arrival


class HeadOfLine(Rule):
    """Nobody behind a misfit is admitted, or at most `skip_ahead`."""

    id = "admission/head-of-line"
    sentence = (
        "Where the profile stops at the first misfit nobody behind it is admitted; where it skips, at most "
        "skip_ahead later requests are admitted past one misfit."
    )
    premise = (
        "admission.order",
        "admission.misfit",
        "admission.test",
        "limits.kv_blocks",
        "limits.block_size",
    )
    source = "Orca (OSDI'22) Algorithm 1, OR3 (break, not continue); VTC VT2; vLLM V1.4"

    def __init__(self, *args: Any) -> None:
        """Nobody was passed."""
        super().__init__(*args)
        self._passed: dict[tuple[RequestId, int], int] = {}
        self._most = self.profile.admission.skip_ahead
        self._stops = self.profile.admission.misfit == "stop"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Whether somebody is a misfit must show."""
        if profile.admission.misfit == "skip" and profile.admission.skip_ahead is None:
            return ("admission.skip_ahead",)
        lacking = order_needs(profile, columns, kinds)
        if not {"blocks", "block_ids"} & columns:
            lacking.append("blocks")
        return lacking + [name for name in ("prompt_tokens",) if name not in columns]

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Is the policy's next a misfit, and passed?"""
        if record is None or record.state not in (WAITING, PARKED) or not self.line.is_known():
            return
        first = self.line.first()
        if first is None or first.id == record.id:
            self.checked += 1
            return
        if self.line.key(record) is not None and not self.line.is_behind(record, first):
            self.checked += 1
            return
        fitting = passed_fits(self, first)
        if fitting is None:
            self.skipped += 1
            return
        self.checked += 1
        if fitting:
            return  # admission/order
        key = (first.id, first.number)
        self._passed[key] = self._passed.get(key, 0) + 1
        most = 0 if self._stops else self._most or 0
        if self._passed[key] <= most:
            return
        need = need_blocks(self.state, first, self.state.budget_left())
        self.flag(
            f"{record.id} is admitted past {first.id}, which does not fit",
            record.id,
            first.id,
            expected="nobody past the first misfit"
            if self._stops
            else f"at most {count(most, 'request')} past one misfit",
            observed=f"{first.id} needs {count(need or 0, 'block')}, {free_bounds(self.state)[1]} free; "
            f"passed {count(self._passed[key], 'time')}",
        )

    def after_admit(self, event: Event, record: Request | None) -> None:
        """It got in: if it waits again one day, it is a misfit anew."""
        if self._passed and record is not None:
            self._passed.pop((record.id, record.number), None)

    after_resume = after_admit

    def after_finish(self, event: Event, record: Request | None) -> None:
        """Forget passes of requests that are gone."""
        if len(self._passed) > 1024:
            live = self.state.live
            self._passed = {key: count for key, count in self._passed.items() if key[0] in live}


class Fit(Rule):
    """The blocks of `admission.test` + watermark ≤ free."""

    id = "admission/fit"
    sentence = (
        "At each admit and resume the blocks that the admission test asks for, beyond what the request holds "
        "or takes over from another holder, and the watermark, are free."
    )
    premise = ("admission.test", "limits.kv_blocks", "limits.block_size")
    columns = ("prompt_tokens",)
    source = "vLLM V1 scheduler_reserve_full_isl and watermark; Orca OR3; SGLang PR 30743"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Blocks, and what they are compared with."""
        lacking = [] if {"blocks", "block_ids"} & columns or not profile.reuse.prefix else ["blocks"]
        test = profile.admission.test
        if test == "full" and "max_tokens" not in columns:
            lacking.append("max_tokens")
        if test in ("ratio", "peak") and "prediction" not in columns:
            lacking.append("prediction")
        if test == "step" and not {"blocks", "block_ids"} & columns:
            lacking.append("blocks")
        if profile.reuse.prefix:
            lacking += [name for name in ("block_ids", "cached") if name not in columns]
        return lacking

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Compare need and free, before the blocks are taken."""
        if record is None:
            return
        state = self.state
        _, most = free_bounds(state)
        need = self._need(event, record)
        if need is None or most is None:
            self.skipped += 1
            return
        self.checked += 1
        watermark: int = self.profile.value("admission.watermark_blocks")
        kept = watermark if state.running else 0
        if need + kept > most:
            self.flag(
                f"{record.id} is admitted needing {count(need, 'block')} with {most} free"
                + (f", {kept} of them to be kept" if kept else ""),
                record.id,
                expected=f"at least {count(need + kept, 'free block')} (test {self.profile.admission.test}"
                + (f", watermark {kept})" if kept else ")"),
                observed=count(most, "free block"),
            )

    before_resume = before_admit

    def _need(self, event: Event, record: Request) -> int | None:
        state = self.state
        word, _ = parse_need(self.profile.admission.test)
        held_elsewhere = self._shared(event)
        if held_elsewhere is None:
            return None
        if word == "step":
            # This step's tokens come with the schedule row; what the admission takes shows here.
            after = event.blocks
            if after is None and event.block_ids is not None:
                after = len(event.block_ids) + (record.blocks or 0)
            if after is None or record.blocks is None:
                return None
            return max(0, after - record.blocks - held_elsewhere)
        need = need_blocks(state, record, state.budget_left())
        return None if need is None else max(0, need - held_elsewhere)

    def _shared(self, event: Event) -> int | None:
        """Blocks of this row that another holder keeps; None where it does not say what it takes over."""
        state = self.state
        if not state.shares or not event.block_ids or not state.block_size:
            return 0
        if event.cached is None:
            return None
        taken = event.cached // state.block_size
        return sum(1 for block in event.block_ids[:taken] if state.owners.get(block))


RULES = (Order, HeadOfLine, Fit)
