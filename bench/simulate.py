"""How fast the reference scheduler simulates, against plain work over the same members in the same run.

    python bench/simulate.py [--workload FILE] [--requests N] [--speed X] [--kv-blocks N,M] [--repeat K]

A workload of the lengths of a chat service (or records of your own, such as the Azure conversation trace),
with chunked prefill, in a pool that is too small for it and in one that is not. The table has requests and
scheduled members a minute of CPU time, and the ratio to building the same rows as plain tuples, a
floor that no scheduler in Python can get under. The last lines say which functions the time goes to.
"""

import argparse
import cProfile
import pstats
import random
import time
from pathlib import Path

from batchspec.replay.report.page import Page
from batchspec.replay.simulate import simulate
from batchspec.replay.workload import load_workload
from batchspec.spec.events import Event
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.reshape import Reshape


def chat(requests: int, speed: float) -> list[Record]:
    """Lengths and a rate like those of the Azure conversation trace: 1,155 in, 211 out, 5.5 a second."""
    rng = random.Random(1)
    now, records = 0.0, []
    for number in range(requests):
        now += rng.expovariate(5.5 * speed)
        prompt = min(14_000, max(2, round(rng.lognormvariate(6.5, 1.1))))
        records.append(
            Record(number, int(now * 1e9), prompt, min(1000, max(1, round(rng.gammavariate(1.6, 130)))))
        )
    return records


def profile_of(kv_blocks: int, max_seqs: int) -> Profile:
    """The profile `batchspec` with these sizes and 2,048 tokens a step."""
    limits = {"max_seqs": max_seqs, "token_budget": 2048, "kv_blocks": kv_blocks, "block_size": 16}
    return load_profile("batchspec").merged(Profile.from_dict({"limits": limits}))


def floor(rows: int) -> float:
    """CPU seconds that it takes to make so many rows and nothing else."""
    began = time.process_time()
    for number in range(rows):
        Event(number, "schedule", number, number, start=number, tokens=1, blocks=1)
    return time.process_time() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", type=Path)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--speed", type=float, default=2.0)
    parser.add_argument("--max-seqs", type=int, default=256)
    parser.add_argument("--kv-blocks", default="2500,100000")
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    if options.workload is None:
        records = chat(options.requests, options.speed)
    else:
        shape = Reshape(limit=options.requests, speed=options.speed)
        records = load_workload(options.workload, shape).records
    rows = []
    for blocks in map(int, options.kv_blocks.split(",")):
        profile = profile_of(blocks, options.max_seqs)
        best, members, preemptions, written = float("inf"), 0, 0, 0
        for _ in range(options.repeat):
            members = preemptions = written = 0
            began = time.process_time()
            for event in simulate(records, profile):
                written += 1
                members += event.event == "schedule"
                preemptions += event.event == "preempt"
            best = min(best, time.process_time() - began)
        plain = min(floor(written) for _ in range(options.repeat))
        rows.append(
            (
                f"{blocks:,}",
                f"{members:,}",
                f"{preemptions:,}",
                f"{best:.2f}",
                f"{len(records) / best * 60:,.0f}",
                f"{members / best * 60 / 1e6:.2f}",
                f"{best / plain:.1f}",
            )
        )
    page = Page()
    head = ("blocks", "members", "preemptions", "CPU s", "requests/min", "M members/min", "x plain rows")
    page.table(head, rows, "rrrrrrr", indent=0)
    print(page.text(), end="")
    seen = cProfile.Profile()
    few = records[: max(1, len(records) // 5)]
    seen.runcall(lambda: sum(1 for _ in simulate(few, profile_of(2500, options.max_seqs))))
    pstats.Stats(seen).sort_stats("tottime").print_stats(12)


if __name__ == "__main__":
    main()
