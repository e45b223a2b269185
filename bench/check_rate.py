"""How fast the readable checker is, against a plain read of the same columns in the same run.

    python bench/check_rate.py [--requests N] [--running 16,64,256] [--repeat K]

For each batch size: a trace of the reference scheduler, written to a Parquet file, then read and
checked K times each, in turn; the table has the best of each. The ratio says what the check costs
beyond reading: it does not depend on how fast the machine is, as the rate does.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.report.page import Page
from batchspec.replay.simulate import header_of, simulate
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.reader import open_trace
from batchspec.traces.recorder import Recorder


def workload(requests: int, seed: int) -> list[Record]:
    """Requests that keep the batch full: mixed lengths, all there early."""
    rng = random.Random(seed)
    return [
        Record(f"r{number}", number * 1000, rng.randint(8, 400), rng.randint(8, 200))
        for number in range(requests)
    ]


def record(folder: Path, running: int, requests: int, seed: int) -> tuple[Path, Profile]:
    """A trace with `running` seats and memory for about nine tenths of what they want."""
    limits = {"max_seqs": running, "token_budget": 2048, "block_size": 16, "kv_blocks": running * 14}
    profile = load_profile("batchspec").merged(Profile.from_dict({"limits": limits}))
    path = folder / f"running-{running}.parquet"
    with Recorder(path, header_of(profile)) as recorder:
        recorder.write_all(simulate(workload(requests, seed), profile, seed=seed))
    return path, profile


def best(work: Callable[[], object], repeat: int) -> float:
    """The least seconds of `repeat` runs."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--running", default="16,64,256")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for running in map(int, options.running.split(",")):
            path, profile = record(Path(folder), running, options.requests, options.seed)
            claims = claimed(profile=profile)
            trace = open_trace(path)
            columns = sorted(trace.columns)
            plain = best(
                lambda path=path, columns=columns: pq.read_table(path, columns=columns), options.repeat
            )
            events = best(lambda trace=trace: sum(1 for _ in trace.events()), options.repeat)
            checked = best(lambda trace=trace, claims=claims: check(trace, claims), options.repeat)
            report = check(trace, claims)
            rows.append(
                (
                    running,
                    f"{trace.num_rows:,}",
                    f"{plain:.3f}",
                    f"{events:.2f}",
                    f"{checked:.2f}",
                    f"{trace.num_rows / checked / 1e6:.3f}",
                    f"{checked / plain:,.0f}",
                    f"{checked / events:.1f}",
                    report.verdict,
                )
            )
    page = Page()
    head = (
        "running",
        "events",
        "pyarrow s",
        "events s",
        "check s",
        "M events/s",
        "x pyarrow",
        "x events",
        "verdict",
    )
    page.table(head, rows, "rrrrrrrr", indent=0)
    print(page.text(), end="")


if __name__ == "__main__":
    main()
