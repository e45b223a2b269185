"""What is said of the published files beyond their counts and sums: bunches, collisions, parts, averages."""

import hashlib
import json
import re
from collections import Counter
from itertools import pairwise
from statistics import fmean, median

import pytest

from batchspec.spec.rules.requests import refused

SECOND = 1_000_000_000
WORKLOADS = "workloads"
AZURE = f"{WORKLOADS}/azure-llm-2023/AzureLLMInferenceTrace_{{}}.csv"
SAMPLES = {
    "azure_llm_2023_code.csv": 20,
    "azure_llm_2023_conv.csv": 20,
    "azure_llm_2024_code.csv": 10,
    "azure_llm_2024_conv.csv": 10,
    "azure_lmm_2025.csv": 10,
    "burstgpt_1.csv": 42,
    "burstgpt_3.csv": 4,
    "mooncake_conversation.jsonl": 20,
    "mooncake_synthetic.jsonl": 20,
    "ragpulse.jsonl": 20,
    "ragpulse_out_of_order.jsonl": 20,
    "ragpulse_trailing_blank.jsonl": 5,
    "vtc_fcfs_real.jsonl": 20,
    "vtc_lshare_rpm5_real.jsonl": 20,
    "vidur_splitwise_code.csv": 20,
    "vidur_arxiv_summarization.csv": 20,
    "servegen_offline_trace_a.jsonl": 20,
    "servegen_offline_trace_d.jsonl": 20,
    "tracelab_multi_session_example.csv": 8,
    "splitwise_sim_test_trace.csv": 3,
    "llmservingsim_example_trace.jsonl": 10,
    "aibrix_one_request.jsonl": 1,
    "inference_perf_trace.csv": 20,
    "aiperf_production_trace.jsonl": 10,
    "aiperf_precise_schedule.jsonl": 8,
}


def test_the_files_are_those_that_were_published(whole):
    lines = (whole / "SHA256SUMS").read_text().splitlines()
    sums = dict(reversed(line.split(maxsplit=1)) for line in lines)
    assert len(sums) > 50
    for name, stated in sums.items():
        path = whole / name.lstrip("*./")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == stated, name


@pytest.mark.parametrize(
    ("what", "span_us", "collisions"), [("code", 3435948056, 2690), ("conv", 3501721937, 801)]
)
def test_azure_times_are_distinct_and_collide_only_once_they_are_cut(
    what, span_us, collisions, whole, records
):
    rows, _ = records(whole / AZURE.format(what), strict=True)
    times = [row.arrival_ns for row in rows]
    assert len(set(times)) == len(times)
    assert times[-1] - times[0] == span_us * 1000
    raw = [line.split(",")[0] for line in (whole / AZURE.format(what)).read_text().splitlines()[1:]]
    # The fraction has seven digits; two of them are 10 ms.
    assert len(raw) - len({text[:-5] for text in raw}) == collisions
    assert {row.tenant for row in rows} == {None}
    assert {row.finish_ns for row in rows} == {None}


def test_mooncake_arrives_in_bunches(whole, records):
    rows, _ = records(whole / f"{WORKLOADS}/mooncake-fast25/conversation_trace.jsonl.gz", strict=True)
    instants = sorted({row.arrival_ns for row in rows})
    assert len(instants) == 1180
    assert len(rows) - len(instants) == 10_851
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert median(gaps) == pytest.approx(3 * SECOND, rel=0.01)


def test_ragpulse_inputs_exceed_their_parts_by_six_to_twelve(whole):
    folder = whole / f"{WORKLOADS}/ragpulse"
    lengths: dict[str, dict[str, int]] = {}
    parts = {
        "sys_prompt": "1_sys_prompt",
        "passages_ids": "2_passages",
        "history": "3_history",
        "user_input": "4_user_input",
        "web_search": "5_web_search",
    }
    counts = (6898, 8302, 4910, 6292, 522)
    for (part, name), count in zip(parts.items(), counts, strict=True):
        rows = [
            json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines() if line.strip()
        ]
        assert len(rows) == count
        # The first column is the id, whatever the file calls it.
        lengths[part] = {str(next(iter(row.values()))): int(row["token_length"]) for row in rows}
    over = Counter()
    for line in (folder / "0_trace.jsonl").read_text().splitlines():
        if line.strip():
            row = json.loads(line)
            known = [lengths[part].get(str(one)) for part, ids in row["hash_ids"].items() for one in ids]
            if None not in known:
                over[row["input_length"] - sum(known)] += 1
    assert over.total() > 5000
    assert min(over) >= 6
    assert max(over) <= 12


def test_ragpulse_session_ids(whole, records):
    rows, _ = records(whole / f"{WORKLOADS}/ragpulse/0_trace.jsonl", strict=True)
    # Stated as bare epochs; four are, the other sixteen are names, counters and UUIDs.
    odd = [row.session for row in rows if not re.fullmatch(r"\d{13}-\w+", row.session)]
    assert len(odd) == 20
    assert sum(len(name) == 13 and name.isdigit() for name in odd) == 4


def test_the_published_average_of_the_limiter_takes_refusals_in(whole, records):
    path = whole / f"{WORKLOADS}/vtc-artifact/LShare/rpm5/all_results_real.jsonl"
    rows, _ = records(path, strict=True)
    done = [row for row in rows if not refused(row)]
    assert len(rows) - len(done) == 919
    served = fmean((row.finish_ns - row.arrival_ns) / SECOND for row in done)
    with_refusals = (served * len(done) - 919) / len(rows)
    assert served == pytest.approx(8.79, abs=0.005)
    assert with_refusals == pytest.approx(2.79, abs=0.005)
    published = json.loads(path.read_text())["result"]
    assert published["num_abort"] == 0
    assert published["avg_latency"] == pytest.approx(with_refusals)
    assert published["avg_first_token_latency"] == published["avg_latency"]


@pytest.mark.parametrize("run", ["FCFS", "VTC", "LCF", "LShare/rpm5"])
def test_the_real_runs_share_one_workload(run, whole, records):
    first, _ = records(whole / f"{WORKLOADS}/vtc-artifact/FCFS/all_results_real.jsonl")
    rows, _ = records(whole / f"{WORKLOADS}/vtc-artifact/{run}/all_results_real.jsonl")
    key = [(row.arrival_ns, row.prompt_tokens, row.output_tokens, row.tenant) for row in rows]
    assert key == [(row.arrival_ns, row.prompt_tokens, row.output_tokens, row.tenant) for row in first]
    assert len({row.tenant for row in rows}) == 27
    assert rows[-1].arrival_ns == 600 * SECOND


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_sample_has_the_rows_that_are_stated(name, whole, records):
    rows, log = records(whole / "samples/real" / name)
    assert len(rows) + sum(log.dropped.values()) == SAMPLES[name]


def test_burstgpt_holds_four_failed_requests(records):
    rows, log = records("burstgpt_1.csv")
    failed = [row for row in rows if not row.output_tokens]
    assert len(failed) + sum(log.dropped.values()) == 4
