"""The reader: every honest encoding of a trace gives the same events; parts, stretches, what is there."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import KEY
from batchspec.traces.reader import open_any, open_trace
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable

COLUMNS = {
    "step": [1, 1, 1, 2],
    "event": ["arrive", "admit", "step", "preempt"],
    "request": ["a", "a", None, "a"],
    "tenant": ["t", None, None, None],
    "blocks": [None, 2, None, 0],
    "block_ids": [None, [3, 4], None, []],
    "free_blocks": [None, None, 7, None],
    "reason": [None, None, None, "recompute"],
}
EVENTS = [
    Event(1, "arrive", "a", tenant="t"),
    Event(1, "admit", "a", blocks=2, block_ids=(3, 4)),
    Event(1, "step", free_blocks=7),
    Event(2, "preempt", "a", blocks=0, block_ids=(), reason="recompute"),
]
INTS = ("step", "blocks", "free_blocks")
WORDS = ("event", "request", "tenant", "reason")


def table(**types):
    return pa.table({name: pa.array(values, types.get(name)) for name, values in COLUMNS.items()})


def written(tmp_path, arrow, **options):
    path = tmp_path / "trace.parquet"
    pq.write_table(arrow, path, **options)
    return path


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_any_width_of_integer(tmp_path, kind):
    types = {**dict.fromkeys(INTS, kind), "block_ids": pa.list_(kind)}
    trace = open_trace(written(tmp_path, table(**types)))
    assert list(trace.events()) == EVENTS


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
)
@pytest.mark.parametrize("stored", [True, False], ids=["arrow-schema", "plain-parquet"])
def test_any_kind_of_string(tmp_path, kind, stored):
    arrow = table()
    for name in WORDS:
        arrow = arrow.set_column(arrow.schema.get_field_index(name), name, arrow[name].cast(kind))
    trace = open_trace(written(tmp_path, arrow, store_schema=stored))
    assert list(trace.events()) == EVENTS


@pytest.mark.parametrize("kind", [pa.large_list(pa.uint64()), pa.list_(pa.int8()), pa.list_view(pa.int16())])
def test_any_kind_of_list(tmp_path, kind):
    assert list(open_trace(written(tmp_path, table(block_ids=kind))).events()) == EVENTS


def test_fixed_size_lists(tmp_path):
    arrow = table().drop_columns("block_ids")
    lists = pa.array([None, [3, 4], None, [5, 6]], pa.list_(pa.int32(), 2))
    events = list(open_trace(written(tmp_path, arrow.append_column("block_ids", lists))).events())
    assert [event.block_ids for event in events] == [None, (3, 4), None, (5, 6)]


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"write_statistics": False},
        {"data_page_version": "2.0", "compression": "zstd"},
        {"version": "1.0", "use_dictionary": False, "compression": "gzip"},
    ],
)
def test_any_row_group_and_page_layout(tmp_path, rows, options):
    trace = open_trace(written(tmp_path, table(), row_group_size=rows, **options))
    assert list(trace.events()) == EVENTS
    assert trace.kinds == {"arrive": 1, "admit": 1, "step": 1, "preempt": 1}
    assert trace.columns == frozenset(COLUMNS)


def test_integer_ids_and_their_cause_as_a_string(tmp_path):
    arrow = pa.table(
        {
            "step": [1, 1, 1],
            "event": ["arrive", "preempt", "step"],
            "request": pa.array([7, -8, None], pa.int32()),
            "cause": [None, "-7", None],
        }
    )
    trace = open_trace(written(tmp_path, arrow))
    assert trace.id_type is int
    assert [(event.request, event.cause) for event in trace.events()] == [(7, None), (-8, -7), (None, None)]


def test_string_ids_and_their_cause_as_an_integer(tmp_path):
    arrow = table().append_column("cause", pa.array([None, None, None, 5]))
    trace = open_trace(written(tmp_path, arrow))
    assert trace.id_type is str
    assert [event.cause for event in trace.events()] == [None, None, None, "5"]


def test_a_data_frame_written_by_pandas(tmp_path):
    frame = pd.DataFrame(
        {
            "step": [1, 1, 1, 2],
            "event": pd.Categorical(COLUMNS["event"]),
            "request": COLUMNS["request"],
            "tenant": COLUMNS["tenant"],
            "blocks": pd.array(COLUMNS["blocks"], "Int64"),
            "block_ids": COLUMNS["block_ids"],
            "free_blocks": pd.array(COLUMNS["free_blocks"], "Int32"),
            "reason": COLUMNS["reason"],
        },
        index=[9, 8, 7, 6],
    )
    path = tmp_path / "trace.parquet"
    frame.to_parquet(path)
    assert list(open_trace(path).events()) == EVENTS


def test_extra_columns_are_ignored_whatever_they_are(tmp_path):
    arrow = table()
    arrow = arrow.append_column("step.note", pa.array(["x"] * 4))
    arrow = arrow.append_column("extra", pa.array([{"a": 1}] * 4))
    arrow = arrow.append_column("binary", pa.array([b"\xff"] * 4))
    trace = open_trace(written(tmp_path, arrow))
    assert list(trace.events()) == EVENTS
    assert trace.columns == frozenset(COLUMNS)


def test_columns_are_those_that_say_something(tmp_path):
    arrow = table()
    arrow = arrow.append_column("slot", pa.nulls(4, pa.int32()))
    arrow = arrow.append_column("cause", pa.nulls(4))
    arrow = arrow.append_column("block_hashes", pa.array([[], None, None, None], pa.list_(pa.int64())))
    trace = open_trace(written(tmp_path, arrow))
    assert trace.columns == {*COLUMNS, "block_hashes"}
    assert next(trace.events()).block_hashes == ()


def test_a_value_behind_the_first_batch_makes_a_column_present(tmp_path):
    rows = 20_000
    late = pa.array([None] * (rows - 1) + [4], pa.int32())
    arrow = pa.table({"step": range(rows), "event": ["step"] * rows, "waiting": late})
    assert "waiting" in open_trace(written(tmp_path, arrow)).columns


@pytest.mark.parametrize("groups", [1, 7, 10_000, 50_000])
def test_a_stretch_of_rows(tmp_path, groups):
    rows = {1: 100, 7: 1000}.get(groups, 20_000)
    arrow = pa.table({"step": range(rows), "event": ["step"] * rows})
    trace = open_trace(written(tmp_path, arrow, row_group_size=groups))
    for first, last in [
        (0, 1),
        (0, 0),
        (5, 5),
        (6, 8),
        (13, None),
        (8191, 8193),
        (9_999, 10_001),
        (50, 10**9),
    ]:
        got = [event.step for event in trace.events(first, last)]
        assert got == list(range(trace.num_rows))[first:last], (first, last)
        assert sum(batch.num_rows for batch in trace.batches(first, last)) == len(got)


def test_batches_have_one_set_of_types(tmp_path):
    arrow = table(step=pa.uint8(), block_ids=pa.large_list(pa.int16()), request=pa.large_string())
    (batch,) = open_trace(written(tmp_path, arrow)).batches()
    assert batch.schema.field("step").type == pa.int64()
    assert batch.schema.field("request").type == pa.dictionary(pa.int32(), pa.string())
    assert batch.schema.field("block_ids").type == pa.list_(pa.int64())


def test_memory_and_file_have_the_same_face(tmp_path):
    here, there = Trace.from_events(EVENTS), open_trace(written(tmp_path, table()))
    for name in ("num_rows", "columns", "kinds", "complete", "outputs_recorded", "id_type"):
        assert getattr(here, name) == getattr(there, name), name
    for first, last in [(0, None), (1, 3)]:
        assert list(here.events(first, last)) == list(there.events(first, last))
        mine = [batch.num_rows for batch in here.batches(first, last)]
        assert mine == [batch.num_rows for batch in there.batches(first, last)]


# Headers and completeness


def with_header(arrow, **header):
    return arrow.replace_schema_metadata({KEY: json.dumps(header)})


def test_without_a_header_a_trace_counts_as_cut(tmp_path):
    trace = open_trace(written(tmp_path, table()))
    assert trace.header is None
    assert not trace.complete


def test_the_header_is_read_from_the_file(tmp_path):
    trace = open_trace(written(tmp_path, with_header(table(), complete=True, profile="orca")))
    assert trace.complete
    assert trace.header.profile == "orca"


def test_outputs_are_recorded_if_the_header_or_a_row_says_so(tmp_path):
    assert not open_trace(written(tmp_path, table())).outputs_recorded
    assert open_trace(written(tmp_path, with_header(table(), outputs="recorded"))).outputs_recorded
    events = pa.table({"step": [1, 1], "event": ["output", "step"], "request": ["a", None]})
    assert open_trace(written(tmp_path, events)).outputs_recorded


# Folders of parts


def parts(tmp_path, *tables, names=None):
    folder = tmp_path / "trace"
    folder.mkdir()
    for index, arrow in enumerate(tables):
        pq.write_table(arrow, folder / (names[index] if names else f"part-{index:05}.parquet"))
    return folder


def test_parts_are_read_in_order_and_the_last_decides_completeness(tmp_path):
    first, second = with_header(table(), complete=False), with_header(table(), complete=True)
    trace = open_trace(parts(tmp_path, first, first, second))
    assert list(trace.events()) == EVENTS * 3
    assert list(trace.events(3, 9)) == (EVENTS * 3)[3:9]
    assert trace.complete
    assert trace.kinds["step"] == 3


def test_parts_without_padding_are_read_by_number(tmp_path):
    steps = [pa.table({"step": [n], "event": ["step"]}) for n in (10, 9, 2)]
    folder = parts(tmp_path, *steps, names=["part-10.parquet", "part-9.parquet", "part-2.parquet"])
    assert [event.step for event in open_trace(folder).events()] == [2, 9, 10]


def test_parts_may_be_empty_and_may_differ_in_encoding(tmp_path):
    trace = open_trace(parts(tmp_path, table().slice(0, 0), table(step=pa.int8()), table().slice(0, 0)))
    assert list(trace.events()) == EVENTS


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    folder = parts(tmp_path, table())
    (folder / "notes.txt").write_text("hello")
    (folder / "part-00001.parquet.open").write_bytes(b"PAR1 half a part")
    assert list(open_trace(folder).events()) == EVENTS


def test_a_part_without_any_request_has_the_ids_of_the_others(tmp_path):
    steps = pa.table({"step": [3], "event": ["step"], "request": pa.nulls(1)})
    ids = pa.table({"step": [1], "event": ["arrive"], "request": [5]})
    assert open_trace(parts(tmp_path, ids, steps)).id_type is int


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (table().drop_columns("blocks"), "blocks"),
        (table().drop_columns("step"), "step"),
        (table().append_column("slot", pa.array([1] * 4)), "slot"),
        (table().set_column(2, "request", pa.array([1, 1, None, 1])), "request"),
        (table().set_column(0, "step", pa.array(["1"] * 4)), "step"),
        (table().set_column(1, "event", pa.array(["arrive", "admit", "stop", "arrive"])), "row 6"),
        (with_header(table(), complete=False, profile="other"), "header"),
        (table().replace_schema_metadata({KEY: "{"}), "header"),
    ],
)
def test_a_part_that_does_not_fit_is_named(tmp_path, second, says):
    folder = parts(tmp_path, table(), second)
    with pytest.raises(TraceError) as caught:
        list(open_trace(folder).events())
    assert "part-00001.parquet" in str(caught.value)
    assert says in str(caught.value)


def test_a_damaged_part_is_named(tmp_path):
    folder = parts(tmp_path, table(), table())
    (folder / "part-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(TraceError, match=r"part-00001\.parquet: truncated"):
        open_trace(folder)


# One door for everything


def test_open_any_knows_each_form_by_its_content(tmp_path):
    records = pa.table({"arrival_ns": [0], "prompt_tokens": [3], "output_tokens": [2]})
    pq.write_table(records, tmp_path / "records.parquet")
    (tmp_path / "records.csv").write_text("arrival_ns,prompt_tokens,output_tokens\n0,3,2\n")
    (tmp_path / "scenario.txt").write_text("1 arrive A prompt=3\n")
    written(tmp_path, table())
    (tmp_path / "renamed").write_bytes((tmp_path / "trace.parquet").read_bytes())
    assert isinstance(open_any(tmp_path / "trace.parquet"), Trace)
    assert isinstance(open_any(tmp_path / "renamed"), Trace)
    assert isinstance(open_any(tmp_path / "scenario.txt"), Trace)
    assert isinstance(open_any(str(tmp_path / "records.parquet")), RecordTable)
    assert isinstance(open_any(tmp_path / "records.csv"), RecordTable)
    (tmp_path / "renamed.txt").write_bytes((tmp_path / "records.csv").read_bytes())
    assert isinstance(open_any(tmp_path / "renamed.txt"), RecordTable)


def test_open_any_names_the_importer_of_a_foreign_file(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    with pytest.raises(TraceError, match="batchspec import"):
        open_any(path)
