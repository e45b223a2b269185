"""The engine's speed on the CPU, each figure against something measured in the same run.

    python bench/engine.py [--sizes 0,1,2] [--threads 1,2] [--repeat 3] [--parts transformers,floor,...]

Parts: useful output tokens a CPU second against `transformers` continuous batching on identical
weights and requests (needs `transformers`; left out with a line that says so where it is missing);
the floor, which is the step's matmuls alone; continuous against static batching and the gain that
utilisation predicts; the scheduler's share of a step at 256 running; the recorder's at 64 running.
"""

import argparse
import importlib.util
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from batchspec.engine.config import ModelConfig
from batchspec.engine.engine import Engine
from batchspec.engine.model import Model
from batchspec.engine.options import engine_profile
from batchspec.engine.sequence import Request
from batchspec.engine.tape import SCHEDULE, STEP, Tape
from batchspec.engine.weights import random_weights
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.journal import JournaledRecorder

SIZES = ((2, 64, 4, 2, 1000, 32, 8), (4, 256, 8, 4, 8000, 48, 16), (8, 512, 8, 4, 8000, 24, 16))
"""Layers, hidden, heads, key heads, vocabulary, requests, batch."""


def model_config(layers: int, hidden: int, heads: int, kv_heads: int, vocab: int) -> ModelConfig:
    """A Llama of that shape with an inner size of twice the hidden one."""
    return ModelConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
    )


def workload(count: int, vocab: int, seed: int = 0) -> list[Request]:
    """Prompts of 16 to 96 tokens, outputs of 8 to 96, all there at time 0."""
    rng = random.Random(seed)
    return [
        Request(
            id=f"r{index}",
            prompt=tuple(rng.randrange(vocab) for _ in range(rng.randint(16, 96))),
            max_tokens=rng.randint(8, 96),
        )
        for index in range(count)
    ]


def ours(
    config: ModelConfig, requests: list[Request], batch: int, device: str = "cpu"
) -> Callable[[], dict[str, tuple[int, ...]]]:
    """One run of the engine over the requests."""
    model = Model.random(config, device=device)
    profile = engine_profile(max_seqs=batch, token_budget=512, kv_blocks=512, block_size=16)

    def run() -> dict[str, tuple[int, ...]]:
        done = Engine(model, profile).complete(requests)
        return {str(name): found.tokens for name, found in done.items()}

    return run


def theirs(
    config: ModelConfig, requests: list[Request], batch: int, device: str = "cpu"
) -> Callable[[], dict[str, tuple[int, ...]]]:
    """One run of the continuous batching of `transformers`, same weights, same requests."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers
    from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

    transformers.logging.set_verbosity_error()
    shape = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_positions,
        attn_implementation="sdpa",
        eos_token_id=None,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(shape).eval().to(device)
    model.load_state_dict(random_weights(config, 0))
    options = ContinuousBatchingConfig(
        page_size=32,
        num_blocks=256,
        max_batch_tokens=512,
        max_requests_per_batch=batch,
        allow_block_sharing=False,
    )
    greedy = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=96)
    manager = model.init_continuous_batching(generation_config=greedy, continuous_batching_config=options)
    manager.start()  # stays up over all runs: its start is not part of what is compared

    def run() -> dict[str, tuple[int, ...]]:
        for request in requests:
            manager.add_request(
                list(request.prompt), request_id=str(request.id), max_new_tokens=request.max_tokens
            )
        done: dict[str, tuple[int, ...]] = {}
        while len(done) < len(requests):
            result = manager.get_result(timeout=60)
            if result is None:
                raise SystemExit("transformers gave no result within a minute")
            if result.is_finished():
                done[result.request_id] = tuple(result.generated_tokens)
        return done

    run.stop = lambda: manager.stop(block=True, timeout=10)  # type: ignore[attr-defined]
    return run


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU seconds of the whole process, all threads, while `run` runs."""
    start = time.process_time()
    run()
    return time.process_time() - start


def against_transformers(sizes: list[int], threads: list[int], repeat: int) -> None:
    """Useful output tokens a CPU second on identical work, both sides in turn."""
    print("\nUseful output tokens a CPU second, median of", repeat)
    print(f"{'model':>16} {'threads':>7} {'engine':>8} {'transf.':>8} {'ratio':>6}  tokens")
    for size in sizes:
        layers, hidden, heads, kv_heads, vocab, count, batch = SIZES[size]
        config = model_config(layers, hidden, heads, kv_heads, vocab)
        requests = workload(count, vocab)
        useful = sum(request.max_tokens for request in requests)
        one, other = ours(config, requests, batch), theirs(config, requests, batch)
        same = "identical" if one() == other() else "DIFFERENT"
        for number in threads:
            torch.set_num_threads(number)
            pairs = [(cpu_seconds(one), cpu_seconds(other)) for _ in range(repeat)]
            mine, foreign = (useful / statistics.median(side) for side in zip(*pairs, strict=True))
            name = f"{layers}/{hidden}/{vocab}"
            print(f"{name:>16} {number:>7} {mine:>8.0f} {foreign:>8.0f} {mine / foreign:>6.2f}  {same}")
        other.stop()  # type: ignore[attr-defined]


def _serve(model: Model, profile: Profile, requests: list[Request]) -> None:
    Engine(model, profile).complete(requests)


def against_the_floor(sizes: list[int], repeat: int) -> None:
    """How much of the engine's time its own matmuls account for, run alone on the same rows."""
    print("\nThe floor: the run's matmuls alone, weights streamed, no attention, one thread")
    torch.set_num_threads(1)
    for size in sizes:
        layers, hidden, heads, kv_heads, vocab, count, batch = SIZES[size]
        config = model_config(layers, hidden, heads, kv_heads, vocab)
        requests = workload(count, vocab)
        model = Model.random(config)
        profile = engine_profile(max_seqs=batch, token_budget=512, kv_blocks=512, block_size=16)
        shapes: list[tuple[int, int]] = []
        engine = Engine(model, profile)
        for _ in engine.generate(requests):
            pass
        engine = Engine(model, profile)
        for request in requests:
            engine.submit(request)
        while engine.busy:
            engine.step()
            if engine.last is not None:
                shapes.append((engine.last.passed.rows, engine.last.emitted))

        def floor(model: Model = model, shapes: list[tuple[int, int]] = shapes) -> None:
            with torch.inference_mode():
                for rows, emitted in shapes:
                    wide = torch.ones(rows, model.config.hidden_size)
                    heads_out = torch.ones(rows, model.config.num_heads * model.config.head_dim)
                    inner = torch.ones(rows, model.config.intermediate_size)
                    for layer in model.layers:
                        layer.qkv(wide)
                        layer.output(heads_out)
                        layer.gate_up(wide)
                        layer.down(inner)
                    model.head(wide[:emitted])

        whole = partial(_serve, model, profile, requests)
        pairs = [(cpu_seconds(whole), cpu_seconds(floor)) for _ in range(repeat)]
        mine, least = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(f"{layers}/{hidden}/{vocab:<6} engine {mine:.2f} s, floor {least:.2f} s, x{mine / least:.2f}")


def continuous_over_static(repeat: int) -> None:
    """The gain of continuous batching, and what the two runs' utilisation predicts."""
    print("\nContinuous over static batching on this engine, one thread")
    torch.set_num_threads(1)
    config = model_config(*SIZES[1][:5])
    model = Model.random(config)
    requests = workload(48, config.vocab_size)
    useful = sum(request.max_tokens for request in requests)
    spent: dict[str, list[float]] = {"static": [], "continuous": []}
    used: dict[str, float] = {}
    for _ in range(repeat):
        for mode, times in spent.items():
            profile = engine_profile(mode, max_seqs=16, token_budget=2048, kv_blocks=512, block_size=16)
            engine = Engine(model, profile)
            for request in requests:
                engine.submit(request)
            start, steps, members = time.process_time(), 0, 0
            while engine.busy:
                engine.step()
                steps += 1
                members += engine.last.members if engine.last is not None else 0
            times.append(time.process_time() - start)
            used[mode] = members / (steps * 16)
    rates = {mode: useful / statistics.median(times) for mode, times in spent.items()}
    predicted = used["continuous"] / used["static"]
    gain = rates["continuous"] / rates["static"]
    for mode in spent:
        print(f"{mode:>11}: {rates[mode]:.0f} tokens a CPU second, slots used {used[mode]:.0%}")
    print(f"gain x{gain:.2f}, predicted by utilisation x{predicted:.2f}, of which {gain / predicted:.0%}")


def full_engine(model: Model, running: int, tape: Tape | None = None) -> Engine:
    """An engine in which `running` requests decode and nobody comes or goes."""
    profile = engine_profile(max_seqs=running, token_budget=4096, kv_blocks=running * 20, block_size=16)
    engine = Engine(model, profile, tape=tape)
    rng = random.Random(0)
    for index in range(running):
        prompt = tuple(rng.randrange(model.config.vocab_size) for _ in range(rng.randint(16, 48)))
        engine.submit(Request(id=f"r{index}", prompt=prompt, max_tokens=250))
    while engine.scheduler.step < 4 or (engine.last is not None and engine.last.emitted < running):
        engine.step()
    return engine


def scheduling_cost(running: int, steps: int) -> None:
    """The scheduler's share of a step when `running` requests decode (4 layers, 256 hidden)."""
    torch.set_num_threads(1)
    engine = full_engine(Model.random(model_config(*SIZES[1][:5])), running)
    shares, decide, commit = [], [], []
    for _ in range(steps):
        start = time.perf_counter_ns()
        engine.step()
        whole = time.perf_counter_ns() - start
        last = engine.last
        if last is not None:
            shares.append((last.deciding_ns + last.committing_ns) / whole)
            decide.append(last.deciding_ns / 1000)
            commit.append(last.committing_ns / 1000)
    print(
        f"\nScheduling at {running} running: schedule {statistics.median(decide):.0f} us,"
        f" commit {statistics.median(commit):.0f} us, {statistics.median(shares):.1%} of the step"
    )


def recorder_cost(running: int, steps: int) -> None:
    """The recorder's share of a step: one engine, the tape on in every other step, at L3."""
    torch.set_num_threads(1)
    engine = full_engine(Model.random(model_config(*SIZES[1][:5])), running)
    with tempfile.TemporaryDirectory() as folder:
        recorder = JournaledRecorder(Path(folder) / "trace", Header())
        tape = Tape(recorder.write_batch)
        replay_rows(tape, tape_rows(2, 2), 3)  # the first flush of a process also loads what it needs
        spent = {"off": 0.0, "on": 0.0}
        for step in range(steps):
            name = ("off", "on", "on", "off")[step % 4]
            engine.scheduler.record(tape if name == "on" else None)
            spent[name] += cpu_seconds(engine.step)
        spent["on"] += cpu_seconds(tape.flush)
        recorder.close()
        second = JournaledRecorder(Path(folder) / "alone", Header())
        events = tape_rows(running, steps)
        alone = cpu_seconds(lambda: replay_rows(Tape(second.write_batch), events, running + 1))
        second.close()
    off, on = (spent[name] / (steps / 2) * 1e3 for name in ("off", "on"))
    share = alone / steps * 1e3 / off
    print(f"\nRecorder at {running} running, L3: step {off:.2f} ms off, {on:.2f} ms on, {on / off - 1:+.1%};")
    print(f"the same rows recorded with no engine: {share:.1%} of a step")


def tape_rows(running: int, steps: int) -> list[tuple[object, ...]]:
    """Rows such as `running` decodes give."""
    rows: list[tuple[object, ...]] = []
    for step in range(steps):
        for index in range(running):
            granted = [index] if (step + index) % 16 == 0 else None
            rows.append((SCHEDULE, step, f"r{index}", step, step, 1, 5, granted, None))
        rows.append((STEP, step, None, step, 10, 0, running, 0))
    return rows


def replay_rows(tape: Tape, rows: list[tuple[object, ...]], per_step: int) -> None:
    """Give rows to a tape as a scheduler would: one append each, and the end of each step."""
    for index, row in enumerate(rows):
        tape.rows.append((*row[:3], *row[3:]))
        if (index + 1) % per_step == 0:
            tape.end_step()
    tape.flush()


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="0,1,2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--parts", default="transformers,floor,static,scheduler,recorder")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    parts = options.parts.split(",")
    if "transformers" in parts:
        if importlib.util.find_spec("transformers") is None:
            print("transformers is not installed: the comparison with it is left out")
        else:
            against_transformers(sizes, [int(item) for item in options.threads.split(",")], options.repeat)
    if "floor" in parts:
        against_the_floor(sizes, options.repeat)
    if "static" in parts:
        continuous_over_static(options.repeat)
    if "scheduler" in parts:
        scheduling_cost(256, 60)
    if "recorder" in parts:
        recorder_cost(64, 232)


if __name__ == "__main__":
    main()
