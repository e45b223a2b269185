"""Logs of the made run step by step: each importer arrives at its steps, and no rule is misled by them.

The truth is `expected_steps.jsonl`; a format is held to what it carries.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from batchspec.replay.checker import check
from batchspec.spec.errors import TraceError
from batchspec.spec.library import load_profile, profile_names
from batchspec.spec.profile import Profile
from batchspec.traces.importers import (
    ImportLog,
    by_name,
    llumnix,
    sglang_scheduler,
    sglang_status,
    trtllm_stats,
    trtllm_triton,
    vllm_log,
    vllm_metrics,
)
from batchspec.traces.importers.steps import Iteration
from batchspec.traces.trace import Trace

MADE = Path(__file__).parents[2] / "data/made"
STEPS = [json.loads(line) for line in (MADE / "expected_steps.jsonl").read_text().splitlines()]
MS = 1_000_000
CONTINUOUS = [name for name in profile_names() if load_profile(name).batching.mode == "continuous"]
LOGS = {
    "llumnix": "llumnix_instance.csv",
    "sglang-scheduler": "sglang_scheduler.log",
    "sglang-status": "sglang_scheduler_status.log",
    "trtllm-stats": "trtllm_iteration_stats.json",
    "trtllm-triton": "trtllm_triton.log",
    "vllm-log": "vllm_server.log",
    "vllm-metrics": "vllm_metrics.prom",
}


def end(step: dict) -> int:
    return round((step["start_ms"] + step["elapsed_ms"]) * MS)


def times(rows: list[Iteration]) -> list[int]:
    return [row.time_ns - rows[0].time_ns for row in rows]


def test_trtllm_statistics():
    rows = list(trtllm_stats.iterations(MADE / LOGS["trtllm-stats"], ImportLog(strict=True)))
    assert len(rows) == 20
    assert times(rows) == [end(step) - end(STEPS[0]) for step in STEPS[:20]]
    for row, step in zip(rows, STEPS, strict=False):
        assert row._replace(time_ns=None) == Iteration(
            step["iter"],
            None,
            round(step["elapsed_ms"] * MS),
            step["ctx_requests"],
            step["ctx_tokens"],
            step["gen_requests"],
            step["gen_tokens"],
            step["ctx_tokens"] + step["gen_tokens"],
            len(step["scheduled"]),
            len(step["waiting"]),
            64 - step["used_blocks"],
            step["used_blocks"],
        )


def test_the_older_form_of_the_same():
    newer = list(trtllm_stats.iterations(MADE / LOGS["trtllm-stats"], ImportLog(strict=True)))
    older = list(trtllm_triton.iterations(MADE / LOGS["trtllm-triton"], ImportLog(strict=True)))
    gone = {"elapsed_ns": None, "generation_tokens": None, "tokens": None, "waiting": None}
    assert older == [row._replace(**gone) for row in newer]


@pytest.mark.parametrize("name", ["trtllm-stats", "trtllm-triton"])
def test_the_sizes_of_the_pool_become_claims(name):
    header = by_name(name).header(MADE / LOGS[name])
    assert header.config == {"limits": {"max_seqs": 8, "kv_blocks": 64, "block_size": 16}}


def test_llumnix():
    rows = list(llumnix.iterations(MADE / LOGS["llumnix"], ImportLog(strict=True)))
    assert len(rows) == 20
    assert times(rows) == [end(step) - end(STEPS[0]) for step in STEPS[:20]]
    for row, step in zip(rows, STEPS, strict=False):
        assert row.step == step["iter"]
        assert row.tokens == step["ctx_tokens"] + step["gen_tokens"]
        assert (row.running, row.waiting) == (len(step["running"]), len(step["waiting"]))
        assert row.free_blocks == 64 - step["used_blocks"]


def test_vllm_iterations_and_arrivals(truth):
    log = ImportLog()
    rows = list(vllm_log.rows(MADE / LOGS["vllm-log"], log))
    iterations = [row for row in rows if isinstance(row, Iteration)]
    assert len(iterations) == len(STEPS) == 90
    for row, step in zip(iterations, STEPS, strict=True):
        assert row.step == step["iter"]
        assert row.elapsed_ns == round(step["elapsed_ms"] * MS)
        # A recomputed prompt counts as generation in this log.
        assert [row.context_requests, row.context_tokens] == step["vllm_ctx"]
        assert [row.generation_requests, row.generation_tokens] == step["vllm_gen"]
        assert row.tokens == step["ctx_tokens"] + step["gen_tokens"]
    arrivals = [row for row in rows if isinstance(row, vllm_log.Arrival)]
    assert [row.request for row in arrivals] == [name for name in truth if name != "cmpl-0017"]
    assert {row.request: row.max_tokens for row in arrivals}["cmpl-0007"] == 60
    assert log.noted == {"lines about something else": 1}


def test_vllm_arrivals_stand_before_the_iteration_that_follows(events, truth):
    rows, _ = events("made/vllm_server.log")
    ends = {step["iter"]: end(step) for step in STEPS}
    for row in rows:
        if row.event == "arrive":
            assert truth[row.request]["arrival"] <= ends[row.step]
            assert row.step == 0 or truth[row.request]["arrival"] >= ends[row.step - 1]


def test_vllm_prompts_of_older_logs(tmp_path):
    path = tmp_path / "vllm.log"
    head = "INFO 12-31 23:59:59 logger.py:43] "
    said = "prompt: 'params: SamplingParams(max_tokens=7)', params: SamplingParams(n=1, max_tokens=16, x=1), "
    path.write_text(
        f"{head}Received request a: {said}prompt_token_ids: [1, 2, 3], lora_request: None.\n"
        f"{head}Received request lost: {said}\n"
        f"{head}Added request a.\n"
        "INFO 01-01 00:00:01 loggers.py:118] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
        "Avg generation throughput: 3.0 tokens/s, Running: 1 reqs, Waiting: 2 reqs, GPU KV cache: 1.0%\n"
    )
    log = ImportLog()
    rows = list(vllm_log.events(path, log))
    assert [(row.event, row.time_ns, row.prompt_tokens, row.max_tokens) for row in rows] == [
        ("arrive", 0, 3, 16),
        ("step", 2_000_000_000, None, None),
    ]
    assert (rows[1].running, rows[1].waiting) == (1, 2)
    assert log.noted == {"requests received and never added: refused, or still on their way": 1}


def test_sglang_prefill_lines():
    log = ImportLog()
    rows = list(sglang_scheduler.iterations(MADE / LOGS["sglang-scheduler"], log))
    prefills = [step for step in STEPS if step["ctx_requests"]]
    said = [row for row in rows if row.context_requests]
    assert len(said) == len(prefills) == 15
    for row, step in zip(said, prefills, strict=True):
        assert (row.context_requests, row.context_tokens) == (step["ctx_requests"], step["ctx_tokens"])
        assert row.generation_requests == step["gen_requests"]
        assert (row.running, row.waiting) == (len(step["scheduled"]), len(step["waiting"]))
    decodes = [(row.running, row.waiting) for row in rows if not row.context_requests]
    logged = [step for step in STEPS if not step["ctx_requests"]]
    assert set(decodes) <= {(step["gen_requests"], len(step["waiting"])) for step in logged}
    assert [row.step for row in rows] == list(range(22))
    assert log.noted == {"requests retracted: their ids are not in the log": 2}


def test_sglang_status_tells_the_life_of_each_request(events, truth):
    rows, log = events("made/sglang_scheduler_status.log")
    by_step = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_step[row.step][row.event].append(row.request)
    # The first line has a request in the batch already: what was before it, nobody can say.
    arrived: list[str] = by_step[0]["live"]
    ended: list[str] = []
    for number, step in enumerate(STEPS):
        found = by_step[number]
        assert found["schedule"] == list(step["scheduled"])
        # A snapshot is taken before the pass, so an end shows in the next one.
        if number:
            assert sorted(found["finish"]) == sorted(STEPS[number - 1]["finished"])
        assert found["preempt"] == step["preempted"]
        assert not found["abort"]
        arrived += found["arrive"]
        ended += found["finish"]
        row = next(row for row in rows if row.step == number and row.event == "step")
        assert (row.running, row.waiting) == (len(step["scheduled"]), len(step["waiting"]))
        assert row.time_ns == round(step["start_ms"] * MS)
    assert arrived == [name for name in truth if name != "cmpl-0017"]
    resumed = [row.request for row in rows if row.event == "resume"]
    preempted = [row.request for row in rows if row.event == "preempt"]
    assert resumed == preempted == [name for name in truth if truth[name]["preemptions"]]
    # The last one is in the batch when the log ends.
    assert set(arrived) - set(ended) == {"cmpl-0016"}
    assert not log.noted


def test_sglang_status_that_begins_in_the_middle(tmp_path):
    lines = (MADE / LOGS["sglang-status"]).read_text().splitlines(True)
    path = tmp_path / "status.log"
    path.write_text("".join(lines[10:13]))
    rows = list(sglang_status.events(path, ImportLog()))
    assert sglang_status.header(path).begins == "running"
    assert [(row.event, row.reason) for row in rows[:10]] == [("live", "running")] * 4 + [
        ("live", "waiting")
    ] * 6
    assert by_name("sglang-status").header(MADE / LOGS["sglang-status"]).begins == "running"


def test_vllm_metrics(truth):
    found = vllm_metrics.scrape(MADE / LOGS["vllm-metrics"], ImportLog(strict=True))
    served = [row for name, row in truth.items() if name != "cmpl-0017"]
    totals = found.totals
    assert totals["request_success_total"] == {"length": 18, "abort": 1}
    assert totals["num_preemptions_total"] == sum(row["preemptions"] for row in truth.values())
    assert totals["prompt_tokens_total"] == sum(row["prompt_tokens"] for row in served)
    assert totals["generation_tokens_total"] == sum(row["output_tokens"] for row in served)
    assert totals["iteration_tokens_total_count"] == 90
    for name, until in (
        ("time_to_first_token", "first_token"),
        ("e2e_request_latency", "finish"),
        ("request_queue_time", "first_scheduled"),
    ):
        seconds = sum(row[until] - row["arrival"] for row in served) / 1e9
        assert totals[f"{name}_seconds_count"] == 19
        assert totals[f"{name}_seconds_sum"] == pytest.approx(seconds, abs=1e-3)
    (row,) = vllm_metrics.events(MADE / LOGS["vllm-metrics"], ImportLog())
    assert (row.step, row.running, row.waiting) == (90, 0, 0)
    header = vllm_metrics.header(MADE / LOGS["vllm-metrics"])
    assert header.extra["totals"]["request_success_total"]["abort"] == 1
    assert type(header).from_json(header.to_json()) == header


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("llumnix", "instance_0,9,", "instance_1,9,", 'line 11: instance_id "instance_1" after "instance_0"'),
        (
            "llumnix",
            "instance_0,9,",
            "instance_0,8,",
            "line 11: step_id 8 after 8: the engine was started anew",
        ),
        ("trtllm-stats", '"iter": 9,', '"iter": 3,', "iter 3 after 8"),
        (
            "trtllm-triton",
            '"Iteration Counter":9,',
            '"Iteration Counter":0,',
            "line 10: Iteration Counter 0 after 8",
        ),
        ("vllm-log", "Iteration(9)", "Iteration(0)", "Iteration 0 after 8"),
        (
            "vllm-log",
            "Engine 000: Iteration(9)",
            "Engine 001: Iteration(9)",
            'engine "001" after one of "000"',
        ),
        ("sglang-status", '"rank": 0', '"rank": 1', "rank 1 after 0"),
        ("sglang-scheduler", " TP0]", " TP1]", 'rank "TP1" after one of "TP0"'),
        ("vllm-metrics", 'engine="0"', 'engine="1"', 'engine "1" beside "0"'),
        (
            "vllm-metrics",
            "vllm:num_requests_waiting{",
            "vllm:num_requests_running{",
            "stands twice; give one scrape",
        ),
    ],
)
def test_another_engine_or_a_restart_is_refused_by_name_and_row(name, old, new, says, tmp_path):
    text = (MADE / LOGS[name]).read_text()
    # Where all lines have the text, the change is in the last.
    at = text.rindex(old) if text.count(old) > 2 else text.index(old)
    path = tmp_path / LOGS[name]
    path.write_text(text[:at] + new + text[at + len(old) :])
    with pytest.raises(TraceError) as caught:
        list(by_name(name).events(path, ImportLog()))
    assert says in str(caught.value)


# -- what a check says -----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [None, *CONTINUOUS])
@pytest.mark.parametrize("name", LOGS)
def test_no_rule_is_misled_by_what_a_log_leaves_out(name, profile, events):
    rows, _ = events(f"made/{LOGS[name]}")
    header = by_name(name).header(MADE / LOGS[name])
    claims = Profile() if profile is None else load_profile(profile)
    claims = claims.merged(Profile.from_dict(header.config, "header"))
    report = check(Trace.from_events(rows, header), claims)
    wrong = [finding.message for finding in report.findings]
    # The run is of a scheduler that preempts, and mixes prompts with decodes: some profiles say never.
    assert [text for text in wrong if "preempt" not in text] == []


def test_the_status_log_is_judged_in_earnest(events):
    rows, _ = events("made/sglang_scheduler_status.log")
    at = next(index for index, row in enumerate(rows) if row.event == "admit" and row.step == 16)
    # Somebody else's request goes first: the order of the queue is broken.
    swapped = [row for row in rows if row.request != rows[at].request or row.step != 16]
    report = check(
        Trace.from_events(swapped, by_name("sglang-status").header(MADE / LOGS["sglang-status"])),
        load_profile("sglang"),
    )
    assert report.verdict == "violates"
