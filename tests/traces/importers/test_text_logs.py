"""Logs as text, and folders: they come to what the same records come to in JSON, or file by file."""

import json
import shutil
from pathlib import Path

import pytest

from batchspec.spec.errors import TraceError
from batchspec.traces.importers import detect

DATA = Path(__file__).parents[2] / "data"
MADE = DATA / "made"


def tgi_line(row: dict, coloured: bool = False) -> str:
    """A line of the router's text log for a row of its JSON log."""
    span = row["span"]
    asked = 'GenerateParameters { best_of: None, max_new_tokens: Some(77), stop: [" total_time=\\"9s\\""] }'
    times = " ".join(
        f'{name}="{span[name]}"'
        for name in (
            "total_time",
            "validation_time",
            "queue_time",
            "inference_time",
            "time_per_token",
            "seed",
        )
    )
    begin, level, end = row["timestamp"], " INFO", "text_generation_router::server"
    if coloured:
        begin, level, end = f"\x1b[2m{begin}\x1b[0m", "\x1b[32m INFO\x1b[0m", f"\x1b[2m{end}\x1b[0m"
    return (
        f"{begin} {level} generate{{parameters={asked} {times}}}: {end}: router/src/server.rs:402: Success\n"
    )


@pytest.mark.parametrize("coloured", [False, True])
def test_tgi_as_text(coloured, tmp_path, records):
    rows = [json.loads(line) for line in (MADE / "tgi.log").read_text().splitlines()]
    rows = [row for row in rows if row["message"] == "Success"]
    path = tmp_path / "router.log"
    head = (
        "2026-03-01T09:29:59.1Z  INFO text_generation_router::server: router/src/server.rs:2266: Connected\n"
    )
    path.write_text(head + "".join(tgi_line(row, coloured) for row in rows))
    assert detect(path).NAME == "tgi"
    text, log = records(path)
    known, _ = records("made/tgi.log")
    assert [row._replace(request=0, max_tokens=None) for row in text] == [
        row._replace(request=0) for row in known
    ]
    assert {row.max_tokens for row in text} == {77}
    assert log.noted["lines about something else"] == 1


def test_tgi_chat_lines_have_no_parameters(tmp_path, records):
    path = tmp_path / "router.log"
    path.write_text(
        '2024-12-10T21:50:03.478010Z  INFO chat_completions{total_time="735ms" validation_time="1ms" '
        'queue_time="70µs" inference_time="734ms" time_per_token="36.7ms" seed="Some(1)"}: '
        "text_generation_router::server: router/src/server.rs:622: Success\n"
    )
    (row,), _ = records(path)
    assert (row.output_tokens, row.max_tokens, row.finish_ns) == (20, None, 735_000_000)


def sglang_lines(meta_of=dict) -> list[str]:
    """The made run's request log as text. `meta_of` may change what `meta_info` holds."""
    out = []
    for line in (MADE / "sglang_requests.log").read_text().splitlines():
        at = line.find("{")
        if at < 0:
            out.append(line)
            continue
        row = json.loads(line[at:])
        asked = row["obj"]["sampling_params"]
        text = "text='it\\'s (\"odd\"), {'"
        obj = f"GenerateReqInput(rid={row['rid']!r}, {text}, sampling_params={asked!r}, stream=True)"
        if row["event"] == "request.received":
            out.append(f"{line[:at]}Receive: obj={obj}")
        else:
            result = {"text": "'meta_info': {'prompt_tokens': 1}", "output_ids": [1, 2]}
            result["meta_info"] = meta_of(row["out"]["meta_info"])
            out.append(f"{line[:at]}Finish: obj={obj}, out={result!r}")
    return [f"{line}\n" for line in out]


def test_sglang_as_text(tmp_path, records):
    path = tmp_path / "server.log"
    path.write_text("[2026-03-01 09:29:58] server_args=ServerArgs(x=1)\n" + "".join(sglang_lines()))
    assert detect(path).NAME == "sglang-requests"
    text, log = records(path)
    assert text == records("made/sglang_requests.log")[0]
    assert not log.dropped
    assert log.started_at == "2026-03-01T09:30:00.000000000Z"


def test_an_older_server_has_arrivals_to_the_second(tmp_path, records, truth):
    def old(meta):
        kept = ("id", "finish_reason", "prompt_tokens", "completion_tokens")
        times = {"e2e_latency": round(meta["request_finished_ts"] - meta["request_received_ts"], 6)}
        return {**{name: meta[name] for name in kept}, **times}

    path = tmp_path / "server.log"
    lines = sglang_lines(old)
    path.write_text("".join(lines))
    rows, log = records(path)
    done = [row for row in rows if row.finish_ns is not None]
    assert len(done) == 19
    for row in done:
        request = truth[row.request]
        assert row.arrival_ns == 0
        assert row.finish_ns == pytest.approx(request["finish"] - request["arrival"], abs=1000)
        assert (row.prompt_tokens, row.output_tokens) == (request["prompt_tokens"], request["output_tokens"])
        assert row.status == request["status"]
    assert log.noted["arrivals to the second: those of the Receive lines"] == 19
    # Without Receive lines the arrival is counted back from the end.
    path.write_text("".join(line for line in lines if "Finish: " in line))
    again, log = records(path)
    assert len(again) == 19
    assert log.noted["arrivals to the second: e2e_latency before the Finish lines"] == 19


@pytest.mark.parametrize(
    "line",
    [
        "Finish: obj=GenerateReqInput(rid='a'), out={'text': ''}",
        "[2026-03-01 09:30:00] Finish: obj=X(rid='a'), out={'meta_info': {'prompt_tokens': 'x'}}",
        "[2026-03-01 09:30:00] Finish: obj=" + "(" * 5000,
        "[2026-03-01 09:30:00] Finish: obj=X(rid='a'), out={'meta_info': {" + "'a': [" * 500,
        "[2026-03-01 09:30:00] Receive: obj=X(rid=",
        "Receive: obj=GenerateReqInput(rid='a')",
    ],
)
def test_a_line_that_breaks_off_is_dropped(line, tmp_path, records):
    path = tmp_path / "server.log"
    path.write_text("".join(sglang_lines()) + line + "\n")
    rows, log = records(path)
    assert rows == records("made/sglang_requests.log")[0]
    assert sum(log.dropped.values()) == 1


def test_a_folder_of_sessions(tmp_path, records):
    names = ("weka_trace_0187.json", "weka_trace_0504.json")
    for name in names:
        shutil.copy(DATA / name, tmp_path / name)
    assert detect(tmp_path).NAME == "kv-cache-tester"
    assert detect(tmp_path).header(tmp_path).hash_block == 64
    rows, log = records(tmp_path)
    apart = {f"{Path(name).stem}/{row.request}": row for name in names for row in records(name)[0]}
    assert {row.request for row in rows} == set(apart)
    for row in rows:
        alone = apart[row.request]
        assert row._replace(prefix_hashes=None) == alone._replace(prefix_hashes=None, request=row.request)
        assert len(row.prefix_hashes or ()) == len(alone.prefix_hashes or ())
    first, second = (
        {key for row in rows if row.request.startswith(Path(name).stem) for key in row.prefix_hashes or ()}
        for name in names
    )
    assert first
    assert second
    assert not first & second
    assert [row.arrival_ns for row in rows] == sorted(row.arrival_ns for row in rows)
    assert log.noted["sessions: they share no clock, so each begins at 0"] == 2


def test_sessions_of_other_block_sizes_are_refused(tmp_path, records):
    shutil.copy(DATA / "weka_trace_0187.json", tmp_path / "a.json")
    session = json.loads((DATA / "weka_trace_0504.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**session, "block_size": 32}))
    with pytest.raises(TraceError, match=r"b\.json: block_size 32, but a\.json has 64"):
        records(tmp_path)


def test_a_folder_of_other_things_is_not_recognised(tmp_path):
    with pytest.raises(TraceError, match="not recognised"):
        detect(tmp_path)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(TraceError, match="not recognised"):
        detect(tmp_path)
