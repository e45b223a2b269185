"""What recording costs vLLM's scheduling thread: the same scheduler with and without it, in one process.

    python bench/recorder_vllm.py [--running 256] [--steps 400] [--mode sync|async]

In an environment that has vLLM (scripts/thirdparty vllm). All requests decode; between two steps the
program sleeps, as an engine waits for its device, so the writer's thread runs when it would run in a
server. Rounds with and without recording alternate. Printed are microseconds a step (schedule and
update_from_output): the CPU time of the scheduling thread, in which a busy machine shows least, and the
time by the clock, in which waiting for the interpreter's lock shows as well; what recording adds to either;
and the CPU time of the whole process, the writer's included. A last line is the step in which a part begins.
"""

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from batchspec.replay.adapters import vllm, vllm_recorder
from batchspec.replay.adapters.recording import BackgroundWriter
from batchspec.replay.adapters.vllm_book import Book
from batchspec.replay.claims import named_profile
from batchspec.spec.profile import Profile

BLOCK = 16
PROMPT = 100


class Stamp:
    """A moment, on the clock of this thread and on the one on the wall."""

    def __init__(self) -> None:
        """Now."""
        self._cpu, self._wall = time.thread_time_ns(), time.perf_counter_ns()

    def since(self) -> tuple[float, float]:
        """Microseconds since then, on both."""
        return (time.thread_time_ns() - self._cpu) / 1000, (time.perf_counter_ns() - self._wall) / 1000


class Bench:
    """A scheduler whose requests all decode, stepped by hand."""

    def __init__(self, running: int, steps: int, ahead: bool, folder: Path | None) -> None:
        """With a `folder` it records into it."""
        self._vllm = vllm.parts()
        length = PROMPT + steps + 200
        limits = {
            "max_seqs": running,
            "token_budget": max(8192, running * 2),
            "kv_blocks": running * (-(-length // BLOCK) + 1),
            "block_size": BLOCK,
            "max_model_len": length,
        }
        profile = named_profile("vllm-v1-async" if ahead else "vllm-v1").merged(
            Profile.from_dict({"limits": limits, "reuse": {"prefix": True}}, "bench")
        )
        noting = self._vllm.AsyncScheduler if ahead else self._vllm.Scheduler
        kind = noting if folder is not None else noting.__base__
        self.scheduler, hasher, _ = vllm.built(self._vllm, profile, 0, kind)
        self.writer: BackgroundWriter | None = None
        if folder is not None:
            header = vllm_recorder.header_of(self.scheduler, "bench")
            self.writer = BackgroundWriter(folder, header, Book(BLOCK))
            self.scheduler.tell(vllm_recorder.Desk(self.writer, self.scheduler))
        params = self._vllm.SamplingParams(max_tokens=length, ignore_eos=True)
        for index in range(running):
            prompt = [3 + (index * 31 + place) % 29_000 for place in range(PROMPT)]
            self.scheduler.add_request(
                self._vllm.Request(
                    request_id=f"request-{index:08}",
                    prompt_token_ids=prompt,
                    sampling_params=params,
                    pooling_params=None,
                    arrival_time=float(index),
                    block_hasher=hasher,
                    **self._vllm.more,
                )
            )
        self._flight: list[Any] = []
        self._depth = 2 if ahead else 1
        for _ in range(running * PROMPT // limits["token_budget"] + 3):
            self.step()

    def step(self) -> tuple[float, float]:
        """One iteration; CPU microseconds of this thread and microseconds by the clock in its two calls."""
        began = Stamp()
        out = self.scheduler.schedule()
        cpu, wall = began.since()
        names = list(out.num_scheduled_tokens)
        done = [[] if self.scheduler.requests[name].is_prefill_chunk else [7] for name in names]
        self._flight.append((out, names, done))
        if len(self._flight) < self._depth:
            return cpu, wall
        out, names, done = self._flight.pop(0)
        results = self._vllm.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=done,
            **self._vllm.no_logprobs,
        )
        began = Stamp()
        self.scheduler.update_from_output(out, results)
        more_cpu, more_wall = began.since()
        return cpu + more_cpu, wall + more_wall


def measure(bench: Bench, steps: int, device_s: float) -> tuple[list[tuple[float, float]], float]:
    """Microseconds of each step, and CPU microseconds of the process a step."""
    taken = []
    cpu = time.process_time_ns()
    for _ in range(steps):
        taken.append(bench.step())
        time.sleep(device_s)
    if bench.writer is not None:
        bench.writer.flush()
    return taken, (time.process_time_ns() - cpu) / 1000 / steps


def main() -> None:
    """Print the figures as text and, last, as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--device-ms", type=float, default=8.0)
    options = parser.parse_args()
    ahead = options.mode == "async"
    part = options.steps // options.rounds
    added: dict[str, list[float]] = {"thread": [], "clock": [], "process": []}
    base: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        plain = Bench(options.running, options.steps, ahead, None)
        noted = Bench(options.running, options.steps, ahead, Path(scratch, "trace"))
        # vLLM's engine core does so once it is up.
        gc.collect()
        gc.freeze()
        for number in range(options.rounds):
            sides = [plain, noted] if number % 2 else [noted, plain]
            done = {id(bench): measure(bench, part, options.device_ms / 1000) for bench in sides}
            (without, less), (with_, more) = done[id(plain)], done[id(noted)]
            for place, name in enumerate(("thread", "clock")):
                medians = [statistics.median(step[place] for step in steps) for steps in (without, with_)]
                added[name].append(medians[1] - medians[0])
            base.append(statistics.median(step[0] for step in without))
            added["process"].append(more - less)
        writer = noted.writer
        writer.wanted = True
        live_step, _ = noted.step()
        writer.close()
        rows = writer.recorder.rows
    result = {
        "mode": options.mode,
        "running": options.running,
        "steps": part * options.rounds,
        "without_us": round(statistics.median(base)),
        **{f"added_{name}_us": round(statistics.median(values)) for name, values in added.items()},
        "quartiles_thread_us": [round(value) for value in statistics.quantiles(added["thread"], n=4)],
        "new_part_step_us": round(live_step),
        "rows": rows,
    }
    print(f"{options.running} running, {options.mode}, {part * options.rounds} steps a side")
    print(f"scheduling thread without recording: {result['without_us']} us of CPU a step")
    print(f"recording adds {result['added_thread_us']} us of CPU to it (the bar is 100),")
    print(f"  {result['added_clock_us']} us by the clock")
    print(f"CPU of the whole process, writer included: {result['added_process_us']} us a step more")
    print(f"a step in which a part begins: {result['new_part_step_us']} us of CPU")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
