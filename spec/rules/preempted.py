"""Rules of the preempted: they come back first, whole, and not only to be preempted again."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.actions import only_mode
from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import RUNNING, Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.rules.admission import order_needs
from batchspec.spec.rules.preemption import by_operator
from batchspec.spec.words import count


class ResumeFirst(Rule):
    """Preempted requests come back before new ones are admitted."""

    id = "preemption/resume-first"
    sentence = (
        "Preempted requests come back before new ones are admitted (under order priority only among those "
        "of equal or greater urgency), several in the order of their first admission."
    )
    premise = ("preemption.resume=front",)
    source = "vLLM (SOSP'23) §4.5, VL3; VL7 (several victims put back in one step)"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Urgency under order priority, and to know whether that is the order."""
        if profile.admission.order is None and "priority" in columns:
            return ("admission.order",)
        return order_needs(profile, columns, kinds) if profile.admission.order == "priority" else ()

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Does somebody preempted wait meanwhile?"""
        state = self.state
        if not state.preempted or record is None:
            self.checked += 1
            return
        first = self._first(record)
        if first is None:
            self.checked += 1
            return
        self.checked += 1
        self.flag(
            f"{record.id} is admitted while {first.id}, preempted earlier, still waits",
            record.id,
            first.id,
            expected=f"{first.id} back first",
            observed=f"{first.id} preempted; admitted: {record.id}",
        )

    def _first(self, record: Request) -> Request | None:
        state = self.state
        best: Request | None = None
        for other in state.records(state.preempted):
            if other.id == record.id or state.skips.get(other.id) in ("not_ready", "in_flight"):
                continue
            if self.profile.admission.order == "priority":
                mine, theirs = self.line.urgency(record), self.line.urgency(other)
                if mine is None or theirs is None or theirs > mine:
                    continue
            if best is None or (other.first_admit or 0) < (best.first_admit or 0):
                best = other
        return best

    def before_resume(self, event: Event, record: Request | None) -> None:
        """Several victims come back in the order of their first admission."""
        if record is None or record.first_admit is None:
            return
        self.checked += 1
        first = self._first(record)
        if first is not None and (first.first_admit or 0) < record.first_admit:
            self.flag(
                f"{record.id} is resumed before {first.id}, which was admitted first",
                record.id,
                first.id,
                expected=f"{first.id} back first",
                observed=f"{record.id} first",
            )


class NoAdmission(Rule):
    """A step that preempts admits nobody, where declared."""

    id = "preemption/no-admission"
    sentence = "Where declared, a step that preempts admits and resumes nobody."
    premise = ("preemption.admit_in_same_step=false",)
    source = "vLLM V1.4: waiting is looked at only if this step preempted nobody"

    def before_admit(self, event: Event, record: Request | None) -> None:
        """After a preemption of the same step?"""
        self.checked += 1
        if self.state.preempted_now:
            victim = next(iter(self.state.preempted_now))
            self._tell(event.subject, victim, event)

    before_resume = before_admit

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """After an admission of the same step?"""
        self.checked += 1
        if self.state.admitted and event.request is not None:
            self._tell(next(iter(self.state.admitted)), event.request, event)

    def _tell(self, admitted: RequestId, victim: RequestId, event: Event) -> None:
        self.flag(
            f"step {event.step} preempts {victim} and admits {admitted}",
            admitted,
            victim,
            expected="no admission in a step that preempts",
            observed=f"{event.event} of {event.request}",
        )


class Thrash(Rule):
    """Between two preemptions of one request it makes progress, else at most K times."""

    id = "preemption/thrash"
    sentence = (
        "Between two preemptions a request gets longer than it ever was (prompt and outputs), else at most "
        "K times."
    )
    kind = "bounded"
    source = "SGLang-JAX PRs 1232 and 1235 (forced retraction faster than progress); SGLang PR 37260"

    def __init__(self, *args: Any) -> None:
        """Nothing was preempted."""
        super().__init__(*args)
        self._last: dict[RequestId, tuple[int, int, int]] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """n must be known."""
        needed = ["prompt_tokens", "reason"] if "preempt" in kinds else []
        if "output" not in kinds and "preempt" in kinds:
            needed += ["start", "tokens"]
        return [name for name in needed if name not in columns]

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """Compare n with its maximum at the preemption before."""
        if record is None or by_operator(event) or record.state != RUNNING:
            return
        known = record.known
        if known is None:
            self.skipped += 1
            return
        self.checked += 1
        number, most, times = self._last.get(record.id, (-1, -1, 0))
        if number != record.number or known > most:
            self._last[record.id] = (record.number, known, 0)
            return
        times += 1
        self._last[record.id] = (record.number, most, times)
        if times > self.patience:
            self.flag(
                f"{record.id} is preempted {times + 1} times in a row without one new token between",
                record.id,
                expected=f"a new token between, or at most {count(self.patience, 'time')} more",
                observed=f"{count(known, 'token')} of prompt and outputs each time",
            )

    def after_finish(self, event: Event, record: Request | None) -> None:
        """Forget it."""
        self._last.pop(event.subject, None)

    after_abort = after_finish


class Swap(Rule):
    """Swap keeps c; recompute begins again from the cached prefix at most."""

    id = "preemption/swap"
    sentence = (
        "A request that was swapped out comes back with all its computed positions; after a recompute it "
        "begins again from the cached prefix, at most; nobody is swapped out where recompute is the mode."
    )
    columns = ("start", "tokens")
    source = "vLLM (SOSP'23) §4.5, VL3 and VL4; TensorRT-LLM issue 18115"

    def __init__(self, *args: Any) -> None:
        """Nobody is swapped out."""
        super().__init__(*args)
        self._kept: dict[RequestId, tuple[int, bool]] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """How a request was preempted must show."""
        hidden = "reason" not in columns and only_mode(profile) is None
        lacking = ["reason"] if hidden and "preempt" in kinds else []
        if "output" in kinds and "drafts" not in columns and profile.batching.lookahead != 0:
            lacking.append("drafts")
        return lacking

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """To a host that the profile has no use for?"""
        if event.reason == "swap" and self.profile.preemption.mode == "recompute":
            self.flag(
                f"{event.request} is swapped out under a profile that preempts by recompute",
                event.subject,
                expected="reason recompute",
                observed="reason swap",
            )

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """Remember what must come back."""
        if record is not None and record.computed is not None:
            self._kept[record.id] = (record.computed, record.swapped)

    def before_resume(self, event: Event, record: Request | None) -> None:
        """A stated `cached` is compared here, else the first start (adopted)."""
        if record is None or event.cached is None:
            return
        self._compare(record, event.cached)

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """The first pass after a resume without `cached`."""
        if record is not None and record.adopts and event.start is not None and record.id in self._kept:
            self._compare(record, event.start)

    def _compare(self, record: Request, back: int) -> None:
        kept = self._kept.pop(record.id, None)
        if kept is None:
            return
        computed, swapped = kept
        self.checked += 1
        if swapped and back != computed:
            self.flag(
                f"{record.id} was swapped out with {count(computed, 'position')} and comes back with {back}",
                record.id,
                expected=count(computed, "position"),
                observed=count(back, "position"),
            )
        elif not swapped and back > 0 and self.profile.reuse.prefix is False:
            if self.state.keeps_blocks:
                return
            self.flag(
                f"{record.id} was preempted by recompute and begins again at position {back}",
                record.id,
                expected="position 0: nothing is cached under this profile",
                observed=f"position {back}",
            )

    def after_finish(self, event: Event, record: Request | None) -> None:
        """Forget it."""
        self._kept.pop(event.subject, None)

    after_abort = after_finish


RULES = (ResumeFirst, NoAdmission, Thrash, Swap)
