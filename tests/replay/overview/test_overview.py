"""The overview of whole runs, against the metrics and against the rule on fair shares."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from batchspec.replay.checker import Walk
from batchspec.replay.generate import random_run
from batchspec.replay.overview.overview import Overview
from batchspec.replay.simulate import trace_of
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.scenario import parse_scenario


def overview_of(trace, profile, **options):
    made = Overview(profile, columns=trace.columns, recorded=trace.outputs_recorded, **options)
    return made.feed(trace.events())


@given(st.randoms(use_true_random=False))
def test_the_figures_over_the_steps_add_up_to_the_metrics(random):
    run = random_run(random)
    trace = run.trace()
    overview = overview_of(trace, run.profile)
    metrics, buckets = overview.metrics, overview.buckets
    assert overview.steps == metrics.steps
    assert sum(map(sum, (buckets.sums(name) for name in ("prefill", "decode", "again")))) == (
        metrics.computed_tokens
    )
    assert sum(buckets.sums("finished")) == metrics.finished
    assert sum(buckets.sums("preempted")) == overview.preemptions.total == metrics.preemptions
    assert sum(buckets.sums("arrived")) == metrics.requests
    depth = metrics.queue_depth
    if depth is not None:
        assert max(buckets.peaks("waiting")) == depth.largest
        assert sum(buckets.sums("waiting")) == round(depth.mean * depth.count)


@given(st.randoms(use_true_random=False))
def test_the_pool_is_never_fuller_than_it_is_and_empty_at_the_end(random):
    run = random_run(random)
    trace = run.trace()
    overview = overview_of(trace, run.profile)
    used = [value for value in overview.buckets.peaks("blocks") if value is not None]
    assert max(used, default=0) <= run.profile.limits.kv_blocks
    by_rows = Overview(run.profile, columns=trace.columns - {"free_blocks"}).feed(trace.events())
    assert not by_rows.counted_blocks
    if (
        "blocks" in trace.columns
        and not run.profile.reuse.prefix
        and not run.profile.value("reuse.block_lag")
    ):
        assert by_rows.buckets.peaks("blocks") == overview.buckets.peaks("blocks")


def fair_trace(seed):
    random, now, records = Random(seed), 0, []
    for number in range(40):
        now += random.randint(0, 30)
        outputs = random.randint(1, 12)
        tenant = random.choice("aabc")
        records.append(Record(number, now, random.randint(1, 20), outputs, max_tokens=outputs, tenant=tenant))
    profile = Profile.from_dict(
        {
            "limits": {"max_seqs": 3, "token_budget": 24, "kv_blocks": 40, "block_size": 4},
            "batching": {"mode": "continuous", "chunked_prefill": True, "mixed": True},
            "admission": {"order": "fair", "misfit": "stop", "test": "full", "reserve": "full"},
            "preemption": {"mode": "none"},
            "fairness": {"weights": {"b": 2.0}} if seed % 2 else {},
        }
    )
    return trace_of(records, profile, seed=seed), profile


@given(st.integers(0, 200))
def test_the_widest_drift_is_the_one_that_the_rule_judges(seed):
    trace, profile = fair_trace(seed)
    overview = overview_of(trace, profile)
    walk = Walk(profile, trace.columns, frozenset(trace.kinds))
    walk.feed_all(trace.events())
    drifts = [value for value in overview.buckets.peaks("drift") if value is not None]
    rule = walk.rules["fairness/service-gap"]
    assert max(drifts, default=-1) == rule._top


def test_steps_are_places_and_their_numbers_are_kept():
    trace = parse_scenario(
        "5 arrive A prompt=1\n5 step\n6 step\n40 admit A\n40 schedule A start=0 tokens=1\n41 step\n90 step\n"
    )
    overview = overview_of(trace, Profile(), wanted=[40, 7])
    assert overview.steps == 5
    assert [overview.step_of(place) for place in range(5)] == [5, 6, 40, 41, 90]
    assert overview.places == {40: 2}


def test_the_pool_may_be_of_unknown_size():
    trace = parse_scenario(
        "1 arrive A prompt=1\n1 admit A blocks=2\n1 step free=6\n2 finish A stop\n2 step free=8\n"
    )
    overview = overview_of(trace, Profile())
    assert overview.buckets.peaks("blocks") == [2, 0]
    known = replace(Profile(), limits=Profile.from_dict({"limits": {"kv_blocks": 9}}).limits)
    assert overview_of(trace, known).buckets.peaks("blocks") == [3, 1]


def test_what_became_of_each_request_is_kept_for_the_picture():
    trace = parse_scenario(
        "1 arrive A prompt=3\n1 admit A\n1 schedule A start=0 tokens=3\n1 step\n"
        "2 schedule A start=3 tokens=1\n2 finish A stop\n2 step\n"
    )
    served = overview_of(trace, Profile()).served
    assert served["A"].prompt_tokens == 3
    assert served["A"].output_tokens == 2
    assert served["A"].end == "finish"
