"""Published workloads: each excerpt imports to what its rows say, and rows of the wrong kind are named."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.importers import ImportLog, by_name
from batchspec.traces.workload import RecordTable

DATA = Path(__file__).parents[2] / "data"
MS, SECOND = 1_000_000, 1_000_000_000
WEEK = 7 * 86_400 * SECOND


@pytest.fixture
def read(tmp_path):
    """Reads text as a file of a format."""

    def reading(format, text, strict=False, name="file"):
        path = tmp_path / name
        path.write_text(text)
        log = ImportLog(strict=strict)
        return list(by_name(format).read(path, log)), log

    return reading


# -- Azure, Vidur, BurstGPT, SplitwiseSim: CSV ----------------------------------------------------------


def test_azure_of_2024_and_2025(records):
    rows, log = records("azure_llm_2024_code.csv", strict=True)
    assert len(rows) == 10
    assert rows[1] == Record(1, 7_405_000, 2399, 6)
    assert rows[-1] == Record(9, 604_799_919_571_000, 4725, 8)
    assert log.started_at == "2024-05-10T00:00:00.009930000Z"
    rows, log = records("azure_lmm_2025.csv", strict=True)
    assert rows[-1] == Record(9, (7 * 86_400 - 1) * SECOND + 695 * MS, 841, 63)
    assert log.noted == {"requests with images: the table has no column for their number": 7}
    assert records("inference_perf_trace.csv")[0] == records("azure_llm_2023_conv.csv")[0]


def test_vidur_is_azure_once_more(records):
    vidur, azure = records("vidur_splitwise_code.csv", strict=True)[0], records("azure_llm_2023_code.csv")[0]
    assert [row[2:4] for row in vidur] == [row[2:4] for row in azure]
    assert max(abs(one.arrival_ns - two.arrival_ns) for one, two in zip(vidur, azure, strict=True)) < 1000
    assert vidur[2].arrival_ns == 98_189_000


def test_vidur_without_arrivals_says_so(records):
    rows, log = records("vidur_arxiv_summarization.csv")
    assert rows[:2] == [Record(0, 0, 3772, 54), Record(1, 0, 2015, 156)]
    assert log.lost == {"no arrivals in this file: all requests arrive at 0": 1}
    with pytest.raises(TraceError, match="line 2: no arrivals in this file"):
        records("vidur_arxiv_summarization.csv", strict=True)


def test_burstgpt_in_both_layouts(records):
    rows, log = records("burstgpt_1.csv")
    assert len(rows) == 38
    assert rows[0] == Record(0, 5 * SECOND, 472, 18)
    assert log.dropped == {"a call that failed: no response tokens": 4}
    assert log.first["a call that failed: no response tokens"].endswith("burstgpt_1.csv: line 22")
    assert 20 not in {row.request for row in rows}
    with pytest.raises(TraceError, match="line 22: a call that failed"):
        records("burstgpt_1.csv", strict=True)
    rows, _ = records("burstgpt_3.csv", strict=True)
    begin = 19_440_110 * SECOND
    session = "1722ac82-0a46-4bf0-aa08-89794e7a2b3f"
    assert rows[0] == Record(0, begin, 906, 446, session=session, finish_ns=begin + 43 * SECOND)


BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("9,GPT-4,3,4,8,x", "Total tokens is not the sum of the others"),
        ("9,GPT-4,0,4,4,x", "Request tokens is zero"),
        ("9,GPT-4,-1,4,3,x", "Request tokens is no count"),
        ("9,GPT-4,,4,4,x", "Request tokens is missing"),
        ("nine,GPT-4,3,4,7,x", "Timestamp is no number"),
        ("-9,GPT-4,3,4,7,x", "Timestamp is below zero"),
        ("9e30,GPT-4,3,4,7,x", "Timestamp is too large for a time"),
        ("9,GPT-4,3,4", "not 6 fields"),
    ],
)
def test_a_row_of_a_table_that_is_no_request_is_dropped(row, reason, read):
    rows, log = read("burstgpt", f"{BURST}5,GPT-4,1,1,2,x\n{row}\n10.5,GPT-4,1,2,3,x\n")
    assert rows == [Record(0, 5 * SECOND, 1, 1), Record(2, 10_500 * MS, 1, 2)]
    assert log.dropped == {reason: 1}
    assert log.first[reason].endswith("file: line 3")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Timestamp,Model,Request tokens\n", "line 1: column Response tokens: missing"),
        (BURST.replace("Model", "Timestamp"), "line 1: column Model: missing"),
        (BURST.replace("Log Type", "Log Type,Timestamp"), "line 1: column Timestamp: stands more than once"),
        (
            f"{BURST}5,M,1,1,2,x\n4,M,1,1,2,x\n",
            "line 3: Timestamp is before that of the row above; sort the file",
        ),
        (
            f"{BURST}5,M,0,0,0,x\n",
            "none of its rows became one of the requests: 1 dropped: a call that failed",
        ),
        (BURST, "no rows at all"),
    ],
)
def test_a_table_of_the_wrong_kind_is_refused(text, says, read):
    with pytest.raises(TraceError) as caught:
        read("burstgpt", text)
    assert says in str(caught.value)


def test_an_unknown_column_is_left_out_and_said_so(read):
    text = BURST.replace("Model", "Shoe size,Model") + "5,43,M,1,1,2,x\n"
    rows, log = read("burstgpt", text)
    assert rows == [Record(0, 5 * SECOND, 1, 1)]
    assert log.lost == {'column "Shoe size", which this format does not have': 1}
    assert log.summary()[1].startswith('1 left out: column "Shoe size"')
    with pytest.raises(TraceError, match='line 1: column "Shoe size"'):
        read("burstgpt", text, strict=True)


def test_ties_keep_the_order_of_the_file(read):
    text = BURST + "".join(f"5,M,{number},1,{number + 1},x\n" for number in (3, 1, 2))
    assert [row.prompt_tokens for row in read("burstgpt", text)[0]] == [3, 1, 2]


def test_splitwise_sim(records, read):
    rows, _ = records("splitwise_sim_test_trace.csv", strict=True)
    assert rows == [
        Record("0", 1 * SECOND, 4096, 32),
        Record("1", 3 * SECOND, 2048, 8),
        Record("2", 4 * SECOND, 2048, 16),
    ]
    head = (DATA / "splitwise_sim_test_trace.csv").read_text().splitlines()[0]
    text = f"{head}\n0,2,0,1e-05,1,5,6\n1,1,0,2,1,5,6\n2,2,0,2,4,5,6\n"
    rows, log = read("splitwise-sim", text)
    assert rows == [Record("0", 10_000, 5, 6)]
    assert log.dropped == {"request_type is not that of generation": 1, "batch_size is not one": 1}


# -- traces with hashes: JSON lines ---------------------------------------------------------------------


def test_mooncake(records):
    rows, _ = records("mooncake_conversation.jsonl", strict=True)
    assert len(rows) == 20
    assert rows[0] == Record(0, 0, 6758, 500, prefix_hashes=tuple(range(14)))
    assert by_name("mooncake").header(DATA).hash_block == 512


def row(**fields):
    return json.dumps({"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]} | fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"timestamp": None}, "timestamp is missing"),
        ({"timestamp": -1}, "timestamp is below zero"),
        ({"timestamp": True}, "timestamp is no number"),
        ({"input_length": 0}, "input_length is zero"),
        ({"input_length": 2**31}, "input_length is no count"),
        ({"output_length": 1.5}, "output_length is no count"),
        ({"hash_ids": None}, "hash_ids is missing"),
        ({"hash_ids": "1 2"}, "hash_ids is no list"),
        ({"hash_ids": [1, 2.0]}, "hash_ids holds something that is no whole number"),
        ({"hash_ids": [1, True]}, "hash_ids holds something that is no whole number"),
        ({"hash_ids": [1, None]}, "hash_ids holds something that is no whole number"),
        ({"hash_ids": [1, 2**64]}, "hash_ids holds something that is no 64-bit number"),
    ],
)
def test_a_row_of_json_that_is_no_request_is_dropped(fields, reason, read):
    rows, log = read("mooncake", f"{row()}\n\n{row(**fields)}\n{row(timestamp=6)}")
    assert [record.request for record in rows] == [0, 2]
    assert log.dropped == {reason: 1}
    assert log.first[reason].endswith("file: line 3")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "not a JSON object"),
        (row()[:-4], "not JSON, or a line that breaks off"),
        ("{" + '"a":{' * 5000, "nested too deeply"),
        ('{"timestamp": NaN}', "not JSON, or a line that breaks off"),
        ('{"timestamp": ' + "9" * 5000 + "}", "not JSON, or a line that breaks off"),
        ('{"timestamp": 1e' + "9" * 50 + "}", "not JSON, or a line that breaks off"),
    ],
)
def test_a_line_that_is_no_json_is_dropped(line, reason, read):
    rows, log = read("mooncake", f"{row()}\n{line}\n")
    assert len(rows) == 1
    assert log.dropped == {reason: 1}


def test_mooncake_out_of_order_is_refused(read):
    with pytest.raises(TraceError, match="line 2: timestamp is before that of the row above"):
        read("mooncake", f"{row()}\n{row(timestamp=4)}\n")


def test_hashes_that_do_not_fit_and_fields_that_are_not_known_are_left_out(read):
    rows, log = read("mooncake", f"{row(hash_ids=[1])}\n{row(priority=3)}\n")
    assert rows == [Record(0, 5 * MS, 600, 3), Record(1, 5 * MS, 600, 3, prefix_hashes=(1, 2))]
    assert log.lost == {
        "hash_ids that do not cover the prompt in blocks of 512 tokens": 1,
        'field "priority", which this format does not have': 1,
    }


def test_aiperf_templates(records, read):
    rows, log = records("aiperf_production_trace.jsonl")
    assert [len(record.prefix_hashes or ()) for record in rows] == [0, 0, 0, 0, 2, 3, 0, 0, 4, 0]
    assert rows[2] == Record(2, 120 * MS, 1024, 256)
    assert log.lost == {"hash_ids that do not cover the prompt in blocks of 512 tokens": 1}
    rows, _ = records("aiperf_precise_schedule.jsonl", strict=True)
    assert rows[4] == Record(4, 1500 * MS, 800, 256, prefix_hashes=(3005, 3050))
    rows, log = read(
        "aiperf",
        '{"session_id": "s", "timestamp": 1, "input_length": 7}\n{"session_id": "s", "delay": 5, '
        '"input_length": 8}\n{"timestamp": 2, "text_input": "hello"}\n',
    )
    assert rows == [Record(0, MS, 7, session="s")]
    assert log.dropped == {
        "a turn that waits for the one before it: when it arrives is not known": 1,
        "a prompt given as text: its length is not known": 1,
    }


def test_servegen_offline(records):
    rows, log = records("servegen_offline_trace_a.jsonl", strict=True)
    assert rows[0] == Record("0", 0, 271, prefix_hashes=tuple(range(17)))
    assert log.noted == {"requests of a batch job: all arrive at 0": 20}
    rows, _ = records("servegen_offline_trace_d.jsonl", strict=True)
    assert rows[7] == Record("7", 0, 38, 639)


# -- RAGPulse: a clock that restarts --------------------------------------------------------------------


def test_ragpulse_weeks_are_put_one_after_the_other(records):
    rows, log = records("ragpulse_out_of_order.jsonl", strict=True)
    assert len(rows) == 20
    arrivals = [record.arrival_ns for record in rows]
    assert arrivals == sorted(arrivals)
    assert (rows[0].arrival_ns, rows[9].arrival_ns) == (603_838 * SECOND, 604_453 * SECOND)
    assert rows[10].arrival_ns == WEEK
    assert log.noted == {"the clock restarts: 7 days added from there on": 1}
    assert len(records("ragpulse_trailing_blank.jsonl", strict=True)[0]) == 5


@pytest.mark.parametrize("session", ["no-epoch", "1757476916095-x", "1758380675802-x"])
def test_ragpulse_out_of_order_within_a_week_is_refused(session, read):
    lines = (DATA / "ragpulse_out_of_order.jsonl").read_text().splitlines()[:2]
    early = json.loads(lines[1]) | {"timestamp": "100", "session_id": session}
    with pytest.raises(TraceError, match="line 2: timestamp is before that of the row above"):
        read("ragpulse", f"{lines[0]}\n{json.dumps(early)}\n")


# -- VTC: a measured run with tenants and refusals ------------------------------------------------------


def test_vtc(records):
    rows, log = records("vtc_fcfs_real.jsonl", strict=True)
    assert len(rows) == 20
    assert rows[0] == Record(
        0,
        0,
        13,
        199,
        tenant="dummy-lora-7b-rank-8-13",
        first_token_ns=1_182_608_843,
        finish_ns=9_415_638_685,
    )
    assert not log.noted


def test_a_refusal_is_no_latency(records):
    rows, log = records("vtc_lshare_rpm5_real.jsonl", strict=True)
    refused = [record for record in rows if record.status == "rejected"]
    assert len(refused) == log.noted["refused requests, kept with status rejected"] == 7
    assert {(record.first_token_ns, record.finish_ns) for record in refused} == {(None, None)}
    assert all(record.output_tokens for record in refused)


def test_a_latency_of_minus_one_alone_is_dropped(read):
    result = json.loads((DATA / "vtc_lshare_rpm5_real.jsonl").read_text())
    responses = result["result"]["responses"]
    responses[0]["first_token_latency"] = -1
    responses[1]["request_latency"] = -0.5
    responses[2]["req_time"], responses[3]["req_time"] = responses[3]["req_time"], responses[2]["req_time"]
    rows, log = read("vtc", json.dumps(result))
    assert [record.request for record in rows[:3]] == [3, 2, 4]
    assert log.dropped == {
        "one of the two latencies says refused, the other does not": 1,
        "request_latency is below zero": 1,
    }


# -- sessions -------------------------------------------------------------------------------------------


def test_kv_cache_tester(records):
    rows, _ = records("weka_trace_0504.json", strict=True)
    assert [record[:4] for record in rows] == [
        (0, 0, 11133, 139),
        (1, 13 * SECOND, 11300, 96),
        (2, 3075 * SECOND, 11306, 102),
    ]
    assert [len(record.prefix_hashes) for record in rows] == [173, 176, 176]
    assert rows[2].first_token_ns == 3_076_750 * MS
    assert rows[2].finish_ns == 3_078_380 * MS
    assert {(record.session, record.status) for record in rows} == {("trace_0504", "stop")}
    assert by_name("kv-cache-tester").header(DATA / "weka_trace_0504.json").hash_block == 64


def test_sub_agents_begin_before_they_end(records):
    rows, log = records("kv_cache_tester_0277_cut.json", strict=True)
    assert log.noted["sub-agents: they began at t - duration_ms"] == 3
    firsts = {}
    for record in rows:
        firsts.setdefault(record.session, record.arrival_ns)
    assert firsts == {
        "trace_0277": 0,
        "trace_0277/agent_001": 79_224 * MS - 59_750 * MS,
        "trace_0277/agent_002": 183_906 * MS - 164_445 * MS,
        "trace_0277/agent_003": 211_347 * MS - 191_873 * MS,
    }
    # They ran at the same time, although they stand one after the other in the file.
    assert all(one.arrival_ns <= two.arrival_ns for one, two in pairwise(rows))
    assert [record.request for record in rows] != sorted(record.request for record in rows)


def test_sub_agents_in_sub_agents_have_a_bound(read):
    session = {"requests": [], "agent_id": "a", "type": "subagent", "t": 9, "duration_ms": 1}
    for _ in range(12):
        session = session | {"requests": [session]}
    session |= {"block_size": 64, "hash_id_scope": "local"}
    with pytest.raises(TraceError, match="sub-agents nested too deeply"):
        read("kv-cache-tester", json.dumps(session))


def test_tracelab_rounds(records, read):
    rows, log = records("tracelab_rounds.jsonl", strict=True)
    assert len(rows) == 7
    begin = next(row for row in rows if row.request.startswith("msg_3e0c")).arrival_ns
    assert rows[3] == Record(
        "msg_3e0cf83dc2523801f59077fd",
        begin,
        32272,
        931,
        session="claude:92ee5b8a-429c-e80b-5db6-5381512f4697",
        finish_ns=begin + 11_496 * MS,
    )
    # The last of two tool results is what the second round waited for.
    assert rows[4].arrival_ns == begin + 30_787 * MS
    # The session that stands second in the file came first.
    assert [row.session[:5] for row in rows] == ["codex"] * 3 + ["claud"] * 4
    assert log.started_at.endswith("T10:05:59.328000000Z")
    first = json.loads((DATA / "tracelab_rounds.jsonl").read_text().splitlines()[0])
    kinds = [event["event_type"] for event in first["timing_events"]]
    dropped = {
        "a round without an input: when it arrived is not known": lambda kind: kind == "user_message",
        "a round without an output: when it ended is not known": lambda kind: kind != "user_message",
    }
    for reason, gone in dropped.items():
        events = [event for event, kind in zip(first["timing_events"], kinds, strict=True) if not gone(kind)]
        lines = f"{json.dumps(first)}\n{json.dumps(first | {'timing_events': events})}\n"
        assert read("tracelab", lines)[1].dropped == {reason: 1}


def test_tracelab_replay_places_later_rounds_at_their_earliest(records, read):
    rows, log = records("tracelab_multi_session_example.csv")
    assert [(record.request, record.arrival_ns // MS, record.prompt_tokens) for record in rows] == [
        ("0/0", 0, 512),
        ("0/1", 100, 704),
        ("0/2", 200, 896),
        ("1/0", 200, 400),
        ("1/1", 280, 548),
        ("2/0", 500, 600),
        ("2/1", 550, 784),
        ("2/2", 600, 864),
    ]
    assert log.lost == {"the time of a later round: the earliest possible is taken": 5}
    with pytest.raises(TraceError, match="line 3: the time of a later round"):
        records("tracelab_multi_session_example.csv", strict=True)
    text = "id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len\n"
    rows, log = read("tracelab-replay", f"{text}a,5,6,1.5,0,0,0\na,5,6,1.5,2,0,9\n")
    assert rows == [Record("a/0", 1_500_000, 5, 6, session="a")]
    assert log.dropped == {"round_idx does not follow that of the session's row above": 1}


# -- simulators and generators --------------------------------------------------------------------------


def test_llmservingsim(records, read):
    rows, _ = records("llmservingsim_example_trace.jsonl", strict=True)
    assert len(rows) == 10
    assert rows[0] == Record(0, 46_926_808, 10, 70)
    chain = {
        "session_id": "s",
        "arrival_time_ns": 3,
        "sub_requests": [{"input_toks": 5, "output_toks": 6}, {"input_toks": 7, "output_toks": 8}],
    }
    flat = {"arrival_time_ns": 2, "input_toks": 2, "output_toks": 1, "input_tok_ids": [4]}
    lines = [chain, flat, flat | {"input_toks": 1}, chain | {"sub_requests": []}]
    rows, log = read("llmservingsim", "\n".join(map(json.dumps, lines)))
    assert rows == [Record(2, 2, 1, 1), Record(0, 3, 5, 6, session="s")]
    assert log.dropped == {
        "a call that waits for the one before it: when it arrives is not known": 1,
        "input_tok_ids has another length than input_toks says": 1,
        "a session without calls": 1,
    }


def test_aibrix_in_its_older_and_newer_names(records, read):
    rows, _ = records("aibrix_one_request.jsonl", strict=True)
    assert rows == [Record(0, 0, 3, 22)]
    newer = {"prompt": "x", "prompt_length": 5, "output_length": None, "session_id": 0}
    moments = [
        {"timestamp": 19, "requests": [newer, newer | {"session_id": None}]},
        {"timestamp": 20, "requests": 3},
        {"timestamp": 21, "requests": [newer | {"prompt_length": "..."}]},
    ]
    rows, log = read("aibrix", "\n".join(map(json.dumps, moments)))
    assert rows == [Record(0, 19 * MS, 5, session="0"), Record(1, 19 * MS, 5)]
    assert log.dropped == {"requests is no list": 1, "prompt_length is no count": 1}
    with pytest.raises(TraceError, match="line 2: timestamp is before that of the row above"):
        read("aibrix", json.dumps(moments[0]) + "\n" + json.dumps(moments[0] | {"timestamp": 1}))


def test_servegen_draws_the_requests_that_its_rates_say(records):
    rows, log = records("servegen_deepseek-r1_chunk-52-trace.csv")
    again, _ = records("servegen_deepseek-r1_chunk-52-trace.csv")
    assert rows == again
    assert rows[:2] == again[:2]
    # One window: 0.15 requests a second for 600 s from second 26,400.
    assert len(rows) == 90
    arrivals = [record.arrival_ns for record in rows]
    assert arrivals == sorted(arrivals)
    assert 26_400 * SECOND < arrivals[0] < arrivals[-1] <= 27_000 * SECOND
    bins = json.loads((DATA / "servegen_deepseek-r1_chunk-52-dataset.json").read_text())["21600"]
    for name, column in (("input_tokens", "prompt_tokens"), ("output_tokens", "output_tokens")):
        known = {int(item.partition(":")[0]) for item in bins[name].strip("{}").split(",")}
        assert {getattr(record, column) for record in rows} <= known
    assert log.lost == {"requests: the file holds rates and lengths, from which they are drawn": 1}
    with pytest.raises(TraceError, match="the file holds rates and lengths"):
        records("servegen_deepseek-r1_chunk-52-trace.csv", strict=True)


@pytest.mark.parametrize(
    ("rates", "lengths", "says"),
    [
        ("0,1,1,Gamma,1,1\n600,0,0,,0,0\n", "{}", "a window in which requests arrive, but no lengths hold"),
        ("0,1,1,Cauchy,1,1\n", "{}", "neither Gamma nor Weibull"),
        ("0,1,1,Gamma,-1,1\n", "{}", "a rate or a parameter that is not positive"),
        ("0,1,1,Weibull,1e-30,1\n600,0,0,,0,0\n", "{5: 1.0}", "a window whose parameters give no gaps"),
        ("0,1,1,Gamma,1,1\n", "{5: 1.0}", "one window alone does not say how long it lasts"),
        ("600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", "{5: 1.0}", "line 2: a window that begins before"),
        ("0,9e9,1,Gamma,1,1\n600,0,0,,0,0\n", "{5: 1.0}", "more than 2000000 requests in one window"),
        ("0,1,1,Gamma,1,1\n", "{5: x}", "input_tokens is no dict of lengths and shares"),
        ("0,1,1,Gamma,1,1\n", "5", "input_tokens is no dict in a text"),
    ],
)
def test_servegen_files_of_the_wrong_kind(rates, lengths, says, tmp_path):
    path = tmp_path / "c-trace.csv"
    path.write_text(rates)
    fields = {"input_tokens": lengths, "output_tokens": lengths}
    (tmp_path / "c-dataset.json").write_text(json.dumps({"0": fields}))
    with pytest.raises(TraceError) as caught:
        list(by_name("servegen").read(path, ImportLog()))
    assert says in str(caught.value)


def test_servegen_needs_its_lengths_beside_it(tmp_path):
    for name, says in (("c-trace.csv", "c-dataset.json: No such file"), ("c.csv", "must be named")):
        path = tmp_path / name
        path.write_text("0,1,1,Gamma,1,1\n")
        with pytest.raises(TraceError, match=says):
            list(by_name("servegen").read(path, ImportLog()))


@pytest.mark.parametrize("seed", range(3))
def test_rows_in_any_order_come_out_by_arrival(seed, read, records):
    lines = (DATA / "llmservingsim_example_trace.jsonl").read_text().splitlines()
    random.Random(seed).shuffle(lines)
    rows = read("llmservingsim", "\n".join(lines))[0]
    plain = records("llmservingsim_example_trace.jsonl")[0]
    assert [record[1:] for record in rows] == [record[1:] for record in plain]


def test_a_workload_of_excerpts_can_be_run(records):
    for name in ("mooncake_conversation.jsonl", "burstgpt_1.csv", "vtc_fcfs_real.jsonl"):
        rows, _ = records(name)
        table = RecordTable.from_records(rows)
        assert all(record.max_tokens == record.output_tokens for record in table.workload())
