"""Rules of time: steps and clocks never run backwards, and causes come before effects."""

from collections.abc import Callable, Sequence

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Member, Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import duration


class Backwards(Rule):
    """Step never falls, and grows behind a `step` row; a monotonic or virtual clock never falls."""

    id = "time/backwards"
    sentence = (
        "The step number never falls, what follows a step row bears a greater one, and a monotonic or "
        "virtual clock never runs backwards."
    )
    source = "trace format, columns `step` (between two iterations: the next) and `time_ns`, event `step`"

    def __init__(self, *args: object) -> None:
        """No time has been seen."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._last: int | None = None
        self._step: int | None = None

    def hook(self, name: str) -> Callable[..., None] | None:
        """Rows are looked at only where the clock is one that never runs back."""
        return None if name == "before_any" and not self.state.clock_runs else super().hook(name)

    def fell(self, event: Event, before: int) -> None:
        """The checker saw a smaller step number than the one before."""
        self.flag(
            f"the step number falls from {before} to {event.step}",
            expected=f"a step of at least {before}",
            observed=f"step {event.step} after step {before}",
            step=event.step,
        )

    def opened(self, event: Event) -> None:
        """Each iteration is one instance; one that has had its end does not begin again."""
        self.checked += 1
        if event.step == self._step:
            self.flag(
                f"step {event.step} goes on after its step row",
                *(() if event.request is None else (event.request,)),
                expected=f"the number of the next step, at least {event.step + 1}",
                observed=f"{event.event} with step {event.step}",
            )
        self._step = event.step

    def before_any(self, event: Event, record: Request | None) -> None:
        """Compare the clock of rows written by the engine; arrivals and cancels bear the client's."""
        now = event.time_ns
        if now is None or not self.state.clock_runs or event.event in ("arrive", "cancel"):
            return
        if self._last is not None and now < self._last:
            self.flag(
                f"the clock runs back by {duration(self._last - now)}",
                expected=f"time_ns of at least {self._last}",
                observed=f"time_ns {now}",
            )
        self._last = now


class Causality(Rule):
    """Arrival ≤ admit ≤ first output ≤ end."""

    id = "time/causality"
    sentence = "A request is admitted no earlier than it arrives, emits no earlier, and ends no earlier."
    columns = ("time_ns",)
    source = "trace format, column `time_ns`; vLLM V1 request life cycle"

    def __init__(self, *args: object) -> None:
        """No request has a time yet."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._times: dict[RequestId, tuple[str, int]] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Nothing beyond the clock itself."""
        return ()

    def before_arrive(self, event: Event, record: Request | None) -> None:
        """The first time of a request."""
        if event.request is not None:
            self._times.pop(event.request, None)
            if event.time_ns is not None and self.state.clock_runs:
                self._times[event.request] = ("arrival", event.time_ns)

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Admitted after it arrived?"""
        self._compare(event, "admit")

    def before_output(self, event: Event, record: Request | None) -> None:
        """Emitted after it was admitted?"""
        self._compare(event, "output")

    def before_finish(self, event: Event, record: Request | None) -> None:
        """Ended after everything else?"""
        self._compare(event, "finish")
        self._times.pop(event.subject, None)

    def before_abort(self, event: Event, record: Request | None) -> None:
        """Ended after everything else?"""
        self._compare(event, "abort")
        self._times.pop(event.subject, None)

    def before_reject(self, event: Event, record: Request | None) -> None:
        """Refused after it arrived?"""
        self._compare(event, "reject")
        self._times.pop(event.subject, None)

    def _compare(self, event: Event, what: str) -> None:
        if event.request is None or event.time_ns is None or not self.state.clock_runs:
            return
        earlier = self._times.get(event.request)
        if earlier is None:
            return
        self.checked += 1
        name, then = earlier
        if event.time_ns < then:
            self.flag(
                f"the {what} of {event.request} comes {duration(then - event.time_ns)} before its {name}",
                event.request,
                expected=f"time_ns of at least {then}",
                observed=f"time_ns {event.time_ns}",
            )
        self._times[event.request] = (what, max(then, event.time_ns))

    def emitted(self, record: Request, tokens: int, member: Member | None) -> None:
        """Derived outputs have no row and no time of their own."""


RULES = (Backwards, Causality)
