"""The engine on a GPU, in under eight minutes: correctness first, then each speed against its own floor.

    python bench/gpu.py [--parts correct,decode,prefill,recorder,transformers] [--seconds 440]

Needs a CUDA build of torch, Triton and one GPU; without one it says so and ends. The model is random,
of about one billion parameters in bfloat16. Floors are measured in the same run: the bandwidth of a
device copy for decoding (weights and KV are each read once a step), a large product for prefill.
"""

import argparse
import importlib.util
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from batchspec.engine.config import ModelConfig
from batchspec.engine.engine import Engine
from batchspec.engine.measure import matmul_ceiling, pass_flops
from batchspec.engine.model import Model
from batchspec.engine.options import engine_profile
from batchspec.engine.runner import Runner
from batchspec.engine.sequence import Request
from batchspec.engine.tape import Tape
from batchspec.traces.header import Header
from batchspec.traces.journal import JournaledRecorder

BILLION = ModelConfig(
    vocab_size=128_256,
    hidden_size=2048,
    intermediate_size=8192,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    max_positions=4096,
)
"""About one billion parameters that a token is multiplied with."""

SMALL = ModelConfig(vocab_size=500, hidden_size=128, intermediate_size=256, num_layers=3, head_dim=32)


def requests_for(
    config: ModelConfig, count: int, prompt: tuple[int, int], outputs: tuple[int, int]
) -> list[Request]:
    """Random prompts, all there at time 0."""
    rng = random.Random(0)
    return [
        Request(
            f"r{index}",
            tuple(rng.randrange(config.vocab_size) for _ in range(rng.randint(*prompt))),
            rng.randint(*outputs),
        )
        for index in range(count)
    ]


def correct() -> None:
    """The same tokens on the GPU as on the CPU, under preemption, with the kernel and with graphs."""
    requests = requests_for(SMALL, 40, (1, 120), (1, 40))
    profile = engine_profile(
        preempt="swap", max_seqs=12, token_budget=96, kv_blocks=60, block_size=16, reuse={"prefix": True}
    )
    torch.backends.cuda.matmul.allow_tf32 = False
    cpu = Model.random(SMALL, seed=1)
    wanted = Engine(cpu, profile, keep_margins=True)
    expected = wanted.complete(requests)
    for name, options in (("grouped", {"paged": False}), ("kernel", {"graphs": False}), ("graphs", {})):
        model = Model.random(SMALL, seed=1, device="cuda")
        engine = Engine(model, profile)
        engine.runner = Runner(model, 12, 60, 16, 60, **options)  # type: ignore[arg-type]
        found = engine.complete(requests)
        same = sum(found[item.id].tokens == expected[item.id].tokens for item in requests)
        print(f"correct   {name:>8}: {same} of {len(requests)} requests give the CPU's tokens,")
        print(f"          {engine.scheduler.preemptions} preemptions (float32; a near tie may differ)")


def seconds_of(step: Callable[[], object], repeat: int) -> float:
    """The median time of a step that ends with the device idle."""
    times = []
    for _ in range(repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def bandwidth() -> float:
    """Bytes a second that a device copy moves, read and written."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / min(seconds_of(lambda: target.copy_(source), 1) for _ in range(10))


def decoding(model: Model, running: int, context: int, graphs: bool, tape: Tape | None = None) -> Engine:
    """An engine in which `running` requests of about `context` positions decode."""
    blocks = running * (-(-(context + 300) // 16))
    profile = engine_profile(
        max_seqs=running, token_budget=max(8192, running), kv_blocks=blocks, block_size=16, preempt="none"
    )
    engine = Engine(model, profile, tape=tape)
    engine.runner = Runner(model, running, blocks, 16, 0, graphs=graphs)
    for request in requests_for(model.config, running, (context, context), (290, 290)):
        engine.submit(request)
    while engine.last is None or engine.last.emitted < running:
        engine.step()
    for _ in range(3):
        engine.step()
    return engine


def decode(model: Model, floor: float, deadline: float) -> None:
    """Tokens a second at batch 1 to 256, and the share of what the bandwidth allows."""
    context = 512
    print(f"decode    context {context}; copy bandwidth {floor / 1e12:.2f} TB/s")
    for running in (1, 4, 16, 64, 128, 256):
        for graphs in (False, True):
            if time.monotonic() > deadline:
                print("decode    out of time")
                return
            engine = decoding(model, running, context, graphs)
            took = seconds_of(engine.step, 20)
            kv = running * (context + 15) * model.config.kv_bytes_per_token * model.dtype.itemsize // 4
            least = (model.weight_bytes + kv) / floor
            name = "graphs" if graphs else "plain"
            print(
                f"decode    batch {running:>3} {name:>6}: {took * 1e3:.2f} ms a step,"
                f" {running / took:,.0f} tokens/s, {least / took:.0%} of the bandwidth floor"
            )
            del engine


def prefill(model: Model) -> None:
    """MFU of long prompts, against a large product measured now."""
    ceiling = matmul_ceiling("cuda", model.dtype, 8192)
    profile = engine_profile(max_seqs=4, token_budget=8192, kv_blocks=1024, block_size=16, preempt="none")
    times, flops = [], 0
    for _ in range(4):
        engine = Engine(model, profile)
        for request in requests_for(model.config, 4, (2048, 2048), (1, 1)):
            engine.submit(request)
        times.append(seconds_of(engine.step, 1))
        passed = engine.last.passed if engine.last is not None else None
        if passed is not None:
            flops = pass_flops(model.config, passed.rows, 4, passed.pairs)
    rate = flops / min(times[1:])
    print(
        f"prefill   4 x 2048 tokens: {rate / 1e12:.0f} TFLOP/s, MFU {rate / ceiling:.0%}"
        f" of a measured {ceiling / 1e12:.0f} TFLOP/s"
    )


def recorder(model: Model) -> None:
    """The recorder on and off in turn, batch 64."""
    engine = decoding(model, 64, 256, graphs=True)
    with tempfile.TemporaryDirectory() as folder:
        target = JournaledRecorder(Path(folder) / "trace", Header())
        tape = Tape(target.write_batch)
        times: dict[str, list[float]] = {"off": [], "on": []}
        for step in range(120):
            name = ("off", "on", "on", "off")[step % 4]
            engine.scheduler.record(tape if name == "on" else None)
            times[name].append(seconds_of(engine.step, 1))
        start = time.perf_counter()
        tape.flush()
        flush = (time.perf_counter() - start) / 60
        target.close()
    off, on = (statistics.median(times[name]) for name in ("off", "on"))
    print(
        f"recorder  batch 64: {off * 1e3:.2f} ms off, {on * 1e3:.2f} ms on, flush {flush * 1e3:.2f} ms a step"
    )


def transformers() -> None:
    """`transformers` continuous batching on identical weights and requests, in turn."""
    if importlib.util.find_spec("transformers") is None:
        print("transformers is not installed: the comparison with it is left out")
        return
    beside = importlib.import_module("engine")  # bench/engine.py, beside this file
    ours, theirs = beside.ours, beside.theirs

    config = ModelConfig(
        vocab_size=32_000,
        hidden_size=1024,
        intermediate_size=2816,
        num_layers=12,
        num_heads=16,
        num_kv_heads=8,
        head_dim=64,
    )
    requests = requests_for(config, 64, (16, 256), (32, 128))
    useful = sum(request.max_tokens for request in requests)
    sides = [ours(config, requests, 32, "cuda"), theirs(config, requests, 32, "cuda")]
    for run in sides:
        run()
    rates = [useful / statistics.median(seconds_of(run, 1) for _ in range(3)) for run in sides]
    print(
        f"batching  engine {rates[0]:,.0f}, transformers {rates[1]:,.0f} tokens/s, x{rates[0] / rates[1]:.2f}"
    )
    sides[1].stop()  # type: ignore[attr-defined]


def main() -> int:
    """Run the parts that were asked for, as far as time allows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="correct,decode,prefill,recorder,transformers")
    parser.add_argument("--seconds", type=float, default=440.0)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here (torch.cuda.is_available() is false): nothing was run")
        return 0
    deadline = time.monotonic() + options.seconds
    parts = options.parts.split(",")
    print(f"device    {torch.cuda.get_device_name()}, torch {torch.__version__}")
    if "correct" in parts:
        correct()
    if {"decode", "prefill", "recorder"} & set(parts):
        model = Model.random(BILLION, seed=0, device="cuda", dtype="bfloat16")
        # Later parts get their share: decoding stops at 60 % of the time.
        if "prefill" in parts:
            prefill(model)
        if "recorder" in parts:
            recorder(model)
        if "decode" in parts:
            decode(model, bandwidth(), time.monotonic() + 0.6 * (deadline - time.monotonic()))
        del model
        torch.cuda.empty_cache()
    if "transformers" in parts and time.monotonic() < deadline - 60:
        transformers()
    return 0


if __name__ == "__main__":
    sys.exit(main())
