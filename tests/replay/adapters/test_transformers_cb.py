"""Continuous batching of transformers under test, where the version that the adapter knows is installed."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from batchspec.replay.adapters import transformers as adapter

try:
    INSTALLED = version("transformers")
except PackageNotFoundError:
    INSTALLED = None
if INSTALLED not in adapter.KNOWN:
    pytest.skip("no transformers that the adapter knows", allow_module_level=True)

from batchspec.replay.adapters.recording import BackgroundWriter
from batchspec.replay.adapters.transformers_recorder import Pages, Recorder, header_of
from batchspec.replay.checker import check
from batchspec.replay.claims import claimed, named_profile
from batchspec.replay.drive import Script, drive
from batchspec.replay.harness import HarnessError, Refused, Request
from batchspec.spec.profile import Profile
from batchspec.traces.flight import Keep
from batchspec.traces.reader import open_trace

pytestmark = pytest.mark.filterwarnings("default")  # those of torch are not ours


def claims(**more) -> Profile:
    limits = {"max_seqs": 4, "token_budget": 16, "kv_blocks": 8, "block_size": 4, **more.pop("limits", {})}
    return named_profile("transformers").merged(Profile.from_dict({"limits": limits, **more}, "test"))


def test_it_keeps_the_rules_that_must_hold() -> None:
    profile = claims()
    scripts = [
        Script(
            Request(f"r{number}", tuple(range(3, 4 + number % 13)), 1 + number % 9, 1, arrival_ns=7 * number),
            1 + number % 9,
        )
        for number in range(12)
    ]

    run = drive(adapter.make(profile), scripts, profile)

    assert (run.crash, run.unfinished) == (None, ())
    assert run.trace.kinds["preempt"] > 0
    assert [
        finding.rule for finding in check(run.trace, profile).findings if "liveness" not in finding.rule
    ] == []


def test_a_cancel_after_a_preemption_stops_it_for_good() -> None:
    """A fault of 5.24: after offloading, admission opens again only when a request finishes."""
    profile = claims(limits={"max_seqs": 2, "token_budget": 15, "kv_blocks": 10, "block_size": 2})
    first = Request("A", tuple(range(3, 10)), 7, 1)
    second = Request("B", tuple(range(30, 37)), 3, 1, arrival_ns=41)

    run = drive(
        adapter.make(profile), [Script(first, 7), Script(second, 3, abort_ns=20)], profile, stall_steps=50
    )

    assert run.stalled
    assert run.unfinished == ("A",)


def test_what_is_refused() -> None:
    under_test = adapter.make(claims(limits={"max_model_len": 8}))

    for request in (Request("e", (), 3, 1), Request("m", (3,), 0, 1), Request("l", (3,) * 8, 3, 1)):
        with pytest.raises(Refused):
            under_test.add(request)


def test_the_asynchronous_loop_is_not_driven() -> None:
    with pytest.raises(HarnessError, match="streams"):
        adapter.make(claims(reuse={"depth": 2}))


def test_a_recorded_processor_leaves_a_trace_whose_cuts_conform(tmp_path) -> None:
    """The real processor under the recorder; each part begins with what is live, so any can be the first."""
    engine = adapter.parts()
    processor = adapter.processor(engine, claims(limits={"kv_blocks": 12}))
    now = iter(range(1, 10**6))
    writer = BackgroundWriter(
        tmp_path / "t",
        header_of(processor, "test"),
        Pages(),
        Keep(ns=80),
        clock=lambda: next(now),
        start=False,
    )
    Recorder(processor, writer, clock=lambda: next(now))
    for number in range(8):
        prompt = list(range(3, 8 + number))
        processor.scheduler.add_waiting_request(
            engine.RequestState(request_id=f"r{number}", initial_tokens=prompt, max_new_tokens=9)
        )
    inputs = processor.inputs_and_outputs
    inputs.prepare_batch_update = lambda: (inputs.requests_in_batch, [7] * 64, None)
    while processor.prepare_next_batch():
        processor.update_batch()
        writer.flush()
    writer.close(complete=True)

    parts = sorted((tmp_path / "t").iterdir())
    assert len(parts) > 2
    for part in parts[:-1]:
        trace = open_trace(tmp_path / "t")
        found = check(trace, claimed(trace.header.profile, trace.header.config)).findings
        assert [finding for finding in found if not finding.rule.startswith("liveness/")] == []
        part.unlink()
