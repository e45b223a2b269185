"""Every sample file, where BATCHSPEC_DATA names the folder that has them all: known, and what it stands for.

One table: the format, how many records or events a file holds, and for the made run what the truth says of
them as far as the format carries it (which the tests of the single formats hold field by field).
"""

import json
from pathlib import Path

import pytest

from batchspec.traces.importers import detect

TABLE = {
    "real/aibrix_one_request.jsonl": ("aibrix", 1),
    "real/aiperf_precise_schedule.jsonl": ("mooncake", 8),
    "real/aiperf_production_trace.jsonl": ("aiperf", 10),
    "real/azure_llm_2023_code.csv": ("azure", 20),
    "real/azure_llm_2023_conv.csv": ("azure", 20),
    "real/azure_llm_2024_code.csv": ("azure", 10),
    "real/azure_llm_2024_conv.csv": ("azure", 10),
    "real/azure_lmm_2025.csv": ("azure", 10),
    "real/burstgpt_1.csv": ("burstgpt", 38),
    "real/burstgpt_3.csv": ("burstgpt", 4),
    "real/inference_perf_otel_simple_chain.json": ("inference-perf", 3),
    "real/inference_perf_trace.csv": ("azure", 20),
    "real/llmservingsim_example_trace.jsonl": ("llmservingsim", 10),
    "real/mooncake_conversation.jsonl": ("mooncake", 20),
    "real/mooncake_synthetic.jsonl": ("mooncake", 20),
    "real/ragpulse.jsonl": ("ragpulse", 20),
    "real/ragpulse_out_of_order.jsonl": ("ragpulse", 20),
    "real/ragpulse_trailing_blank.jsonl": ("ragpulse", 5),
    "real/servegen_deepseek-r1_chunk-52-trace.csv": ("servegen", None),
    "real/servegen_offline_trace_a.jsonl": ("servegen-offline", 20),
    "real/servegen_offline_trace_d.jsonl": ("servegen-offline", 20),
    "real/splitwise_sim_test_trace.csv": ("splitwise-sim", 3),
    "real/tracelab_multi_session_example.csv": ("tracelab-replay", 8),
    "real/tracelab_rounds.jsonl": ("tracelab", 19),
    "real/vidur_arxiv_summarization.csv": ("vidur", 20),
    "real/vidur_splitwise_code.csv": ("vidur", 20),
    "real/vtc_fcfs_real.jsonl": ("vtc", 20),
    "real/vtc_lshare_rpm5_real.jsonl": ("vtc", 20),
    "real/weka_trace_0187.json": ("kv-cache-tester", 3),
    "real/weka_trace_0504.json": ("kv-cache-tester", 3),
    "made/copilot_sessions.jsonl": ("copilot", None),
    "made/dynamo_request_trace.jsonl": ("dynamo", 19),
    "made/lightllm.log": ("lightllm", 19),
    "made/litellm_standard_logging.jsonl": ("litellm", 20),
    "made/llumnix_instance.csv": ("llumnix", 20),
    "made/qwen_bailian.jsonl": ("qwen-bailian", 20),
    "made/sagemaker_data_capture.jsonl": ("sagemaker", 18),
    "made/sglang_request_metrics.log": ("sglang-request-metrics", 19),
    "made/sglang_requests.log": ("sglang-requests", 19),
    "made/sglang_scheduler.log": ("sglang-scheduler", None),
    "made/sglang_scheduler_status.log": ("sglang-status", None),
    "made/tgi.log": ("tgi", 18),
    "made/trtllm_iteration_stats.json": ("trtllm-stats", 20),
    "made/trtllm_triton.log": ("trtllm-triton", 20),
    "made/vllm_bench_detailed.json": ("vllm-bench", 20),
    "made/vllm_metrics.prom": ("vllm-metrics", 1),
    "made/vllm_otel_spans.jsonl": ("otel", 19),
    "made/vllm_server.log": ("vllm-log", None),
}
"""Format, and rows by the README; None where the file does not come to one row a line."""

BESIDE = {
    "real/servegen_deepseek-r1_chunk-52-dataset.json",
    "made/expected_requests.csv",
    "made/expected_steps.jsonl",
}
"""What is read with another file, and the truth itself."""


REQUESTS = [
    name
    for name, (form, _) in TABLE.items()
    if name.startswith("made/") and form not in ("copilot", "qwen-bailian")
]


def test_the_table_has_every_sample(whole: Path) -> None:
    there = {
        str(path.relative_to(whole / "samples")) for path in (whole / "samples").rglob("*") if path.is_file()
    }
    assert there == TABLE.keys() | BESIDE


@pytest.mark.parametrize("name", TABLE)
def test_each_comes_to_its_rows(name: str, whole: Path, records) -> None:
    path = whole / "samples" / name
    form, size = TABLE[name]
    assert form == detect(path).NAME
    rows, log = records(path)
    assert size is None or len(rows) == size
    assert rows
    if name != "real/burstgpt_1.csv":
        assert not log.dropped


@pytest.mark.parametrize("name", REQUESTS)
def test_the_made_run_is_the_same_in_every_syntax(name: str, whole: Path, records, truth) -> None:
    """Requests: lengths as in the truth. Steps: what is running and waiting, tokens and blocks."""
    rows, _ = records(whole / "samples" / name)
    steps = [
        json.loads(line) for line in (whole / "samples/made/expected_steps.jsonl").read_text().splitlines()
    ]
    if not hasattr(rows[0], "step"):
        lengths = [(request["prompt_tokens"], request["output_tokens"]) for request in truth.values()]
        for row in rows:
            if row.status in ("error", "abort"):
                continue
            assert any(
                (row.prompt_tokens is None or row.prompt_tokens == prompt) and row.output_tokens == outputs
                for prompt, outputs in lengths
            )
        return
    told = [row for row in rows if row.event == "step"]
    by_number = {step["iter"]: step for step in steps}
    exact = name in ("made/trtllm_iteration_stats.json", "made/llumnix_instance.csv", "made/vllm_server.log")
    for row in told if exact else ():
        step = by_number[row.step]
        if row.free_blocks is not None:
            assert row.free_blocks == 64 - step["used_blocks"]
        if row.tokens is not None and name != "made/vllm_server.log":
            assert row.tokens == step["ctx_tokens"] + step["gen_tokens"]
    assert told
