"""Frames for notebooks: the same figures as the plain functions, whole numbers kept whole."""

import pandas as pd

from batchspec.replay.frames import events_frame, outcomes_frame, passes_frame, requests_frame
from batchspec.replay.outcome import FIGURES, SETTINGS, measured, measured_trace
from batchspec.replay.simulate import simulate, trace_of
from batchspec.spec.library import load_profile
from batchspec.spec.metrics import measure
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record

LATE = 1_700_000_000_123_456_789
PROFILE = load_profile("batchspec").merged(
    Profile.from_dict({"limits": {"max_seqs": 4, "token_budget": 32, "kv_blocks": 12, "block_size": 4}})
)
RECORDS = [Record(n, LATE + n * 1_000_000, 9 + n, 6 + n % 5, tenant="ab"[n % 2]) for n in range(12)]
TRACE = trace_of(RECORDS, PROFILE)


def test_requests_are_those_of_the_metrics() -> None:
    frame = requests_frame(TRACE)
    metrics = measure(TRACE.events())
    assert len(frame) == metrics.requests
    assert metrics.ttft is not None
    assert frame.ttft_ns.sum() == round(metrics.ttft.mean * metrics.ttft.count)
    assert frame.queueing_ns.max() == (metrics.queueing_delay and metrics.queueing_delay.largest)
    assert frame.preemptions.sum() == metrics.preemptions > 0
    assert frame.recomputed.sum() == round(metrics.recomputed_share * metrics.computed_tokens)
    assert set(frame.groupby("tenant").output_tokens.sum()) == {
        sum(r.output_tokens or 0 for r in RECORDS if r.tenant == name) for name in "ab"
    }


def test_clocks_keep_every_digit_also_beside_a_null() -> None:
    frame = requests_frame(TRACE)
    assert LATE in set(frame.arrival_ns)
    events = events_frame(TRACE)
    assert str(events.time_ns.dtype) == str(events.start.dtype) == "Int64"
    assert events.time_ns.min() == LATE
    assert events.start.isna().any()


def test_events_are_rows_and_a_stretch_of_them() -> None:
    frame = events_frame(TRACE)
    assert len(frame) == TRACE.num_rows
    assert "resource" not in frame, "nothing but nulls"
    part = events_frame(TRACE, 10, 20)
    pd.testing.assert_series_equal(
        part.event.reset_index(drop=True), frame.event[10:20].reset_index(drop=True), check_dtype=False
    )


def test_passes_add_up() -> None:
    frame = passes_frame(TRACE)
    metrics = measure(TRACE.events())
    assert len(frame) == metrics.passes
    assert frame.tokens.sum() == metrics.computed_tokens
    assert frame.members.max() == (metrics.members_per_pass and metrics.members_per_pass.largest)
    assert (frame.duration_ns > 0).all()


def test_outcomes_have_a_row_a_run_and_a_column_a_figure() -> None:
    sjf = PROFILE.merged(Profile.from_dict({"admission": {"order": "sjf"}}))
    found = [
        measured(simulate(RECORDS, each), each, label=str(each.admission.order)) for each in (PROFILE, sjf)
    ]
    frame = outcomes_frame(found)
    assert list(frame.columns) == [*SETTINGS, *(figure.name for figure in FIGURES)]
    assert list(frame.run) == list(frame.policy) == ["fcfs", "sjf"]
    assert list(frame.preemptions) == [outcome.metrics.preemptions for outcome in found]
    assert list(outcomes_frame([]).columns) == list(frame.columns)


def test_a_recorded_run_has_the_figures_of_the_simulated_one() -> None:
    simulated = measured(simulate(RECORDS, PROFILE, level="L1"), PROFILE, label="x")
    assert measured_trace(TRACE, label="x").row() == simulated.row()
