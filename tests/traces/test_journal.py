"""Recordings that end badly: killed, out of disk, torn. What was flushed is always read back."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from batchspec.spec.errors import TraceError
from batchspec.traces.header import Header
from batchspec.traces.journal import FRAME, JournaledRecorder, left_behind, read_journal
from batchspec.traces.reader import open_any, open_trace
from batchspec.traces.schema import TRACE_SCHEMA


def rows(first: int, count: int) -> pa.RecordBatch:
    columns = {"step": range(first, first + count), "event": ["step"] * count}
    values = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in TRACE_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(values, schema=TRACE_SCHEMA)


def steps_of(path: Path) -> list[int]:
    return [event.step for event in open_trace(path).events()]


@pytest.mark.parametrize("name", ["trace", "trace.parquet"])
def test_a_closed_recording_is_a_trace_and_leaves_no_journal(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with JournaledRecorder(path, Header(clock="virtual"), rows_per_part=25, rows_per_group=10) as recorder:
        for first in range(0, 60, 6):
            recorder.write_batch(rows(first, 6))
    assert steps_of(path) == list(range(60))
    assert open_trace(path).complete
    assert not list(tmp_path.rglob("*.journal"))
    if path.is_dir():
        assert len(list(path.glob("part-*.parquet"))) == 2


@pytest.mark.parametrize("name", ["trace", "trace.parquet"])
def test_an_open_recording_can_already_be_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    recorder = JournaledRecorder(path, Header(clock="virtual"), rows_per_part=20)
    for first in range(0, 50, 10):
        recorder.write_batch(rows(first, 10))
        assert steps_of(path) == list(range(first + 10))
    trace = open_any(path)
    assert not trace.complete
    assert trace.header is not None
    assert trace.header.clock == "virtual"
    recorder.close()
    assert steps_of(path) == list(range(50))


def test_a_torn_frame_loses_itself_and_nothing_before_it(tmp_path: Path) -> None:
    recorder = JournaledRecorder(tmp_path / "trace", Header())
    for first in range(0, 30, 10):
        recorder.write_batch(rows(first, 10))
    journal = tmp_path / "trace" / "part-00000.journal"
    whole = journal.read_bytes()
    last = whole.rindex(b"BSJ1")
    for cut in (last + 1, last + FRAME.size, len(whole) - 1):
        journal.write_bytes(whole[:cut])
        assert steps_of(tmp_path / "trace") == list(range(20))
    journal.write_bytes(whole[:-3] + b"xxx")
    assert steps_of(tmp_path / "trace") == list(range(20))
    recorder.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"BSJ1",
        FRAME.pack(b"BSJ1", 0, 2**60) + b"x",
        FRAME.pack(b"BSJ1", 0, 1) + b"x",
        FRAME.pack(b"XXXX", 0, 0),
    ],
)
def test_a_journal_without_a_whole_frame_is_no_trace(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "part-00000.journal").write_bytes(content)
    assert left_behind(tmp_path) == []
    with pytest.raises(TraceError, match="no part-"):
        open_trace(tmp_path)


def test_a_header_that_is_none_makes_no_trace(tmp_path: Path) -> None:
    import zlib

    journal = tmp_path / "part-00000.journal"
    journal.write_bytes(FRAME.pack(b"BSJ1", zlib.crc32(b"[]"), 2) + b"[]")
    assert read_journal(journal)[0] is None


def test_a_journal_whose_part_was_closed_is_not_read_twice(tmp_path: Path) -> None:
    recorder = JournaledRecorder(tmp_path / "trace", Header())
    recorder.write_batch(rows(0, 5))
    journal = tmp_path / "trace" / "part-00000.journal"
    kept = journal.read_bytes()
    recorder.close()
    journal.write_bytes(kept)  # killed between the part's new name and the journal's removal
    assert steps_of(tmp_path / "trace") == list(range(5))


def test_a_folder_with_a_recording_is_not_written_over(tmp_path: Path) -> None:
    with JournaledRecorder(tmp_path / "trace", Header()) as recorder:
        recorder.write_batch(rows(0, 5))
    with pytest.raises(TraceError, match="already holds parts"):
        JournaledRecorder(tmp_path / "trace", Header())
    JournaledRecorder(tmp_path / "trace", Header(), overwrite=True).close()


CHILD = """
import sys
from importlib.util import spec_from_file_location, module_from_spec
spec = spec_from_file_location("helpers", sys.argv[1])
helpers = module_from_spec(spec)
spec.loader.exec_module(helpers)
from batchspec.traces.header import Header
from batchspec.traces.journal import JournaledRecorder
if sys.argv[4] == "small":
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
recorder = JournaledRecorder(sys.argv[2], Header(), rows_per_part=int(sys.argv[3]), rows_per_group=500)
first = 0
while True:
    try:
        recorder.write_batch(helpers.rows(first, 100))
    except helpers.TraceError as error:
        print(error, flush=True)
        break
    first += 100
    print(first, flush=True)
"""


def child(tmp_path: Path, rows_per_part: int, disk: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD, __file__, str(tmp_path / "trace"), str(rows_per_part), disk]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("after", [1, 7, 23])
def test_after_a_kill_everything_flushed_is_there(tmp_path: Path, after: int) -> None:
    with child(tmp_path, 1000, "large") as process:
        assert process.stdout is not None
        for _ in range(after):
            written = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
    found = steps_of(tmp_path / "trace")
    assert found == list(range(len(found)))
    assert len(found) >= written
    assert not open_trace(tmp_path / "trace").complete


def test_a_full_disk_is_one_line_and_leaves_a_trace(tmp_path: Path) -> None:
    with child(tmp_path, 10**9, "small") as process:
        assert process.stdout is not None
        *numbers, text = process.stdout.read().splitlines()
        process.wait()
    assert text.endswith("part-00000.journal: cannot be written (File too large)")
    assert steps_of(tmp_path / "trace") == list(range(int(numbers[-1])))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_full_from_the_start(tmp_path: Path) -> None:
    recorder = JournaledRecorder(tmp_path / "trace", Header())
    (tmp_path / "trace" / "part-00000.journal").symlink_to("/dev/full")
    with pytest.raises(TraceError) as error:
        recorder.write_batch(rows(0, 5))
    assert os.strerror(errno.ENOSPC) in str(error.value)
    assert "\n" not in str(error.value)
    recorder.close(complete=False)
