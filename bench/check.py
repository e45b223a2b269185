"""How fast the fast checker is, against a plain read of the same columns in the same run.

    python bench/check.py [--events 5000000,50000000] [--repeat 3] [--folder DIR] [--readable 300000]

For each length: a busy replica's trace (bench/busy.py) is written, then read by pyarrow alone, row group
by row group, and checked whole, each K times in turn; the table has the best of each, and the ratio. Each
check runs in a process of its own, whose peak memory is told; compiled code is on disk by then, and the
first of them says what loading costs. Beside it: what compiling costs once, the readable checker's rate on
a shorter trace of the same kind, which must give the same report, and what `batchspec check` of a
thousand events takes from the shell.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import busy
import pyarrow.parquet as pq

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.report.json import report_object
from batchspec.replay.report.page import Page
from batchspec.traces.reader import open_trace


def read_plainly(path: Path) -> None:
    """All columns of the file, row group by row group."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        file.read_row_group(group)


def judge(path: Path) -> dict[str, object]:
    """The whole check, from opening the file to the report, what it found, and what loading took."""
    began = time.perf_counter()
    from batchspec.replay.fast.session import Session

    loading, began = time.perf_counter() - began, time.perf_counter()
    trace = open_trace(path)
    header = trace.header
    claims = claimed(header_profile=header.profile, header_config=header.config) if header else None
    session = Session(trace, claims)
    report = session.report()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "loading": loading,
        "verdict": session.account.why if report is None else report.verdict,
        "walked": session.account.walked,
        "report": None if report is None else report_object(report),
    }


def in_process_of_its_own(path: Path) -> dict[str, object]:
    """`judge` in a fresh interpreter: its figures, peak memory in MB, and seconds with all that is loaded."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--one", str(path)], capture_output=True, text=True, check=True
    )
    return {**json.loads(done.stdout), "whole": time.perf_counter() - began}


def from_the_shell(path: Path) -> float:
    """Seconds of `batchspec check` on a file, with the interpreter's start."""
    command = [sys.executable, "-m", "batchspec.replay", "check", str(path)]
    began = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    return time.perf_counter() - began


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", default="5000000,50000000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--readable", type=int, default=300_000)
    parser.add_argument("--folder", help="where the traces go; default: a folder that is removed again")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        said = judge(Path(options.one))
        said["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(said))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        short = folder / "short.parquet"
        busy.write(short, options.readable)
        cold = in_process_of_its_own(short)
        warm = in_process_of_its_own(short)
        rows = [length(folder, int(events), options.repeat) for events in options.events.split(",")]
        head = (
            "events",
            "file MB",
            "pyarrow s",
            "check s",
            "ratio",
            "loading s",
            "M events/s",
            "peak MB",
            "walked",
            "verdict",
        )
        page = Page()
        page.table(head, rows, "rrrrrrrrr", indent=0)
        print(page.text())
        beside(folder, short, cold, warm)


def length(folder: Path, events: int, repeat: int) -> tuple[str, ...]:
    """One row of the table."""
    path = folder / f"busy-{events}.parquet"
    rows = busy.write(path, events)
    plain: list[float] = []
    said: list[dict[str, object]] = []
    for _ in range(repeat):
        began = time.perf_counter()
        read_plainly(path)
        plain.append(time.perf_counter() - began)
        said.append(in_process_of_its_own(path))
    best = min(said, key=lambda one: float(str(one["seconds"])))
    seconds = float(str(best["seconds"]))
    size = path.stat().st_size
    path.unlink()
    return (
        f"{rows:,}",
        f"{size / 1e6:,.0f}",
        f"{min(plain):.2f}",
        f"{seconds:.2f}",
        f"{seconds / min(plain):.2f}",
        f"{min(float(str(one['loading'])) for one in said):.2f}",
        f"{rows / seconds / 1e6:.1f}",
        str(max(int(str(one["megabytes"])) for one in said)),
        f"{best['walked']:,}",
        str(best["verdict"]),
    )


def beside(folder: Path, short: Path, cold: dict[str, object], warm: dict[str, object]) -> None:
    """What stands beside the table."""
    trace = open_trace(short)
    header = trace.header
    claims = claimed(header_profile=header.profile, header_config=header.config) if header else None
    began = time.perf_counter()
    report = report_object(check(trace, claims))
    seconds = time.perf_counter() - began
    same = "the same report" if report == warm["report"] else "ANOTHER REPORT"
    rate = trace.num_rows / seconds / 1e6
    print(f"readable checker: {rate:.3f} M events/s on {trace.num_rows:,} events; {same}")
    first, second = float(str(cold["whole"])), float(str(warm["whole"]))
    print(f"a process that checks these fast: {first:.1f} s the first time, then {second:.1f} s")
    tiny = folder / "tiny.parquet"
    batch = next(busy.batches(2000))
    with pq.ParquetWriter(tiny, batch.schema) as writer:
        writer.write_batch(batch.slice(0, 1000))
    times = [from_the_shell(tiny) for _ in range(3)]
    print(f"batchspec check of 1,000 events from the shell: {min(times):.2f} s")
    print(f"{os.cpu_count()} cores")


if __name__ == "__main__":
    main()
