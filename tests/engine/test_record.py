"""Recording a run, and following it: the same rows, the same tokens, and what happens in trouble."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchspec.engine import record as module
from batchspec.engine.engine import Engine
from batchspec.engine.errors import EngineError
from batchspec.engine.follow import Followed, compare, follow
from batchspec.engine.kv_cache import KVCache
from batchspec.engine.model import Model
from batchspec.engine.options import completed, engine_profile
from batchspec.engine.record import record
from batchspec.engine.workload import prompt_of, requests_of
from batchspec.replay.checker import check
from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.reader import open_trace


def records(count: int) -> list[Record]:
    rng = random.Random(3)
    return [Record(f"r{i}", i * 3_000_000, rng.randint(1, 40), rng.randint(1, 24)) for i in range(count)]


def small(preempt: str = "recompute") -> Profile:
    return engine_profile(
        preempt=preempt, max_seqs=6, token_budget=24, kv_blocks=18, block_size=4, reuse={"prefix": True}
    )


@pytest.mark.parametrize("preempt", ["recompute", "swap"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_recorded_run_conforms_and_its_tokens_do_not_depend_on_it(
    tmp_path: Path, dtype: str, preempt: str
) -> None:
    model = Model.random(dtype=dtype)
    done = record(
        requests_of(records(30), 1000, seed=7), tmp_path / "run", small(preempt), model=model, seed=7
    )
    assert done.stopped is None
    assert done.preemptions > 5
    trace = open_trace(tmp_path / "run")
    assert trace.complete
    assert trace.header is not None
    report = check(trace, Profile.from_dict(trace.header.config or {}))
    assert report.verdict == "conforms"
    assert report.level == "L3"
    followed = follow(model, trace.events, seed=7, block_size=4)
    assert {name: tuple(found.tokens) for name, found in followed.items()} == done.tokens
    result, findings = compare(model, followed)
    assert (result.verdict, findings) == ("conforms", [])
    assert result.checked == sum(len(tokens) for tokens in done.tokens.values())


def test_kv_that_comes_back_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model.random(dtype="float64")
    record(requests_of(records(30), 1000, seed=7), tmp_path / "run", small("swap"), model=model)
    right = KVCache.swap_in

    def wrong(self: KVCache, host: list[int], blocks: list[int]) -> None:
        right(self, host, blocks[::-1])

    monkeypatch.setattr(KVCache, "swap_in", wrong)
    result, findings = compare(
        model, follow(model, open_trace(tmp_path / "run").events, seed=7, block_size=4)
    )
    assert result.verdict == "violates"
    assert findings[0].rule == "outputs/invariant"
    assert "depends on how it was scheduled" in findings[0].message


def test_a_near_tie_is_no_violation_and_ends_the_comparison() -> None:
    model = Model.random(dtype="float64")
    prompt = prompt_of(0, 0, 5, 1000)
    done = Engine(model, keep_margins=True).complete
    from batchspec.engine.sequence import Request

    tokens = list(done([Request("a", prompt, 4)])["a"].tokens)
    other = [tokens[0], (tokens[1] + 1) % 1000, 1, 2]
    seen = {"a": Followed(prompt, 0, other, [0.0] * 4, [1, 2, 3, 4])}
    result, findings = compare(model, seen)
    assert (result.verdict, result.skipped, result.checked) == ("conforms", 1, 2)
    seen["a"].margins = [1.0] * 4
    result, findings = compare(model, seen, tolerance=1e-9)
    assert (result.verdict, findings[0].step) == ("violates", 2)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([Event(1, "live", "a", prompt_tokens=3)], "begins with live requests"),
        ([Event(1, "arrive", "a")], "without prompt_tokens"),
        ([Event(1, "schedule", "a", start=0, tokens=1)], "which is not live"),
        (
            [Event(1, "arrive", "a", prompt_tokens=3), Event(1, "admit", "a"), Event(1, "schedule", "a")],
            "needs start and tokens",
        ),
        (
            [
                Event(1, "arrive", "a", prompt_tokens=3),
                Event(1, "admit", "a"),
                Event(1, "schedule", "a", start=0, tokens=4),
            ],
            "computes up to 4, its known tokens are 3",
        ),
    ],
)
def test_what_cannot_be_repeated_is_one_clear_line(events: list[Event], says: str) -> None:
    with pytest.raises(EngineError, match=says):
        follow(Model.random(), lambda: events)


def test_a_full_disk_ends_the_recording_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(module.JournaledRecorder):
        def write_batch(self, batch: pa.RecordBatch) -> None:
            if self.rows > 100:
                raise TraceError("run: cannot be written (No space left on device)")
            super().write_batch(batch)

    class Hasty(module.Tape):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, flush_rows=60)

    monkeypatch.setattr(module, "JournaledRecorder", Full)
    monkeypatch.setattr(module, "Tape", Hasty)
    told: list[str] = []
    done = record(requests_of(records(20), 1000), tmp_path / "run", small(), warn=told.append)
    assert all(done.tokens.values())
    assert len(told) == 1
    assert done.stopped == told[0]
    assert "recording stopped at step" in told[0]
    assert "No space left on device" in told[0]
    trace = open_trace(tmp_path / "run")
    assert not trace.complete
    assert trace.num_rows > 100


def test_an_engine_that_fails_leaves_what_it_recorded(tmp_path: Path) -> None:
    def fail(engine: Engine) -> None:
        if engine.scheduler.step == 20:
            raise RuntimeError("device lost")

    with pytest.raises(RuntimeError):
        record(requests_of(records(20), 1000), tmp_path / "run", small(), each_step=fail)
    trace = open_trace(tmp_path / "run")
    assert not trace.complete
    assert max(event.step for event in trace.events()) == 20


def test_usage_says_what_the_run_made_of_its_device(tmp_path: Path) -> None:
    both = {}
    for mode in ("static", "continuous"):
        profile = completed(Profile.from_dict({"batching": {"mode": mode}, "preemption": {"mode": "none"}}))
        both[mode] = record(requests_of(records(20), 1000), tmp_path / mode, profile).usage
    assert both["continuous"].padding_waste == 0
    assert 0.2 < both["static"].padding_waste < 1
    assert both["continuous"].weight_reuse > 1
    assert both["continuous"].arithmetic_intensity > 1
    assert 0 < both["continuous"].busy <= 1


def test_equal_prefix_hashes_become_equal_tokens() -> None:
    given = [
        Record("a", 0, 10, 2, prefix_hashes=(5, 6, 7)),
        Record("b", 0, 12, 2, prefix_hashes=(5, 6, 8)),
        Record("c", 0, 12, 2, prefix_hashes=(9, 6, 8)),
    ]
    a, b, c = (item.prompt for item in requests_of(given, 1000, seed=1, hash_block=4))
    assert a[:8] == b[:8]
    assert a[8:] != b[8:10]
    assert b[:4] != c[:4]
    assert (len(a), len(b)) == (10, 12)
