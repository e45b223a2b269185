"""The engine end to end: real tokens, whatever the batch does."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from batchspec.engine.engine import Engine
from batchspec.engine.errors import EngineError
from batchspec.engine.model import Model
from batchspec.engine.options import MODES, ORDERS, PREEMPTIONS, engine_profile
from batchspec.engine.sampler import Sampling
from batchspec.engine.sequence import Request
from batchspec.engine.tape import Tape


@pytest.fixture(scope="module")
def exact() -> Model:
    """The tiny model in float64: tokens are then the same to the last one, whatever the batch."""
    return Model.random(seed=5, dtype="float64")


def workload(count: int, seed: int = 0) -> list[Request]:
    rng, now, requests = random.Random(seed), 0, []
    shared = tuple(rng.randrange(1000) for _ in range(12))
    for index in range(count):
        now += rng.randrange(12_000_000)
        own = tuple(rng.randrange(1000) for _ in range(rng.randint(1, 24)))
        requests.append(
            Request(
                f"r{index}",
                shared + own if index % 2 else own,
                rng.randint(1, 24),
                arrival_ns=now,
                tenant=f"t{index % 3}",
                priority=index % 3,
                sampling=Sampling(temperature=0.8, seed=index) if index % 5 == 0 else Sampling(),
            )
        )
    return requests


@pytest.fixture(scope="module")
def alone(exact: Model) -> dict[Any, tuple[tuple[int, ...], str]]:
    """What each request gives when it has the engine to itself."""
    found = {}
    for request in workload(24):
        done = Engine(exact, engine_profile(max_seqs=1, token_budget=64, kv_blocks=32)).complete([request])
        found[request.id] = (done[request.id].tokens, done[request.id].finish)
    return found


@pytest.mark.parametrize("preempt", PREEMPTIONS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
def test_tokens_do_not_depend_on_how_they_were_scheduled(
    exact: Model, alone: dict[Any, Any], mode: str, order: str, preempt: str
) -> None:
    profile = engine_profile(
        mode,
        order,
        preempt,
        max_seqs=6,
        token_budget=20,
        kv_blocks=17,
        block_size=4,
        reuse={"prefix": order in ("fcfs", "priority")},
    )
    engine = Engine(exact, profile)
    done = engine.complete(workload(24))
    assert {name: (found.tokens, found.finish) for name, found in done.items()} == alone
    if preempt != "none" and mode == "continuous":
        assert engine.scheduler.preemptions > 10


def test_the_same_workload_writes_the_same_rows() -> None:
    runs = []
    for _ in range(2):
        batches: list[pa.RecordBatch] = []
        profile = engine_profile("dynamic", "fair", "swap", max_seqs=4, token_budget=16, kv_blocks=16)
        Engine(Model.random(), profile, tape=Tape(batches.append)).complete(workload(20))
        runs.append(pa.Table.from_batches(batches))
    assert runs[0].equals(runs[1])
    assert runs[0].num_rows > 100


def test_recording_changes_nothing() -> None:
    profile = engine_profile(max_seqs=4, token_budget=16, kv_blocks=16, block_size=4)
    plain = Engine(Model.random(), profile).complete(workload(20))
    taped = Engine(Model.random(), profile, tape=Tape(lambda batch: None)).complete(workload(20))
    assert plain == taped


def test_a_sink_in_trouble_ends_the_recording_and_not_the_engine() -> None:
    def full(batch: pa.RecordBatch) -> None:
        raise OSError(28, "No space left on device")

    tape = Tape(full, flush_rows=10)
    done = Engine(Model.random(), tape=tape).complete(workload(8))
    assert len(done) == 8
    assert str(tape.broken) == "[Errno 28] No space left on device"
    assert not tape.rows, "what cannot be written is not kept either"


def test_stop_tokens_and_recorded_lengths_end_a_request() -> None:
    engine = Engine(Model.random())
    free = engine.complete([Request("a", (1, 2, 3), 12)])["a"]
    assert (len(free.tokens), free.finish) == (12, "length")
    token = free.tokens[5]
    stopped = engine.complete([Request("b", (1, 2, 3), 12, stop_tokens=frozenset({token}))])["b"]
    assert stopped.tokens == free.tokens[: free.tokens.index(token) + 1]
    assert stopped.finish == "stop"
    short = engine.complete([Request("c", (1, 2, 3), 12, stop_after=4)])["c"]
    assert (short.tokens, short.finish) == (free.tokens[:4], "stop")


def test_outputs_carry_their_place_and_time() -> None:
    outputs = list(Engine(Model.random()).generate([Request("a", (1, 2), 3, arrival_ns=1_000)]))
    assert [output.index for output in outputs] == [0, 1, 2]
    assert [output.finish for output in outputs] == [None, None, "length"]
    assert outputs[0].time_ns == 1_000 + 10_000_000 + 2 * 50_000


def test_many_streams_share_the_engine_and_one_may_leave(exact: Model) -> None:
    engine = Engine(exact, engine_profile(max_seqs=4, token_budget=16, kv_blocks=64, block_size=4))
    requests = [Request(f"s{index}", (index, 2, 3), 30) for index in range(5)]

    async def read(request: Request, most: int) -> list[int]:
        tokens: list[int] = []
        stream = engine.stream(request)
        async for output in stream:
            if output.token is not None:
                tokens.append(output.token)
            if len(tokens) == most:
                await stream.aclose()  # type: ignore[attr-defined]
                break
        return tokens

    async def main() -> list[list[int]]:
        return await asyncio.gather(
            *(read(item, 3 if index == 2 else 99) for index, item in enumerate(requests))
        )

    found = asyncio.run(main())
    assert [len(tokens) for tokens in found] == [30, 30, 3, 30, 30]
    assert engine.scheduler.pool.num_free == 64
    assert found[0] == list(Engine(exact).complete([requests[0]])["s0"].tokens)


def test_a_stream_of_an_engine_in_trouble_does_not_wait_for_ever() -> None:
    engine = Engine(Model.random())

    def fail(plan: object) -> None:
        raise RuntimeError("device lost")

    engine.runner.execute = fail  # type: ignore[method-assign, assignment]

    async def main() -> None:
        async for _ in engine.stream(Request("a", (1,), 3)):
            pass

    with pytest.raises(RuntimeError, match="device lost"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (lambda: Request("a", (), 1), "a prompt token and max_tokens"),
        (lambda: Request("a", (1,), 0), "a prompt token and max_tokens"),
        (lambda: Request("a", (1,), 1, stop_after=0), "stop_after must be at least 1"),
        (lambda: Request("a", (1000,), 1), "outside the vocabulary"),
        (lambda: Request("a", (1,) * 10, 5000), "exceed the model's 4096 positions"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(request_: Callable[[], Request], says: str) -> None:
    with pytest.raises(EngineError, match=says):
        Engine(Model.random()).submit(request_())


def test_an_id_is_free_again_after_its_end_and_not_before() -> None:
    engine = Engine(Model.random())
    engine.submit(Request("a", (1,), 2))
    with pytest.raises(EngineError, match="still live"):
        engine.submit(Request("a", (1,), 2))
    while engine.busy:
        engine.step()
    assert len(engine.complete([Request("a", (1,), 2)])["a"].tokens) == 2


def test_a_cancel_before_arrival_leaves_no_trace() -> None:
    engine = Engine(Model.random())
    engine.submit(Request("late", (1,), 2, arrival_ns=10**12))
    engine.cancel("late")
    while engine.busy:
        assert engine.step() == []
    engine.submit(Request("late", (1,), 2))


def test_memory_stays_where_it_is_over_many_requests() -> None:
    engine = Engine(Model.random(), engine_profile(max_seqs=8, token_budget=64, kv_blocks=32, block_size=4))
    held = engine.runner.cache.nbytes
    for index in range(10_000):
        engine.submit(Request(index, (index % 7, 3), 2))
        while len(engine._known) > 16:
            engine.step()
    while engine.busy:
        engine.step()
    assert engine.runner.cache.nbytes == held
    assert not engine.scheduler.sequences
    assert not engine._known
    assert len(engine.scheduler._queue._heap._heap) < 200  # type: ignore[attr-defined]
