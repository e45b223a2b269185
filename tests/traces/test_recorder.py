"""The recorder: parts that are whole or not there, and a trace that says how it ended."""

import pyarrow.parquet as pq
import pytest

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.reader import open_trace
from batchspec.traces.recorder import Recorder
from batchspec.traces.schema import TRACE_SCHEMA, with_ids

HEADER = Header(producer_name="test", config={"limits": {"max_seqs": 2}})


def steps(count):
    return [Event(step, "step", free_blocks=step) for step in range(count)]


def test_a_folder_of_parts_that_rotate(tmp_path):
    with Recorder(tmp_path / "run", HEADER, rows_per_part=10, rows_per_group=3) as recorder:
        recorder.write_all(steps(35))
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == [f"part-{index:05}.parquet" for index in range(4)]
    trace = open_trace(tmp_path / "run")
    assert list(trace.events()) == steps(35)
    assert trace.header == Header(producer_name="test", config=HEADER.config, complete=True)


@pytest.mark.parametrize("count", [9, 10, 11, 20])
def test_only_the_last_part_says_complete(tmp_path, count):
    with Recorder(tmp_path / "run", rows_per_part=10) as recorder:
        recorder.write_all(steps(count))
    parts = sorted((tmp_path / "run").iterdir())
    assert len(parts) == -(-count // 10)
    assert [open_trace(part).complete for part in parts] == [False] * (len(parts) - 1) + [True]
    assert open_trace(tmp_path / "run").num_rows == count


def test_closed_parts_can_be_read_while_the_next_one_is_open(tmp_path):
    recorder = Recorder(tmp_path / "run", rows_per_part=5, rows_per_group=5)
    recorder.write_all(steps(12))
    trace = open_trace(tmp_path / "run")
    assert trace.num_rows == 5
    assert not trace.complete
    recorder.close()
    assert open_trace(tmp_path / "run").num_rows == 12


def test_one_file_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "deep" / "run.parquet"
    recorder = Recorder(path, HEADER, rows_per_part=2, rows_per_group=2)
    recorder.write_all(steps(7))
    assert not path.exists()
    recorder.close()
    recorder.close()
    assert list(open_trace(path).events()) == steps(7)
    assert [item.name for item in path.parent.iterdir()] == ["run.parquet"]


def fails_in_the_middle(recorder):
    with recorder:
        recorder.write_all(steps(3))
        raise RuntimeError("engine died")


def test_a_trace_left_by_an_exception_is_kept_and_is_not_complete(tmp_path):
    with pytest.raises(RuntimeError, match="engine died"):
        fails_in_the_middle(Recorder(tmp_path / "run.parquet"))
    trace = open_trace(tmp_path / "run.parquet")
    assert list(trace.events()) == steps(3)
    assert not trace.complete


def test_close_can_leave_a_trace_incomplete(tmp_path):
    recorder = Recorder(tmp_path / "run.parquet", Header(complete=True))
    recorder.write_row(1, "step", waiting=2, pass_=1)
    recorder.close(complete=False)
    trace = open_trace(tmp_path / "run.parquet")
    assert not trace.complete
    assert list(trace.events()) == [Event(1, "step", waiting=2, pass_=1)]


def test_a_recording_without_events_is_a_file_that_no_reader_takes(tmp_path):
    with Recorder(tmp_path / "run.parquet"):
        pass
    with pytest.raises(TraceError, match="no rows at all"):
        open_trace(tmp_path / "run.parquet")


def test_the_types_are_those_of_the_schema(tmp_path):
    for identity in ("a", 5):
        with Recorder(tmp_path / "run.parquet") as recorder:
            recorder.write_row(1, "arrive", identity, prompt_tokens=3)
        assert pq.read_schema(tmp_path / "run.parquet").equals(with_ids(TRACE_SCHEMA, type(identity)))


def test_ids_may_come_late_when_their_type_is_given(tmp_path):
    with Recorder(tmp_path / "run.parquet", rows_per_group=2, id_type=int) as recorder:
        recorder.write_all([*steps(5), Event(6, "arrive", 7)])
    assert open_trace(tmp_path / "run.parquet").id_type is int


def test_a_folder_that_holds_parts_is_refused(tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        recorder.write_all(steps(3))
    with pytest.raises(TraceError, match="already holds parts"):
        Recorder(tmp_path / "run")
    assert list(open_trace(tmp_path / "run").events()) == steps(3)


def test_a_folder_is_overwritten_when_told_so(tmp_path):
    with Recorder(tmp_path / "run", rows_per_part=1) as recorder:
        recorder.write_all(steps(3))
    with Recorder(tmp_path / "run", overwrite=True) as recorder:
        recorder.write_all(steps(1))
    assert list(open_trace(tmp_path / "run").events()) == steps(1)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "run", tmp_path / "file" / "run.parquet", tmp_path / "file"):
        with pytest.raises(TraceError, match="cannot be written"):
            Recorder(path).close()


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (Event(1, "premept", "a"), "unknown event"),
        (Event(1, "admit"), "null on 'admit'"),
        (Event(1, "admit", "a", blocks=-1), "column blocks: -1 is negative"),
        (Event(-1, "step"), "column step"),
        (Event(1, "admit", "a", blocks=2**31), f"column blocks: {2**31} is no int32"),
        (Event(1, "admit", "a", blocks=2**70), "column blocks"),
        (Event(1, "admit", "a", blocks="two"), 'column blocks: "two" is no int32'),
        (Event(1, "admit", 7), "column request: 7 is no string"),
        (Event(1, "admit", "a", block_ids=(1, None)), "column block_ids"),
        (Event(1, "preempt", "a", reason="why"), "column reason"),
        (Event(None, "step"), "column step"),
    ],
)
def test_an_event_that_no_reader_would_take_is_refused_by_row(tmp_path, event, says):
    recorder = Recorder(tmp_path / "run.parquet", rows_per_group=2)
    recorder.write_all([Event(1, "arrive", "a"), Event(1, "step")])
    recorder.write(event)
    with pytest.raises(TraceError) as caught:
        recorder.close()
    assert "row 2" in str(caught.value)
    assert says in str(caught.value)
    # What came before stays, as a trace that was cut.
    trace = open_trace(tmp_path / "run.parquet")
    assert trace.num_rows == 2
    assert not trace.complete


def test_nothing_is_added_after_the_end(tmp_path):
    recorder = Recorder(tmp_path / "run.parquet", rows_per_group=1)
    recorder.write_all(steps(1))
    recorder.close()
    with pytest.raises(TraceError, match="closed"):
        recorder.write_all(steps(1))
