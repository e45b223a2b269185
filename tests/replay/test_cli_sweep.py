"""`batchspec sweep` and `batchspec calibrate`."""

import json
from pathlib import Path

import pandas as pd
import pytest

from batchspec.replay.cli import main

CODE = str(Path(__file__).resolve().parents[2] / "replay" / "data" / "azure_code_2023.csv")
SIZES = ["--max-seqs", "8", "--token-budget", "512", "--kv-blocks", "640", "--block-size", "16"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def swept(capsys, *words: str):
    assert main(["sweep", CODE, *SIZES, "--format", "json", *words]) == 0
    return json.loads(capsys.readouterr().out)["runs"]


def refused(capsys, *words: str) -> str:
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_more_load_costs_latency(capsys):
    points = swept(capsys, "--at", "0.5,2,8,32")
    assert [point["offered_rate"] for point in points] == [0.5, 2, 8, 32]
    for name in ("throughput", "ttft_p95_ms", "e2e_p95_ms"):
        values = [point[name] for point in points]
        assert values == sorted(values), name
    assert points[0]["throughput"] < points[-1]["throughput"] / 3
    assert points[-1]["e2e_p95_ms"] > 5 * points[0]["e2e_p95_ms"]


def test_a_closed_loop_never_has_more_in_flight_than_clients(capsys):
    points = swept(capsys, "--over", "concurrency", "--at", "1,4,16")
    assert [point["offered_concurrency"] for point in points] == [1, 4, 16]
    assert [point["offered_rate"] for point in points] == [None] * 3
    for point in points:
        assert point["concurrency_p99"] <= point["offered_concurrency"]
    values = [point["throughput"] for point in points]
    assert values == sorted(values)


def test_one_curve_for_each_choice(capsys, snapshot):
    words = ["--at", "1,4", "--policy", "fcfs,sjf", "--limit", "40"]
    assert main(["sweep", CODE, *SIZES, *words, "--out", "s.csv"]) == 0
    assert capsys.readouterr().out == snapshot
    assert list(pd.read_csv("s.csv").run) == ["fcfs", "fcfs", "sjf", "sjf"]


def test_the_curve_as_a_picture(capsys):
    pytest.importorskip("matplotlib")
    words = ["--at", "1,4", "--policy", "fcfs,sjf", "--limit", "20", "--out", "s.png", "--out", "s.html"]
    assert main(["sweep", CODE, *SIZES, *words]) == 0
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in Path("s.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "1,fast"], "--at must be rates such as 0.5,1,2"),
        (["--at", "0"], "--at must be rates"),
        (["--at", "nan"], "--at must be rates"),
        (["--at", ","], "--at names no load"),
        (["--at", "0.5", "--over", "concurrency"], "--at must be whole numbers"),
        (["--at", ",", "--over", "concurrency"], "--at names no load"),
        (["--at", "1", "--over", "batch"], "'batch' is not one of"),
    ],
)
def test_what_is_no_sweep_is_one_line(words, message, capsys):
    assert message in refused(capsys, "sweep", CODE, *words)


def test_a_workload_that_is_all_there_at_once_has_no_rate(capsys):
    Path("burst.csv").write_text("arrival_ns,prompt_tokens,output_tokens\n0,3,4\n0,3,2\n")
    assert "have no rate; use --over concurrency" in refused(capsys, "sweep", "burst.csv", "--at", "1")
    assert main(["sweep", "burst.csv", "--at", "1", "--over", "concurrency"]) == 0


# -- calibrate -------------------------------------------------------------------------------------


def test_a_calibrated_simulation_takes_the_times_of_the_run(capsys):
    main(["simulate", CODE, "--out", "run.parquet", *SIZES, "--limit", "60"])
    capsys.readouterr()
    assert main(["calibrate", "run.parquet", "--out", "cost.json"]) == 0
    out = capsys.readouterr().out
    assert "off by 0.0% (median)" in out
    assert "--cost cost.json" in out
    main(["simulate", CODE, "--out", "again.parquet", *SIZES, "--limit", "60", "--cost", "cost.json"])
    pd.testing.assert_frame_equal(pd.read_parquet("run.parquet"), pd.read_parquet("again.parquet"))


def test_another_cost_changes_the_times_and_is_said_by_calibrate(capsys):
    Path("cost.json").write_text('{"cost": {"base_ns": 1000, "per_token_ns": 500.5}}')
    main(["simulate", CODE, "--out", "run.parquet", *SIZES, "--limit", "40", "--cost", "cost.json"])
    capsys.readouterr()
    main(["calibrate", "run.parquet", "--out", "found.json"])
    cost = json.loads(Path("found.json").read_text())["cost"]
    assert cost["per_token_ns"] == pytest.approx(500.5, rel=0.01)
    assert cost["per_kv_position_ns"] == pytest.approx(40, rel=0.01), (
        "the parts that are left out keep theirs"
    )


def test_a_trace_without_durations_cannot_be_calibrated(capsys):
    Path("run.txt").write_text("1 arrive A prompt=4\n1 admit A\n1 schedule A start=0 tokens=4\n1 step\n")
    err = refused(capsys, "calibrate", "run.txt", "--out", "cost.json")
    assert "only 0 passes have a duration; record with a wall clock" in err
    assert "--out must end in .json" in refused(capsys, "calibrate", "run.txt", "--out", "cost.txt")


# -- simulate --------------------------------------------------------------------------------------


def test_simulate_says_where_the_time_went(capsys):
    assert main(["simulate", CODE, "--out", "run.parquet", *SIZES, "--limit", "20", "--timing"]) == 0
    out, err = capsys.readouterr()
    assert "wrote run.parquet" in out
    assert err.count("\n") == 1
    for part in ("reading the workload", "scheduling", "writing", "members a minute"):
        assert part in err


def test_several_policies_need_a_folder(capsys):
    err = refused(capsys, "simulate", CODE, "--out", "run.parquet", "--policy", "fcfs,sjf")
    assert "leave .parquet off" in err


def test_prefix_hashes_are_kept_and_found(capsys):
    """Two prompts of 64 tokens with one hash of 32 in common: half of the second is taken over."""
    from batchspec.spec.records import Record
    from batchspec.traces.header import Header
    from batchspec.traces.reader import open_trace
    from batchspec.traces.workload import write_records

    records = [
        Record(0, 0, 64, 2, prefix_hashes=(1, 2)),
        Record(1, 10**9, 64, 2, prefix_hashes=(1, 3)),
    ]
    write_records("work.parquet", records, Header(complete=True, hash_block=32))
    Path("prefix.toml").write_text("[reuse]\nprefix = true\n")
    words = [*SIZES[2:], "--config", "prefix.toml", "--out"]
    for scale, taken in (("1", 32), ("2", 64), ("0.5", 16)):
        main(["simulate", "work.parquet", *words, f"run{scale}.parquet", "--prompt-scale", scale])
        trace = open_trace(f"run{scale}.parquet")
        assert [e.cached for e in trace.events() if e.event == "admit"] == [0, taken]
        assert trace.header is not None
        assert trace.header.hash_block == int(32 * float(scale))
        assert main(["check", f"run{scale}.parquet"]) == 0
