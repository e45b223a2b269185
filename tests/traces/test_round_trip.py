"""Laws: what is written is read, in every form; a column taken away changes no other."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.spec.errors import TraceError
from batchspec.spec.events import COLUMNS, KINDS, REASONS, WITHOUT_REQUEST, Event
from batchspec.traces.header import Header
from batchspec.traces.reader import open_trace
from batchspec.traces.recorder import Recorder
from batchspec.traces.scenario import format_scenario, parse_scenario
from batchspec.traces.schema import SIGNED, family
from batchspec.traces.trace import Trace

LONG = ("time_ns", "pass")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)
BLOCKS = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)


@st.composite
def an_event(draw, ids):
    kind = draw(st.sampled_from(KINDS))
    fields = {}
    for column in draw(st.sets(st.sampled_from(COLUMNS[3:]), max_size=6)):
        what = family(column)
        bits = 63 if column in LONG else 31
        if what == "id":
            value = draw(ids)
        elif what == "ints":
            value = draw(HASHES if column == "block_hashes" else BLOCKS)
        elif what == "int":
            value = draw(st.integers(-(2**bits) if column in SIGNED else 0, 2**bits - 1))
        else:
            value = draw(TEXTS)
        fields["pass_" if column == "pass" else column] = value
    if kind in ("preempt", "live") and "reason" in fields:
        fields["reason"] = draw(st.sampled_from(REASONS[kind]))
    request = None if kind in WITHOUT_REQUEST else draw(ids)
    return Event(draw(st.integers(0, 2**63 - 1)), kind, request, **fields)


IDS = st.sampled_from([TEXTS, st.integers(-(2**63), 2**63 - 1)])
EVENTS = IDS.flatmap(lambda ids: st.lists(an_event(ids), min_size=1, max_size=12))
HEADERS = st.builds(
    Header,
    producer_name=st.none() | TEXTS,
    producer_version=st.none() | TEXTS,
    clock=st.sampled_from([None, "wall", "monotonic", "virtual"]),
    profile=st.none() | TEXTS,
    config=st.fixed_dictionaries(
        {},
        optional={
            "limits": st.fixed_dictionaries(
                {"max_seqs": st.integers(1, 2**62)},
                optional={"resources": st.dictionaries(TEXTS, st.integers(0, 9), min_size=1, max_size=2)},
            ),
            "batching": st.fixed_dictionaries(
                {"mode": st.sampled_from(["static", "continuous"]), "mixed": st.booleans()},
                optional={"window_ns": st.integers(0, 10**12), "preferred_sizes": st.just([8, 4])},
            ),
            "admission": st.fixed_dictionaries({"test": st.sampled_from(["step", "known+2"])}),
            "reuse": st.fixed_dictionaries({"block_lag": st.sampled_from(["release", 0, 3])}),
            "fairness": st.fixed_dictionaries(
                {"w_p": st.sampled_from([0, 1, 0.5, 1e-7])},
                optional={
                    "weights": st.dictionaries(TEXTS, st.sampled_from([1, 2.5]), min_size=1, max_size=3),
                    "rate_limits": st.just(
                        {"a b": {"requests": 5, "per_ns": 60}, "*": {"requests": 1, "per_ns": 1}}
                    ),
                },
            ),
        },
    ),
    complete=st.booleans(),
    outputs=st.sampled_from([None, "derived", "recorded"]),
    begins=st.sampled_from(["empty", "running"]),
    started_at=st.none() | st.integers(-(2**62), 2**62) | TEXTS,
    hash_block=st.none() | st.integers(1, 64),
    extra=st.just({}) | st.just({"note": ["a b", None, {"x": 1.5}]}),
)


@given(
    events=EVENTS,
    header=HEADERS,
    name=st.sampled_from(["run", "run.parquet"]),
    rows=st.integers(1, 12),
    part=st.integers(3, 12),
)
def test_what_is_recorded_is_read(events, header, name, rows, part):
    model = Trace.from_events(events, header)
    ids = model.id_type
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        with Recorder(path, header, rows_per_group=rows, rows_per_part=part, id_type=ids) as recorder:
            recorder.write_all(events)
        trace = open_trace(path)
        assert list(trace.events()) == events
        assert trace.kinds == model.kinds
        assert trace.columns == model.columns
        assert trace.complete
        assert trace.header.config == header.config
        if ids is not None:
            assert trace.id_type is ids


@given(events=EVENTS, header=HEADERS)
def test_a_scenario_reads_as_it_was_written(events, header):
    trace = Trace.from_events(events, header)
    text = format_scenario(trace)
    again = parse_scenario(text)
    assert list(again.events()) == events
    assert again.header == header
    assert format_scenario(again) == text


@given(events=EVENTS, data=st.data())
def test_a_missing_column_is_a_column_of_nulls(events, data):
    gone = data.draw(st.sampled_from(COLUMNS))
    field = Event._fields[COLUMNS.index(gone)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.parquet")
        with Recorder(path) as recorder:
            recorder.write_all(events)
        whole = open_trace(path).columns
        pq.write_table(pq.read_table(path).drop_columns(gone), path)
        named = any(event.request is not None for event in events)
        if gone in ("step", "event") or (gone == "request" and named):
            with pytest.raises(TraceError, match=gone):
                list(open_trace(path).events())
        else:
            trace = open_trace(path)
            assert trace.columns == whole - {gone}
            if gone != "request":
                assert list(trace.events()) == [event._replace(**{field: None}) for event in events]


@given(events=EVENTS)
def test_batches_hold_what_the_events_hold(events):
    batches = Trace.from_events(events).batches()
    table = pa.Table.from_batches(batches)
    assert table.column_names == list(COLUMNS)
    rows = [tuple(row[name] for name in COLUMNS) for row in table.to_pylist()]
    assert rows == [tuple(list(v) if isinstance(v, tuple) else v for v in event) for event in events]
