"""The flight recorder: what is left can be checked, what is kept is bounded, what is saved can be read."""

import pytest

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.columns import Columns
from batchspec.traces.flight import BYTES_PER_PART, SECONDS_PER_PART, FlightRecorder, Keep
from batchspec.traces.header import Header
from batchspec.traces.reader import open_trace

SECOND = 10**9
HEADER = Header(producer_name="test", clock="monotonic")


def batch(*events: Event):
    columns = Columns()
    for event in events:
        columns.add(event)
    return columns.take()


def step(number: int) -> list[Event]:
    """An iteration in which the one request that there is computes a position."""
    rows = [Event(number, "schedule", "A", start=number - 1, tokens=1), Event(number, "step", running=1)]
    if number == 1:
        rows = [Event(1, "arrive", "A", prompt_tokens=1, max_tokens=99), Event(1, "admit", "A"), *rows]
    return rows


def live(number: int) -> list[Event]:
    return [Event(number, "live", "A", prompt_tokens=1, start=number - 1, reason="running")]


def fly(recorder: FlightRecorder, first: int, last: int, seconds: int = 1) -> None:
    """Steps of a second each; a part begins wherever one is due."""
    for number in range(first, last + 1):
        now = number * seconds * SECOND
        if recorder.due(now):
            recorder.begin_part(batch(*live(number)), now)
        recorder.write_batch(batch(*step(number)), now)


def told(folder) -> list[Event]:
    return list(open_trace(folder).events())


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("30min", Keep(ns=1800 * SECOND)),
        ("2GiB", Keep(size=2 << 30)),
        ("1.5h 500MiB", Keep(ns=5400 * SECOND, size=500 << 20)),
        ("90s", Keep(ns=90 * SECOND)),
        ("", Keep()),
    ],
)
def test_how_much_is_kept_is_a_word(text: str, keep: Keep) -> None:
    assert Keep.of(text) == keep


@pytest.mark.parametrize("text", ["30", "GiB", "-1h", "0s", "1e9h", "3 h", "2GB", "0.0001s"])
def test_words_that_say_no_amount(text: str) -> None:
    with pytest.raises(TraceError, match="write how much as 30min, 2h, 500MiB or 4GiB"):
        Keep.of(text)


def test_parts_are_an_eighth_of_what_is_kept() -> None:
    assert (Keep.of("80s").part_ns, Keep.of("80s").part_size) == (10 * SECOND, BYTES_PER_PART)
    assert (Keep.of("8MiB").part_ns, Keep.of("8MiB").part_size) == (SECONDS_PER_PART * SECOND, 1 << 20)
    assert Keep.of("100h").part_ns == SECONDS_PER_PART * SECOND


def test_all_parts_are_the_whole_trace(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", HEADER, Keep.of("1h"))
    fly(recorder, 1, 3)
    recorder.begin_part(batch(*live(4)), 4 * SECOND)
    fly(recorder, 4, 6)
    recorder.close()

    found = open_trace(tmp_path / "t")

    assert list(found.events()) == [row for number in range(1, 7) for row in step(number)]
    assert found.num_rows == 14
    assert (found.header.begins, found.complete) == ("empty", True)
    assert found.kinds == {"arrive": 1, "admit": 1, "schedule": 6, "step": 6}


def test_rows_are_numbered_through_the_parts(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", HEADER)
    fly(recorder, 1, 2)
    recorder.begin_part(batch(*live(3)), 0)
    fly(recorder, 3, 4)
    recorder.close()
    whole = told(tmp_path / "t")

    for first in range(len(whole)):
        for last in range(first, len(whole) + 1):
            assert list(open_trace(tmp_path / "t").events(first, last)) == whole[first:last]


def test_old_parts_are_dropped_by_time(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", HEADER, Keep.of("80s"))
    fly(recorder, 1, 300)
    recorder.close(complete=False)

    rows = told(tmp_path / "t")

    assert recorder.dropped > 0
    assert rows[0].event == "live"
    assert 300 - 90 <= rows[0].step <= 300 - 70, "seven eighths at least, and no more than a part beyond"
    assert [row.event for row in rows].count("live") == 1
    assert [row.step for row in rows if row.event == "step"] == list(range(rows[0].step, 301))
    assert open_trace(tmp_path / "t").header.begins == "running"


def test_old_parts_are_dropped_by_size(tmp_path) -> None:
    keep = Keep(size=200_000)
    recorder = FlightRecorder(tmp_path / "t", HEADER, keep)
    fly(recorder, 1, 400)
    size = sum(part.stat().st_size for part in (tmp_path / "t").iterdir())
    recorder.close(complete=False)

    assert recorder.dropped > 0
    assert size <= keep.size
    assert told(tmp_path / "t")[0].event == "live"


def test_a_killed_recorder_leaves_its_open_part(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", HEADER, Keep.of("80s"))
    fly(recorder, 1, 25)

    rows = told(tmp_path / "t")

    assert [row.step for row in rows if row.event == "step"] == list(range(1, 26))
    assert not open_trace(tmp_path / "t").complete
    recorder.close()


def test_what_is_saved_is_a_trace(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", HEADER, Keep.of("80s"))
    fly(recorder, 1, 205)

    saved = recorder.save(tmp_path / "saved")
    kept = told(tmp_path / "saved")
    fly(recorder, 206, 400)
    recorder.close()

    assert [path.name for path in saved] == sorted(path.name for path in saved)
    assert told(tmp_path / "saved") == kept
    assert [row.step for row in kept if row.event == "step"][-1] == 205
    assert kept[0].event == "live"


def test_saving_twice_into_one_folder_is_refused(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", HEADER)
    fly(recorder, 1, 2)
    recorder.save(tmp_path / "saved")

    with pytest.raises(TraceError, match="already holds parts of a trace"):
        recorder.save(tmp_path / "saved")
    recorder.close()


def test_where_nobody_is_live_a_part_begins_with_nothing(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", HEADER, Keep.of("8s"))
    recorder.write_batch(batch(Event(1, "step", running=0)), SECOND)
    assert not recorder.due(SECOND)
    assert recorder.due(2 * SECOND)
    recorder.begin_part(batch(), 2 * SECOND)
    recorder.write_batch(batch(Event(2, "step", running=0)), 2 * SECOND)
    recorder.close()

    assert [row.step for row in told(tmp_path / "t")] == [1, 2]


def test_more_live_rows_than_rows_are_damage(tmp_path) -> None:
    recorder = FlightRecorder(tmp_path / "t", Header(extra={}))
    fly(recorder, 1, 2)
    recorder.begin_part(batch(*live(3)), 0)
    recorder.close()
    other = FlightRecorder(tmp_path / "u", Header(extra={"live_rows": 9}))
    fly(other, 3, 3)
    other.close()
    (tmp_path / "u" / "part-00000.parquet").rename(tmp_path / "t" / "part-00001.parquet")

    with pytest.raises(TraceError, match="damaged: 9 live rows of 2"):
        open_trace(tmp_path / "t")
