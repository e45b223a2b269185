"""All importers alike: found by name and by content, documented, careful with files."""

import gzip
import shutil
from pathlib import Path

import pytest

from batchspec.replay.cli import main
from batchspec.spec.errors import TraceError
from batchspec.traces.importers import IMPORTERS, ImportLog, by_name, detect, gives_events, gives_records
from batchspec.traces.reader import open_any

DATA = Path(__file__).parents[2] / "data"

FORMATS = {
    "aibrix_one_request.jsonl": "aibrix",
    "aiperf_precise_schedule.jsonl": "mooncake",
    "aiperf_production_trace.jsonl": "aiperf",
    "azure_llm_2023_code.csv": "azure",
    "azure_llm_2023_code_2000.csv": "azure",
    "azure_llm_2023_conv.csv": "azure",
    "azure_llm_2024_code.csv": "azure",
    "azure_lmm_2025.csv": "azure",
    "burstgpt_1.csv": "burstgpt",
    "burstgpt_3.csv": "burstgpt",
    "inference_perf_otel_simple_chain.json": "inference-perf",
    "inference_perf_trace.csv": "azure",
    "kv_cache_tester_0277_cut.json": "kv-cache-tester",
    "llmservingsim_example_trace.jsonl": "llmservingsim",
    "mooncake_conversation.jsonl": "mooncake",
    "ragpulse_out_of_order.jsonl": "ragpulse",
    "ragpulse_trailing_blank.jsonl": "ragpulse",
    "servegen_deepseek-r1_chunk-52-dataset.json": None,
    "servegen_deepseek-r1_chunk-52-trace.csv": "servegen",
    "servegen_offline_trace_a.jsonl": "servegen-offline",
    "servegen_offline_trace_d.jsonl": "servegen-offline",
    "splitwise_sim_test_trace.csv": "splitwise-sim",
    "tracelab_multi_session_example.csv": "tracelab-replay",
    "tracelab_rounds.jsonl": "tracelab",
    "vidur_arxiv_summarization.csv": "vidur",
    "vidur_splitwise_code.csv": "vidur",
    "vtc_fcfs_real.jsonl": "vtc",
    "vtc_lshare_rpm5_real.jsonl": "vtc",
    "weka_trace_0187.json": "kv-cache-tester",
    "weka_trace_0504.json": "kv-cache-tester",
    "made/copilot_sessions.jsonl": "copilot",
    "made/dynamo_request_trace.jsonl": "dynamo",
    "made/expected_requests.csv": None,
    "made/expected_steps.jsonl": None,
    "made/lightllm.log": "lightllm",
    "made/litellm_standard_logging.jsonl": "litellm",
    "made/llumnix_instance.csv": "llumnix",
    "made/qwen_bailian.jsonl": "qwen-bailian",
    "made/sagemaker_data_capture.jsonl": "sagemaker",
    "made/sglang_request_metrics.log": "sglang-request-metrics",
    "made/sglang_requests.log": "sglang-requests",
    "made/sglang_scheduler.log": "sglang-scheduler",
    "made/sglang_scheduler_status.log": "sglang-status",
    "made/tgi.log": "tgi",
    "made/trtllm_iteration_stats.json": "trtllm-stats",
    "made/trtllm_triton.log": "trtllm-triton",
    "made/vllm_bench_detailed.json": "vllm-bench",
    "made/vllm_metrics.prom": "vllm-metrics",
    "made/vllm_otel_spans.jsonl": "otel",
    "made/vllm_server.log": "vllm-log",
}
"""The importer of each file in tests/data; None for a file of no format."""

KNOWN = sorted(name for name, format in FORMATS.items() if format)


def test_every_file_of_the_data_has_its_format_and_every_format_a_file():
    files = [path for path in DATA.rglob("*") if path.suffix in (".csv", ".json", ".jsonl", ".log", ".prom")]
    assert {path.relative_to(DATA).as_posix() for path in files} == set(FORMATS)
    assert {format for format in FORMATS.values() if format} == set(IMPORTERS)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_file_is_known_by_one_importer_or_by_none(name):
    format = FORMATS[name]
    if format is None:
        with pytest.raises(TraceError, match="format not recognised"):
            detect(DATA / name)
    else:
        assert format == detect(DATA / name).NAME


@pytest.mark.parametrize("name", sorted(IMPORTERS))
def test_an_importer_says_what_it_reads_and_has_a_table_of_its_fields(name):
    importer = IMPORTERS[name]
    assert by_name(name) is importer
    assert name == importer.NAME
    assert importer.SAYS
    assert gives_events(importer) != gives_records(importer)
    assert "| --- |" in importer.__doc__
    assert "\nSource: " in importer.__doc__
    assert not importer.detect(b"", DATA)


def test_a_name_that_is_nearly_one_is_answered_with_it():
    with pytest.raises(TraceError, match="did you mean 'azure'"):
        by_name("azur")


def test_a_missing_source_is_one_line(tmp_path):
    with pytest.raises(TraceError, match="No such file"):
        detect(tmp_path / "nothing.csv")


@pytest.mark.parametrize("name", KNOWN)
def test_packed_with_gzip_a_file_reads_the_same(name, tmp_path, records):
    packed = tmp_path / Path(name).name
    packed.write_bytes(gzip.compress((DATA / name).read_bytes()))
    beside = DATA / name.replace("-trace.csv", "-dataset.json")
    if beside.name != packed.name:
        shutil.copy(beside, tmp_path)
    assert records(packed)[0] == records(name)[0]


@pytest.mark.parametrize("name", KNOWN)
def test_other_line_ends_no_end_and_a_byte_order_mark_change_nothing(name, tmp_path, records):
    data = (DATA / name).read_bytes()
    ends = b"\r\n" if b"\r\n" not in data else b"\n"
    other = tmp_path / Path(name).name
    other.write_bytes(b"\xef\xbb\xbf" + ends.join(data.replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")))
    beside = DATA / name.replace("-trace.csv", "-dataset.json")
    if beside.name != other.name:
        shutil.copy(beside, tmp_path)
    assert records(other)[0] == records(name)[0]


def test_a_gzip_file_that_breaks_off_is_one_line(tmp_path):
    packed = tmp_path / "azure.csv.gz"
    packed.write_bytes(gzip.compress((DATA / "azure_llm_2023_code_2000.csv").read_bytes())[:-200])
    importer = by_name("azure")
    with pytest.raises(TraceError, match="damaged or cut short"):
        list(importer.read(packed, ImportLog()))


@pytest.mark.parametrize("name", KNOWN)
def test_open_any_says_what_to_do_with_a_file_that_an_importer_knows(name):
    kind = "trace" if gives_events(by_name(FORMATS[name])) else "workload"
    with pytest.raises(TraceError, match=f"turn it into a {kind} first"):
        open_any(DATA / name)


@pytest.mark.parametrize("name", sorted(IMPORTERS))
def test_a_file_without_rows_is_refused(name, tmp_path):
    source = next(key for key, format in FORMATS.items() if format == name)
    path = tmp_path / Path(source).name
    header = b"" if not source.endswith(".csv") else (DATA / source).read_bytes().splitlines(True)[0]
    path.write_bytes(b"" if name == "servegen" else header)
    if name == "servegen":
        shutil.copy(DATA / "servegen_deepseek-r1_chunk-52-dataset.json", tmp_path)
    importer = by_name(name)
    with pytest.raises(TraceError) as caught:
        list(
            importer.events(path, ImportLog()) if gives_events(importer) else importer.read(path, ImportLog())
        )
    assert path.name in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_page_of_formats_lists_each_of_them():
    page = (DATA.parents[1] / "docs/importers.md").read_text()
    requests, _, traces = page.partition("\n## Traces")
    for importer in IMPORTERS.values():
        row = f"| `{importer.NAME}` | {importer.SAYS} |"
        assert row in (traces if gives_events(importer) else requests)
    assert page.count("\n| `") == len(IMPORTERS) + 2


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_imported_can_be_opened(name, tmp_path, records, capsys):
    out = tmp_path / "out.parquet"
    assert main(["import", str(DATA / name), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    table = open_any(out)
    rows = list(table.events() if hasattr(table, "events") else table.records())
    expected, log = records(name)
    assert rows == expected
    assert f"{len(rows)} {log.what} imported" in printed
    assert table.header.started_at == log.started_at
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_a_trace_is_no_csv_and_needs_no_runnable(tmp_path, capsys):
    source = str(DATA / "made/llumnix_instance.csv")
    for options, says in (
        (["--out", "x.csv"], "a file named *.parquet"),
        (["--out", "x.parquet", "--runnable"], "--runnable is for requests"),
    ):
        assert main(["import", source, *options]) == 2
        assert says in capsys.readouterr().err


def test_an_import_that_fails_leaves_the_file_of_before(tmp_path, capsys):
    out = tmp_path / "out.parquet"
    out.write_bytes(b"before")
    source = tmp_path / "x.csv"
    rows = (DATA / "made/llumnix_instance.csv").read_bytes().splitlines(True)
    source.write_bytes(b"".join([*rows, rows[1]]))
    assert main(["import", str(source), "--out", str(out)]) == 2
    assert "line 22: step_id 0 after 19" in capsys.readouterr().err
    assert out.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "x.csv"]


def test_runnable_leaves_out_what_no_engine_can_run_again(tmp_path, capsys):
    out = tmp_path / "out.parquet"
    assert main(["import", str(DATA / "vtc_lshare_rpm5_real.jsonl"), "--out", str(out), "--runnable"]) == 0
    printed = capsys.readouterr().out
    assert "13 requests imported" in printed
    assert "7 dropped: refused or failed requests" in printed
    assert len(list(open_any(out).workload())) == 13
    assert main(["import", str(DATA / "made/tgi.log"), "--out", str(out), "--runnable"]) == 2
    assert "none of its rows became one of the requests: 18 dropped" in capsys.readouterr().err
