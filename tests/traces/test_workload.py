"""The request table: Parquet and CSV say the same, and a bad row is named."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.spec.errors import TraceError
from batchspec.spec.records import RECORD_COLUMNS, Record
from batchspec.traces.header import Header
from batchspec.traces.reader import open_trace
from batchspec.traces.schema import SIGNED, WORKLOAD_SCHEMA, family
from batchspec.traces.workload import RecordTable, read_records, write_records

# A CSV cannot tell an empty text from a null, nor a text of digits from an integer id.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
LONG = ("arrival_ns", "admitted_ns", "first_token_ns", "finish_ns")


@st.composite
def a_record(draw, ids):
    fields = {}
    for column in draw(st.sets(st.sampled_from(RECORD_COLUMNS[2:]), max_size=6)):
        bits = 63 if column in LONG else 31
        if family(column) == "ints":
            value = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4).map(tuple))
        elif family(column) == "int":
            value = draw(st.integers(-(2**bits) if column in SIGNED else 0, 2**bits - 1))
        else:
            value = draw(TEXTS)
        fields[column] = value
    return Record(draw(ids), draw(st.integers(-(2**63), 2**63 - 1)), **fields)


RECORDS = st.sampled_from([TEXTS.map(lambda text: "r" + text), st.integers(-(10**17), 10**17)]).flatmap(
    lambda ids: st.lists(a_record(ids), min_size=1, max_size=20)
)


@given(records=RECORDS, name=st.sampled_from(["w.parquet", "w.csv"]))
def test_what_is_written_is_read(records, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "new", name)
        assert write_records(path, records, Header(hash_block=16, complete=True)) == len(records)
        table, model = read_records(path), RecordTable.from_records(records)
        assert list(table.records()) == records
        assert list(table.records(1, 3)) == records[1:3]
        assert table.columns == model.columns
        assert table.num_rows == model.num_rows
        assert table.id_type is model.id_type
        assert [item.name for item in path.parent.iterdir()] == [name]
        if name == "w.parquet":
            assert table.header.hash_block == 16
            assert pq.read_schema(path).names == WORKLOAD_SCHEMA.names


def test_only_three_columns_are_needed(tmp_path):
    table = pa.table(
        {"prompt_tokens": [5, 6], "arrival_ns": [0, 9], "output_tokens": pa.array([1, 2], pa.uint8())}
    )
    pq.write_table(table, tmp_path / "w.parquet")
    (tmp_path / "w.csv").write_text("prompt_tokens,arrival_ns,output_tokens,note\r\n5,0,1,x\r\n\r\n6,9,2,y")
    for name in ("w.parquet", "w.csv"):
        records = read_records(tmp_path / name)
        assert list(records.records()) == [Record(0, 0, 5, 1), Record(1, 9, 6, 2)]
        assert list(records.workload()) == [Record(0, 0, 5, 1, 1), Record(1, 9, 6, 2, 2)]
        assert [record.request for record in records.records(1)] == [1]
        assert records.id_type is int


def test_csv_ids_are_integers_only_if_all_are(tmp_path):
    for ids, kind, first in [("1,2", int, 1), ("1,x", str, "1"), ("01,2", str, "01"), ("-0,2", str, "-0")]:
        one, two = ids.split(",")
        (tmp_path / "w.csv").write_text(f"request,arrival_ns\n{one},0\n{two},1\n")
        table = read_records(tmp_path / "w.csv")
        assert table.id_type is kind
        assert next(table.records()).request == first


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (Record("a", 0, None, 1), "prompt_tokens: null"),
        (Record("a", 0, 5, None), "output_tokens: null"),
        (Record("a", 0, 0, 1), "prompt_tokens: 0"),
        (Record("a", 0, 5, 0), "output_tokens: 0"),
    ],
)
def test_a_request_that_cannot_run_is_no_workload(record, says):
    table = RecordTable.from_records([Record("b", 0, 1, 1), record])
    with pytest.raises(TraceError) as caught:
        list(table.workload())
    assert "row 1" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"prompt_tokens": [1]}, "arrival_ns: missing"),
        ({"arrival_ns": [0, None]}, "row 1: column arrival_ns: null"),
        ({"arrival_ns": [0, 1], "request": ["a", None]}, "row 1: column request: null"),
        ({"arrival_ns": ["0"]}, "arrival_ns: must be an integer column"),
        ({"arrival_ns": [0.5]}, "arrival_ns: must be an integer column"),
        ({"arrival_ns": [0], "prompt_tokens": [-1]}, "row 0: column prompt_tokens: -1 is negative"),
        ({"arrival_ns": [0], "prefix_hashes": [[None]]}, "prefix_hashes"),
        ({"arrival_ns": pa.array([], pa.int64())}, "no rows"),
    ],
)
def test_an_unusable_parquet_table_is_one_line(tmp_path, columns, says):
    pq.write_table(pa.table(columns), tmp_path / "w.parquet")
    with pytest.raises(TraceError) as caught:
        list(read_records(tmp_path / "w.parquet").records())
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "arrival_ns: missing"),
        (b"request,prompt_tokens\n", "arrival_ns: missing"),
        (b"arrival_ns\n", "no rows"),
        (b"arrival_ns,arrival_ns\n0,0\n", "more than once"),
        (b"arrival_ns,request\n0,a\n1\n", "line 3: 1 fields"),
        (b"arrival_ns,request\n0,a\n,b\n", "line 3: column arrival_ns: empty"),
        (b"arrival_ns,request\n0,\n", "line 2: column request: empty"),
        (b"arrival_ns\n1e9\n", 'line 2: column arrival_ns: "1e9" is not a whole number'),
        (b"arrival_ns\n1_000\n", "line 2"),
        (b"arrival_ns\n" + b"9" * 5000 + b"\n", "line 2"),
        (b"arrival_ns,prompt_tokens\n0,-5\n", "line 2: column prompt_tokens: -5 is negative"),
        (b"arrival_ns,prefix_hashes\n0,1 x\n", "line 2: column prefix_hashes"),
        (b'arrival_ns,status\n0,"open\n', "not CSV"),
        (b"arrival_ns,status\n0,\xff\n", "not UTF-8"),
        (b"arrival_ns,status\n0," + b"x" * 9_000_000, "longer than"),
    ],
)
def test_an_unusable_csv_is_one_line(tmp_path, text, says):
    (tmp_path / "w.csv").write_bytes(text)
    with pytest.raises(TraceError) as caught:
        list(read_records(tmp_path / "w.csv").records())
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["w.parquet", "w.csv"])
def test_a_write_that_fails_leaves_nothing_behind(tmp_path, name):
    def records():
        yield Record("a", 0)
        raise RuntimeError("source died")

    with pytest.raises(RuntimeError):
        write_records(tmp_path / name, records())
    assert list(tmp_path.iterdir()) == []


def test_a_record_the_table_cannot_hold_is_named(tmp_path):
    records = [Record("a", 0), Record("b", None)]
    with pytest.raises(TraceError, match="row 1: column arrival_ns: null"):
        write_records(tmp_path / "w.parquet", records)
    with pytest.raises(TraceError, match="row 1: column request: 5 is no string"):
        write_records(tmp_path / "w.parquet", [Record("a", 0), Record(5, 0)])


def test_a_request_table_is_no_trace(tmp_path):
    write_records(tmp_path / "w.parquet", [Record("a", 0)])
    with pytest.raises(TraceError, match="a table of requests"):
        open_trace(tmp_path / "w.parquet")
