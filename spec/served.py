"""Served requests: what each one got, and which of them met the objectives of a service.

Goodput under objectives counts whole requests: one that misses any objective counts for nothing,
however many tokens it got (DistServe, OSDI 2024, section 2.2). *TPOT* is the mean time per output token
after the first one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from batchspec.spec.events import RequestId
from batchspec.spec.records import Record


class Served(NamedTuple):
    """One request from arrival to end. Times are nanoseconds of the trace's clock, None where unknown.

    `admitted_ns` is that of its first admission. `end` is `finish`, `abort` or `reject`, or None for a
    request that was live when the trace ended. `recomputed` counts positions computed again.
    """

    request: RequestId
    tenant: str | None
    arrival_ns: int | None
    admitted_ns: int | None
    first_token_ns: int | None
    finish_ns: int | None
    prompt_tokens: int | None
    output_tokens: int
    preemptions: int
    recomputed: int
    end: str | None

    @property
    def queueing_ns(self) -> int | None:
        """From arrival to admission."""
        return _between(self.arrival_ns, self.admitted_ns)

    @property
    def ttft_ns(self) -> int | None:
        """From arrival to the first token."""
        return _between(self.arrival_ns, self.first_token_ns)

    @property
    def tpot_ns(self) -> float | None:
        """Mean time per output token after the first; 0 for a single token."""
        took = _between(self.first_token_ns, self.finish_ns)
        if took is None:
            return None
        return took / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    @property
    def end_to_end_ns(self) -> int | None:
        """From arrival to the end."""
        return _between(self.arrival_ns, self.finish_ns)

    def record(self) -> Record:
        """The same as a row of an L0 table. The arrival must be known."""
        return Record(
            self.request,
            self.arrival_ns or 0,
            self.prompt_tokens,
            self.output_tokens,
            tenant=self.tenant,
            admitted_ns=self.admitted_ns,
            first_token_ns=self.first_token_ns,
            finish_ns=self.finish_ns,
            status={"reject": "rejected", "abort": "aborted"}.get(self.end or ""),
        )


ServedSink = Callable[[Served], object]


@dataclass(frozen=True, slots=True)
class Objectives:
    """Service objectives: the most that each latency of a request may be, in nanoseconds; None is free."""

    ttft_ns: int | None = None
    tpot_ns: int | None = None
    e2e_ns: int | None = None

    def met_by(self, served: Served) -> bool:
        """Whether a request finished within all objectives; one with an unknown latency did not."""
        pairs = (
            (self.ttft_ns, served.ttft_ns),
            (self.tpot_ns, served.tpot_ns),
            (self.e2e_ns, served.end_to_end_ns),
        )
        return served.end == "finish" and all(
            most is None or (took is not None and took <= most) for most, took in pairs
        )


@dataclass(frozen=True, slots=True)
class Attainment:
    """How many requests met the objectives, of all that arrived; rates are per second of the run."""

    requests: int
    met: int
    requests_per_s: float | None
    tokens_per_s: float | None

    @property
    def share(self) -> float | None:
        """Met / all; a refused or aborted request is one that did not."""
        return self.met / self.requests if self.requests else None


def attainment(served: Iterable[Served], objectives: Objectives, span_ns: int | None) -> Attainment:
    """Goodput under objectives, over a run that lasted `span_ns`."""
    requests = met = tokens = 0
    for one in served:
        requests += 1
        if objectives.met_by(one):
            met += 1
            tokens += one.output_tokens
    return Attainment(
        requests,
        met,
        met * 1e9 / span_ns if span_ns else None,
        tokens * 1e9 / span_ns if span_ns else None,
    )


def service_until(
    records: Iterable[Record], until_ns: int, *, w_p: float = 1, w_q: float = 2
) -> dict[str | None, float]:
    """What each tenant was served by a moment, in weighted tokens: `w_p` an input token at the first
    token, `w_q` an output token, outputs spread evenly from the first token to the finish."""
    service: dict[str | None, float] = {}
    for record in records:
        first, finish = record.first_token_ns, record.finish_ns
        if first is None or first > until_ns:
            continue
        done = 1.0
        if finish is not None and finish > until_ns:
            done = (until_ns - first) / (finish - first)
        amount = w_p * (record.prompt_tokens or 0) + w_q * (record.output_tokens or 0) * done
        service[record.tenant] = service.get(record.tenant, 0.0) + amount
    return service


def _between(since: int | None, until: int | None) -> int | None:
    return None if since is None or until is None else until - since
