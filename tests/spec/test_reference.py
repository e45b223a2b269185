"""The reference scheduler, one behaviour a test: modes, orders, preemption, memory, lags, speculation.

Whole traces are judged by the checker in tests/replay/test_simulate.py; here small ones are read.
"""

from typing import Any

import pytest

from batchspec.spec.errors import ProfileError, SpecError
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference import ReferenceScheduler

OVERLAP = {"depth": 2, "slot_lag": 1, "overlap_member": 1, "ordered_passes": True}


def profile(**groups: dict[str, Any]) -> Profile:
    return Profile.from_dict(groups)


def paged(blocks: int, size: int = 4, seqs: int = 4, budget: int = 64, **groups: dict[str, Any]) -> Profile:
    limits = {"max_seqs": seqs, "token_budget": budget, "kv_blocks": blocks, "block_size": size}
    return Profile.from_dict({"limits": limits | groups.pop("limits", {}), **groups})


def request(name: str, prompt: int, outputs: int, **columns: Any) -> Record:
    return Record(name, 0, prompt, outputs, **columns)


def run(scheduler: ReferenceScheduler, *records: Record, steps: int = 200) -> list[Event]:
    for record in records:
        scheduler.add(record, record.arrival_ns)
    events: list[Event] = []
    while not scheduler.idle:
        events += scheduler.step(scheduler.now_ns)
        assert scheduler.step_number < steps, "no end in sight"
    return events


def happened(events: list[Event], *kinds: str) -> list[tuple[int, str, Any]]:
    return [(e.step, e.event, e.request) for e in events if e.event in kinds]


def members(events: list[Event], step: int) -> dict[Any, int | None]:
    return {e.request: e.tokens for e in events if e.event == "schedule" and e.step == step}


# -- modes -----------------------------------------------------------------------------------------


def test_static_admits_nobody_until_the_last_member_has_ended() -> None:
    scheduler = ReferenceScheduler(profile(limits={"max_seqs": 2}, batching={"mode": "static"}))
    events = run(scheduler, request("A", 1, 1), request("B", 1, 3), request("C", 1, 1))
    assert happened(events, "admit") == [(1, "admit", "A"), (1, "admit", "B"), (4, "admit", "C")]


@pytest.mark.parametrize(
    ("claims", "arrivals", "batches"),
    [
        # Full at once; the next one waits out its window.
        ({"window_ns": 50}, (0, 0, 0), [(0, 2), (50, 1)]),
        # No window: whoever is there leaves.
        ({"window_ns": 0}, (0, 7, 8), [(0, 1), (7, 1), (8, 1)]),
        # A preferred size leaves early; what is late leaves whatever its size.
        ({"window_ns": 50, "preferred_sizes": [1]}, (0, 0, 0), [(0, 1), (0, 1), (0, 1)]),
        ({"window_ns": 50}, (0, 10, 20), [(10, 2), (70, 1)]),
    ],
)
def test_dynamic_batches_leave_full_or_late(
    claims: dict[str, Any], arrivals: tuple[int, ...], batches: list[tuple[int, int]]
) -> None:
    """Triton's dynamic batcher, TR5 and TR6, for requests of one step each and passes that take no time."""
    scheduler = ReferenceScheduler(profile(limits={"max_seqs": 2}, batching={"mode": "dynamic"} | claims))
    started: list[tuple[int, int]] = []
    for now in range(0, 80):
        for number, arrival in enumerate(arrivals):
            if arrival == now:
                scheduler.add(Record(number, arrival, 1, 1), now)
        while True:
            rows = scheduler.step(now)
            admitted = sum(e.event == "admit" for e in rows)
            if not admitted:
                break
            started.append((now, admitted))
    assert started == batches


def test_continuous_refills_a_seat_in_the_step_after_the_end() -> None:
    scheduler = ReferenceScheduler(profile(limits={"max_seqs": 1}))
    events = run(scheduler, request("A", 1, 2), request("B", 1, 1))
    assert happened(events, "finish", "admit") == [
        (1, "admit", "A"),
        (2, "finish", "A"),
        (3, "admit", "B"),
        (3, "finish", "B"),
    ]


# -- the shape of a step ---------------------------------------------------------------------------


def test_a_prompt_is_cut_to_the_budget_left_by_decodes() -> None:
    scheduler = ReferenceScheduler(profile(limits={"max_seqs": 4, "token_budget": 4}))
    events = run(scheduler, request("A", 1, 4), request("B", 7, 1))
    assert [members(events, step) for step in (1, 2, 3)] == [
        {"A": 1, "B": 3},
        {"A": 1, "B": 3},
        {"A": 1, "B": 1},
    ]


def test_without_chunked_prefill_a_prompt_waits_until_it_fits_whole() -> None:
    claims = profile(
        limits={"max_seqs": 4, "token_budget": 4}, batching={"chunked_prefill": False}, admission={}
    )
    events = run(ReferenceScheduler(claims), request("A", 1, 2), request("B", 4, 1), request("C", 5, 1))
    assert [members(events, step) for step in (1, 2, 3)] == [{"A": 1}, {"A": 1}, {"B": 4}]
    assert [(e.request, e.reason) for e in events if e.event == "reject"] == [("C", "too_long")]


def test_stall_free_serves_decodes_before_a_prompt_in_progress() -> None:
    """Sarathi-Serve, algorithm 3: lines 6-8 before 9-12, whoever joined first."""
    claims = profile(
        limits={"max_seqs": 2, "token_budget": 4, "prefill_budget": 3}, batching={"stall_free": True}
    )
    scheduler = ReferenceScheduler(claims)
    events = run(scheduler, request("long", 9, 1), request("short", 1, 5))
    for step in range(1, 4):
        tokens = members(events, step)
        assert tokens["long"] == 3
    for step in range(scheduler.step_number + 1):
        names = list(members(events, step))
        assert names != ["long", "short"] or step == 1


def test_prefill_first_keeps_the_phases_apart() -> None:
    claims = profile(
        limits={"max_seqs": 2, "token_budget": 4}, batching={"prefill_first": True, "mixed": False}
    )
    events = run(ReferenceScheduler(claims), request("A", 1, 3), request("B", 10, 1))
    assert [members(events, step) for step in range(1, 6)] == [
        {"A": 1, "B": 3},
        {"B": 4},
        {"B": 3},
        {"A": 1},
        {"A": 1},
    ]


@pytest.mark.parametrize("mixed", [True, False])
def test_prompts_keep_a_decode_from_running_only_as_long_as_the_profile_allows(mixed: bool) -> None:
    claims = profile(
        limits={"max_seqs": 2, "token_budget": 1},
        batching={"prefill_first": True, "mixed": mixed},
        patience={"rules": {"liveness/starved-member": 5}},
    )
    events = run(ReferenceScheduler(claims), request("A", 1, 4), request("B", 100, 1))
    served = [e.step for e in events if e.event == "schedule" and e.request == "A"]
    assert served == [1, 6, 11, 16], "B is admitted in step 2 and has the budget to itself"


# -- orders and misfits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "expected"),
    [("fcfs", "ABC"), ("sjf", "CAB"), ("priority", "BCA"), ("fair", "ACB")],
)
def test_each_order_admits_its_next(order: str, expected: str) -> None:
    claims = profile(limits={"max_seqs": 1}, admission={"order": order, "urgent": "low"})
    events = run(
        ReferenceScheduler(claims),
        request("A", 5, 2, priority=9, tenant="x"),
        request("B", 6, 2, priority=1, tenant="x"),
        request("C", 1, 2, priority=1, tenant="y"),
    )
    assert "".join(e.request for e in events if e.event == "admit") == expected  # type: ignore[misc]


def test_stop_blocks_behind_a_misfit_and_skip_passes_it_a_few_times() -> None:
    records = [request("run", 8, 9), request("big", 12, 1), *(request(f"s{i}", 1, 1) for i in range(4))]
    stop = paged(4, seqs=2, admission={"misfit": "stop", "test": "known"})
    assert [e.request for e in run(ReferenceScheduler(stop), *records) if e.event == "admit"][1] == "big"
    skip = paged(4, seqs=2, admission={"misfit": "skip", "skip_ahead": 2, "test": "known"})
    events = run(ReferenceScheduler(skip), *records)
    assert [e.request for e in events if e.event == "admit"] == ["run", "s0", "s1", "big", "s2", "s3"]
    assert [(e.request, e.reason) for e in events if e.event == "skip"] == [("big", "memory")] * 2


# -- memory ----------------------------------------------------------------------------------------


def test_a_request_that_can_never_fit_is_refused_and_one_that_outgrows_the_pool_ends() -> None:
    claims = paged(3, limits={"max_model_len": 100})
    events = run(
        ReferenceScheduler(claims), request("long", 100, 1), request("big", 13, 1), request("grows", 10, 9)
    )
    ends = [(e.event, e.request, e.reason) for e in events if e.event in ("reject", "abort", "finish")]
    assert ends == [
        ("reject", "long", "too_long"),
        ("reject", "big", "too_long"),
        ("abort", "grows", "memory"),
    ]
    assert [e.output_tokens for e in events if e.event == "abort"] == [3], "12 positions hold 10 + 3 - 1"


def test_full_reservation_is_taken_at_admission_and_never_preempts() -> None:
    claims = paged(5, admission={"test": "full", "reserve": "full"}, preemption={"mode": "none"})
    events = run(ReferenceScheduler(claims), request("A", 4, 8), request("B", 4, 8))
    assert happened(events, "admit", "finish") == [
        (1, "admit", "A"),
        (8, "finish", "A"),
        (9, "admit", "B"),
        (16, "finish", "B"),
    ]
    assert {e.blocks for e in events if e.event == "schedule"} == {3}


def test_watermark_keeps_blocks_free_only_while_somebody_runs() -> None:
    claims = paged(4, admission={"watermark_blocks": 2, "test": "known"})
    events = run(ReferenceScheduler(claims), request("A", 12, 1), request("B", 4, 1), request("C", 4, 1))
    assert happened(events, "admit") == [(1, "admit", "A"), (2, "admit", "B"), (2, "admit", "C")]


def test_the_latest_admitted_is_preempted_and_returns_before_new_ones() -> None:
    claims = paged(
        4, seqs=3, admission={"test": "step"}, preemption={"victim": "latest-admitted", "resume": "front"}
    )
    events = run(ReferenceScheduler(claims), request("A", 8, 5), request("B", 8, 3), request("C", 4, 1))
    assert happened(events, "preempt", "resume", "admit") == [
        (1, "admit", "A"),
        (1, "admit", "B"),
        (2, "preempt", "B"),
        (6, "resume", "B"),
        (6, "admit", "C"),
    ]
    (preempt,) = [e for e in events if e.event == "preempt"]
    assert (preempt.reason, preempt.cause, preempt.blocks, preempt.block_ids) == ("recompute", "A", 0, (2, 3))
    assert [e.cached for e in events if e.event == "resume"] == [0]


def test_swap_keeps_c_and_falls_back_to_recompute_where_the_host_is_full() -> None:
    for host, reason, cached in ((2, "swap", 8), (1, "recompute", 0)):
        claims = paged(
            4, limits={"host_blocks": host}, admission={"test": "known"}, preemption={"mode": "swap"}
        )
        events = run(ReferenceScheduler(claims), request("A", 8, 5), request("B", 8, 3))
        assert [e.reason for e in events if e.event == "preempt"] == [reason]
        assert [e.cached for e in events if e.event == "resume"] == [cached]


def test_a_request_that_gives_way_itself_may_keep_its_blocks() -> None:
    """LMDeploy: it waits with its blocks, and they are taken from it when somebody needs them."""
    claims = paged(
        4,
        admission={"test": "known"},
        preemption={"victim": "self", "keeps_blocks": True, "resume": "arrival"},
    )
    events = run(ReferenceScheduler(claims), request("A", 8, 5), request("B", 7, 4))
    first = next(e for e in events if e.event == "preempt")
    assert (first.request, first.cause, first.blocks) == ("A", "A", 2)
    assert {e.request for e in events if e.event == "finish"} == {"A", "B"}


def test_a_more_urgent_waiting_request_evicts_strictly_less_urgent_ones() -> None:
    claims = profile(
        limits={"max_seqs": 1},
        admission={"order": "priority", "urgent": "high"},
        preemption={"mode": "recompute", "victim": "least-urgent", "for_waiting": True, "resume": "front"},
    )
    scheduler = ReferenceScheduler(claims)
    scheduler.add(request("low", 4, 3, priority=1), 0)
    events = scheduler.step(0)
    scheduler.add(request("same", 4, 1, priority=1), 0)
    scheduler.add(request("high", 4, 1, priority=2), 0)
    events += run(scheduler)
    assert happened(events, "preempt", "resume", "admit") == [
        (1, "admit", "low"),
        (2, "preempt", "low"),
        (2, "admit", "high"),
        (3, "resume", "low"),
        (5, "admit", "same"),
    ]
    assert members(events, 2) == {"low": 1, "high": 4}, "low had a part in step 2, and lost it again"


def test_only_the_newest_of_those_denied_a_block_goes() -> None:
    claims = paged(6, preemption={"victim": "newest-denied"}, admission={"test": "step"})
    events = run(ReferenceScheduler(claims), request("A", 8, 5), request("B", 7, 9), request("C", 8, 5))
    first = next(e for e in events if e.event == "preempt")
    assert (first.request, first.cause) == ("C", "A")


def test_admission_by_prediction_waits_for_the_predicted_peak() -> None:
    """Past-Future: admit only while what is predicted fits; the arrival says what was predicted."""
    claims = paged(5, admission={"test": "peak", "reserve": "step"})
    records = [request("A", 4, 8, max_tokens=40), request("B", 4, 8, max_tokens=40)]
    foretold = ReferenceScheduler(claims, predictor=lambda record: record.output_tokens or 0)
    events = run(foretold, *records)
    assert [e.prediction for e in events if e.event == "arrive"] == [8, 8]
    assert happened(events, "admit") == [(1, "admit", "A"), (1, "admit", "B")], "3 blocks, 4 free"
    worst = run(ReferenceScheduler(claims), *records)
    assert [e.prediction for e in worst if e.event == "arrive"] == [16, 16], "cut to what the pool can hold"
    assert [step for step, _, _ in happened(worst, "admit")] == [1, 9]


def test_where_waiting_is_allowed_nobody_comes_back_for_nothing_again_and_again() -> None:
    claims: dict[str, Any] = {
        "limits": {"max_seqs": 2, "token_budget": 3, "kv_blocks": 16, "block_size": 1},
        "admission": {"test": "step", "reserve": "step"},
        "preemption": {"resume": "back"},
    }
    preempted = []
    for conserving in (True, False):
        claims["admission"]["work_conserving"] = conserving
        events = run(
            ReferenceScheduler(Profile.from_dict(claims)), request("A", 4, 11), request("B", 9, 2), steps=400
        )
        preempted.append(len(happened(events, "preempt")))
    assert preempted[0] > preempted[1]


# -- prefix sharing --------------------------------------------------------------------------------


def shared(same_pass: bool) -> Profile:
    return paged(8, seqs=4, admission={"test": "known"}, reuse={"prefix": True, "same_pass": same_pass})


def test_blocks_of_a_common_prefix_are_taken_over_once_computed() -> None:
    scheduler = ReferenceScheduler(shared(same_pass=False))
    scheduler.add(request("A", 9, 3, prefix_hashes=(1, 2, 3)), 0)
    events = scheduler.step(0)
    scheduler.add(request("B", 9, 2, prefix_hashes=(1, 2, 4)), 0)
    scheduler.add(request("C", 8, 2, prefix_hashes=(1, 2)), 0)
    events += run(scheduler)
    joined = {e.request: (e.cached, e.block_ids) for e in events if e.event == "admit"}
    assert joined["B"] == (8, (0, 1, 3))
    assert joined["C"] == (4, (0, 4)), "at most n - 1 positions: something must be left to compute"
    assert [e.shared_blocks for e in events if e.event == "step"][1] == 3
    keys = {e.request: e.block_hashes for e in events if e.event in ("admit", "schedule") and e.block_hashes}
    assert keys["B"] == keys["A"]


@pytest.mark.parametrize(("same_pass", "cached"), [(True, 8), (False, 0)])
def test_a_block_of_this_very_pass_is_shared_only_where_claimed(same_pass: bool, cached: int) -> None:
    events = run(
        ReferenceScheduler(shared(same_pass)),
        request("A", 9, 1, prefix_hashes=(1, 2)),
        request("B", 9, 1, prefix_hashes=(1, 2)),
    )
    assert [e.cached for e in events if e.event == "admit"] == [0, cached]


def test_hashes_of_another_block_size_still_name_the_same_content() -> None:
    scheduler = ReferenceScheduler(shared(same_pass=True), hash_block=8)
    events = run(
        scheduler,
        request("A", 17, 1, prefix_hashes=(1, 2)),
        request("B", 17, 1, prefix_hashes=(1, 3)),
    )
    assert [e.cached for e in events if e.event == "admit"] == [0, 8]


# -- speculation, parking, ends --------------------------------------------------------------------


def test_rejected_drafts_are_taken_back() -> None:
    scheduler = ReferenceScheduler(paged(9, batching={"lookahead": 3}), drafter=lambda r, outputs: (3, 1))
    events = run(scheduler, request("A", 4, 6))
    parts = [(e.start, e.tokens, e.drafts) for e in events if e.event == "schedule"]
    assert parts == [(0, 4, 0), (4, 4, 3), (6, 3, 2), (8, 1, 0)]
    assert [e.tokens for e in events if e.event == "output"] == [1, 2, 2, 1]


def test_a_parked_request_waits_until_it_is_ready_and_then_is_looked_at() -> None:
    scheduler = ReferenceScheduler(profile(limits={"max_seqs": 1}))
    scheduler.add(request("A", 1, 9), 0)
    scheduler.park("A", "grammar")
    scheduler.add(request("B", 1, 3), 0)
    events = scheduler.step(0)
    scheduler.ready("A")
    events += run(scheduler)
    assert happened(events, "park", "ready", "skip", "admit") == [
        (1, "park", "A"),
        (1, "admit", "B"),
        (2, "ready", "A"),
        (2, "skip", "A"),
        (3, "skip", "A"),
        (4, "admit", "A"),
    ]


def test_a_cancelled_request_ends_in_the_same_step_and_frees_what_it_held() -> None:
    scheduler = ReferenceScheduler(paged(4))
    scheduler.add(request("A", 8, 9), 0)
    scheduler.add(request("B", 16, 1), 0)
    scheduler.step(0)
    scheduler.cancel("A")
    events = scheduler.step(0)
    assert happened(events, "cancel", "abort", "admit") == [
        (2, "cancel", "A"),
        (2, "abort", "A"),
        (2, "admit", "B"),
    ]


def test_queue_limit_rate_limit_and_time_limit() -> None:
    claims = profile(
        limits={"max_seqs": 1, "max_waiting": 2, "queue_timeout_ns": 5},
        fairness={"rate_limits": {"x": {"requests": 1, "per_ns": 100}}},
    )
    scheduler = ReferenceScheduler(claims)
    for name, tenant in (("A", "x"), ("B", "x"), ("C", "y"), ("D", "y")):
        scheduler.add(request(name, 1, 3, tenant=tenant), 0)
    events = scheduler.step(0) + scheduler.step(5) + scheduler.step(6)
    assert [(e.step, e.event, e.request, e.reason) for e in events if e.reason] == [
        (1, "reject", "B", "rate"),
        (1, "reject", "D", "queue_full"),
        (3, "abort", "C", "timeout"),
        (3, "finish", "A", "length"),
    ]


def test_responses_leave_in_the_order_of_arrival_where_that_is_claimed() -> None:
    """Triton's dynamic batcher, TR9, preserve_ordering."""
    claims = profile(limits={"max_seqs": 4}, fairness={"delivery": "arrival"})
    scheduler = ReferenceScheduler(claims)
    for name, outputs in (("A", 3), ("B", 1), ("C", 9), ("D", 2)):
        scheduler.add(request(name, 1, outputs), 0)
    events = scheduler.step(0) + scheduler.step(0) + scheduler.step(0)
    scheduler.cancel("C")
    events += run(scheduler)
    assert happened(events, "finish", "abort", "deliver") == [
        (1, "finish", "B"),
        (2, "finish", "D"),
        (3, "finish", "A"),
        (3, "deliver", "A"),
        (3, "deliver", "B"),
        (4, "abort", "C"),
        (4, "deliver", "D"),
    ]


def test_a_swap_shows_as_transfers_where_the_device_is_shown() -> None:
    claims = paged(4, limits={"host_blocks": 2}, admission={"test": "known"}, preemption={"mode": "swap"})
    events = run(ReferenceScheduler(claims, level="L4"), request("A", 8, 5), request("B", 8, 3))
    kinds = ("transfer_begin", "transfer_end", "preempt", "resume")
    moves = [(e.event, e.reason, e.block_ids) for e in events if e.event in kinds]
    assert [name for name, _, _ in moves] == [
        *("transfer_begin", "transfer_end", "preempt"),
        *("resume", "transfer_begin", "transfer_end"),
    ]
    assert [reason for _, reason, _ in moves] == ["swap_out", "swap_out", "swap", None, "swap_in", "swap_in"]
    assert moves[0][2] == moves[2][2] == (2, 3)
    assert moves[3][2] is not None
    assert moves[4][2] == moves[3][2][:2]


# -- lags and overlap ------------------------------------------------------------------------------


def test_a_lag_holds_seat_and_blocks_back() -> None:
    claims = paged(2, seqs=1, reuse={"slot_lag": 1, "block_lag": 2}, admission={"test": "known"})
    events = run(ReferenceScheduler(claims), request("A", 8, 1), request("B", 8, 1))
    assert happened(events, "finish", "admit")[:3] == [
        (1, "admit", "A"),
        (1, "finish", "A"),
        (4, "admit", "B"),
    ]
    assert [e.free_blocks for e in events if e.event == "step"][:4] == [0, 0, 0, 0]


def test_blocks_held_until_release() -> None:
    claims = paged(2, reuse={"block_lag": "release"})
    events = run(ReferenceScheduler(claims), request("A", 8, 1))
    assert [(e.step, e.event, e.blocks) for e in events if e.event in ("finish", "release")] == [
        (1, "finish", 2),
        (2, "release", 0),
    ]
    assert [e.free_blocks for e in events if e.event == "step"] == [0, 2]


def test_two_passes_in_flight() -> None:
    """vLLM v1 with overlap: results come one step late, a stop is noticed after one pass too many."""
    claims = paged(8, seqs=1, reuse=OVERLAP)
    scheduler = ReferenceScheduler(claims, level="L4")
    events = run(scheduler, request("A", 4, 2, max_tokens=9), request("B", 4, 2))
    kinds = ("admit", "schedule", "output", "finish", "dispatch", "complete")
    rows = [(e.step, e.event, e.request or e.pass_) for e in events if e.event in kinds]
    assert rows == [
        (1, "admit", "A"),
        (1, "schedule", "A"),
        (1, "dispatch", 1),
        (2, "schedule", "A"),
        (2, "dispatch", 2),
        (2, "complete", 1),
        (2, "output", "A"),
        (3, "schedule", "A"),
        (3, "dispatch", 3),
        (3, "complete", 2),
        (3, "output", "A"),
        (3, "finish", "A"),
        (4, "admit", "B"),
        (4, "schedule", "B"),
        (4, "dispatch", 4),
        (4, "complete", 3),
        (5, "schedule", "B"),
        (5, "dispatch", 5),
        (5, "complete", 4),
        (5, "output", "B"),
        (6, "complete", 5),
        (6, "output", "B"),
        (6, "finish", "B"),
    ]


# -- the face --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"admission": {"test": "step", "reserve": "full"}}, "set admission.test to full"),
        ({"admission": {"test": "peak", "reserve": "known+2"}}, "set admission.test to known"),
        ({"limits": {"kv_blocks": 3}}, "limits.kv_blocks needs limits.block_size"),
        ({"batching": {"stall_free": True, "mixed": False}}, "stall_free contradicts prefill first"),
        (
            {"preemption": {"for_waiting": True, "admit_in_same_step": False}},
            "needs preemption.admit_in",
        ),
        ({"reuse": {"depth": 3}}, "at most 2 passes"),
        ({"reuse": {"depth": 2}}, "needs reuse.slot_lag 1"),
        ({"reuse": {"depth": 2, "slot_lag": 1}}, "needs reuse.overlap_member 1"),
        ({"reuse": {"depth": 2, "slot_lag": 1, "overlap_member": 1}}, "needs reuse.ordered_passes"),
        ({"reuse": OVERLAP, "preemption": {"mode": "swap"}}, "needs preemption.mode recompute"),
    ],
)
def test_claims_that_contradict_each_other_are_refused(groups: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        ReferenceScheduler(Profile.from_dict(groups))


def test_misuse_is_refused_in_one_line() -> None:
    with pytest.raises(SpecError, match="level must be one of L1, L2, L3, L4"):
        ReferenceScheduler(Profile(), level="L0")
    scheduler = ReferenceScheduler(Profile())
    scheduler.add(request("A", 1, 9), 0)
    scheduler.step(10)
    with pytest.raises(SpecError, match="'A' is live already"):
        scheduler.add(request("A", 1, 1), 0)
    with pytest.raises(SpecError, match="output_tokens must be at least 1"):
        scheduler.add(request("B", 1, 0), 0)
    with pytest.raises(SpecError, match="time runs backwards"):
        scheduler.step(9)


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("L1", set()),
        ("L2", {"blocks", "free_blocks", "pinned_blocks", "shared_blocks"}),
        ("L3", {"blocks", "free_blocks", "pinned_blocks", "shared_blocks", "block_ids"}),
        ("L4", {"blocks", "free_blocks", "pinned_blocks", "shared_blocks", "block_ids", "pass_"}),
    ],
)
def test_a_level_decides_what_the_rows_show(level: str, shown: set[str]) -> None:
    events = run(ReferenceScheduler(paged(8), level=level), request("A", 4, 3))
    columns = {name for e in events for name, value in e._asdict().items() if value is not None}
    hidden = {"blocks", "free_blocks", "pinned_blocks", "shared_blocks", "block_ids", "pass_"}
    assert columns & hidden == shown


def test_same_calls_same_rows() -> None:
    records = [request(f"r{i}", 3 + i % 5, 2 + i % 3, tenant="xy"[i % 2]) for i in range(12)]
    claims = paged(6, admission={"order": "fair", "test": "step"})
    assert run(ReferenceScheduler(claims), *records) == run(ReferenceScheduler(claims), *records)
