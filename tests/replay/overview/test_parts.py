"""The parts of an overview, each against the obvious way to do the same."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.replay.overview.buckets import Buckets
from batchspec.replay.overview.detail import AROUND, Detail
from batchspec.replay.overview.heat import MOST_ROWS, MOST_STRETCHES, Heat
from batchspec.replay.overview.latencies import SHARES, Latencies
from batchspec.replay.overview.preemptions import MOST_PAIRS, Preemptions
from batchspec.replay.overview.tenants import MOST_TENANTS, Tenants
from batchspec.spec.events import Event
from batchspec.spec.served import Served
from batchspec.traces.seats import DECODE, IDLE, Run

VALUES = st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(0, 50)), max_size=200)


def run_of(first, last, seat=0, kind=DECODE, request="A", end=""):
    return Run(seat, request, 0, kind, first, last, 1, None, None, end, last if end else -1)


@given(VALUES, st.sampled_from((2, 4, 8, 16)))
def test_buckets_are_sums_means_and_peaks_of_their_steps(values, most):
    buckets = Buckets(("s",), ("p",), most=most)
    for total, peak in values:
        buckets.add((total,), (peak,))
    width = buckets.width
    groups = [values[at : at + width] for at in range(0, len(values), width)]
    assert len(buckets) == len(groups) <= most
    assert buckets.sums("s") == [sum(total for total, _ in group) for group in groups]
    assert buckets.means("s") == [sum(total for total, _ in group) / len(group) for group in groups]
    assert buckets.peaks("p") == [
        max((peak for _, peak in group if peak is not None), default=None) for group in groups
    ]


def test_buckets_are_single_steps_as_long_as_they_fit():
    buckets = Buckets(("s",), (), most=4)
    for step in range(4):
        buckets.add((step,), ())
    assert (buckets.width, buckets.sums("s")) == (1, [0, 1, 2, 3])
    buckets.add((4,), ())
    assert (buckets.width, buckets.sums("s")) == (2, [1, 5, 4])


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 900), st.integers(0, 3), st.integers(0, 3)),
        max_size=12,
    )
)
def test_heat_counts_the_steps_of_each_kind(drawn):
    heat, counts, last_step = Heat(), Counter(), 0
    for first, length, seat, kind in drawn:
        heat.add(run_of(first, first + length, seat, kind))
        last_step = max(last_step, first + length)
        counts.update((seat, step, kind) for step in range(first, first + length + 1))
    steps, seats = last_step + 1, sorted(heat.rows)
    levels = heat.levels(seats, steps)
    stretches = -(-steps // heat.width)
    assert stretches <= MOST_STRETCHES
    for row, seat in enumerate(seats):
        for at in range(stretches):
            low, high = levels[2 * (row * stretches + at) :][:2]
            span = range(at * heat.width, min(steps, (at + 1) * heat.width))
            for kind, level in enumerate((low & 15, low >> 4, high & 15, high >> 4)):
                share = sum(counts[seat, step, kind] for step in span) / len(span)
                assert level == min(15, -(-round(share * len(span)) * 15 // len(span)))


def test_heat_draws_so_many_seats_and_counts_the_rest():
    heat = Heat()
    for seat in range(MOST_ROWS + 3):
        heat.add(run_of(0, 0, seat * 1000))
    assert (len(heat.rows), len(heat.left_out)) == (MOST_ROWS, 3)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), max_size=80),
    st.sets(st.integers(0, 600), max_size=3),
)
def test_detail_has_every_run_of_the_spans_it_names(drawn, wanted):
    """Runs of six seats, each seat's one behind the other, handed over when they end."""
    runs, ends = [], dict.fromkeys(range(6), 0)
    for seat, length in drawn:
        runs.append(run_of(ends[seat], ends[seat] + length - 1, seat, request=f"r{len(runs)}"))
        ends[seat] += length
    steps = max(ends.values())
    detail = Detail(wanted, most=10)
    closing = sorted(runs, key=lambda run: run.last)
    for step in range(steps):
        detail.turn(step, step)
        while closing and closing[0].last < step:
            detail.add(closing.pop(0))
    for run in closing:
        detail.add(run)
    assert len(detail.runs) <= 10
    assert detail.names == {run.request for run in detail.runs}
    spans = detail.spans(steps)
    assert spans == sorted(spans)
    for run in runs:
        for first, last in spans:
            if run.first <= last and run.last >= first:
                assert run in detail.runs
    if len(runs) <= 10:
        assert spans == ([(0, steps - 1)] if steps else [])


def test_detail_keeps_the_beginning_and_what_is_around_a_finding():
    detail = Detail([5000], most=1000)
    for step in range(8000):
        detail.turn(step, step)
        detail.add(run_of(step, step))
    (first, head), window = detail.spans(8000)
    assert first == 0
    assert head >= 400
    assert window == (5000 - AROUND, 5000 + AROUND)


def served(**values):
    base = dict.fromkeys(Served._fields)
    return Served(**(base | {"request": "A", "output_tokens": 2, "preemptions": 0, "recomputed": 0} | values))


def test_latencies_are_nearest_ranks_of_those_who_got_that_far():
    latencies = Latencies()
    for number in range(1, 101):
        latencies.add(
            served(arrival_ns=0, admitted_ns=number, first_token_ns=number, finish_ns=200, end="finish")
        )
    latencies.add(served(arrival_ns=0, admitted_ns=7, finish_ns=9, end="abort"))
    latencies.add(served(arrival_ns=0, admitted_ns=7, finish_ns=None, end=None))
    ttft = dict(zip(SHARES, latencies.quantiles("ttft_ns"), strict=True))
    assert (ttft[0.0], ttft[0.5], ttft[0.99], ttft[1.0]) == (1, 50, 99, 100)
    assert len(latencies.values["queueing_ns"]) == 101
    assert len(latencies.values["end_to_end_ns"]) == 100
    assert Latencies().quantiles("ttft_ns") == []


def arrive(request, tenant, prompt=10):
    return Event(1, "arrive", request, tenant=tenant, prompt_tokens=prompt)


def test_drift_is_measured_only_while_both_wait():
    tenants = Tenants({"b": 2.0})
    tenants.arrive(arrive("1", "a"))
    tenants.arrive(arrive("2", "b"))
    tenants.served({"a": 100, "b": 0})
    assert tenants.drift() == 0  # what came before both waited does not count
    tenants.served({"a": 130, "b": 0})
    assert tenants.drift() == 30
    tenants.served({"a": 130, "b": 60})
    assert tenants.drift() == 30  # from +30 back to 0: half of b's 60
    tenants.leave("2")
    assert tenants.drift() is None
    tenants.wait("2")
    assert tenants.drift() == 0
    tenants.leave("2", ended=True)
    tenants.wait("2")
    assert tenants.drift() is None


def test_only_the_first_tenants_are_followed():
    tenants = Tenants()
    for number in range(MOST_TENANTS + 5):
        tenants.arrive(arrive(str(number), f"t{number}"))
    assert (len(tenants.names), len(tenants.left_out)) == (MOST_TENANTS, 5)


def test_preemptions_by_cause_and_victim():
    found = Preemptions()
    for cause, victim in (("A", "B"), ("A", "B"), ("C", "B"), (None, "D"), ("C", "E")):
        found.add(
            Event(1, "preempt", victim, cause=cause, reason="swap"), "t1", None if cause == "C" else "t2"
        )
    assert found.pairs["A", "B"] == 2
    assert found.victims() == {"B": 3, "D": 1, "E": 1}
    assert found.busiest(1) == (["A"], ["B"])
    assert found.busiest(9) == (["A", "C"], ["B", "D", "E"])
    assert found.reasons == {"swap": 5}
    assert found.tenants == {("t1", "t2"): 3}


@pytest.mark.parametrize("extra", [0, 3])
def test_pairs_beyond_the_limit_are_counted(extra):
    found = Preemptions()
    for number in range(MOST_PAIRS + extra):
        found.add(Event(1, "preempt", number))
    assert (found.total, len(found.pairs), found.left_out) == (MOST_PAIRS + extra, MOST_PAIRS, extra)


def test_an_idle_run_is_no_decode():
    heat = Heat()
    heat.add(run_of(0, 3, kind=IDLE))
    assert heat.levels([0], 4)[:2] == bytes([0, 15 << 4])
