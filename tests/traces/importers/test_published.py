"""The whole published files, where BATCHSPEC_DATA names the folder that has them: each stated figure.

`expected_stats.json` was computed from the raw files with the standard library alone.
"""

import json
from statistics import fmean, median

import pytest

from batchspec.spec.rules.requests import refused

SECOND = 1_000_000_000
UNIT = {"us since first row": 1000, "ms": 1_000_000}
FILES = [
    "azure-llm-2023/AzureLLMInferenceTrace_code.csv",
    "azure-llm-2023/AzureLLMInferenceTrace_conv.csv",
    "vidur-processed/splitwise_code.csv",
    "vidur-processed/splitwise_conv.csv",
    "mooncake-fast25/conversation_trace.jsonl.gz",
    "ragpulse/0_trace.jsonl",
    *(
        f"vtc-artifact/{run}.jsonl"
        for run in (
            "FCFS/all_results_overload",
            "FCFS/all_results_real",
            "LCF/all_results_real",
            "LShare/rpm5/all_results_real",
            "VTC/all_results_dist_shift",
            "VTC/all_results_overload",
            "VTC/all_results_real",
        )
    ),
]
SESSIONS = (12, 19, 22, 57, 80, 84, 91, 100, 187, 277, 291, 504)


def expected(whole, name):
    return json.loads((whole / "workloads/expected_stats.json").read_text())[name]


def described(values, stats):
    assert min(values) == stats["min"]
    assert max(values) == stats["max"]
    assert sum(values) == stats["sum"]
    assert median(values) == stats["median"]
    assert fmean(values) == pytest.approx(stats["mean"], abs=1e-4)
    assert values.count(0) == stats["zeros"]


@pytest.mark.parametrize("name", FILES)
def test_the_stated_figures_of_a_trace(name, whole, records):
    stats = expected(whole, name)
    rows, log = records(whole / "workloads" / name, strict=True)
    assert len(rows) == stats["rows"]
    described([row.prompt_tokens for row in rows], stats["input_tokens"])
    described([row.output_tokens for row in rows], stats["output_tokens"])
    arrivals = [row.arrival_ns for row in rows]
    assert arrivals == sorted(arrivals)
    if "restarts" in stats["arrival_unit"]:
        return
    unit = UNIT.get(stats["arrival_unit"], SECOND)
    assert arrivals[0] == round(stats["arrival_first"] * unit)
    assert arrivals[-1] == round(stats["arrival_last"] * unit)
    shared = stats["rows_sharing_an_arrival_with_an_earlier_row"]
    assert len(arrivals) - len(set(arrivals)) == shared
    assert not log.dropped


def test_mooncake_blocks(whole, records):
    stats = expected(whole, FILES[4])
    rows, _ = records(whole / "workloads" / FILES[4], strict=True)
    assert sum(len(row.prefix_hashes) for row in rows) == stats["blocks"]
    assert len({block for row in rows for block in row.prefix_hashes}) == stats["distinct_blocks"]
    fitting = [row for row in rows if len(row.prefix_hashes) == -(-row.prompt_tokens // stats["block_size"])]
    assert len(fitting) == stats["rows_with_ceil_blocks"]
    seen: set[int] = set()
    leading = 0
    for row in rows:
        for block in row.prefix_hashes:
            if block not in seen:
                break
            leading += 1
        seen.update(row.prefix_hashes)
    assert leading == stats["leading_blocks_seen_before"]


def test_ragpulse_weeks_and_sessions(whole, records):
    stats = expected(whole, FILES[5])
    rows, log = records(whole / "workloads" / FILES[5], strict=True)
    assert len({row.session for row in rows}) == stats["sessions"]
    assert log.noted == {"the clock restarts: 7 days added from there on": 1}
    first, second = stats["week_rows"]
    week = 7 * 86_400 * SECOND
    assert sum(row.arrival_ns < week for row in rows) == first
    assert len(rows) - first == second
    assert rows[0].arrival_ns == stats["arrival_first"] * SECOND
    assert rows[first].arrival_ns == week
    assert rows[-1].arrival_ns == week + stats["arrival_last"] * SECOND
    # Ties within a week; the two weeks share none any more.
    assert (
        len(rows) - len({row.arrival_ns for row in rows})
        <= stats["rows_sharing_an_arrival_with_an_earlier_row"]
    )


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("vtc")])
def test_vtc_latencies_leave_refusals_out(name, whole, records):
    stats = expected(whole, name)
    rows, _ = records(whole / "workloads" / name, strict=True)
    done = [row for row in rows if not refused(row)]
    assert len(rows) - len(done) == stats["aborted"]
    assert len({row.tenant for row in rows}) == stats["tenants"]
    latency = fmean(row.finish_ns - row.arrival_ns for row in done) / SECOND
    first = fmean(row.first_token_ns - row.arrival_ns for row in done) / SECOND
    assert latency == pytest.approx(stats["mean_latency_of_completed"], abs=1e-8)
    assert first == pytest.approx(stats["mean_first_token_latency_of_completed"], abs=1e-8)
    for within, stated in ((False, "overtaking_s"), (True, "overtaking_within_a_tenant_s")):
        latest: dict[object, int] = {}
        most = 0
        for row in sorted(done, key=lambda row: row.arrival_ns):
            group = row.tenant if within else None
            most = max(most, latest.get(group, 0) - row.first_token_ns)
            latest[group] = max(latest.get(group, 0), row.first_token_ns)
        assert most / SECOND == pytest.approx(stats[f"largest_first_token_{stated}"], abs=6e-5)


@pytest.mark.parametrize("number", SESSIONS)
def test_the_stated_figures_of_a_session(number, whole, records):
    name = f"kv-cache-tester/trace_{number:04}.json"
    stats = expected(whole, name)
    rows, log = records(whole / "workloads" / name, strict=True)
    assert len(rows) == stats["requests"]
    assert sum(row.prompt_tokens for row in rows) == stats["input_tokens"]
    assert sum(row.output_tokens for row in rows) == stats["output_tokens"]
    assert sum(not row.output_tokens for row in rows) == stats["zero_output"]
    assert sum(row.finish_ns is None for row in rows) == stats["without_api_time"]
    assert sum(row.first_token_ns is not None for row in rows) == stats["with_ttft"]
    assert (
        sum(len(row.prefix_hashes) == row.prompt_tokens // 64 for row in rows)
        == stats["rows_with_floor_blocks"]
    )
    assert sum("/" in row.session for row in rows) == stats["in_subagents"]
    assert log.noted.get("sub-agents: they began at t - duration_ms", 0) == stats["subagents"]
    assert max(row.arrival_ns for row in rows if "/" not in row.session) == stats["last_t_s"] * SECOND


@pytest.mark.parametrize("what", ["code", "conv"])
def test_vidur_is_azure_row_for_row(what, whole, records):
    azure, _ = records(whole / f"workloads/azure-llm-2023/AzureLLMInferenceTrace_{what}.csv")
    vidur, _ = records(whole / f"workloads/vidur-processed/splitwise_{what}.csv")
    assert [row[2:4] for row in vidur] == [row[2:4] for row in azure]
    apart = max(abs(one.arrival_ns - two.arrival_ns) for one, two in zip(vidur, azure, strict=True))
    assert apart <= 300


def test_every_sample_has_an_importer(whole, records):
    for path in sorted((whole / "samples").glob("*/*")):
        if not path.name.startswith("expected_") and not path.name.endswith("-dataset.json"):
            assert records(path)[0], path.name
