"""The Azure importer: exact times, the published rows, and nothing guessed."""

from pathlib import Path

import pytest

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.importers import ImportLog, azure, detect

DATA = Path(__file__).parents[2] / "data"
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def imported(tmp_path, text, log=None):
    path = tmp_path / "azure.csv"
    path.write_bytes((HEAD + text).encode())
    return list(azure.read(path, log or ImportLog(strict=True)))


def test_the_published_rows():
    path = DATA / "azure_llm_2023_code.csv"
    assert path.read_bytes().count(b"\r\n") == 21
    log = ImportLog(strict=True)
    records = list(detect(path).read(path, log))
    assert records[:2] == [Record(0, 0, 4808, 10), Record(1, 52_000_000, 3180, 8)]
    assert (len(records), log.kept, log.dropped) == (20, 20, {})
    arrivals = [record.arrival_ns for record in records]
    assert arrivals == sorted(arrivals)


def test_seven_digits_are_exact_and_midnight_is_no_gap(tmp_path):
    text = (
        "2023-11-16 23:59:59.9999999,1,2\r\n"
        "2023-11-17 00:00:00.0000001,3,4\r\n"
        "2023-11-17 00:00:01,5,6\r\n"
        "2023-11-17 00:00:01.5+00:00,7,8"
    )
    assert imported(tmp_path, text) == [
        Record(0, 0, 1, 2),
        Record(1, 200, 3, 4),
        Record(2, 1_000_000_100, 5, 6),
        Record(3, 1_500_000_100, 7, 8),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2023-11-16 18:17:03.97,4808", "not 3 fields"),
        ("2023-11-16 18:17:03.97,4808,10,1", "not 3 fields"),
        ("2023-11-16 18:17:03.97,x,10", "a token count that is not a number"),
        ("2023-11-16 18:17:03.97,5,-10", "a token count that is not a number"),
        ("2023-11-16 18:17:03.97,5,1.5", "a token count that is not a number"),
        ("2023-11-16 18:17:03.97,0,10", "no tokens"),
        ("2023-11-16 18:17:03.97,5,0", "no tokens"),
        ("2023-11-31 18:17:03.97,5,1", "a timestamp that is not a time"),
        ("16/11/2023 18:17,5,1", "a timestamp that is not a time"),
        ("2023-11-16 18:17:03.1234567891,5,1", "a timestamp that is not a time"),
        ("2023-11-16 18:17:03+02:00,5,1", "a timestamp that is not a time"),
        ("²023-11-16 18:17:03,5,1", "a timestamp that is not a time"),
    ],
)
def test_a_row_that_is_no_request_is_dropped_with_its_reason(tmp_path, row, reason):
    good = "2023-11-16 18:17:02,1,1\n"
    log = ImportLog()
    records = imported(tmp_path, f"{good}{row}\n2023-11-16 18:17:05,2,2\n", log)
    # Ids are row numbers of the file, so a dropped row leaves a gap.
    assert records == [Record(0, 0, 1, 1), Record(2, 3_000_000_000, 2, 2)]
    assert log.dropped == {reason: 1}
    assert "line 3" in log.first[reason]
    assert log.summary()[0] == "2 requests imported"
    assert reason in log.summary()[1]
    with pytest.raises(TraceError, match=f"line 3: {reason}"):
        imported(tmp_path, f"{good}{row}\n", ImportLog(strict=True))


def test_rows_out_of_order_are_refused_by_line(tmp_path):
    with pytest.raises(TraceError, match="line 3: TIMESTAMP"):
        imported(tmp_path, "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n")


def test_a_file_of_other_columns_is_refused(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("time,in,out\n")
    with pytest.raises(TraceError, match="columns must be TIMESTAMP"):
        list(azure.read(path, ImportLog()))
    with pytest.raises(TraceError, match="format not recognised"):
        detect(path)
