"""The outcome of a run: its metrics as one flat row, the same for a simulated and a recorded run.

`FIGURES` is the table of everything that `compare` and `sweep` say: a name, a unit, what it is, and how
it is read off. Times are milliseconds there, rates are per second, shares lie in 0…1; None is unknown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from batchspec.replay.claims import claimed
from batchspec.spec.events import Event
from batchspec.spec.metrics import Meter, Metrics
from batchspec.spec.profile import Profile
from batchspec.spec.quantities import Distribution, jain_index, percentile
from batchspec.spec.rules.requests import service_spreads
from batchspec.spec.served import Attainment, Objectives, Served, attainment
from batchspec.traces.trace import Trace

TENANTS_MOST: Final = 64
"""With more tenants than this no pair's services are compared: their number grows with the square."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run, measured. `settings` say what was asked for, as words and numbers by name.

    `spread` is the most by which the weighted services of two tenants drifted apart while both had
    requests waiting; `tenant_ttft_p95` the p95 of TTFT by tenant, in nanoseconds.
    """

    label: str
    settings: Mapping[str, Any]
    metrics: Metrics
    attained: Attainment | None = None
    spread: float | None = None
    jain: float | None = None
    tenant_ttft_p95: Mapping[str, int] = field(default_factory=dict)
    peak_flops: float | None = None

    def row(self) -> dict[str, Any]:
        """Every setting and every figure by name."""
        return {**SETTINGS, **self.settings, **{each.name: each.of(self) for each in FIGURES}}


def measured(
    events: Iterable[Event],
    profile: Profile,
    *,
    label: str = "run",
    settings: Mapping[str, Any] | None = None,
    recorded: bool = False,
    objectives: Objectives | None = None,
    peak_flops: float | None = None,
) -> Outcome:
    """Measure a run as its events stream by. `recorded`: every emission has an `output` row."""
    served: list[Served] = []
    w_p, w_q = profile.value("fairness.w_p"), profile.value("fairness.w_q")
    meter = Meter(max_seqs=profile.limits.max_seqs, recorded=recorded, w_p=w_p, w_q=w_q, served=served.append)
    for event in events:
        meter.add(event)
    metrics = meter.result()
    weights = profile.fairness.weights or {}
    shares = [amount / weights.get(name, weights.get("*", 1.0)) for name, amount in metrics.service.items()]
    return Outcome(
        label=label,
        settings={**settings_of(profile), **(settings or {})},
        metrics=metrics,
        attained=None if objectives is None else attainment(served, objectives, metrics.span_ns),
        spread=_spread(served, profile),
        jain=jain_index(shares) if len(shares) > 1 else None,
        tenant_ttft_p95=_by_tenant(served),
        peak_flops=peak_flops,
    )


def measured_trace(
    trace: Trace, *, seen: Callable[[Iterable[Event]], Iterable[Event]] = iter, **options: Any
) -> Outcome:
    """Measure a recorded trace, by the claims of its header. Options as for `measured`; `seen` may count
    the events that pass by."""
    header = trace.header
    claims = None if header is None else claimed(header.profile, header.config)
    return measured(seen(trace.events()), claims or Profile(), recorded=trace.outputs_recorded, **options)


def settings_of(profile: Profile) -> dict[str, Any]:
    """What a run was asked to do, as far as the profile says it."""
    limits = profile.limits
    return {
        "profile": profile.name,
        "policy": profile.admission.order,
        "mode": profile.batching.mode,
        "max_seqs": limits.max_seqs,
        "token_budget": limits.token_budget,
        "kv_blocks": limits.kv_blocks,
        "block_size": limits.block_size,
    }


SETTINGS: Final[dict[str, Any]] = {
    **dict.fromkeys(("run", "profile", "policy", "mode")),
    **dict.fromkeys(("max_seqs", "token_budget", "kv_blocks", "block_size")),
    **dict.fromkeys(("offered_rate", "offered_concurrency")),
}
"""The settings in the order in which they are written, none of them known."""


def _spread(served: list[Served], profile: Profile) -> float | None:
    tenants = {one.tenant for one in served if one.tenant is not None}
    if not 1 < len(tenants) <= TENANTS_MOST:
        return None
    records = [one.record() for one in served if one.arrival_ns is not None and one.end == "finish"]
    return max((found.units for found in service_spreads(records, profile)), default=0.0)


def _by_tenant(served: list[Served]) -> dict[str, int]:
    times: dict[str, list[int]] = {}
    for one in served:
        if one.tenant is not None and one.ttft_ns is not None:
            times.setdefault(one.tenant, []).append(one.ttft_ns)
    return {name: percentile(sorted(found), 0.95) for name, found in sorted(times.items())}


class Figure(NamedTuple):
    """One figure of a run. `brief` ones stand in the short table, all of them in files and with --all."""

    name: str
    unit: str
    says: str
    of: Callable[[Outcome], Any]
    brief: bool = False


def _metric(name: str, unit: str, says: str, brief: bool = False) -> Figure:
    return Figure(name, unit, says, lambda outcome: getattr(outcome.metrics, name), brief)


def _shape(name: str, source: str, unit: str, says: str, brief: bool = False) -> list[Figure]:
    """A distribution as mean, p50, p95 and p99; times become milliseconds."""
    scale = 1e6 if unit == "ms" else 1

    def reader(part: str) -> Callable[[Outcome], float | None]:
        def read(outcome: Outcome) -> float | None:
            found: Distribution | None = getattr(outcome.metrics, source)
            return None if found is None else getattr(found, part) / scale

        return read

    ending = "_ms" if unit == "ms" else ""
    parts = ("mean", "p50", "p95", "p99")
    return [
        Figure(f"{name}_{part}{ending}", unit, f"{says}, {part}", reader(part), brief and part != "mean")
        for part in parts
    ]


def _tenant_gap(outcome: Outcome) -> float | None:
    found = outcome.tenant_ttft_p95.values()
    return max(found) / min(found) if len(found) > 1 and min(found) > 0 else None


FIGURES: Final[tuple[Figure, ...]] = (
    _metric("requests", "", "requests that arrived"),
    _metric("finished", "", "requests that finished", True),
    _metric("aborted", "", "requests that were ended before their time"),
    _metric("rejected", "", "requests that were refused"),
    _metric("steps", "", "steps"),
    _metric("passes", "", "forward passes: steps with members"),
    Figure("span_s", "s", "length of the run", lambda o: _over(o.metrics.span_ns, 1e9), True),
    _metric("throughput", "tokens/s", "output tokens a second", True),
    Figure("request_rate", "1/s", "requests finished a second", lambda o: _rate(o.metrics), True),
    _metric("goodput", "tokens/s", "output tokens of finished requests a second"),
    Figure(
        "slo_share",
        "share",
        "requests that met the objectives",
        lambda o: o.attained and o.attained.share,
        True,
    ),
    Figure(
        "slo_goodput",
        "1/s",
        "requests a second that met the objectives",
        lambda o: o.attained and o.attained.requests_per_s,
        True,
    ),
    _metric("slot_utilisation", "share", "members of all passes / seats of all steps", True),
    _metric("seat_occupancy", "share", "running requests / seats of all steps"),
    _metric("busy", "share", "GPU utilisation: share of the span in which a pass runs", True),
    Figure(
        "mfu",
        "share",
        "GPU utilisation: share of the peak FLOPs (needs --peak-tflops)",
        lambda o: o.metrics.mfu(o.peak_flops) if o.peak_flops else None,
        True,
    ),
    _metric("arithmetic_intensity", "FLOP/B", "FLOPs per byte moved, counted from the model"),
    _metric("weight_reuse", "tokens", "tokens per weight read"),
    *_shape("queueing", "queueing_delay", "ms", "queueing delay: arrival to admission", True),
    *_shape("ttft", "ttft", "ms", "time to first token", True),
    *_shape("tbt", "tbt", "ms", "time between tokens", True),
    *_shape("e2e", "end_to_end", "ms", "end to end: arrival to finish", True),
    *_shape("batch", "members_per_pass", "", "batch size in members"),
    *_shape("batch_tokens", "tokens_per_pass", "", "batch size in tokens"),
    *_shape("active", "active", "", "active sequences"),
    *_shape("concurrency", "concurrency", "", "requests in flight, running or waiting"),
    *_shape("queue_depth", "queue_depth", "", "requests that wait"),
    _metric("computed_tokens", "tokens", "positions computed"),
    _metric("output_tokens", "tokens", "tokens emitted"),
    _metric("preemptions", "", "preemptions", True),
    _metric("recomputed_share", "share", "positions computed again / positions computed", True),
    _metric("padding_waste", "share", "what padding to the longest member would add"),
    _metric("draft_acceptance", "share", "draft tokens accepted"),
    Figure("jain", "index", "Jain's index of the tenants' services: 1 is equal", lambda o: o.jain, True),
    Figure(
        "service_spread",
        "units",
        "most drift of two tenants' services while both wait",
        lambda o: o.spread,
        True,
    ),
    Figure("tenant_ttft_gap", "ratio", "p95 TTFT of the worst tenant / of the best", _tenant_gap, True),
)
"""Every figure of a run, in the order in which they are written."""


def _over(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _rate(metrics: Metrics) -> float | None:
    return metrics.finished * 1e9 / metrics.span_ns if metrics.span_ns else None
