"""The scheduler under every kind of profile: what it records conforms, and everybody gets served."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from batchspec.engine.errors import EngineError
from batchspec.engine.options import MODES, ORDERS, PREEMPTIONS, Options, engine_profile
from batchspec.engine.sequence import Request
from batchspec.spec import profile as claims_of
from batchspec.spec.profile import Profile

WORKED = (6, 2, 8, 3, 5, 2, 7, 3)


def worked_example() -> list[Request]:
    return [Request(f"r{index}", (1,), length) for index, length in enumerate(WORKED)]


@pytest.mark.parametrize(("mode", "makespan"), [("static", 15), ("continuous", 12)])
def test_the_worked_example(drive: Callable[..., Any], mode: str, makespan: int) -> None:
    profile = engine_profile(mode, max_seqs=4, token_budget=8, kv_blocks=32, block_size=4)
    run = drive(profile, worked_example())
    members = sum(event.event == "schedule" for event in run.events)
    assert members == 36
    assert run.scheduler.step == makespan


def test_static_batching_shows_the_rows_it_wastes(drive: Callable[..., Any]) -> None:
    from batchspec.engine.scheduler import Scheduler

    scheduler = Scheduler(
        Options.of(engine_profile("static", max_seqs=2, token_budget=8, kv_blocks=8, block_size=4))
    )
    scheduler.begin(0)
    scheduler.add(Request("a", (1, 1, 1), 1))
    scheduler.add(Request("b", (1,), 2))
    plan = scheduler.schedule()
    assert (plan.tokens, plan.padding) == (4, 2), "the short prompt is padded to the long one"
    scheduler.commit(plan, list(plan.sequences), [0, 0], 1)
    scheduler.begin(1)
    plan = scheduler.schedule()
    assert (plan.tokens, plan.padding) == (1, 1), "the member that ended is still computed"


def test_what_can_never_fit_is_rejected_and_the_rest_goes_on(
    drive: Callable[..., Any], judge: Callable[..., Any]
) -> None:
    profile = engine_profile(max_seqs=2, token_budget=8, kv_blocks=4, block_size=4)
    run = drive(profile, [Request("big", (1,) * 17, 4), Request("small", (1,) * 4, 4)])
    assert run.ends == {"big": "rejected: too_long", "small": "length"}
    assert judge(run).verdict == "conforms"


def test_a_request_that_outgrows_the_pool_alone_is_ended(
    drive: Callable[..., Any], judge: Callable[..., Any]
) -> None:
    profile = engine_profile(max_seqs=2, token_budget=8, kv_blocks=4, block_size=4)
    run = drive(profile, [Request("a", (1,) * 10, 100), Request("b", (1,) * 3, 4)])
    assert run.ends == {"a": "memory", "b": "length"}
    assert run.outputs["a"] == 7
    assert judge(run).verdict == "conforms"


def test_a_full_queue_refuses(drive: Callable[..., Any], judge: Callable[..., Any]) -> None:
    profile = engine_profile(max_seqs=1, token_budget=4, kv_blocks=8, block_size=4, limits={"max_waiting": 2})
    run = drive(profile, [Request(name, (1,), 3) for name in "abcd"])
    refused = [name for name, end in run.ends.items() if end == "rejected: queue_full"]
    assert refused == ["c", "d"]
    assert judge(run).verdict == "conforms"


def test_a_cancel_ends_a_request_wherever_it_stands(
    drive: Callable[..., Any], judge: Callable[..., Any]
) -> None:
    profile = engine_profile(max_seqs=1, token_budget=4, kv_blocks=8, block_size=4)
    run = drive(profile, [Request(name, (1,), 5) for name in "abc"], {3: ["a", "b", "nobody"]})
    assert run.ends == {"a": "client", "b": "client", "c": "length"}
    assert judge(run).verdict == "conforms"


def test_a_model_length_bounds_the_outputs(drive: Callable[..., Any], judge: Callable[..., Any]) -> None:
    profile = engine_profile(
        max_seqs=1, token_budget=4, kv_blocks=8, block_size=4, limits={"max_model_len": 6}
    )
    run = drive(profile, [Request("a", (1,) * 4, 50), Request("b", (1,) * 6, 1)])
    assert run.ends == {"a": "length", "b": "rejected: too_long"}
    assert run.outputs["a"] == 2
    assert judge(run).verdict == "conforms"


@pytest.mark.parametrize(
    ("claims", "names"),
    [
        ({"reuse": {"slot_lag": 1}}, "reuse.slot_lag = 1"),
        ({"batching": {"mixed": False}}, "batching.mixed = False"),
        ({"limits": {"token_budget": 2}}, "limits.token_budget 2 must be at least"),
        ({"preemption": {"mode": "none"}}, 'needs admission.test and reserve "full"'),
        ({"admission": {"test": "known", "reserve": "full"}}, "must not ask for more"),
        ({"batching": {"chunked_prefill": False}}, "limits.max_model_len must be given"),
    ],
)
def test_a_profile_that_the_engine_cannot_keep_is_refused(claims: dict[str, Any], names: str) -> None:
    with pytest.raises(EngineError) as error:
        Options.of(engine_profile().merged(Profile.from_dict(claims)))
    assert names in str(error.value)
    assert "\n" not in str(error.value)


def test_a_policy_of_ones_own_is_refused_and_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's queues keep the shipped orders; they know no other."""
    for path in claims_of._ADDED:
        monkeypatch.setitem(claims_of._ADDED, path, {"own": None})
    for claims in ({"admission": {"order": "own"}}, {"preemption": {"victim": "own"}}):
        with pytest.raises(EngineError, match="= 'own' is not something this engine does"):
            Options.of(engine_profile().merged(Profile.from_dict(claims)))


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    mode, order = draw(st.sampled_from(MODES)), draw(st.sampled_from(ORDERS))
    preempt = draw(st.sampled_from(PREEMPTIONS))
    seqs, blocks = draw(st.integers(1, 6)), draw(st.integers(3, 24))
    admission: dict[str, object] = {"misfit": draw(st.sampled_from(["stop", "skip"]))}
    if admission["misfit"] == "skip" and draw(st.booleans()):
        admission["skip_ahead"] = draw(st.integers(0, 3))
    if preempt != "none":
        # `step` alone may preempt a request again and again before it comes to anything: `thrash`.
        needs = ["known", "known+2", "full"]
        test = draw(st.sampled_from(needs))
        admission |= {"test": test, "reserve": draw(st.sampled_from(["step", "known", test]))}
        admission["watermark_blocks"] = draw(st.integers(0, 1))
    if order == "priority":
        admission["urgent"] = draw(st.sampled_from(["low", "high"]))
    preemption: dict[str, object] = {
        "resume": draw(st.sampled_from(["front", "back", "arrival"])),
        "admit_in_same_step": draw(st.booleans()),
    }
    limits: dict[str, object] = {}
    if draw(st.booleans()):
        limits["max_model_len"] = draw(st.integers(8, 40))
    if preempt == "swap":
        limits["host_blocks"] = draw(st.integers(0, blocks))
    batching: dict[str, object] = {}
    if mode == "dynamic":
        batching["window_ns"] = draw(st.sampled_from([0, 10_000_000, 200_000_000]))
        if draw(st.booleans()):
            batching["preferred_sizes"] = [draw(st.integers(1, seqs))]
    return engine_profile(
        mode,
        order,
        preempt,
        max_seqs=seqs,
        token_budget=seqs + draw(st.integers(0, 20)),
        kv_blocks=blocks,
        block_size=draw(st.sampled_from([1, 2, 4, 8])),
        limits=limits,
        batching=batching,
        admission=admission,
        preemption=preemption,
        reuse={"prefix": draw(st.booleans())},
    )


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    requests, now = [], 0
    for index in range(draw(st.integers(1, 30))):
        now += draw(st.sampled_from([0, 0, 5_000_000, 30_000_000]))
        requests.append(
            Request(
                f"r{index}",
                tuple(draw(st.lists(st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=24))),
                draw(st.integers(1, 20)),
                arrival_ns=now,
                stop_after=draw(st.sampled_from([None, None, 3])),
                tenant=f"t{draw(st.integers(0, 2))}",
                priority=draw(st.integers(0, 2)),
            )
        )
    return requests


@settings(max_examples=60)
@given(
    profile=profiles(), requests=workloads(), cancels=st.dictionaries(st.integers(1, 40), st.integers(0, 9))
)
def test_every_run_conforms_and_ends(
    drive: Callable[..., Any],
    judge: Callable[..., Any],
    profile: Profile,
    requests: list[Request],
    cancels: dict[int, int],
) -> None:
    try:
        Options.of(profile)
    except EngineError:
        assume(False)
    run = drive(profile, requests, {step: [f"r{index}"] for step, index in cancels.items()})
    scheduler = run.scheduler
    assert len(run.ends) == len(requests)
    assert scheduler.pool.num_free == scheduler.options.kv_blocks
    report = judge(run)
    assert not report.findings, report.findings[0].message


def test_a_lower_level_says_less_and_still_conforms(
    drive: Callable[..., Any], judge: Callable[..., Any]
) -> None:
    profile = engine_profile(preempt="swap", max_seqs=4, token_budget=8, kv_blocks=8, block_size=2)
    requests = [Request(f"r{index}", (1,) * 5, 6) for index in range(6)]
    for level, blocks, ids in (("L1", False, False), ("L2", True, False), ("L3", True, True)):
        run = drive(profile, requests, level=level)
        assert any(event.blocks is not None for event in run.events) is blocks
        assert any(event.block_ids is not None for event in run.events) is ids
        report = judge(run)
        assert (report.level, report.verdict) == (level, "conforms")
