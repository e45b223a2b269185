"""Rules of a request's life: each event legal from its state, each arrival ended exactly once."""

from collections.abc import Sequence
from typing import Any, Final

from batchspec.spec.actions import legal_from, within_overlap
from batchspec.spec.events import Event, RequestId
from batchspec.spec.line import never_fits
from batchspec.spec.model import ENDED, UNKNOWN, Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule

TRACE_FORMAT: Final = "trace format, table of events"


class GuardRule(Rule):
    """A rule that speaks when an event is not legal from its request's state.

    The checker asks the guard once an event and calls `illegal` only where it fails.
    """

    per_event = True
    repairs = True

    def illegal(self, event: Event, where: str) -> None:
        """An event came from state `where`, from which it is not legal."""


class UnknownRequest(GuardRule):
    """No event about a request that has not arrived."""

    id = "lifecycle/unknown-request"
    sentence = "No event is about a request that has not arrived."
    source = TRACE_FORMAT

    def illegal(self, event: Event, where: str) -> None:
        """Speak where the request is unknown."""
        if where == UNKNOWN:
            self.flag(
                f"{event.event} of {event.request}, which has not arrived",
                event.subject,
                expected=f"an arrive (or live) row of {event.request} first",
                observed=f"{event.event} of an unknown request",
            )


class LegalTransition(GuardRule):
    """Each event is legal from the request's state, or the pass's."""

    id = "lifecycle/legal-transition"
    sentence = (
        "Each event is legal from the state that the request is in; a pass is dispatched once before it "
        "completes, and completes once; a transfer ends that has begun."
    )
    source = TRACE_FORMAT + ", column `legal from`"

    def illegal(self, event: Event, where: str) -> None:
        """Speak where the request is live and in the wrong state."""
        if where in (UNKNOWN, ENDED) or event.event in ("arrive", "live"):
            return
        legal = " or ".join(legal_from(self.state, event))
        self.flag(
            f"{event.event} of {event.request} while it is {where}",
            event.subject,
            expected=f"{event.event} only of a request that is {legal}",
            observed=f"{event.request} is {where}",
        )

    def before_dispatch(self, event: Event, record: Request | None) -> None:
        """A pass starts that is under way already?"""
        state = self.state
        if event.pass_step in state.in_flight and "complete" in state.kinds and "pass" in state.columns:
            self._twice(event, "its complete first", "under way")

    def before_complete(self, event: Event, record: Request | None) -> None:
        """A pass ends that is not under way? Passes from before the trace's beginning are not known."""
        state = self.state
        told = "dispatch" in state.kinds and "pass" in state.columns and not state.began_running
        if told and event.pass_step not in state.in_flight:
            self._twice(event, "its dispatch first", "not under way")

    def before_transfer_end(self, event: Event, record: Request | None) -> None:
        """A transfer ends that has not begun? One from before the trace's beginning is not known."""
        state = self.state
        if event.reason is None or "transfer_begin" not in state.kinds or state.began_running:
            return
        begun = state.transfers.get(event.subject, {})
        if not begun or (event.reason != "failed" and event.reason not in begun and "" not in begun):
            under_way = ", ".join(begun) or "none"
            self.flag(
                f"a transfer ({event.reason}) of {event.request} ends that has not begun",
                event.subject,
                expected=f"its transfer_begin ({event.reason}) first",
                observed=f"transfers of {event.request} under way: {under_way}",
            )

    def _twice(self, event: Event, expected: str, where: str) -> None:
        self.flag(
            f"{event.event} of pass {event.pass_step} while it is {where}",
            expected=expected,
            observed=f"pass {event.pass_step} is {where}",
        )


class DuplicateId(GuardRule):
    """No arrive while a request of that id is live."""

    id = "lifecycle/duplicate-id"
    sentence = "No request arrives under an id that a live request has."
    source = TRACE_FORMAT + "; transformers PR 48918 (ids chosen by callers collide)"

    def illegal(self, event: Event, where: str) -> None:
        """Speak where a live id arrives once more."""
        if event.event in ("arrive", "live") and where not in (UNKNOWN, ENDED):
            self.flag(
                f"{event.request} arrives while a request of that id is {where}",
                event.subject,
                expected="a new id, or the end of the earlier request first",
                observed=f"{event.request} is {where}",
            )


class AfterEnd(GuardRule):
    """Nothing about an incarnation after its end."""

    id = "lifecycle/after-end"
    sentence = (
        "After its finish, abort or reject nothing happens to a request, but for release, give, transfers, "
        "one delivery, and memberships that the overlap allows."
    )
    source = TRACE_FORMAT + "; vLLM issue 10890 (steps left over after an early stop)"

    def __init__(self, *args: Any) -> None:
        """Nothing was delivered."""
        super().__init__(*args)
        self._delivered: dict[RequestId, int] = {}

    def before_deliver(self, event: Event, record: Request | None) -> None:
        """The response of an incarnation leaves once."""
        end = self.state.ended.get(event.subject)
        if end is None or record is not None:
            return
        if self._delivered.get(event.subject) == end.number:
            self.flag(
                f"the response of {event.request} leaves a second time",
                event.subject,
                expected=f"one deliver of {event.request}",
                observed=f"one more deliver in step {event.step}",
            )
        self._delivered[event.subject] = end.number

    def illegal(self, event: Event, where: str) -> None:
        """Speak where the request has ended."""
        if where != ENDED or event.event == "live":
            return
        end = self.state.ended[event.subject]
        if event.event == "schedule" and within_overlap(self.state, end):
            return
        if event.event == "output" and event.pass_ is not None:
            return  # the tokens of a pass in flight: tokens/in-flight
        self.flag(
            f"{event.event} of {event.request} after its {end.kind} in step {end.step}",
            event.subject,
            expected=f"nothing more about {event.request}",
            observed=f"one more {event.event} in step {event.step}",
        )


class Unfinished(Rule):
    """In a complete trace every arrival has ended."""

    id = "lifecycle/unfinished"
    sentence = "In a complete trace every request that arrived has ended, exactly once."
    kind = "end"
    source = "trace format, header `complete`; vLLM semantic-router issue 2890 (ended twice)"

    def __init__(self, *args: object) -> None:
        """Nothing was cut yet."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._cut = False

    def over(self, complete: bool) -> None:
        """Whoever is still live never ended."""
        self._cut = not complete
        self.checked = self.state.arrivals
        left = list(self.state.live.values()) if complete else []
        for record in left:
            self.flag(
                f"{record.id} arrived in step {record.arrived} and never ended",
                record.id,
                expected="a finish, abort or reject before the trace ends",
                observed=f"{record.id} is {record.state} at the end of a complete trace"
                + (f"; {len(left)} such requests in all" if len(left) > 1 else ""),
            )

    def open(self) -> bool:
        """A cut trace leaves it open whether its live requests end."""
        return self._cut and bool(self.state.live)


class AbortIgnored(Rule):
    """A cancelled request ends soon, and neither runs nor emits meanwhile."""

    id = "lifecycle/abort-ignored"
    sentence = (
        "A cancelled request ends within slot_lag + 1 steps, and is a member of no pass and emits from no "
        "pass later than the cancel's step + slot_lag."
    )
    kind = "bounded"
    source = "SGLang issue 34149; llama.cpp fork issue 20; vLLM PR 29987"

    def __init__(self, *args: object) -> None:
        """Nobody has been cancelled."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._waiting: dict[RequestId, int] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Without cancel rows nothing says what was cancelled."""
        return () if "cancel" in kinds else ("cancel rows",)

    def after_cancel(self, event: Event, record: Request | None) -> None:
        """From here on it is owed an end."""
        if record is not None:
            self._waiting.setdefault(record.id, event.step)

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """A member too late?"""
        if record is None or record.cancelled is None:
            return
        last = record.cancelled + self.state.slot_lag
        if event.step > last:
            self.flag(
                f"{record.id} is scheduled in step {event.step} although it was cancelled in step "
                f"{record.cancelled}",
                record.id,
                expected=f"no membership after step {last}",
                observed=f"a member of step {event.step}",
            )

    def before_output(self, event: Event, record: Request | None) -> None:
        """An output too late?"""
        if record is None or record.cancelled is None:
            return
        last = record.cancelled + self.state.slot_lag
        if event.pass_step > last:
            self.flag(
                f"{record.id} emits from pass {event.pass_step} although it was cancelled in step "
                f"{record.cancelled}",
                record.id,
                expected=f"no output from a pass after {last}",
                observed=f"an output of pass {event.pass_step}",
            )

    def opened(self, event: Event) -> None:
        """Who should have ended by now?"""
        for request, step in list(self._waiting.items()):
            record = self.state.live.get(request)
            if record is None or record.cancelled is None:
                self.checked += 1
                del self._waiting[request]
            elif event.step >= step + self.state.slot_lag + 2:
                self.checked += 1
                del self._waiting[request]
                self.flag(
                    f"{request} was cancelled in step {step} and is still {record.state}",
                    request,
                    expected=f"its end by step {step + self.state.slot_lag + 1}",
                    observed=f"still {record.state} when step {event.step} begins",
                )

    def over(self, complete: bool) -> None:
        """Ends that came in the last step count; a complete trace leaves nothing open."""
        for request in [name for name in self._waiting if name not in self.state.live]:
            self.checked += 1
            del self._waiting[request]

    def open(self) -> bool:
        """A cancelled request may still end within its bound."""
        return bool(self._waiting)


class AbortTarget(Rule):
    """Only who was cancelled, or cannot go on, is aborted."""

    id = "lifecycle/abort-target"
    sentence = (
        "An abort with reason client follows a cancel of that request; where several requests end with "
        "error or memory in one step, none of them could have gone on by itself."
    )
    columns = ("reason",)
    source = "llama.cpp issue 23652 (one request's exhaustion ends all)"

    def __init__(self, *args: object) -> None:
        """Nobody has failed."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._failed: dict[RequestId, tuple[str, bool | None]] = {}

    def before_abort(self, event: Event, record: Request | None) -> None:
        """A client's abort needs the client's cancel."""
        if event.reason == "client" and "cancel" in self.state.kinds and record is not None:
            self.checked += 1
            if record.cancelled is None:
                self.flag(
                    f"{record.id} is aborted for its client, who did not cancel it",
                    record.id,
                    expected=f"a cancel of {record.id} before its abort",
                    observed=f"no cancel row of {record.id}",
                )
        self._failing(event, record, ("error", "memory"))

    def before_finish(self, event: Event, record: Request | None) -> None:
        """An error is a failure too."""
        self._failing(event, record, ("error",))

    def _failing(self, event: Event, record: Request | None, reasons: tuple[str, ...]) -> None:
        if event.reason in reasons and record is not None:
            self._failed[record.id] = (event.reason or "", never_fits(self.state, record))

    def closing(self, event: Event | None) -> None:
        """Several failures in one step: could one of them have gone on?"""
        if not self._failed:
            return
        failed, self._failed = self._failed, {}
        self.checked += 1
        able = [request for request, (_, hopeless) in failed.items() if not hopeless]
        if len(failed) > 1 and able:
            self.flag(
                f"{len(failed)} requests end with an error in step {self.state.step}, among them "
                f"{able[0]}, which fits the pool by itself",
                *failed,
                expected="one request's exhaustion ends that request alone",
                observed="ended together: " + ", ".join(str(request) for request in failed),
            )


RULES = (UnknownRequest, LegalTransition, DuplicateId, AfterEnd, Unfinished, AbortIgnored, AbortTarget)
