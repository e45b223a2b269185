"""Rules of admission: in the policy's order, only what fits, and whatever fits without needless wait."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.line import blocks_fit, free_bounds, need_blocks, never_fits
from batchspec.spec.model import PARKED, RUNNING, WAITING, Request
from batchspec.spec.profile import Profile, parse_need
from batchspec.spec.rule import Rule
from batchspec.spec.rules.slots import fit_needs
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


class NeverFit(Rule):
    """What can never fit is not left to block the line."""

    id = "admission/never-fit"
    sentence = (
        "A request that the empty pool, the model's length or an unchunked step can never hold ends within K "
        "steps of becoming the policy's next; so does a sole running request that needs block N + 1."
    )
    kind = "bounded"
    premise = ("admission.order",)
    columns = ("prompt_tokens",)
    source = "vLLM issues 39734 and 35541, PR 1727; nano-vllm (a lone request larger than the pool)"

    def __init__(self, *args: Any) -> None:
        """Nobody blocks the line."""
        super().__init__(*args)
        self._next: tuple[RequestId, int] | None = None
        self._count = 0
        self._told: set[tuple[RequestId, int]] = set()

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Some limit to compare with."""
        limits = profile.limits
        pool = limits.kv_blocks is not None and limits.block_size is not None
        if not pool and limits.max_model_len is None:
            return ("limits.kv_blocks",)
        return order_needs(profile, columns, kinds)

    def closing(self, event: Event | None) -> None:
        """Count the steps in which the same hopeless request is next, or runs alone."""
        record = self._hopeless()
        self._settle()
        if record is None:
            if self.state.next_in_line is not None:
                self.checked += 1
            self._next, self._count = None, 0
            return
        key = (record.id, record.number)
        self._count = self._count + 1 if key == self._next else 1
        self._next = key

    def _settle(self) -> None:
        """A hopeless request that has ended in time is one instance."""
        if self._next is None:
            return
        record = self.state.live.get(self._next[0])
        if record is None or record.number != self._next[1]:
            self.checked += 1 if self._next not in self._told else 0
            self._next, self._count = None, 0

    def over(self, complete: bool) -> None:
        """An end in the last step counts."""
        self._settle()

    def _hopeless(self) -> Request | None:
        state = self.state
        request = state.next_in_line
        record = state.live.get(request) if request is not None else None
        if record is not None and record.state != RUNNING and never_fits(state, record):
            return record
        if len(state.running) == 1 and not state.in_flight and not state.members:
            alone = state.live[next(iter(state.running))]
            known, total, size = alone.known, state.total_blocks, state.block_size
            if known is not None and total is not None and size is not None and -(-known // size) > total:
                return alone
        return None

    def opened(self, event: Event) -> None:
        """The bound has run out."""
        if self._count < self.patience or self._next is None or self._next in self._told:
            return
        self._told.add(self._next)
        record = self.state.live.get(self._next[0])
        if record is None or record.number != self._next[1]:
            return
        self.checked += 1
        limits = self.profile.limits
        need = self.state.blocks_for(record.known or record.prompt or 0)
        self.flag(
            f"{record.id} can never fit and has blocked the line for {count(self._count, 'step')}",
            record.id,
            expected=f"its reject, abort or finish with error within {count(self.patience, 'step')}",
            observed=f"prompt {record.prompt}, needs {count(need or 0, 'block')} of {limits.kv_blocks}"
            + (f", max_model_len {limits.max_model_len}" if limits.max_model_len else ""),
        )

    def open(self) -> bool:
        """The bound has not run out."""
        return self._next is not None and self._next not in self._told


class NeedlessWait(Rule):
    """The policy's next does not stay waiting while it fits."""

    id = "admission/needless-wait"
    sentence = (
        "The policy's next request (where it skips past misfits: the first that fits, within skip_ahead) "
        "does not stay waiting for K consecutive steps in which it is next and fits."
    )
    kind = "bounded"
    premise = ("batching.mode", "admission.work_conserving", "admission.order", "limits.max_seqs")
    source = "G6 work conservation; VTC (OSDI'24) §3; vLLM issue 31731"

    def __init__(self, *args: Any) -> None:
        """Nobody waits."""
        super().__init__(*args)
        self._next: tuple[RequestId, int] | None = None
        self._count = 0
        self._fit_text = ""
        self._most = self.profile.admission.skip_ahead or 0
        self._passed: dict[int, int] = {}
        self._behind: RequestId | None = None

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """What *fits* asks for."""
        lacking = fit_needs(profile, columns, kinds)
        return lacking + [name for name in order_needs(profile, columns, kinds) if name not in lacking]

    def closing(self, event: Event | None) -> None:
        """Count the steps in which the same request is next and fits."""
        state = self.state
        if state.preempted_now and not self.profile.preemption.admit_in_same_step:
            return  # excused: neither counts nor resets
        if state.barrier and (state.running or state.ended_now):
            self._next, self._count = None, 0
            return
        request, fitting = state.next_in_line, state.next_fits
        self._behind = None
        if state.fits_behind is not None and self._may_pass(state.passes_by):
            self._behind, request, fitting = request, state.fits_behind, True
        if request is None:
            self._next, self._count = None, 0
            return
        if fitting is None:
            self.skipped += 1
        else:
            self.checked += 1
        record = state.live.get(request)
        if not fitting or record is None:
            self._next, self._count = None, 0
            return
        key = (request, record.number)
        self._count = self._count + 1 if key == self._next else 1
        self._next = key
        self._fit_text = state.fit_text

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Under `skip`: everyone who stands before it was passed once more."""
        if not self._most or record is None or self.profile.admission.misfit != "skip":
            return
        for other in self.line.in_order():
            if other.id == record.id:
                return
            self._passed[other.number] = self._passed.get(other.number, 0) + 1

    before_resume = before_admit

    def _may_pass(self, numbers: Sequence[int]) -> bool:
        """Whether the policy may still pass each of these misfits."""
        state = self.state
        lines = (state.waiting, state.preempted) if self._passed else ()
        live = {record.number for line in lines for record in state.records(line)}
        self._passed = {number: count for number, count in self._passed.items() if number in live}
        return all(self._passed.get(number, 0) < self._most for number in numbers)

    def opened(self, event: Event) -> None:
        """The bound has run out."""
        if self._next is None or self._count != self.patience:
            return
        record = self.state.live.get(self._next[0])
        if record is None or record.number != self._next[1] or self.state.mode == "dynamic":
            return
        where = "is next in line"
        if self._behind is not None:
            where = f"is next behind {self._behind}, which does not fit and may be passed,"
        self.flag(
            f"{record.id} {where} and has fitted for {count(self._count, 'step')}, but waits on",
            record.id,
            expected=f"its admission within {count(self.patience, 'step')}",
            observed=f"still {record.state}" + self._fit_text,
        )
        self._count += 1

    def open(self) -> bool:
        """It may still be admitted within its bound."""
        return 0 < self._count <= self.patience and self._next is not None


class Parked(Rule):
    """A parked request that is ready is looked at within K steps."""

    id = "admission/parked"
    sentence = (
        "A parked request whose condition holds is looked at within K steps, whatever the load: admitted, "
        "skipped, refused, parked again or aborted."
    )
    kind = "bounded"
    source = "vLLM issue 53130, PRs 53772 and 54348; vllm-ascend PRs 10559 and 10699"

    def __init__(self, *args: Any) -> None:
        """Nobody is ready."""
        super().__init__(*args)
        self._since: dict[RequestId, int] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Somebody must have been parked and become ready."""
        if "ready" not in kinds:
            return ("ready rows",) if "park" in kinds else ()
        if "skip" not in kinds:
            return [*fit_needs(profile, columns, kinds), *order_needs(profile, columns, kinds)]
        return ()

    def after_ready(self, event: Event, record: Request | None) -> None:
        """Its turn must come."""
        if record is not None:
            self._since[record.id] = 0

    def before_skip(self, event: Event, record: Request | None) -> None:
        """Looked at."""
        if event.request in self._since:
            self.checked += 1
            del self._since[event.request]

    before_admit = before_skip
    before_park = before_skip
    before_abort = before_skip
    before_reject = before_skip
    before_finish = before_skip

    def closing(self, event: Event | None) -> None:
        """One more step without a look; without skip rows only while it fits."""
        if not self._since:
            return
        state = self.state
        for request in self._since:
            record = state.live.get(request)
            if record is None or record.state != WAITING:
                continue
            if "skip" in state.kinds or (state.next_in_line == request and state.next_fits):
                self._since[request] += 1

    def opened(self, event: Event) -> None:
        """The bound has run out."""
        for request, steps in list(self._since.items()):
            if steps >= self.patience:
                del self._since[request]
                self.checked += 1
                self.flag(
                    f"{request} was parked, is ready for {count(steps, 'step')}, and nobody has looked at it",
                    request,
                    expected=f"an admit, skip, reject, park or abort within {count(self.patience, 'step')}",
                    observed=f"no row about {request} since it is ready",
                )

    def open(self) -> bool:
        """Its turn may still come."""
        return bool(self._since)


RULES = (Order, HeadOfLine, Fit, NeverFit, NeedlessWait, Parked)
