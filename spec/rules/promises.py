"""Rules of promises: a bound on the wait for first service, a quota, an order of delivery."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import count


class Starvation(Rule):
    """Waiting and overtakings before first service stay under the declared bound."""

    id = "fairness/starvation"
    sentence = (
        "A request that is ready waits at most starvation_steps steps for its first service, and is "
        "overtaken at most that many times."
    )
    kind = "bounded"
    premise = ("fairness.starvation_steps",)
    source = "SGLang PR 15129 (an adapter that never loads); FastServe FS5; SGLang issue 6857"

    def __init__(self, *args: Any) -> None:
        """Nobody waits."""
        super().__init__(*args)
        self._since: dict[RequestId, tuple[int, int]] = {}
        self._bound = self.profile.fairness.starvation_steps or 0

    def after_arrive(self, event: Event, record: Request | None) -> None:
        """Its wait begins."""
        if record is not None:
            self._since[record.id] = (self.state.steps, 0)

    after_ready = after_arrive

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Served; everyone earlier who waits was overtaken once more."""
        self.checked += 1
        self._since.pop(event.subject, None)
        if record is None:
            return
        for request in list(self._since):
            other = self.state.live.get(request)
            if other is None or other.number > record.number:
                continue
            since, passed = self._since[request]
            self._since[request] = (since, passed + 1)
            if passed + 1 > self._bound:
                self._tell(other, f"is overtaken {count(passed + 1, 'time')}")

    def before_park(self, event: Event, record: Request | None) -> None:
        """Parked: its condition is not the scheduler's."""
        self._since.pop(event.subject, None)

    before_reject = before_park
    before_abort = before_park
    before_finish = before_park

    def closing(self, event: Event | None) -> None:
        """Whoever has waited too long."""
        late = [name for name, (since, _) in self._since.items() if self.state.steps - since >= self._bound]
        for request in late:
            record = self.state.live.get(request)
            if record is None:
                del self._since[request]
                continue
            self._tell(record, f"waits for {self.state.steps - self._since[request][0] + 1} steps")

    def _tell(self, record: Request, how: str) -> None:
        self._since.pop(record.id, None)
        self.flag(
            f"{record.id} {how}, and has had no service yet",
            record.id,
            expected=f"its admission within {count(self._bound, 'step')} and as many overtakings",
            observed=how,
        )

    def open(self) -> bool:
        """Some still wait within their bound."""
        return any(request in self.state.live for request in self._since)


class RateLimit(Rule):
    """Refusals match the declared quotas."""

    id = "fairness/rate-limit"
    sentence = (
        "A request is refused for its rate exactly where its tenant has had as many accepted requests in the "
        "last period as the quota allows, and for a full queue only where max_waiting others wait."
    )
    premise = ("fairness.rate_limits",)
    columns = ("time_ns", "tenant", "reason")
    source = "VTC artifact, RPM limiter; SGLang PR 30053 (a quota that is never given back)"

    def __init__(self, *args: Any) -> None:
        """Nobody has been accepted."""
        super().__init__(*args)
        self._accepted: dict[str | None, list[tuple[int, RequestId]]] = {}
        self._quota: dict[RequestId, tuple[int, int, int]] = {}
        self._most = self.profile.limits.max_waiting
        self._others: dict[RequestId, int] = {}
        # Whether somebody may have been accepted whom nothing here counts: the counts are then least ones.
        self._unsure = self.state.began_running

    @classmethod
    def missing(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> tuple[str, ...]:
        """The length of a queue is a quota as well, and needs neither tenants nor times."""
        lacking = super().missing(profile, columns, kinds)
        queue = profile.limits.max_waiting is not None and "reject" in kinds and "reason" in columns
        return () if queue and profile.fairness.rate_limits is None else lacking

    def _queued(self) -> int:
        """How many others wait, whatever for."""
        return len(self.state.live) - len(self.state.running) - 1

    def after_arrive(self, event: Event, record: Request | None) -> None:
        """Count who was accepted in the period before this arrival; it counts itself until refused."""
        if record is None:
            return
        if self._most is not None:
            self._others[record.id] = self._queued()
        if record.arrived_ns is None or record.tenant is None:
            self._unsure = True
            return
        limits = self.profile.fairness.rate_limits or {}
        quota = limits.get(record.tenant or "", limits.get("*"))
        if quota is None:
            return
        since = record.arrived_ns - quota["per_ns"]
        accepted = self._accepted.get(record.tenant, [])
        used = sum(1 for time, _ in accepted if time > since)
        # Those who still wait for their verdict may need entries that are too old for this one.
        undecided = (self._quota[name][2] for _, name in accepted if name in self._quota)
        oldest = min(undecided, default=since)
        kept = [entry for entry in accepted if entry[0] > min(oldest, since)]
        self._quota[record.id] = (used, quota["requests"], since)
        self._accepted[record.tenant] = [*kept, (record.arrived_ns, record.id)]

    def before_reject(self, event: Event, record: Request | None) -> None:
        """Refused: was the quota used up, or the queue full, now or when it came?"""
        others = self._others.pop(event.subject, None)
        if (
            self._most is not None
            and others is not None
            and record is not None
            and event.reason == "queue_full"
        ):
            self.checked += 1
            others = max(others, self._queued())
            if others < self._most:
                self.flag(
                    f"{record.id} is refused for a full queue in which {count(others, 'other')} wait",
                    record.id,
                    expected=f"room for {count(self._most, 'request')} (max_waiting)",
                    observed=f"{others} waiting, parked or preempted beside it",
                )
        found = self._quota.pop(event.subject, None)
        if found is None or record is None:
            return
        mine = self._accepted.get(record.tenant, [])
        self._accepted[record.tenant] = [entry for entry in mine if entry[1] != record.id]
        self._uncount(record, mine)
        if event.reason != "rate":
            return
        used, allowed, _ = found
        if used < allowed and self._unsure:
            self.skipped += 1
            return
        self.checked += 1
        if used < allowed:
            self.flag(
                f"{record.id} is refused for its rate, with {used} of {allowed} requests of tenant "
                f"{record.tenant} used",
                record.id,
                expected="its admission to the queue",
                observed=f"{used} accepted in the last period, {allowed} allowed",
            )

    def _uncount(self, refused: Request, accepted: Sequence[tuple[int, RequestId]]) -> None:
        """Take a refused request out of the counts of those of its tenant that arrived after it."""
        names = [name for _, name in accepted]
        later = names[names.index(refused.id) + 1 :] if refused.id in names else []
        for name in later:
            used, allowed, since = self._quota.get(name, (0, 0, 0))
            if used and (refused.arrived_ns or 0) > since:
                self._quota[name] = (used - 1, allowed, since)

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Accepted: was there a place in the quota?"""
        self._others.pop(event.subject, None)
        found = self._quota.pop(event.subject, None)
        if found is None or record is None:
            return
        self.checked += 1
        used, allowed, _ = found
        if used >= allowed:
            self.flag(
                f"{record.id} is accepted beyond the quota of tenant {record.tenant}",
                record.id,
                expected="a reject with reason rate",
                observed=f"{used} accepted in the last period, {allowed} allowed",
            )


class DeliveryOrder(Rule):
    """Responses leave in the order of requests."""

    id = "fairness/delivery-order"
    sentence = "Responses leave in the order in which their requests arrived."
    premise = ("fairness.delivery=arrival",)
    source = "Triton dynamic batcher, preserve_ordering (TR9); Triton server PR 1120"

    def __init__(self, *args: Any) -> None:
        """Nothing was delivered."""
        super().__init__(*args)
        self._owed: dict[RequestId, int] = {}

    def after_arrive(self, event: Event, record: Request | None) -> None:
        """A response is owed."""
        if record is not None:
            self._owed[record.id] = record.number

    def before_abort(self, event: Event, record: Request | None) -> None:
        """No response is owed any more."""
        self._owed.pop(event.subject, None)

    before_reject = before_abort

    def before_finish(self, event: Event, record: Request | None) -> None:
        """Without deliver rows the finish is the delivery."""
        if "deliver" not in self.state.kinds:
            self.before_deliver(event, record)

    def before_deliver(self, event: Event, record: Request | None) -> None:
        """Is it the earliest that is owed?"""
        number = self._owed.pop(event.subject, None)
        if number is None:
            return
        self.checked += 1
        first = next(iter(self._owed), None)
        if first is not None and self._owed[first] < number:
            self.flag(
                f"the response of {event.request} leaves before that of {first}",
                event.subject,
                first,
                expected=f"{first} first",
                observed=f"{event.request} in step {event.step}, {first} not yet",
            )


RULES = (Starvation, RateLimit, DeliveryOrder)
