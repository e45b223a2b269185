"""The whole Azure conversation hour under four policies: simulated, checked, compared (with --long).

BATCHSPEC_DATA names the folder that has the published file.
"""

import json
import os
from pathlib import Path

import pytest

from batchspec.replay.cli import main

LIMITS = ["--max-seqs", "64", "--token-budget", "2048", "--kv-blocks", "1600", "--block-size", "16"]
POLICIES = ("fair", "fcfs", "priority", "sjf")


@pytest.mark.slow
@pytest.mark.skipif("BATCHSPEC_DATA" not in os.environ, reason="BATCHSPEC_DATA names no folder")
def test_the_whole_hour_under_four_policies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = Path(os.environ["BATCHSPEC_DATA"]) / "workloads" / "azure-llm-2023"
    workload = str(folder / "AzureLLMInferenceTrace_conv.csv")
    knobs = ["--tenants", "8", "--priorities", "3", *LIMITS]
    assert main(["simulate", workload, "--policy", ",".join(POLICIES), *knobs, "--out", "hour"]) == 0
    traces = [f"hour/{policy}.parquet" for policy in POLICIES]
    assert main(["check", *traces, "--require", "admission/order", "--require", "preemption/victim"]) == 0
    capsys.readouterr()
    assert main(["compare", *traces, "--format", "json"]) == 0
    runs = {run["run"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
    assert {run["finished"] for run in runs.values()} == {19_366}
    assert {run["output_tokens"] for run in runs.values()} == {4_088_665}
    assert all(run["preemptions"] > 500 for run in runs.values())
    assert runs["sjf"]["ttft_p50_ms"] < runs["fcfs"]["ttft_p50_ms"]
    assert runs["fair"]["service_spread"] < runs["fcfs"]["service_spread"] / 2
