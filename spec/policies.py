"""Policies: who is admitted next, who is interrupted. The rules and the reference scheduler ask here.

An order turns a waiting request into a rank; the lowest rank is the policy's next. A victim rule picks
one of several running requests. Both are open: `register_order` and `register_victim` add one by name.
Fair shares need a memory of past service, the virtual token counters below.

Sources: PagedAttention (arXiv 2309.06180, section 4.5: earliest arrival served first, latest preempted
first) and the Virtual Token Counter (OSDI'24, arXiv 2401.00588, algorithm 2).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from batchspec.spec.errors import SpecError
from batchspec.spec.events import RequestId
from batchspec.spec.profile import Profile, add_word

Rank = tuple[float, ...]


class Candidate(Protocol):
    """What a policy may look at. Ordinals count from 0; lengths are tokens; None is unknown.

    `number` is the ordinal of arrival. `place` is the ordinal of its place in the queue: that of its
    arrival, or, where a preempted request returns at the back, that of its last preemption.
    `first_admit` and `joined` are the ordinals of its first and its latest admission or resume.
    """

    @property
    def id(self) -> RequestId: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def prompt(self) -> int | None: ...  # noqa: D102
    @property
    def max_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def priority(self) -> int | None: ...  # noqa: D102
    @property
    def tenant(self) -> str | None: ...  # noqa: D102
    @property
    def outputs(self) -> int | None: ...  # noqa: D102
    @property
    def place(self) -> int: ...  # noqa: D102
    @property
    def first_admit(self) -> int | None: ...  # noqa: D102
    @property
    def joined(self) -> int | None: ...  # noqa: D102


C = TypeVar("C", bound=Candidate)
Order = Callable[[Candidate, Profile], Rank]
Victim = Callable[[Candidate, Profile], Rank]


# -- orders of admission ---------------------------------------------------------------------------


def urgency(request: Candidate, profile: Profile) -> int:
    """How urgent: lower is more urgent, whatever direction the profile counts in. No priority is 0."""
    priority = request.priority or 0
    return -priority if profile.admission.urgent == "high" else priority


def fcfs(request: Candidate, profile: Profile) -> Rank:
    """First come, first served: by place in the queue."""
    return (request.place,)


def sjf(request: Candidate, profile: Profile) -> Rank:
    """Shortest job first: by p + max_tokens, then place. Unknown work comes after all known work."""
    if request.prompt is None or request.max_tokens is None:
        return (float("inf"), request.place)
    return (request.prompt + request.max_tokens, request.place)


def priority(request: Candidate, profile: Profile) -> Rank:
    """Most urgent first, then place."""
    return (urgency(request, profile), request.place)


ORDERS: Final[dict[str, Order]] = {"fcfs": fcfs, "sjf": sjf, "priority": priority, "fair": fcfs}
"""Rank by name of order. Under `fair` it ranks inside one tenant; `FairShares` ranks the tenants."""


def register_order(name: str, order: Order) -> None:
    """Add an order of admission; profiles may claim it from now on. A request is ranked whenever it joins
    the queue, and keeps its rank until it leaves. Raises `SpecError` where another order has that name."""
    if ORDERS.get(name, order) is not order:
        raise SpecError(f"the order {name!r} exists already; choose another name")
    ORDERS[name] = order
    add_word("admission.order", name)


def admission_rank(request: Candidate, preempted: bool, profile: Profile) -> Rank:
    """The rank of a waiting or preempted request in the queue; the least one is next.

    Under `resume = front` a preempted request goes before new ones (under `priority` before those
    of equal or less urgency), and several of them in the order of their first admission. Otherwise
    it takes its `place` in the order. Under `fair` the rank compares requests of one tenant only.
    """
    front = preempted and profile.preemption.resume == "front"
    order = profile.admission.order or "fcfs"
    level = urgency(request, profile) if order == "priority" else 0
    if front:
        return (level, 0, request.first_admit or 0)
    return (level, 1, *_order_named(order)(request, profile))


def _order_named(name: str) -> Order:
    if name not in ORDERS:
        raise SpecError(f"unknown order {name!r}; known: {', '.join(ORDERS)}")
    return ORDERS[name]


# -- fair shares -----------------------------------------------------------------------------------


class FairShares:
    """The virtual token counters: what each tenant has been served, in weighted tokens.

    The queue Q holds the ready requests that were never admitted. Tell the counters of each one that
    enters (arrival, or ready after a park) and leaves (admit, park, reject, abort), of each admission
    and of the tokens emitted; `end_step` charges those. The tenant with the least counter is next.

    Numbers in the methods are the rules of the Virtual Token Counter: VT1 lift, VT2 choice and charge
    of the input, VT3 charge of the output. A request without a tenant belongs to the tenant "".
    """

    def __init__(
        self,
        w_p: float = 1,
        w_q: float = 2,
        weights: Mapping[str, float] | None = None,
        lift: bool = True,
    ) -> None:
        """Counters at 0. `weights` divide a tenant's charges; without an entry it is that of `*`, else 1."""
        self.w_p = w_p
        self.w_q = w_q
        self.weights = dict(weights or {})
        self.lift = lift
        self.counters: dict[str, float] = {}
        self.queued: dict[str, int] = {}
        self.last_left: str | None = None
        self._emitted: dict[str, int] = {}

    @classmethod
    def of(cls, profile: Profile) -> "FairShares":
        """The counters that a profile claims."""
        return cls(
            w_p=profile.value("fairness.w_p"),
            w_q=profile.value("fairness.w_q"),
            weights=profile.fairness.weights,
            lift=profile.value("fairness.lift"),
        )

    def copy(self) -> "FairShares":
        """The same counters and queue, to try out what a few admissions would do to the order."""
        other = type(self)(self.w_p, self.w_q, self.weights, self.lift)
        other.counters, other.queued = dict(self.counters), dict(self.queued)
        other.last_left, other._emitted = self.last_left, dict(self._emitted)
        return other

    def counter(self, tenant: str | None) -> float:
        """Service received so far, lifts included."""
        return self.counters.get(tenant or "", 0)

    def enter(self, tenant: str | None) -> None:
        """VT1: a request joins Q; a tenant that had none there is lifted to those that were served."""
        name = tenant or ""
        if name not in self.queued:
            own = self.counters.get(name, 0)
            if self.lift and self.queued:
                own = max(own, min(self.counters[other] for other in self.queued))
            elif self.lift and self.last_left is not None:
                own = max(own, self.counters[self.last_left])
            self.counters[name] = own
        self.queued[name] = self.queued.get(name, 0) + 1

    def leave(self, tenant: str | None) -> None:
        """A request leaves Q, for whatever reason."""
        name = tenant or ""
        left = self.queued.get(name, 0) - 1
        if left > 0:
            self.queued[name] = left
        else:
            self.queued.pop(name, None)
        self.last_left = name
        self.counters.setdefault(name, 0)

    def admit(self, tenant: str | None, prompt: int) -> None:
        """VT2: charge the input, once, at the first admission. Call `leave` too."""
        self._charge(tenant or "", self.w_p * prompt)

    def emit(self, tenant: str | None, tokens: int) -> None:
        """Note emitted tokens; they are charged at the end of their step."""
        name = tenant or ""
        self._emitted[name] = self._emitted.get(name, 0) + tokens

    def end_step(self) -> None:
        """VT3: charge what was emitted in this step, as one sum a tenant (exact in any row order)."""
        for name, tokens in self._emitted.items():
            self._charge(name, self.w_q * tokens)
        self._emitted.clear()

    def _charge(self, name: str, service: float) -> None:
        weight = self.weights.get(name, self.weights.get("*", 1))
        self.counters[name] = self.counters.get(name, 0) + service / weight


# -- victims ---------------------------------------------------------------------------------------


def latest_admitted(request: Candidate, profile: Profile) -> Rank:
    """The one that joined the batch last; a resume counts as joining."""
    return (-(request.joined or 0),)


def latest_arrived(request: Candidate, profile: Profile) -> Rank:
    """The one that arrived last."""
    return (-request.number,)


def fewest_outputs(request: Candidate, profile: Profile) -> Rank:
    """The one with the fewest outputs; of several the longest prompt, then the latest to join."""
    return (request.outputs or 0, -(request.prompt or 0), -(request.joined or 0))


def least_urgent(request: Candidate, profile: Profile) -> Rank:
    """The least urgent; of several the latest arrival."""
    return (-urgency(request, profile), -request.number)


VICTIMS: Final[dict[str, Victim]] = {
    "latest-admitted": latest_admitted,
    "latest-arrived": latest_arrived,
    "fewest-outputs": fewest_outputs,
    "least-urgent": least_urgent,
    "newest-denied": latest_admitted,
}
"""Rank by name of victim rule, the least rank is the victim. `self` needs none; `newest-denied`
ranks only the requests that were denied a block in this step."""


def register_victim(name: str, victim: Victim) -> None:
    """Add a victim rule; profiles may claim it from now on. Raises `SpecError` where another one has
    that name."""
    if VICTIMS.get(name, victim) is not victim or name == "self":
        raise SpecError(f"the victim rule {name!r} exists already; choose another name")
    VICTIMS[name] = victim
    add_word("preemption.victim", name)


def victim_of(running: Iterable[C], needy: C | None, profile: Profile, denied: Iterable[C] = ()) -> C | None:
    """The running request that the profile's policy interrupts so that `needy` can go on.

    `needy` is itself among `running`, or waits (None, or a waiting request): then only strictly less
    urgent ones may go. `denied` are the requests denied a block in this step, for `newest-denied`.
    Returns None where nobody may be interrupted.
    """
    name = profile.preemption.victim or "latest-admitted"
    pool = list(running)
    inside = needy is not None and any(request is needy or request.id == needy.id for request in pool)
    if needy is not None and not inside:
        pool = [request for request in pool if urgency(request, profile) > urgency(needy, profile)]
    elif name == "self":
        return needy
    elif name == "newest-denied":
        pool = list(denied)
    if not pool:
        return None
    rank = VICTIMS.get(name, latest_admitted)
    return min(pool, key=lambda request: rank(request, profile))
