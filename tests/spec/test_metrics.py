"""Every quantity of the glossary, on numbers small enough to count by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.spec.events import Event
from batchspec.spec.metrics import Metrics, measure
from batchspec.spec.profile import Profile
from batchspec.spec.quantities import (
    ModelShape,
    arithmetic_intensity,
    distribution,
    jain_index,
    padding_waste,
    percentile,
)
from batchspec.spec.records import Record
from batchspec.spec.reference import ReferenceScheduler
from batchspec.spec.served import Served


def run(profile: Profile, records: list[Record], step_ns: int = 1, **options: object) -> list[Event]:
    scheduler = ReferenceScheduler(profile, cost=lambda shape: step_ns, **options)  # type: ignore[arg-type]
    for record in records:
        scheduler.add(record, record.arrival_ns)
    events: list[Event] = []
    while not scheduler.idle:
        events += scheduler.step(scheduler.now_ns)
    return events


def worked(mode: str) -> Metrics:
    profile = Profile.from_dict({"limits": {"max_seqs": 4}, "batching": {"mode": mode}})
    records = [Record(i, 0, 1, length) for i, length in enumerate((6, 2, 8, 3, 5, 2, 7, 3))]
    return measure(run(profile, records), max_seqs=4)


@pytest.mark.parametrize(
    ("mode", "steps", "utilisation", "mean_finish"),
    [("static", 15, 0.60, 8.5), ("continuous", 12, 0.75, 6.5)],
)
def test_the_worked_example(mode: str, steps: int, utilisation: float, mean_finish: float) -> None:
    metrics = worked(mode)
    assert metrics.steps == metrics.passes == steps
    assert metrics.slot_utilisation == utilisation
    assert metrics.mean_finish_steps == mean_finish
    assert metrics.output_tokens == metrics.computed_tokens == 36
    assert metrics.weight_reuse == 36 / steps
    assert metrics.finished == metrics.requests == 8


def test_times_of_one_request() -> None:
    events = [
        Event(1, "arrive", "A", time_ns=5, prompt_tokens=4, max_tokens=3),
        Event(1, "admit", "A", time_ns=20),
        Event(1, "schedule", "A", time_ns=20, start=0, tokens=3),
        Event(1, "step", time_ns=30),
        Event(2, "schedule", "A", time_ns=30, start=3, tokens=1),
        Event(2, "step", time_ns=45),
        Event(3, "schedule", "A", time_ns=45, start=4, tokens=1),
        Event(3, "step", time_ns=52),
        Event(4, "schedule", "A", time_ns=52, start=5, tokens=1),
        Event(4, "finish", "A", time_ns=60, output_tokens=3, reason="length"),
        Event(4, "step", time_ns=60),
    ]
    metrics = measure(events)
    assert metrics.queueing_delay is not None
    assert metrics.queueing_delay.largest == 15
    assert metrics.ttft is not None
    assert metrics.ttft.largest == 40, "the pass that reaches n = 4 ends at 45"
    assert metrics.tbt is not None
    assert (metrics.tbt.count, metrics.tbt.p50, metrics.tbt.largest) == (2, 7, 8)
    assert metrics.end_to_end is not None
    assert metrics.end_to_end.largest == 55
    assert metrics.span_ns == 40
    assert metrics.goodput == 3 * 1e9 / 40
    assert metrics.slot_utilisation is None, "without S there is no share of it"


def test_preemption_counts_what_is_computed_again() -> None:
    """The four steps of the trace format: B's two positions are computed twice."""
    profile = Profile.from_dict(
        {
            "limits": {"max_seqs": 2, "token_budget": 8, "kv_blocks": 3, "block_size": 4},
            "admission": {"test": "step", "reserve": "step"},
        }
    )
    metrics = measure(run(profile, [Record("A", 0, 6, 3), Record("B", 0, 5, 3)]), max_seqs=2)
    assert metrics.preemptions == 1
    assert metrics.computed_tokens == 6 + 2 + 1 + 1 + 5 + 1 + 1
    assert metrics.recomputed_share == 2 / 17
    assert metrics.steps == 6
    assert metrics.mean_finish_steps == (3 + 6) / 2
    assert metrics.concurrency is not None
    assert metrics.concurrency.mean == (2 + 2 + 1 + 1 + 1 + 0) / 6


def test_drafts_and_their_acceptance() -> None:
    profile = Profile.from_dict({"batching": {"lookahead": 2}})
    events = run(profile, [Record("A", 0, 2, 7)], drafter=lambda request, outputs: (2, outputs % 3))
    metrics = measure(events, recorded=True)
    emitted = [e.tokens for e in events if e.event == "output"]
    assert emitted == [1, 2, 1, 2, 1]
    assert metrics.output_tokens == 7
    assert metrics.draft_acceptance == 2 / 6, "two drafts each, but none where one token is left"


def test_service_of_each_tenant_is_weighted() -> None:
    records = [Record(0, 0, 10, 2, tenant="a"), Record(1, 0, 3, 5, tenant="b"), Record(2, 0, 1, 1)]
    metrics = measure(run(Profile(), records))
    assert metrics.service == {"a": 10 + 2 * 2, "b": 3 + 2 * 5}


def test_padding_waste_and_arithmetic_intensity() -> None:
    assert padding_waste([8, 4, 4]) == pytest.approx(8 / 24)
    assert padding_waste([]) == 0
    assert padding_waste([3, 3]) == 0
    assert arithmetic_intensity(1, 0) == pytest.approx(1.0), "one token, 16-bit weights"
    assert arithmetic_intensity(64, 0) == pytest.approx(64.0)
    assert arithmetic_intensity(64, 64 * 4096) < 64, "attention over long contexts does not batch"
    assert arithmetic_intensity(1, 0, ModelShape(bytes_per_parameter=1)) == pytest.approx(2.0)


def test_nearest_rank() -> None:
    assert percentile([15, 20, 35, 40, 50], 0.30) == 20
    assert percentile([15, 20, 35, 40, 50], 0.40) == 20
    assert percentile([15, 20, 35, 40, 50], 1.0) == 50
    assert percentile([7], 0.99) == 7
    assert distribution([]) is None


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_percentiles_are_values_and_do_not_fall(values: list[int]) -> None:
    found = distribution(values)
    assert found is not None
    assert {found.p50, found.p95, found.p99, found.largest} <= set(values)
    assert found.p50 <= found.p95 <= found.p99 <= found.largest
    assert sum(value <= found.p95 for value in values) >= 0.95 * len(values)


def test_jain_index_spans_from_one_for_all_to_equal() -> None:
    assert jain_index([4, 4, 4]) == pytest.approx(1.0)
    assert jain_index([9, 0, 0]) == pytest.approx(1 / 3)
    assert jain_index([]) is None


def test_a_trace_that_begins_in_the_middle_is_measured_as_far_as_it_goes() -> None:
    events = [
        Event(9, "live", "A", prompt_tokens=4, output_tokens=1, start=4, reason="running"),
        Event(9, "schedule", "A", start=4, tokens=1),
        Event(9, "step"),
        Event(10, "schedule", "unheard-of", start=0, tokens=5),
        Event(10, "finish", "unheard-of", reason="stop"),
    ]
    metrics = measure(events, max_seqs=2)
    assert metrics.steps == 2
    assert metrics.output_tokens == 1
    assert metrics.ttft is None
    assert metrics.slot_utilisation == 1 / 4


def two_passes() -> list[Event]:
    """A pass of 10 ns, a pause of 30, a pass of 20: 60 in all."""
    return [
        Event(1, "arrive", "A", time_ns=0, prompt_tokens=4),
        Event(1, "admit", "A", time_ns=0),
        Event(1, "schedule", "A", time_ns=0, start=0, tokens=4),
        Event(1, "step", time_ns=10),
        Event(2, "schedule", "A", time_ns=40, start=4, tokens=1),
        Event(2, "finish", "A", time_ns=60, output_tokens=2, reason="length"),
        Event(2, "step", time_ns=60),
    ]


def test_busy_is_not_the_share_of_peak_flops() -> None:
    model = ModelShape(100, 2.0, 10, 3)
    metrics = measure(two_passes(), model=model)
    assert metrics.busy == 30 / 60
    flops = 2 * 100 * 5 + 3 * ((1 + 2 + 3 + 4) + 5)
    assert metrics.flops == flops
    assert metrics.mfu(peak_flops=1e12) == pytest.approx(flops / 60e-9 / 1e12)
    moved = 2 * (100 * 2.0) + 10 * (4 + 5)
    assert metrics.arithmetic_intensity == pytest.approx(flops / moved)


def test_active_sequences_are_those_that_run_at_the_end_of_a_step() -> None:
    profile = Profile.from_dict({"limits": {"max_seqs": 2}})
    metrics = measure(run(profile, [Record(n, 0, 1, 3) for n in range(3)]), max_seqs=2)
    assert metrics.active is not None
    assert metrics.active.largest == 2
    assert metrics.seat_occupancy == metrics.active.mean / 2
    assert metrics.throughput == metrics.output_tokens * 1e9 / (metrics.span_ns or 1)


def test_each_request_is_told_of_once_with_what_it_got() -> None:
    told: list[Served] = []
    measure(two_passes(), served=told.append)
    (one,) = told
    assert one == Served("A", None, 0, 0, 10, 60, 4, 2, 0, 0, "finish")
    assert (one.queueing_ns, one.ttft_ns, one.tpot_ns, one.end_to_end_ns) == (0, 10, 50.0, 60)
    told.clear()
    measure(two_passes()[:4], served=told.append)
    assert [(one.end, one.finish_ns, one.tpot_ns) for one in told] == [(None, None, None)]


def test_preemptions_and_recomputed_positions_of_each_request() -> None:
    profile = Profile.from_dict(
        {
            "limits": {"max_seqs": 2, "token_budget": 8, "kv_blocks": 3, "block_size": 4},
            "admission": {"test": "step", "reserve": "step"},
        }
    )
    told: list[Served] = []
    measure(run(profile, [Record("A", 0, 6, 3), Record("B", 0, 5, 3)]), served=told.append)
    assert {one.request: (one.preemptions, one.recomputed) for one in told} == {"A": (0, 0), "B": (1, 2)}
