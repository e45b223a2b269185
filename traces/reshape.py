"""Reshaping a workload: a slice of it, faster or slower, with longer or shorter requests, with tenants.

Every knob at its neutral value gives the records back as they are. They act in this order: slice by
time, choice of tenants, slice by count, tenants and priorities given out, lengths, speed. Prefix hashes
stay with their requests; where prompts are scaled, so is the number of tokens behind one hash, so that
what was shared still is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.spec.reference.pool import mix

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Reshape:
    """What to do to a workload.

    `speed` 2 lets requests arrive twice as fast. Lengths are scaled and rounded, at least to 1 token.
    `from_s` to `to_s` keeps those that arrive in that stretch, in seconds since the first arrival (the
    end is left out); the slice then begins at time 0. `skip` and `limit` count requests. `keep` names
    the tenants to keep. `tenants` gives each request without a tenant one of that many, `priorities` one
    of that many priorities to each without one, both drawn from `seed` and the place in the workload.
    """

    speed: float = 1.0
    prompt_scale: float = 1.0
    output_scale: float = 1.0
    from_s: float | None = None
    to_s: float | None = None
    skip: int = 0
    limit: int | None = None
    keep: tuple[str, ...] = ()
    tenants: int = 0
    priorities: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises `TraceError` for a knob that turns nothing into a workload."""
        for name in ("speed", "prompt_scale", "output_scale"):
            value = getattr(self, name)
            if not 1e-6 <= value <= 1e6:
                raise TraceError(f"{name.replace('_', '-')} must lie in 0.000001…1000000, not {value:g}")
        if self.from_s is not None and self.to_s is not None and self.to_s <= self.from_s:
            raise TraceError(f"the slice from {self.from_s:g} s to {self.to_s:g} s is empty")

    def hash_block(self, tokens: int | None) -> int | None:
        """Tokens behind one prefix hash, once prompts are scaled."""
        return None if tokens is None else max(1, round(tokens * self.prompt_scale))

    def apply(self, records: Iterable[Record]) -> Iterator[Record]:
        """The reshaped records, in the same order. Raises `TraceError` where none is left."""
        kept = self._slice(iter(records))
        origin: int | None = None
        for record, place in islice(kept, self.skip, None if self.limit is None else self.skip + self.limit):
            if origin is None:
                # Only a slice is moved: a whole workload keeps its times.
                cut = self.from_s is not None or self.skip or self.keep
                origin = record.arrival_ns if cut else 0
            yield self._reshaped(record, place, origin)
        if origin is None:
            raise TraceError("no request is left of the workload: widen the slice, or keep other tenants")

    def _slice(self, records: Iterator[Record]) -> Iterator[tuple[Record, int]]:
        first: int | None = None
        for place, record in enumerate(records):
            first = record.arrival_ns if first is None else first
            since = (record.arrival_ns - first) / _SECOND
            if self.from_s is not None and since < self.from_s:
                continue
            if self.to_s is not None and since >= self.to_s:
                continue
            if self.keep and record.tenant not in self.keep:
                continue
            yield record, place

    def _reshaped(self, record: Record, place: int, origin: int) -> Record:
        if self == _NEUTRAL:
            return record

        def moved(time: int | None) -> int | None:
            # Whole numbers where nothing is scaled: a float holds no more than 53 bits of a wall clock.
            if time is None or self.speed == 1:
                return None if time is None else time - origin
            return int((time - origin) / self.speed)

        tenant, priority = record.tenant, record.priority
        if self.tenants and tenant is None:
            tenant = f"t{(mix(self.seed, place, 1) >> 20) % self.tenants}"
        if self.priorities and priority is None:
            priority = (mix(self.seed, place, 2) >> 20) % self.priorities
        return record._replace(
            arrival_ns=moved(record.arrival_ns) or 0,
            admitted_ns=moved(record.admitted_ns),
            first_token_ns=moved(record.first_token_ns),
            finish_ns=moved(record.finish_ns),
            prompt_tokens=_scaled(record.prompt_tokens, self.prompt_scale),
            output_tokens=_scaled(record.output_tokens, self.output_scale),
            max_tokens=_scaled(record.max_tokens, self.output_scale),
            tenant=tenant,
            priority=priority,
        )


_NEUTRAL = Reshape()


def _scaled(tokens: int | None, scale: float) -> int | None:
    if tokens is None or scale == 1 or not tokens:
        return tokens
    return max(1, round(tokens * scale))
