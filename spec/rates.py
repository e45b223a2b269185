"""Rate limits: at most so many requests of a tenant in any stretch of so many nanoseconds."""

from collections import deque
from collections.abc import Mapping

from batchspec.spec.profile import Profile


class RateLimits:
    """A sliding window a tenant. A request at t is refused where the tenant has already had its number
    of requests accepted in (t - per_ns, t]; a refused request does not count.

    The entry `*` gives every tenant without an entry of its own a window of its own.
    Memory: one time for each accepted request that is still in its window.
    """

    def __init__(self, limits: Mapping[str, Mapping[str, int]] | None) -> None:
        """`limits`: tenant to `requests` and `per_ns`, as in `fairness.rate_limits`."""
        self.limits = dict(limits or {})
        self._accepted: dict[str, deque[int]] = {}

    @classmethod
    def of(cls, profile: Profile) -> "RateLimits":
        """The quotas that a profile claims."""
        return cls(profile.fairness.rate_limits)

    def exceeded(self, tenant: str | None, now_ns: int) -> bool:
        """Whether one more request of this tenant at `now_ns` is over its quota."""
        limit = self._limit(tenant)
        if limit is None:
            return False
        window = self._accepted.setdefault(tenant or "", deque())
        while window and window[0] <= now_ns - limit["per_ns"]:
            window.popleft()
        return len(window) >= limit["requests"]

    def accept(self, tenant: str | None, now_ns: int) -> None:
        """Count a request that was not refused."""
        if self._limit(tenant) is not None:
            self._accepted.setdefault(tenant or "", deque()).append(now_ns)

    def _limit(self, tenant: str | None) -> Mapping[str, int] | None:
        return self.limits.get(tenant or "", self.limits.get("*"))
