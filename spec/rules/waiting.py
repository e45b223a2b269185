"""Rules of waiting: what fits is not left waiting, what can never fit is not left to block the line."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.line import never_fits
from batchspec.spec.model import RUNNING, WAITING, Request
from batchspec.spec.profile import Profile, parse_need
from batchspec.spec.rule import Rule
from batchspec.spec.rules.admission import order_needs
from batchspec.spec.rules.slots import fit_needs
from batchspec.spec.words import count


class NeverFit(Rule):
    """What can never fit is not left to block the line."""

    id = "admission/never-fit"
    sentence = (
        "A request that the empty pool, the model's length or an unchunked step can never hold ends within K "
        "steps of becoming the policy's next; so does a sole running request that needs block N + 1. Where "
        "the model's length and the pool are claimed, nobody is refused as too long who fits them in full."
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

    def before_reject(self, event: Event, record: Request | None) -> None:
        """Refused as too long: is there a limit that it could exceed?"""
        if record is None or event.reason != "too_long":
            return
        text = fits_in_full(self.profile, record)
        if text is None:
            return
        self.checked += 1
        self.flag(
            f"{record.id} is refused as too long and would fit, however many tokens it emits",
            record.id,
            expected="its admission when its turn comes",
            observed=text,
        )

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


def fits_in_full(profile: Profile, record: Request) -> str | None:
    """In words why a request fits every limit with all its outputs, whatever is kept beside; None where it
    may not, or where a limit is not claimed that it might exceed."""
    limits, prompt, most = profile.limits, record.prompt, record.max_tokens
    length, pool, size = limits.max_model_len, limits.kv_blocks, limits.block_size
    if prompt is None or most is None or length is None or pool is None or size is None:
        return None
    if limits.resources or profile.admission.test in ("ratio", "peak"):
        return None
    tokens = prompt + most
    if tokens > length:
        return None
    passes = [limits.prefill_budget]
    if not profile.batching.chunked_prefill:
        if limits.token_budget is None:
            return None
        passes.append(limits.token_budget)
    # What it emits before a preemption is a part of the prompt when it comes back.
    if any(budget is not None and tokens > budget for budget in passes):
        return None
    extra = max(parse_need(need or "step")[1] for need in (profile.admission.test, profile.admission.reserve))
    beside: int = profile.value("admission.watermark_blocks") + profile.value("preemption.headroom_blocks")
    need = -(-(tokens + extra + (profile.batching.lookahead or 0)) // size) + beside
    if need > pool:
        return None
    return (
        f"prompt {prompt} + max_tokens {most} of max_model_len {length}; "
        f"at most {count(need, 'block')} of {pool}"
    )


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
        # How often those were passed who were live when the trace began, nobody knows.
        known = state.lives
        return all(number >= known and self._passed.get(number, 0) < self._most for number in numbers)

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


RULES = (NeverFit, NeedlessWait, Parked)
