"""How fast records are imported, against a plain parse of the same lines in the same run.

    python bench/imports.py [--rows N] [--format azure,mooncake,sglang-request-metrics,trtllm-stats]

For each format: a generated file, imported into Parquet by a process of its own, whose CPU seconds and
peak memory the table has; and the csv or json module of the standard library over the same lines. The
ratio is what checking, converting and writing cost beyond parsing.
"""

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

from batchspec.replay.cli import main as main_of_batchspec
from batchspec.replay.report.page import Page

BEGIN = datetime(2023, 11, 16)


def azure(rows: int, rng: random.Random) -> Iterator[str]:
    """Arrivals of a busy service, seven fraction digits, CRLF."""
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    now = 0
    for _ in range(rows):
        now += rng.randrange(400_000)
        moment = BEGIN + timedelta(seconds=now // 10_000_000)
        yield f"{moment}.{now % 10_000_000:07},{rng.randint(1, 8000)},{rng.randint(1, 900)}\r\n"


def mooncake(rows: int, rng: random.Random) -> Iterator[str]:
    """Prompts of about 12,000 tokens with an id for each block, as in the published trace."""
    for row in range(rows):
        length = rng.randint(900, 23_000)
        ids = [*range(4), *range(row * 50, row * 50 + -(-length // 512) - 4)][: -(-length // 512)]
        fields = {"timestamp": row * 3, "input_length": length, "output_length": rng.randint(1, 700)}
        yield json.dumps({**fields, "hash_ids": ids}) + "\n"


def sglang_request_metrics(rows: int, rng: random.Random) -> Iterator[str]:
    """A log in the order in which requests end: all of it is put in the order of arrival."""
    for row in range(rows):
        took = rng.randint(1, 30_000) / 1000
        arrival = 1_772_357_400 + row / 200 - took
        fields = {
            "request_parameters": '{"sampling_params": {"max_new_tokens": 900}}',
            "id": f"{row:032x}",
            "finish_reason": {"type": "stop"},
            "prompt_tokens": rng.randint(1, 8000),
            "completion_tokens": rng.randint(1, 900),
            "forward_entry_time": round(arrival + took / 9, 6),
            "request_received_ts": round(arrival, 6),
            "first_token_latency": round(took / 8, 6),
            "request_finished_ts": round(arrival + took, 6),
        }
        yield json.dumps(fields) + "\n"


def trtllm_stats(rows: int, rng: random.Random) -> Iterator[str]:
    """Iteration statistics in one array, indented."""
    yield "["
    for row in range(rows):
        moment = BEGIN + timedelta(milliseconds=20 * row)
        fields = {
            "timestamp": f"{moment:%m-%d-%Y %H:%M:%S.%f}",
            "iter": row,
            "iterLatencyMS": 19.5,
            "numActiveRequests": rng.randint(1, 64),
            "numQueuedRequests": rng.randint(0, 9),
            "kvCacheStats": {
                "maxNumBlocks": 4096,
                "freeNumBlocks": rng.randint(0, 4096),
                "tokensPerBlock": 32,
            },
            "inflightBatchingStats": {"numContextRequests": 1, "numGenRequests": 40, "numCtxTokens": 300},
        }
        yield json.dumps(fields, indent=1) + ("]" if row == rows - 1 else ",\n")


FORMATS: dict[str, Callable[[int, random.Random], Iterator[str]]] = {
    "azure": azure,
    "mooncake": mooncake,
    "sglang-request-metrics": sglang_request_metrics,
    "trtllm-stats": trtllm_stats,
}


def imported(path: Path) -> dict[str, float]:
    """Import a file with the command; CPU and wall seconds, and the process's peak memory."""
    began = time.process_time(), time.perf_counter()
    with redirect_stdout(StringIO()) as said:
        status = main_of_batchspec(["import", str(path), "--out", str(path.with_suffix(".parquet"))])
    if status:
        raise SystemExit(status)
    return {
        "rows": int(said.getvalue().split()[0]),
        "cpu": time.process_time() - began[0],
        "wall": time.perf_counter() - began[1],
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def parsed(path: Path) -> float:
    """CPU seconds of a plain parse of the same lines."""
    began = time.process_time()
    with path.open(newline="") as file:
        if path.suffix == ".csv":
            for _ in csv.reader(file):
                pass
        elif path.suffix == ".json":
            json.load(file)
        else:
            for line in file:
                json.loads(line)
    return time.process_time() - began


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--format", default=",".join(FORMATS))
    options.add_argument("--child", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        print(json.dumps(imported(Path(chosen.child))))
        return
    page = Page()
    page.add(
        f"{'format':<24}{'rows':>10}{'CPU s':>8}{'wall s':>8}{'peak MiB':>10}{'parse CPU s':>13}{'ratio':>7}"
    )
    for name in chosen.format.split(","):
        ending = {"azure": ".csv", "trtllm-stats": ".json"}.get(name, ".jsonl")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name + ending)
            with path.open("w", newline="") as file:
                file.writelines(FORMATS[name](chosen.rows, random.Random(0)))
            command = [sys.executable, __file__, "--child", str(path)]
            said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            plain = parsed(path)
        page.add(
            f"{name:<24}{said['rows']:>10,}{said['cpu']:>8.1f}{said['wall']:>8.1f}{said['mib']:>10.0f}"
            f"{plain:>13.1f}{said['cpu'] / plain:>7.1f}"
        )
    print(page.text(), end="")


if __name__ == "__main__":
    main()
