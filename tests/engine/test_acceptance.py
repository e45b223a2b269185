"""A slice of a production trace through a small pool: thousands of preemptions, cancels mixed in.

Every request ends, the trace conforms at L3, and the tokens are those of each request alone.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchspec.engine.config import ModelConfig
from batchspec.engine.engine import Engine
from batchspec.engine.model import Model
from batchspec.engine.options import MODES, ORDERS, PREEMPTIONS, engine_profile
from batchspec.engine.record import record
from batchspec.engine.sequence import Request
from batchspec.engine.workload import requests_of
from batchspec.replay.checker import check
from batchspec.spec.profile import Profile
from batchspec.traces.importers import ImportLog, by_name
from batchspec.traces.reader import open_trace

DATA = Path(__file__).parents[1] / "data" / "azure_llm_2023_code_2000.csv"
TINY = ModelConfig(
    vocab_size=200,
    hidden_size=32,
    intermediate_size=48,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
)


def requests(count: int) -> list[Request]:
    """Prompts a two-hundredth as long, outputs as they were up to 60, arrivals sixty times as fast."""
    rows = list(by_name("azure").read(DATA, ImportLog(strict=True)))[:count]
    found = []
    for index, item in enumerate(requests_of(rows, TINY.vocab_size, prompt_divisor=200)):
        outputs = min(60, item.max_tokens)
        found.append(
            replace(
                item,
                arrival_ns=item.arrival_ns // 60,
                max_tokens=outputs,
                stop_after=None,
                tenant=f"t{index % 4}",
                priority=index % 3,
            )
        )
    return found


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.random(TINY, seed=11, dtype="float64")


@pytest.fixture(scope="module")
def alone(model: Model) -> Callable[[Request], tuple[int, ...]]:
    """The tokens of a request that has the engine to itself, computed once."""
    known: dict[Any, tuple[int, ...]] = {}
    profile = engine_profile(max_seqs=1, token_budget=128, kv_blocks=64, block_size=4)

    def tokens(request: Request) -> tuple[int, ...]:
        if request.id not in known:
            single = replace(request, arrival_ns=0)
            known[request.id] = Engine(model, profile).complete([single])[request.id].tokens
        return known[request.id]

    return tokens


def served(
    folder: Path, model: Model, alone: Callable[[Request], tuple[int, ...]], count: int, profile: Profile
) -> int:
    """Serve, check, compare; the number of preemptions."""
    given = requests(count)
    rng = random.Random(1)
    cancelled: set[Any] = set()

    def cancel(engine: Engine) -> None:
        if rng.random() < 0.01 and engine.scheduler.sequences:
            name = rng.choice(sorted(engine.scheduler.sequences, key=str))
            cancelled.add(name)
            engine.cancel(name)

    done = record(given, folder / "run", profile, model=model, each_step=cancel)
    assert done.stopped is None
    for request in given:
        found = done.tokens[request.id]
        wanted = alone(request)
        assert found == (wanted[: len(found)] if request.id in cancelled else wanted)
    trace = open_trace(folder / "run")
    assert trace.header is not None
    report = check(trace, Profile.from_dict(trace.header.config or {}))
    assert not report.findings, report.findings[0].message
    assert (report.verdict, report.level, report.requests) == ("conforms", "L3", count)
    assert {rule.verdict for rule in report.rules} <= {"conforms", "not checkable"}
    assert sum(event.event in ("finish", "abort") for event in trace.events()) == count
    return done.preemptions


def profile_of(mode: str, order: str, preempt: str) -> Profile:
    return engine_profile(
        mode,
        order,
        preempt,
        max_seqs=24,
        token_budget=64,
        kv_blocks=88,
        block_size=2,
        reuse={"prefix": order in ("fcfs", "fair")},
    )


@pytest.mark.parametrize("preempt", PREEMPTIONS)
def test_a_short_slice(
    tmp_path: Path, model: Model, alone: Callable[[Request], tuple[int, ...]], preempt: str
) -> None:
    preemptions = served(tmp_path, model, alone, 120, profile_of("continuous", "fcfs", preempt))
    assert (preemptions > 20) is (preempt != "none")


@pytest.mark.slow
@pytest.mark.parametrize("preempt", PREEMPTIONS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
def test_two_thousand_requests(
    tmp_path: Path,
    model: Model,
    alone: Callable[[Request], tuple[int, ...]],
    mode: str,
    order: str,
    preempt: str,
) -> None:
    preemptions = served(tmp_path, model, alone, 2000, profile_of(mode, order, preempt))
    if mode == "continuous" and preempt != "none":
        assert preemptions > 1500, preemptions
