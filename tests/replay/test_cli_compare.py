"""`batchspec compare`: side by side, as a table, as data, as pictures."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from batchspec.replay.cli import main
from batchspec.replay.report import plots
from batchspec.spec.errors import BatchspecError

CODE = str(Path(__file__).resolve().parents[2] / "replay" / "data" / "azure_code_2023.csv")
SIZES = ["--max-seqs", "8", "--token-budget", "512", "--kv-blocks", "640", "--block-size", "16"]
SMALL = [*SIZES, "--limit", "30"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(capsys, *words: str) -> str:
    assert main(["compare", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, *words: str) -> str:
    assert main(["compare", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_policies_side_by_side(capsys, snapshot):
    words = ["--policy", "fcfs,sjf,priority,fair", "--tenants", "3", "--priorities", "3"]
    out = run(capsys, CODE, *SMALL, *words, "--slo", "ttft=1s,tpot=50ms", "--peak-tflops", "900")
    assert out == snapshot


def test_every_combination_has_a_label_of_what_differs(capsys):
    words = ["--policy", "fcfs,sjf", "--max-seqs", "4,8", "--token-budget", "512", "--limit", "10"]
    found = json.loads(run(capsys, CODE, *words, "--format", "json"))
    assert [each["run"] for each in found["runs"]] == [
        "fcfs max_seqs=4",
        "fcfs max_seqs=8",
        "sjf max_seqs=4",
        "sjf max_seqs=8",
    ]
    assert [each["max_seqs"] for each in found["runs"]] == [4, 8, 4, 8]


def test_modes_and_profiles(capsys):
    words = ["--mode", "static,continuous", "--max-seqs", "4", "--limit", "12", "--format", "json"]
    static, continuous = json.loads(run(capsys, CODE, *words))["runs"]
    assert (static["run"], continuous["run"]) == ("static", "continuous")
    assert static["slot_utilisation"] < continuous["slot_utilisation"]
    assert static["throughput"] < continuous["throughput"]
    words = ["--profile", "vllm-v1,sarathi", *SIZES, "--limit", "12", "--format", "json"]
    assert [each["profile"] for each in json.loads(run(capsys, CODE, *words))["runs"]] == [
        "vllm-v1",
        "sarathi",
    ]


def test_recorded_traces_have_the_figures_of_their_simulation(capsys):
    main(["simulate", CODE, "--out", "runs", *SMALL, "--policy", "fcfs,sjf"])
    assert sorted(path.name for path in Path("runs").iterdir()) == ["fcfs.parquet", "sjf.parquet"]
    capsys.readouterr()
    recorded = json.loads(run(capsys, "runs/fcfs.parquet", "runs/sjf.parquet", "--format", "json"))
    simulated = json.loads(run(capsys, CODE, *SMALL, "--policy", "fcfs,sjf", "--format", "json"))
    for one, other in zip(recorded["runs"], simulated["runs"], strict=True):
        one.pop("offered_rate"), other.pop("offered_rate")
        assert one == other


def test_several_sources_are_told_apart(capsys):
    main(["simulate", CODE, "--out", "run.parquet", *SMALL])
    capsys.readouterr()
    found = json.loads(run(capsys, CODE, "run.parquet", *SMALL, "--policy", "fcfs", "--format", "json"))
    assert [each["run"] for each in found["runs"]] == ["azure_code_2023 fcfs", "run"]


def test_files_hold_every_figure(capsys):
    out = run(capsys, CODE, *SMALL, "--policy", "fcfs,sjf", "--out", "a/c.csv", "--out", "c.parquet")
    assert out.endswith("wrote a/c.csv\nwrote c.parquet\n")
    text, binary = pd.read_csv("a/c.csv"), pd.read_parquet("c.parquet")
    assert list(text.columns) == list(binary.columns)
    assert list(text.run) == list(binary.run) == ["fcfs", "sjf"]
    assert text.ttft_p95_ms.tolist() == pytest.approx(binary.ttft_p95_ms.tolist())


def test_pictures(capsys):
    pytest.importorskip("matplotlib")
    words = [CODE, *SMALL, "--policy", "fcfs,sjf", "--tenants", "2"]
    for path in ("c.png", "c.svg", "c.html"):
        words += ["--out", path]
    run(capsys, *words)
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    page = Path("c.html").read_text()
    assert "<svg" in page
    assert "ttft_p99_ms" in page
    assert not re.search(
        r"<script|https?://(?!www\.w3\.org|purl\.org|creativecommons\.org|matplotlib\.org)", page
    )
    first = {path: Path(path).read_bytes() for path in ("c.png", "c.svg", "c.html")}
    run(capsys, *words)
    assert {path: Path(path).read_bytes() for path in first} == first, "the same run gives the same bytes"


def test_names_from_outside_are_escaped(capsys):
    pytest.importorskip("matplotlib")
    name = "<b>$x_1$ & \x1b[31m.csv"
    Path(name).write_text("arrival_ns,prompt_tokens,output_tokens,tenant\n0,3,4,<i>\n5,3,2,$\\bad$\n")
    run(capsys, name, "--out", "c.html", "--out", "c.png")
    page = Path("c.html").read_text()
    assert "<b>$x" not in page
    assert "&lt;b&gt;$x_1$ &amp; \\x1b[31m" in page


def test_without_matplotlib_the_error_says_what_to_install(capsys, monkeypatch):
    def absent(name: str):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(plots, "import_module", absent)
    assert "batchspec[plot]" in refused(capsys, CODE, "--out", "c.png")
    with pytest.raises(BatchspecError, match="matplotlib"):
        plots.bars([], "nothing")
    run(capsys, CODE, "--limit", "3", "--out", "c.csv")


def test_knobs_reach_the_workload(capsys):
    words = ["--format", "json", *SIZES]
    whole = json.loads(run(capsys, CODE, *words))["runs"][0]
    half = json.loads(run(capsys, CODE, *words, "--speed", "0.5", "--prompt-scale", "0.5"))["runs"][0]
    assert half["offered_rate"] == pytest.approx(whole["offered_rate"] / 2)
    assert half["computed_tokens"] == pytest.approx(whole["computed_tokens"] / 2, rel=0.02)
    cut = json.loads(run(capsys, CODE, *words, "--skip", "10", "--limit", "5"))["runs"][0]
    assert cut["requests"] == 5
    assert json.loads(run(capsys, CODE, *words, "--from-s", "2", "--to-s", "4"))["runs"][0]["requests"] < 160


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([CODE, "--policy", "fcfs,lifo"], "admission.order must be one of"),
        ([CODE, "--max-seqs", "8,none"], "--max-seqs must be whole numbers of at least 1"),
        ([CODE, "--max-seqs", "0"], "--max-seqs must be whole numbers of at least 1"),
        ([CODE, "--slo", "ttft=fast"], "--slo ttft must be a time such as 500ms"),
        ([CODE, "--slo", "p99=1s"], "--slo takes each of ttft, tpot and e2e once"),
        ([CODE, "--slo", "ttft=1s,ttft=2s"], "--slo takes each of ttft, tpot and e2e once"),
        ([CODE, "--slo", ","], "--slo names no objective"),
        ([CODE, "--out", "c.xlsx"], "--out must end in one of .csv, .parquet"),
        ([CODE, "--speed", "0"], "speed must lie in"),
        ([CODE, "--skip", "160"], "no request is left"),
        (["none.csv"], "no such file or folder"),
        ([CODE, "--profile", "vllm"], "unknown profile 'vllm'"),
    ],
)
def test_what_cannot_be_compared_is_one_line(words, message, capsys):
    assert message in refused(capsys, *words)


def test_a_file_that_cannot_be_written_is_one_line(capsys):
    Path("taken").write_text("")
    assert "cannot be written" in refused(capsys, CODE, "--limit", "2", "--out", "taken/c.csv")
