"""Rules of batch slots: one occupant each, in range, not taken too early, and not left empty."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import count

NEVER = 1 << 62


class Exclusive(Rule):
    """One occupant per slot."""

    id = "slots/exclusive"
    sentence = "A batch slot has one occupant."
    columns = ("slot",)
    source = "trace format, column `slot`; SGLang request-pool index"
    repairs = True

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Into a slot that somebody has?"""
        if event.slot is None:
            self.skipped += 1
            return
        self.checked += 1
        occupant = self.state.slots.get(event.slot)
        if occupant is not None and occupant != event.request:
            self.flag(
                f"{event.request} takes slot {event.slot}, which {occupant} occupies",
                event.subject,
                occupant,
                expected="a free slot",
                observed=f"slot {event.slot} belongs to {occupant}",
                about=(("slot", event.slot),),
            )

    before_resume = before_admit


class Range(Rule):
    """0 ≤ slot < S."""

    id = "slots/range"
    sentence = "A slot number lies between 0 and max_seqs - 1."
    premise = ("limits.max_seqs",)
    columns = ("slot",)
    source = "trace format, column `slot`"

    def before_admit(self, event: Event, record: Request | None) -> None:
        """A slot that exists?"""
        if event.slot is None:
            self.skipped += 1
            return
        self.checked += 1
        if not 0 <= event.slot < (self.state.max_seqs or 0):
            self.flag(
                f"{event.request} takes slot {event.slot}, which does not exist",
                event.subject,
                expected=f"a slot from 0 to {(self.state.max_seqs or 0) - 1}",
                observed=f"slot {event.slot}",
            )

    before_resume = before_admit


class EarlyReuse(Rule):
    """A slot is not taken again before the pass that gave it up is over."""

    id = "slots/early-reuse"
    sentence = (
        "A slot given up by the finish of pass k is not taken again before step k + 1 + slot_lag; one given "
        "up by abort or preempt is free from the next row on (with a lag, from that many steps on)."
    )
    columns = ("slot",)
    source = "Orca (OSDI'22) §3.1; vLLM issue 45257 (finished but unprocessed requests)"

    def __init__(self, *args: Any) -> None:
        """No slot has been given up."""
        super().__init__(*args)
        self._free_from: dict[int, tuple[int, RequestId, int]] = {}
        self._batch: list[tuple[int, RequestId]] = []

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """With overlap an end belongs to an earlier pass, which only `pass` tells."""
        overlaps = profile.value("reuse.slot_lag") or profile.value("reuse.depth") > 1
        return ("pass",) if overlaps and "pass" not in columns else ()

    def before_finish(self, event: Event, record: Request | None) -> None:
        """Free from step k + 1 + lag on."""
        self._give_up(event, record, event.pass_step, event.pass_step + 1 + self.state.slot_lag)

    def before_abort(self, event: Event, record: Request | None) -> None:
        """Free from step k + lag on."""
        self._give_up(event, record, event.step, event.step + self.state.slot_lag)

    before_preempt = before_abort

    def _give_up(self, event: Event, record: Request | None, pass_step: int, free_from: int) -> None:
        if record is None or record.state != "running":
            return
        if self.state.barrier:
            if record.slot is not None:
                self._batch.append((record.slot, record.id))
                self._free_from[record.slot] = (NEVER, record.id, pass_step)
            if len(self.state.running) == 1:
                for slot, request in self._batch:
                    self._free_from[slot] = (free_from, request, pass_step)
                self._batch = []
        elif record.slot is not None:
            self._free_from[record.slot] = (free_from, record.id, pass_step)

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Taken too early?"""
        if event.slot is None:
            self.skipped += 1
            return
        self.checked += 1
        given_up = self._free_from.pop(event.slot, None)
        if given_up is None or event.step >= given_up[0]:
            return
        free_from, former, pass_step = given_up
        when = "its batch has ended" if free_from == NEVER else f"step {free_from}"
        self.flag(
            f"{event.request} takes slot {event.slot} in step {event.step}, too early after {former} left it",
            event.subject,
            expected=f"slot {event.slot} free from {when} on",
            observed=f"given up in pass {pass_step} by {former}, taken in step {event.step}",
        )

    before_resume = before_admit


class Reuse(Rule):
    """Completion-slot reuse: a seat given up is filled in the next step, if somebody fits."""

    id = "slots/reuse"
    sentence = (
        "If requests ended in pass k, the decisions of step k + 1 + slot_lag admit or resume at least as "
        "many, or the policy's next does not fit."
    )
    premise = ("batching.mode=continuous", "admission.work_conserving", "admission.order", "limits.max_seqs")
    source = "Orca (OSDI'22) §3.1, OR1: iteration-level scheduling; trace format, step 9"

    def __init__(self, *args: Any) -> None:
        """No seat has come back."""
        super().__init__(*args)
        self._ends: dict[int, list[RequestId]] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """What *fits* asks for."""
        return fit_needs(profile, columns, kinds)

    def before_finish(self, event: Event, record: Request | None) -> None:
        """A seat comes back."""
        if record is not None and record.state == "running":
            self._ends.setdefault(event.pass_step, []).append(record.id)

    def before_abort(self, event: Event, record: Request | None) -> None:
        """A seat comes back; for an abort k is the row's step."""
        if record is not None and record.state == "running":
            self._ends.setdefault(event.step, []).append(record.id)

    def closing(self, event: Event | None) -> None:
        """Were the seats of the ends that are due by now filled?"""
        if not self._ends or self.state.step is None:
            return
        due = self.state.step - 1 - self.state.slot_lag
        passes = [number for number in self._ends if number <= due]
        if not passes:
            return
        if self.state.preempted_now and not self.profile.preemption.admit_in_same_step:
            return  # the duty passes to the next step
        if self.state.next_in_line in self.state.preempted_now:
            return  # so it does where only the one that has just made room is left to come in
        ended = [request for number in passes for request in self._ends.pop(number)]
        taken = len(self.state.admitted)
        verdict = self.state.next_fits
        if taken >= len(ended) or verdict is False:
            self.checked += 1
            return
        if verdict is None:
            self.skipped += 1
            return
        self.checked += 1
        waiting = self.state.next_in_line
        self.flag(
            f"{count(len(ended), 'request')} ended in pass {passes[-1]}, {taken or 'none'} joined in step "
            f"{self.state.step}, and {waiting} would have fitted",
            *([waiting] if waiting is not None else []),
            expected=f"at least {count(len(ended), 'request')} admitted or resumed in step {self.state.step}",
            observed=f"{taken} joined; ended: {', '.join(map(str, ended[:4]))}; next in line: {waiting}"
            + self.state.fit_text,
        )


def fit_needs(profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> list[str]:
    """The words for what `fits` needs and cannot have (trace format, step 9)."""
    lacking = [
        path
        for path in ("admission.test", "limits.token_budget", "limits.kv_blocks", "limits.block_size")
        if profile.claim(path) is None
    ]
    needed = ["tokens", "prompt_tokens"]
    if profile.admission.order == "priority":
        needed.append("priority")
    if profile.admission.order == "fair":
        needed.append("tenant")
    if profile.admission.order == "sjf" or profile.admission.test == "full":
        needed.append("max_tokens")
    if profile.admission.test in ("ratio", "peak"):
        needed.append("prediction")
    if profile.admission.test != "full" and "output" not in kinds:
        needed.append("start")
    lacking += [name for name in needed if name not in columns]
    if "preempt" in kinds and profile.preemption.resume is None:
        lacking.append("preemption.resume")
    if not {"blocks", "block_ids"} & columns:
        lacking += [] if profile.admission.reserve else ["blocks"]
    return lacking


RULES = (Exclusive, Range, EarlyReuse, Reuse)
