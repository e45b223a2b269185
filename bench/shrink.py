"""How long `batchspec shrink` takes on a long trace, against one check of the same trace by that rule.

    python bench/shrink.py [--events 10000000] [--at 0.9]

A busy replica's trace (bench/busy.py) is written with one row changed, at that share of its length: a
request computes from the wrong position, a `step` row reports a block too few, or an admission takes a slot
that somebody has. Each is shrunk as a user would, in a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import busy
import numpy as np
import pyarrow as pa

from batchspec.replay.claims import claimed
from batchspec.replay.fast.choose import check_with
from batchspec.replay.report.page import Page
from batchspec.replay.shrinking.search import shrink
from batchspec.traces.reader import open_trace
from batchspec.traces.writer import Writer

FAULTS = {
    "tokens/position": ("schedule", "start"),
    "stats/agree": ("step", "free_blocks"),
    "slots/exclusive": ("admit", "slot"),
}


def spoil(source: Path, target: Path, kind: str, column: str, row: int) -> None:
    """Copy a trace; in the first row of the kind at or behind `row`, the column is one more."""
    trace = open_trace(source)
    writer: Writer | None = None
    at, done = 0, False
    for batch in trace.raw(rows=1 << 16):
        rows = batch[1]
        if not done and at + rows.num_rows > row:
            events = np.array(rows.column("event").to_pylist())
            found = np.flatnonzero((events == kind) & (np.arange(len(events)) + at >= row))
            if found.size:
                rows, done = _changed(rows, column, int(found[0])), True
        if writer is None:
            writer = Writer(target, rows.schema)
        writer.append(rows)
        at += rows.num_rows
    if writer is not None and trace.header is not None:
        writer.close(trace.header)


def _changed(rows: pa.RecordBatch, column: str, place: int) -> pa.RecordBatch:
    values = rows.column(column).to_pylist()
    # A slot of the lowest number is taken in a busy replica; other figures are off by one.
    values[place] = 0 if column == "slot" and values[place] else values[place] + 1
    arrays = [
        pa.array(values, rows.schema.field(column).type) if name == column else rows.column(name)
        for name in rows.schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def one(path: Path, rule: str) -> dict[str, Any]:
    """Check by the rule, then shrink: seconds of both, and the size of what is left."""
    began = time.perf_counter()
    trace = open_trace(path)
    header = trace.header
    claims = claimed(header.profile, header.config) if header is not None else None
    report = check_with("auto", trace, claims, rules=(rule,))
    checked = time.perf_counter()
    if claims is None or not report.findings:
        raise SystemExit(f"{path}: no finding of {rule}")
    found = shrink(trace, claims, report.findings[0])
    shrunk = time.perf_counter()
    return {
        "check": checked - began,
        "shrink": shrunk - checked,
        "window": found.window,
        "fed": found.fed,
        "rows": found.trace.num_rows,
        "whole": found.whole,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--at", type=float, default=0.9)
    parser.add_argument("--one", nargs=2, metavar=("TRACE", "RULE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(Path(options.one[0]), options.one[1])))
        return
    page = Page()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.parquet"
        busy.write(whole, options.events)
        for rule, (kind, column) in FAULTS.items():
            path = Path(folder) / "spoilt.parquet"
            spoil(whole, path, kind, column, int(options.events * options.at))
            for _ in range(2):  # the first run may compile
                done = subprocess.run(
                    [sys.executable, __file__, "--one", str(path), rule],
                    capture_output=True,
                    text=True,
                    check=True,
                )
            said = json.loads(done.stdout)
            rows.append(
                (
                    rule,
                    f"{said['check']:.1f} s",
                    f"{said['shrink']:.1f} s",
                    f"{said['window'][0]:,}",
                    f"{said['fed']:,}",
                    said["rows"],
                    f"{said['memory']:,.0f} MB",
                )
            )
    page.add(f"{options.events:,} events, the fault at {options.at:.0%} of them")
    page.gap()
    page.table(("rule", "check", "shrink", "window", "rows fed", "rows left", "peak memory"), rows, "lrrrrrr")
    print(page.text(), end="")


if __name__ == "__main__":
    main()
