"""`batchspec record` end to end: a workload in, a trace out, and its tokens compared."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from batchspec.replay.cli import main
from batchspec.replay.commands import record as module
from batchspec.traces.reader import open_trace

SIZES = ["--max-seqs", "6", "--token-budget", "24", "--kv-blocks", "20", "--block-size", "4"]


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rows = [f"{index * 4_000_000},{index % 17 + 1},{index % 11 + 1}" for index in range(30)]
    Path("load.csv").write_text("arrival_ns,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return "load.csv"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--policy", "fair", "--mode", "static", "--preempt", "none"],
        ["--preempt", "swap", "--level", "L1"],
        ["--mode", "dynamic", "--policy", "sjf"],
        ["--clock", "wall", "--limit", "5"],
    ],
)
def test_what_is_recorded_conforms(
    workload: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", workload, "--out", "run", *SIZES, *options]) == 0
    out, err = capsys.readouterr()
    assert "check it with:  batchspec check run" in out
    assert err == ""
    assert main(["check", "run"]) == 0
    assert capsys.readouterr().out.startswith("run: conforms")


def test_following_a_trace_compares_its_tokens(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", workload, "--out", "run.parquet", *SIZES, "--dtype", "float64"]) == 0
    capsys.readouterr()
    assert main(["record", "--follow", "run.parquet", "--dtype", "float64"]) == 0
    assert "outputs/invariant: conforms; 168 tokens of 30 requests" in capsys.readouterr().out


def test_the_same_seed_writes_the_same_file(workload: str) -> None:
    for name in ("one.parquet", "two.parquet"):
        assert main(["record", workload, "--out", name, *SIZES]) == 0
    assert Path("one.parquet").read_bytes() == Path("two.parquet").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give WORKLOAD and --out, or --follow TRACE"),
        (["load.csv"], "give WORKLOAD and --out, or --follow TRACE"),
        (["load.csv", "--out", "x", "--level", "L9"], "--level must be one of L1, L2, L3"),
        (["load.csv", "--out", "x", "--model", "nowhere"], "config.json is missing"),
        (["load.csv", "--out", "x", "--token-budget", "2"], "must be at least limits.max_seqs"),
        (["load.csv", "--out", "x", "--profile", "vllm-v1-async"], "reuse.slot_lag = 1"),
        (["none.csv", "--out", "x"], "none.csv: no such file"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    workload: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_without_torch_the_command_says_what_to_install(
    workload: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(module, "import_module", missing)
    assert main(["record", workload, "--out", "x"]) == 2
    assert "pip install 'batchspec[engine]'" in capsys.readouterr().err


def test_record_and_simulate_replay_the_same_reshaped_workload(workload: str) -> None:
    knobs = [
        "--from-s",
        "0.01",
        "--limit",
        "12",
        "--speed",
        "0.5",
        "--prompt-scale",
        "0.5",
        "--output-scale",
        "2",
    ]
    knobs += ["--tenants", "3", "--priorities", "2", *SIZES]
    assert main(["record", workload, "--out", "engine", *knobs]) == 0
    assert main(["simulate", workload, "--out", "model.parquet", *knobs]) == 0

    def arrivals(trace: str) -> list[tuple[Any, ...]]:
        shown = ("request", "prompt_tokens", "max_tokens", "tenant", "priority")
        rows = [event for event in open_trace(trace).events() if event.event == "arrive"]
        return sorted(tuple(getattr(row, name) for name in shown) for row in rows)

    assert arrivals("engine") == arrivals("model.parquet")
    assert len(arrivals("engine")) == 12


def test_a_recorded_wall_clock_calibrates_the_simulator(
    workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", workload, "--out", "run", *SIZES, "--clock", "wall"]) == 0
    assert main(["calibrate", "run", "--out", "cost.json"]) == 0
    assert "fitted to" in capsys.readouterr().out
    assert main(["simulate", workload, "--out", "again.parquet", *SIZES, "--cost", "cost.json"]) == 0
    assert main(["check", "again.parquet"]) == 0
