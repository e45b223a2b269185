"""The simulator's clock and input, and the law: whatever the reference scheduler does conforms."""

from itertools import count, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchspec.replay.checker import check
from batchspec.replay.cost import CostModel
from batchspec.replay.generate import Run, random_records, random_run
from batchspec.replay.simulate import simulate, trace_of
from batchspec.spec.errors import SpecError
from batchspec.spec.events import Event
from batchspec.spec.library import load_profile, profile_names
from batchspec.spec.metrics import measure
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference import ReferenceScheduler, StepShape

LEVELS = ("L1", "L2", "L3", "L4")
MODES = ("static", "dynamic", "continuous")
ORDERS = ("fcfs", "sjf", "priority", "fair")


def findings(run: Run, level: str) -> tuple[int, list[str]]:
    """Steps of a run, and what the checker finds in it: there must be nothing."""
    trace = run.trace(level)
    report = check(trace, run.profile)
    found = [f"{f.rule}, step {f.step}: {f.message}" for f in report.findings]
    found += [f"{r.id} is open" for r in report.rules if r.verdict == "open"]
    return report.steps, found


# -- the law ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ORDERS)
@given(st.randoms(use_true_random=False), st.sampled_from(LEVELS))
def test_the_reference_scheduler_conforms(mode: str, order: str, random: Random, level: str) -> None:
    assert findings(random_run(random, mode, order), level)[1] == []


@pytest.mark.parametrize("name", profile_names())
@given(st.randoms(use_true_random=False), st.sampled_from(LEVELS))
@settings(max_examples=20)
def test_it_does_what_each_shipped_profile_claims(name: str, random: Random, level: str) -> None:
    """No shipped profile contradicts itself, and its own claims can all be kept."""
    claims = load_profile(name)
    size = random.choice((1, 2, 4))
    limits = {
        "max_seqs": random.randint(1, 6),
        "token_budget": random.randint(2 if claims.batching.chunked_prefill else 20, 32),
        "block_size": size,
        "kv_blocks": max(4, random.randint(20, 64) // size),
        "max_model_len": 48,
    }
    if claims.preemption.mode == "swap":
        limits["host_blocks"] = 12
    profile = claims.merged(Profile.from_dict({"limits": limits}))
    aborts = {f"r{number}": random.randint(0, 200) for number in range(12) if random.random() < 0.1}
    drafts = (profile.batching.lookahead or 0) if profile.value("reuse.depth") == 1 else 0
    assert findings(Run(profile, random_records(random, profile), aborts, {}, drafts), level)[1] == []


def conforms_for(steps: int) -> None:
    done = 0
    for seed in count():
        if done >= steps:
            return
        run = random_run(Random(seed))
        walked, found = findings(run, LEVELS[seed % 4])
        assert found == [], f"seed {seed} at {LEVELS[seed % 4]}: {run.profile.to_dict()}"
        done += walked


def test_the_reference_scheduler_conforms_for_ten_thousand_steps() -> None:
    conforms_for(10_000)


@pytest.mark.slow
def test_the_reference_scheduler_conforms_for_a_million_steps() -> None:
    conforms_for(1_000_000)


@given(st.randoms(use_true_random=False))
def test_every_level_tells_the_same_story(random: Random) -> None:
    run = random_run(random)
    hidden = ("blocks", "block_ids", "block_hashes", "free_blocks", "pinned_blocks", "shared_blocks")
    nothing = dict.fromkeys(hidden)

    def told(level: str) -> list[Event]:
        device = ("dispatch", "complete", "transfer_begin", "transfer_end")
        rows = (event for event in run.events(level) if event.event not in device)
        return [event._replace(**nothing) for event in rows]

    assert told("L1") == told("L2") == told("L3") == told("L4")


@given(st.randoms(use_true_random=False))
def test_same_run_same_rows_and_each_request_ends_once(random: Random) -> None:
    run = random_run(random)
    events = list(run.events())
    assert events == list(run.events())
    ends = [event.request for event in events if event.event in ("finish", "abort", "reject")]
    assert sorted(map(str, ends)) == sorted(str(record.request) for record in run.records)
    measured = measure(events, max_seqs=run.profile.limits.max_seqs)
    assert measured.requests == measured.finished + measured.aborted + measured.rejected


# -- the clock -------------------------------------------------------------------------------------

TEN = CostModel(base_ns=10, per_token_ns=0, per_kv_position_ns=0, per_member_ns=0)


def one_seat(**groups: dict[str, Any]) -> Profile:
    return Profile.from_dict({"limits": {"max_seqs": 1}, **groups})


def test_a_request_arrives_in_the_first_step_that_starts_at_or_after_its_time() -> None:
    records = [Record("A", 5, 1, 3), Record("B", 15, 1, 1), Record("C", 16, 1, 1)]
    events = list(simulate(records, one_seat(), cost=TEN))
    arrived = [(e.request, e.step, e.time_ns) for e in events if e.event == "arrive"]
    starts = [(e.request, e.step, e.time_ns) for e in events if e.event == "schedule"]
    assert arrived == [("A", 1, 5), ("B", 2, 15), ("C", 3, 16)], "a step starts at 5, 15 and 25"
    assert [time for _, _, time in starts] == [5, 15, 25, 35, 45]
    assert [e.time_ns for e in events if e.event == "finish"] == [35, 45, 55]


def test_idle_time_is_jumped_over_without_a_step() -> None:
    events = list(simulate([Record(0, 0, 1, 1), Record(1, 10**12, 1, 1)], one_seat(), cost=TEN))
    assert [(e.step, e.time_ns) for e in events if e.event == "step"] == [(1, 10), (2, 10**12 + 10)]


def test_speed_divides_the_times_of_arrival() -> None:
    records = [Record(i, 100 * i, 1, 1) for i in range(3)]
    events = list(simulate(records, one_seat(), cost=TEN, speed=4))
    assert [e.time_ns for e in events if e.event == "arrive"] == [0, 25, 50]


def test_a_client_cancels_after_its_patience_and_not_after_its_end() -> None:
    records = [Record("A", 0, 1, 5), Record("B", 0, 1, 5), Record("C", 0, 1, 1)]
    events = list(simulate(records, one_seat(), cost=TEN, aborts={"A": 12, "B": 9_999}))
    assert [(e.step, e.event, e.request) for e in events if e.event in ("cancel", "abort")] == [
        (3, "cancel", "A"),
        (3, "abort", "A"),
    ]
    assert events[-1].step == 8


def test_a_window_is_waited_out_in_one_jump() -> None:
    claims = Profile.from_dict(
        {"limits": {"max_seqs": 4}, "batching": {"mode": "dynamic", "window_ns": 1_000_000}}
    )
    events = list(simulate([Record("A", 7, 1, 1)], claims, cost=TEN))
    assert [(e.step, e.time_ns) for e in events if e.event == "step"] == [(1, 7), (2, 1_000_017)]


def test_acceptance_of_drafts_is_drawn_from_the_seed() -> None:
    claims = Profile.from_dict({"batching": {"lookahead": 3}})

    def outputs(seed: int, accept: float) -> list[int | None]:
        events = simulate([Record("A", 0, 1, 40)], claims, seed=seed, drafts=3, accept=accept)
        return [e.tokens for e in events if e.event == "output"]

    assert outputs(1, 0.5) == outputs(1, 0.5) != outputs(2, 0.5)
    assert set(outputs(1, 0.0)) == {1}
    assert max(token or 0 for token in outputs(1, 1.0)) == 4


def test_the_trace_says_under_which_claims_it_was_made() -> None:
    claims = Profile.from_dict({"limits": {"max_seqs": 2, "kv_blocks": 9, "block_size": 4}})
    trace = trace_of([Record("A", 0, 6, 3)], claims, cost=TEN)
    assert trace.header is not None
    assert trace.header.clock == "virtual"
    assert trace.header.config == claims.to_dict()
    assert trace.header.outputs == "derived"
    assert trace.complete
    assert trace.num_rows == len(list(simulate([Record("A", 0, 6, 3)], claims, cost=TEN)))


def test_records_out_of_order_and_bad_options_are_refused() -> None:
    with pytest.raises(SpecError, match="'B' arrives before the one above it"):
        list(simulate([Record("A", 5, 1, 1), Record("B", 4, 1, 1)], Profile()))
    with pytest.raises(SpecError, match="speed must be above 0"):
        simulate([], Profile(), speed=0)
    with pytest.raises(SpecError, match="prompt_tokens must be at least 1, not None"):
        list(simulate([Record("A", 0)], Profile()))


def test_a_run_that_gets_nowhere_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler whose outputs never come, as a livelock would have it."""
    monkeypatch.setattr(ReferenceScheduler, "emitted", property(lambda self: 0))
    monkeypatch.setattr(ReferenceScheduler, "known_tokens", property(lambda self: 10))
    with pytest.raises(SpecError, match=r"no output token in 4096 steps; .* \(give more limits\.kv_blocks"):
        list(simulate([Record("A", 0, 1, 50_000)], one_seat(), cost=TEN))


def test_no_request_no_step() -> None:
    assert list(simulate([], Profile())) == []


# -- the cost model --------------------------------------------------------------------------------


def test_cost_is_linear_and_an_empty_step_is_free() -> None:
    model = CostModel(base_ns=1000, per_token_ns=10, per_kv_position_ns=1, per_member_ns=100)
    assert model(StepShape()) == 0
    assert model(StepShape(members=2, tokens=5, decodes=1, kv_positions=40)) == 1000 + 50 + 40 + 200


def test_decoding_together_is_cheaper_than_one_after_the_other() -> None:
    """The reason for batching: each weight is read once a step, whoever shares it."""
    records = [Record(i, 0, 10, 50) for i in range(8)]
    spans = []
    for seats in (1, 2, 4, 8):
        claims = Profile.from_dict({"limits": {"max_seqs": seats}})
        spans.append(list(simulate(records, claims))[-1].time_ns or 0)
    assert all(fewer > 1.5 * more for fewer, more in pairwise(spans))
