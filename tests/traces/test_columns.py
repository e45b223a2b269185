"""Rows gathered by the column are the rows that went in."""

import pyarrow as pa
import pytest

from batchspec.spec.events import Event
from batchspec.traces.columns import Columns
from batchspec.traces.header import Header
from batchspec.traces.journal import JournaledRecorder
from batchspec.traces.reader import open_trace


@pytest.fixture
def read_back(tmp_path):
    def read(columns: Columns) -> list[Event]:
        with JournaledRecorder(tmp_path / "run.parquet", Header()) as recorder:
            recorder.write_batch(columns.take())
        return list(open_trace(tmp_path / "run.parquet").events())

    return read


ARRIVE = Event(1, "arrive", "A", time_ns=5, prompt_tokens=3, max_tokens=2, priority=-1, tenant="t")
ADMIT = Event(1, "admit", "A", cached=0, blocks=2, block_ids=(7, 8), block_hashes=(1 << 62,))
STEP = Event(1, "step", free_blocks=0, waiting=0, running=1)


def test_single_rows(read_back) -> None:
    columns = Columns()
    for event in (ARRIVE, ADMIT, STEP, Event(2, "finish", "A", reason="stop", pass_=1, block_ids=())):
        columns.add(event)

    found = read_back(columns)

    assert found[:3] == [ARRIVE, ADMIT, STEP]
    assert found[3] == Event(2, "finish", "A", reason="stop", pass_=1, block_ids=())


def test_a_run_is_many_rows_of_one_kind(read_back) -> None:
    columns = Columns()
    columns.add(ARRIVE)
    columns.add_run(
        "schedule",
        3,
        9,
        ["A", "B", "C"],
        {"start": (4, 5, 6), "tokens": [1, 1, 2], "blocks": (2, 2, 3)},
        {"block_ids": [(0, ()), (2, (9, 10))], "drafts": [(2, 1)]},
    )
    columns.add(STEP)

    assert read_back(columns) == [
        ARRIVE,
        Event(3, "schedule", "A", time_ns=9, start=4, tokens=1, blocks=2, block_ids=()),
        Event(3, "schedule", "B", time_ns=9, start=5, tokens=1, blocks=2),
        Event(3, "schedule", "C", time_ns=9, start=6, tokens=2, drafts=1, blocks=3, block_ids=(9, 10)),
        STEP,
    ]


def test_taken_rows_are_gone() -> None:
    columns = Columns(int)
    columns.add(Event(1, "arrive", 0))

    first, second = columns.take(), columns.take()

    assert (first.num_rows, second.num_rows, columns.rows) == (1, 0, 0)
    assert first.schema.field("request").type == pa.int64()
    first.validate(full=True)
    second.validate(full=True)


def test_an_empty_run_is_no_row() -> None:
    columns = Columns()
    columns.add_run("schedule", 1, None, [], {"start": ()})

    assert columns.rows == 0
