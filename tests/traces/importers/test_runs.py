"""Records of the made run, in the syntax of eight programs: each importer arrives at that run's requests.

The truth is `expected_requests.csv`; a format is held to what it carries, and to nothing in its place.
"""

import json
from pathlib import Path

import pytest

from batchspec.spec.records import Record
from batchspec.traces.importers import ImportLog, by_name, detect

MADE = Path(__file__).parents[2] / "data/made"
SECOND = 1_000_000_000
ENDED = [f"cmpl-{number:04}" for number in range(20) if number != 17]
COMPLETED = [name for name in ENDED if name != "cmpl-0007"]

ALL = ("arrival", "prompt_tokens", "output_tokens", "first_scheduled", "first_token", "finish", "status")
NAMES = {
    "arrival": "arrival_ns",
    "first_scheduled": "admitted_ns",
    "first_token": "first_token_ns",
    "finish": "finish_ns",
}


def held(record: Record, request: dict, fields: tuple[str, ...]) -> None:
    """The record says of these fields what is true, and nothing of the others."""
    for field in ALL:
        said = getattr(record, NAMES.get(field, field))
        assert said == (request[field] if field in fields else None), (record.request, field)


@pytest.mark.parametrize(
    ("name", "requests", "fields"),
    [
        ("sglang_requests.log", ENDED, ALL),
        ("sglang_request_metrics.log", ENDED, ALL),
        ("dynamo_request_trace.jsonl", ENDED, ALL),
        ("vllm_otel_spans.jsonl", ENDED, ALL[:-1]),
    ],
)
def test_a_log_of_requests_by_id(name, requests, fields, records, truth):
    rows, log = records(f"made/{name}")
    assert sorted(row.request for row in rows) == requests
    for row in rows:
        held(row, truth[row.request], fields)
    assert [row.arrival_ns for row in rows] == sorted(row.arrival_ns for row in rows)
    assert not log.dropped
    assert not log.lost
    assert log.noted == {
        "requests that share their arrival with another; these keep the order of the file": 2
    }
    assert log.started_at == "2026-03-01T09:30:00.000000000Z"


@pytest.mark.parametrize(
    "name", ["sglang_requests.log", "sglang_request_metrics.log", "vllm_otel_spans.jsonl"]
)
def test_the_limit_is_not_what_was_generated(name, records):
    limits = {row.request: row.max_tokens for row in records(f"made/{name}")[0]}
    assert limits["cmpl-0007"] == 60
    assert limits["cmpl-0000"] == 12


def test_dynamo_keeps_hashes_blocks_and_sessions(records, truth):
    rows, _ = records("made/dynamo_request_trace.jsonl")
    path = MADE / "dynamo_request_trace.jsonl"
    assert detect(path).header(path).hash_block == 16
    for row in rows:
        assert len(row.prefix_hashes) == -(-row.prompt_tokens // 16)
        assert row.session == f"{truth[row.request]['tenant']}-session"
    assert next(row for row in rows if row.request == "cmpl-0016").prefix_hashes == (17000051, 17000052)


def test_litellm_knows_the_tenant_and_that_a_call_failed(records, truth):
    rows, log = records("made/litellm_standard_logging.jsonl")
    assert sorted(row.request for row in rows) == sorted(truth)
    for row in rows:
        request = truth[row.request]
        assert row.tenant == request["tenant"]
        if row.request == "cmpl-0017":
            # Refused before anything was counted: its zeros are no lengths, its end is no first token.
            assert row == Record(
                "cmpl-0017", 252_000_000, tenant="acme", finish_ns=253_000_000, status="error"
            )
            continue
        held(
            row._replace(status=None),
            request,
            ("arrival", "prompt_tokens", "output_tokens", "first_token", "finish"),
        )
        assert row.status == ("error" if request["status"] == "abort" else None)
    assert log.noted["calls that failed, kept with status error"] == 2


def test_tgi_has_ends_and_no_prompts(records, truth):
    rows, _ = records("made/tgi.log")
    expected = sorted(
        (
            truth[name]["arrival"],
            truth[name]["first_scheduled"],
            truth[name]["finish"],
            truth[name]["output_tokens"],
        )
        for name in COMPLETED
    )
    assert (
        sorted((row.arrival_ns, row.admitted_ns, row.finish_ns, row.output_tokens) for row in rows)
        == expected
    )
    assert {(row.prompt_tokens, row.first_token_ns, row.status) for row in rows} == {(None, None, None)}


def test_lightllm_has_exact_latencies_from_whole_seconds(records, truth):
    rows, _ = records("made/lightllm.log")
    assert sorted(row.request for row in rows) == ENDED
    for row in rows:
        request = truth[row.request]
        assert row.arrival_ns == 0
        assert row.first_token_ns == request["first_token"] - request["arrival"]
        assert row.finish_ns == request["finish"] - request["arrival"]
        assert (row.prompt_tokens, row.output_tokens) == (request["prompt_tokens"], request["output_tokens"])
        assert row.session == request["tenant"]


def test_sagemaker_has_whole_seconds_and_completed_requests_only(records, truth):
    rows, _ = records("made/sagemaker_data_capture.jsonl")
    assert [row.request for row in rows] == COMPLETED
    for row in rows:
        held(
            row._replace(status=None),
            {**truth[row.request], "arrival": 0},
            ("arrival", "prompt_tokens", "output_tokens"),
        )
        assert row.max_tokens == truth[row.request]["output_tokens"]


def test_bench_serve_marks_failures_by_their_error(records, truth):
    rows, log = records("made/vllm_bench_detailed.json")
    assert [row.request for row in rows] == list(range(20))
    for row in rows:
        request = truth[f"cmpl-{row.request:04}"]
        fields = ("arrival", "prompt_tokens", "output_tokens", "first_token", "finish")
        if row.status is None:
            held(row, request, fields)
        else:
            # The client has zeros for whatever failed, also where the server had sent tokens.
            held(row._replace(status=None), {**request, "output_tokens": 0}, fields[:3])
    assert [row.request for row in rows if row.status == "error"] == [7, 17]
    assert log.noted["failed requests, kept with status error"] == 2


def test_bench_serve_without_latencies_adds_the_gaps_up(tmp_path, records):
    result = json.loads((MADE / "vllm_bench_detailed.json").read_text())
    del result["latencies"]
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result))
    assert records(path)[0] == records("made/vllm_bench_detailed.json")[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"start_times": None}, "no list start_times; save with --save-detailed"),
        ({"errors": [""]}, "errors has another length than start_times"),
        ({"itls": None, "latencies": None}, "neither latencies nor itls"),
    ],
)
def test_bench_serve_without_the_arrays_is_refused(change, says, tmp_path, records):
    result = {**json.loads((MADE / "vllm_bench_detailed.json").read_text()), **change}
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(result))
    with pytest.raises(Exception, match=says):
        records(path)


def test_sglang_requests_that_are_under_way_keep_their_arrival(tmp_path, records):
    lines = (MADE / "sglang_requests.log").read_text().splitlines(True)
    begun = [line for line in lines if '"request.received"' in line or "cmpl-0002" in line]
    path = tmp_path / "sglang.log"
    path.write_text("".join(begun) + "a line of another kind\n")
    rows, log = records(path)
    assert len(rows) == 19
    assert rows[1] == Record("cmpl-0001", 3_000_000, max_tokens=30)
    assert log.noted["requests that were not finished: without lengths"] == 18
    assert log.noted["lines about something else"] == 1


def test_qwen_bailian_chats(records):
    rows, _ = records("made/qwen_bailian.jsonl")
    assert len(rows) == 20
    assert by_name("qwen-bailian").header(MADE).hash_block == 16
    parents = {"0": "0", "4": "0", "8": "0", "12": "0", "16": "0", "1": "1", "17": "17"}
    assert {row.request: row.session for row in rows if row.request in parents} == parents
    assert rows[4][:4] == ("4", 20_000_000, 828, 5)
    # Turns of a chat share the blocks of those before them.
    assert rows[8].prefix_hashes[:52] == rows[4].prefix_hashes[:52]
    for row in rows:
        assert len(row.prefix_hashes) == -(-row.prompt_tokens // 16)


def test_copilot_sessions_interleave(records):
    rows, log = records("made/copilot_sessions.jsonl")
    assert [(row.request, row.session, row.arrival_ns // SECOND) for row in rows] == [
        ("m000", "s00", 0),
        ("m001", "s00", 4),
        ("m010", "s01", 5),
        ("m011", "s01", 9),
    ]
    assert rows[1] == Record("m001", 4 * SECOND, 1700, 60, session="s00", finish_ns=6_100_500_000)
    assert log.started_at == "2026-06-01T08:00:00.000000000Z"


def test_inference_perf_spans_have_times_and_no_lengths(records):
    rows, log = records("inference_perf_otel_simple_chain.json")
    assert rows == [
        Record("capital_question", 0, max_tokens=500, session="session", finish_ns=2_500_000_000),
        Record("landmarks_question", 3 * SECOND, max_tokens=500, session="session", finish_ns=5 * SECOND),
        Record("eiffel_tower_height", 6 * SECOND, max_tokens=500, session="session", finish_ns=8 * SECOND),
    ]
    assert log.noted == {"spans without token counts: their requests have no lengths": 3}


def test_otel_takes_the_conventions_of_others_and_leaves_other_spans_alone(tmp_path, records):
    def span(identity, attributes, **more):
        wrapped = [{"key": key, "value": value} for key, value in attributes.items()]
        return {
            "spanId": identity,
            "startTimeUnixNano": "5",
            "endTimeUnixNano": 9,
            "attributes": wrapped,
            **more,
        }

    reasons = {"arrayValue": {"values": [{"stringValue": "max_tokens"}]}}
    spans = [
        span(
            "a",
            {
                "gen_ai.usage.input_tokens": {"intValue": 3},
                "gen_ai.usage.output_tokens": {"intValue": "4"},
                "gen_ai.response.finish_reasons": reasons,
                "gen_ai.conversation.id": {"stringValue": "c"},
            },
        ),
        span("b", {"http.method": {"stringValue": "GET"}}),
        span("c", {"gen_ai.request.model": {"stringValue": "m"}}, status={"code": 2}),
    ]
    path = tmp_path / "spans.json"
    export = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    path.write_text(json.dumps(export, indent=1))
    rows, log = records(path)
    assert rows == [
        Record("a", 0, 3, 4, session="c", finish_ns=4, status="length"),
        Record("c", 0, finish_ns=4, status="error"),
    ]
    assert log.noted["spans about something else"] == 1


def test_hashes_of_more_than_63_bits_keep_their_bits(tmp_path, records):
    row = json.loads((MADE / "dynamo_request_trace.jsonl").read_text().splitlines()[-1])
    row["request"]["replay"]["input_sequence_hashes"] = [2**64 - 1, 2**63]
    path = tmp_path / "dynamo.jsonl"
    path.write_text(json.dumps({"timestamp": 1, "event": row}))
    assert records(path)[0][0].prefix_hashes == (-1, -(2**63))


def test_sagemaker_in_base64(tmp_path, records):
    import base64

    row = json.loads((MADE / "sagemaker_data_capture.jsonl").read_text().splitlines()[0])
    output = row["captureData"]["endpointOutput"]
    output["data"] = base64.b64encode(output["data"].encode()).decode()
    output["encoding"] = "BASE64"
    path = tmp_path / "capture.jsonl"
    path.write_text(json.dumps(row))
    assert records(path)[0][0][:4] == ("cmpl-0000", 0, 120, 12)
    output["data"] = "!"
    path.write_text(json.dumps(row) + "\n" + path.read_text())
    assert records(path)[1].dropped == {"endpointOutput.data is not base64 of a text": 1}


def test_a_table_of_requests_can_be_judged(records):
    from batchspec.spec.rules.requests import causality

    for name in ("sglang_requests.log", "vllm_otel_spans.jsonl", "litellm_standard_logging.jsonl"):
        rows, _ = records(f"made/{name}")
        assert causality(rows, None).broken == []
    assert ImportLog().summary() == ["0 requests imported"]
