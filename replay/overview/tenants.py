"""Tenants: what each one has been served so far, and how far any two drift apart while both wait.

Service is in weighted tokens, as in the Virtual Token Counter (OSDI'24): w_p for each token of a prompt at
its first admission, w_q for each token emitted, over the tenant's weight.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Final

from batchspec.spec.events import Event, RequestId

MOST_TENANTS: Final = 12
"""Tenants that are followed one by one: the first ones that arrive. A picture of more lines says nothing."""

_MOST_NAMES: Final = 100_000


class Tenants:
    """Follows service and backlog. Memory: the live requests and `MOST_TENANTS` tenants."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        """Nobody waits; `weights` divide a tenant's service, without an entry it is that of `*`, else 1."""
        self._weights = dict(weights or {})
        self.names: dict[str, int] = {}
        self.left_out: set[str] = set()
        self.service: list[float] = [0.0] * MOST_TENANTS
        """What each tenant that is followed was served, by its number in `names`."""
        self.longest_prompt = 0
        self._of: dict[RequestId, int] = {}
        self._queue: set[RequestId] = set()
        self._waiting = [0] * MOST_TENANTS
        self._extremes: dict[tuple[int, int], tuple[float, float]] = {}

    def arrive(self, event: Event) -> None:
        """A request arrives (or was there when the trace began)."""
        self.longest_prompt = max(self.longest_prompt, event.prompt_tokens or 0)
        tenant = event.tenant
        if tenant is None:
            return
        number = self.names.get(tenant)
        if number is None:
            if len(self.names) == MOST_TENANTS:
                if len(self.left_out) < _MOST_NAMES:
                    self.left_out.add(tenant)
                return
            number = self.names[tenant] = len(self.names)
        self.leave(event.subject)
        self._of[event.subject] = number
        if event.event == "arrive" or event.reason == "waiting":
            self.wait(event.subject)

    def of(self, request: RequestId | None) -> str | None:
        """The tenant of a live request, where it is one of those that are followed."""
        number = None if request is None else self._of.get(request)
        return None if number is None else list(self.names)[number]

    def wait(self, request: RequestId) -> None:
        """A request waits for its first admission; what it was parked for is there."""
        number = self._of.get(request)
        if number is not None and request not in self._queue:
            self._queue.add(request)
            self._waiting[number] += 1

    def leave(self, request: RequestId, *, ended: bool = False) -> None:
        """A request waits no more: it was admitted or parked, or it has ended."""
        if request in self._queue:
            self._queue.discard(request)
            self._waiting[self._of[request]] -= 1
        if ended:
            self._of.pop(request, None)

    def served(self, totals: Mapping[str, float]) -> None:
        """What each tenant was served up to the end of this step, not weighted by tenant."""
        for name, number in self.names.items():
            weight = self._weights.get(name, self._weights.get("*", 1.0)) if self._weights else 1.0
            self.service[number] = totals.get(name, 0.0) / weight

    def drift(self) -> float | None:
        """At the end of a step: the widest drift of two services since both have been waiting without a
        break; None where fewer than two tenants wait."""
        waiting = [number for number, many in enumerate(self._waiting) if many]
        if len(waiting) < 2:
            self._extremes = {}
            return None
        before, self._extremes = self._extremes, {}
        widest = 0.0
        for pair in combinations(waiting, 2):
            gap = self.service[pair[0]] - self.service[pair[1]]
            low, high = before.get(pair, (gap, gap))
            low, high = min(low, gap), max(high, gap)
            self._extremes[pair] = (low, high)
            widest = max(widest, high - low)
        return widest
