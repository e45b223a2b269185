"""Unusable input: whatever is wrong, one line says where and what."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchspec.spec.errors import TraceError
from batchspec.traces.header import KEY
from batchspec.traces.normal import MAX_LIST, MAX_TEXT
from batchspec.traces.reader import open_any
from batchspec.traces.recorder import Recorder
from batchspec.traces.scenario import parse_scenario

GOOD = {
    "step": [1, 1, 2],
    "event": ["arrive", "preempt", "step"],
    "request": ["a", "a", None],
    "tokens": [1, None, 3],
    "block_ids": [[1, 2], None, []],
}


def read_all(path):
    trace = open_any(path)
    return trace.kinds, trace.columns, list(trace.events())


def complaint(path):
    with pytest.raises(TraceError) as caught:
        read_all(path)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert said.isprintable()
    assert len(said) < 400 + len(str(path))
    return said


def binary(*values):
    """A string array whose bytes are whatever they are."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


COLUMN_CASES = {
    "no step": ({"step": None}, ["step", "missing"]),
    "no event": ({"event": None}, ["event", "missing"]),
    "no request": ({"request": None}, ["row 0", "request", "null on 'arrive'"]),
    "all null request": ({"request": pa.nulls(3)}, ["row 0", "request"]),
    "null step": ({"step": [1, None, 1]}, ["row 1", "step", "null"]),
    "all null step": ({"step": pa.nulls(3)}, ["row 0", "step", "null"]),
    "null event": ({"event": ["arrive", None, "step"]}, ["row 1", "event", "null"]),
    "null request": ({"request": ["a", None, None]}, ["row 1", "request", "null on 'preempt'"]),
    "negative step": ({"step": [1, -1, 2]}, ["row 1", "step", "-1 is negative"]),
    "negative count": ({"tokens": [1, None, -3]}, ["row 2", "tokens", "-3 is negative"]),
    "unknown event": (
        {"event": ["arrive", "premept", "step"]},
        ["row 1", "premept", "did you mean 'preempt'"],
    ),
    "absurd event": ({"event": ["arrive", "x\n" * 9999, "step"]}, ["row 1", "event"]),
    "unknown preempt": ({"reason": [None, "evicted", None]}, ["row 1", "reason", "evicted", "recompute"]),
    "step as text": ({"step": ["1", "1", "2"]}, ["step", "integer column", "string"]),
    "step as float": ({"step": [1.0, 1.0, 2.0]}, ["step", "integer column", "double"]),
    "tokens as float": ({"tokens": [1.0, None, 3.0]}, ["tokens", "integer column", "Int64"]),
    "tokens as bool": ({"tokens": [True, None, False]}, ["tokens", "bool"]),
    "tokens as time": ({"tokens": pa.array([1, 2, 3], pa.timestamp("ns"))}, ["tokens", "timestamp"]),
    "event as int": ({"event": [1, 2, 3]}, ["event", "string column"]),
    "event as bytes": ({"event": [b"arrive", b"preempt", b"step"]}, ["event", "binary"]),
    "request as float": ({"request": [1.0, 2.0, None]}, ["request", "double"]),
    "ids as text": ({"block_ids": ["1,2", None, ""]}, ["block_ids", "list of integers"]),
    "ids as floats": ({"block_ids": [[1.5], None, []]}, ["block_ids", "list of integers"]),
    "null in ids": ({"block_ids": [[1], None, [2, None]]}, ["row 2", "block_ids", "null inside"]),
    "beyond int64": ({"tokens": pa.array([1, None, 2**63], pa.uint64())}, ["row 2", "tokens", str(2**63)]),
    "id beyond int64": ({"request": pa.array([1, 2**64 - 1, None], pa.uint64())}, ["row 1", "request"]),
    "ids beyond int64": (
        {"block_ids": pa.array([[1], None, [2**63]], pa.list_(pa.uint64()))},
        ["row 2", "block_ids"],
    ),
    "cause no id": ({"request": [1, 2, None], "cause": [None, "a", None]}, ["row 1", "cause", '"a"']),
    "not UTF-8": ({"request": binary(b"a", b"\xff", b"")}, ["request", "UTF-8"]),
    "event not UTF-8": ({"event": binary(b"arrive", b"\xc3(", b"step")}, ["event", "UTF-8"]),
    "long text": ({"request": ["a", "b" * (MAX_TEXT + 1), None]}, ["request", "at most"]),
    "long list": (
        {"block_ids": [[1], None, [0] * (MAX_LIST + 1)]},
        ["row 2", "block_ids", "at most"],
    ),
    "no rows": ({name: pa.array([], pa.int64()) for name in GOOD}, ["event"]),
}


@pytest.mark.parametrize("case", COLUMN_CASES)
@pytest.mark.parametrize("group", [1, 100])
def test_a_column_that_cannot_be_read(tmp_path, case, group):
    changes, names = COLUMN_CASES[case]
    columns = {name: values for name, values in {**GOOD, **changes}.items() if values is not None}
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=group)
    said = complaint(path)
    for name in names:
        assert name in said


def test_no_rows_at_all(tmp_path):
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table(GOOD).slice(0, 0), path)
    assert "no rows at all" in complaint(path)


def test_a_column_that_stands_twice(tmp_path):
    table = pa.table(GOOD)
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.Table.from_arrays([*table.columns, table["step"]], [*table.schema.names, "step"]), path)
    assert "step: stands 2 times" in complaint(path)


@pytest.mark.parametrize("header", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"clock":"x"}', b" " * 5_000_000])
def test_a_broken_header(tmp_path, header):
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table(GOOD).replace_schema_metadata({KEY: header}), path)
    assert "header" in complaint(path)


def test_the_row_is_that_of_the_trace_not_of_the_batch(tmp_path):
    rows = 30_000
    counts = [0] * rows
    counts[29_001] = -5
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table({"step": range(rows), "event": ["step"] * rows, "waiting": counts}), path)
    assert "row 29001" in complaint(path)


FILE_CASES = {
    "empty": (b"", "empty file"),
    "text": (b"hello world\n", ":1:"),
    "binary": (bytes(range(256)), "neither a Parquet file nor text"),
    "magic only": (b"PAR1", "truncated"),
    "magic twice": (b"PAR1PAR1", "truncated"),
    "absurd footer": (b"PAR1" + b"\xff" * 4 + b"PAR1", "footer"),
    "no footer": (b"PAR1" + b"\0" * 100 + b"\0\0\0\0PAR1", "not a Parquet file"),
    "huge footer": (b"PAR1" + b"\0" * 100 + b"\xff\xff\xff\x7fPAR1", "footer"),
    "json": (b'{"step": 1}\n', ":1:"),
    "csv": (b"step,event\n1,step\n", ":1:"),
    "null bytes": (b"\0" * 1000, ":1:"),
}


@pytest.mark.parametrize("case", FILE_CASES)
def test_a_file_of_another_kind(tmp_path, case):
    data, says = FILE_CASES[case]
    path = tmp_path / "trace"
    path.write_bytes(data)
    assert says in complaint(path)


def test_a_parquet_name_means_a_parquet_file(tmp_path):
    path = tmp_path / "trace.parquet"
    path.write_text("1 step\n")
    assert "not a Parquet file" in complaint(path)


def test_what_is_not_there_and_what_is_no_file(tmp_path):
    assert "no such file" in complaint(tmp_path / "nothing.parquet")
    assert "no part-*.parquet" in complaint(tmp_path)
    assert "no such file" in complaint(tmp_path / "a\0b")
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in complaint(tmp_path / "pipe")


def test_a_path_of_several_lines_is_still_one_line(tmp_path):
    path = tmp_path / "a\nb\x1b[31m"
    with pytest.raises(TraceError) as caught:
        open_any(path)
    assert str(caught.value).isprintable()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    trace = parse_scenario(
        "cfg max_seqs=2\n1 arrive A prompt=6 t=5ms\n1 admit A ids=1,2\n1..9 step free=1\nend\n"
    )
    with Recorder(folder / "checked.parquet", trace.header, rows_per_group=4) as recorder:
        recorder.write_all(trace.events())
    table = pq.read_table(folder / "checked.parquet")
    pq.write_table(table, folder / "plain.parquet", store_schema=False, compression="none")
    return {name: (folder / name).read_bytes() for name in ("checked.parquet", "plain.parquet")}


@pytest.mark.parametrize("name", ["checked.parquet", "plain.parquet"])
def test_a_file_cut_anywhere_is_one_line(tmp_path, recorded, name):
    path = tmp_path / name
    whole = recorded[name]
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        complaint(path)


@pytest.mark.parametrize("name", ["checked.parquet", "plain.parquet"])
def test_a_file_with_damaged_bytes_is_read_or_refused_in_one_line(tmp_path, recorded, name):
    path = tmp_path / name
    for index in range(0, len(recorded[name]), 29):
        damaged = bytearray(recorded[name])
        damaged[index] ^= 0xFF
        path.write_bytes(damaged)
        said = ""
        try:
            read_all(path)
        except TraceError as error:
            said = str(error)
        assert said.isprintable()


def test_damage_to_the_data_of_a_recorded_trace_never_changes_an_event(tmp_path, recorded):
    whole = recorded["checked.parquet"]
    path = tmp_path / "trace.parquet"
    path.write_bytes(whole)
    _, _, events = read_all(path)
    footer = int.from_bytes(whole[-8:-4], "little")
    noticed = 0
    for index in range(4, len(whole) - footer - 8, 13):
        damaged = bytearray(whole)
        damaged[index] ^= 1
        path.write_bytes(damaged)
        try:
            assert read_all(path)[2] == events
        except TraceError:
            noticed += 1
    assert noticed > 10
