"""What the importers share: exact times, checked fields, JSON of any layout, the order of arrival."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.importers import ImportLog, runnable, stream
from batchspec.traces.importers.fields import Unusable, count, keys, number, word
from batchspec.traces.importers.jsontext import document, keys_of, parsed, values
from batchspec.traces.importers.stream import by_arrival
from batchspec.traces.importers.times import date, duration, iso, nanoseconds

# -- times -----------------------------------------------------------------------------------------


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)), st.integers(0, 999))
def test_a_date_keeps_every_digit(moment, nanos):
    exact = int(moment.replace(tzinfo=UTC, microsecond=0).timestamp()) * 10**9
    exact += moment.microsecond * 1000 + nanos
    text = f"{moment.replace(microsecond=0).isoformat()}.{moment.microsecond:06}{nanos:03}"
    for form in (text, text + "Z", text.replace("T", " "), text + "+00:00"):
        assert date(form) == exact
        assert date(form, utc=True) == exact
    assert date(text + "+02:30") == exact - 9000 * 10**9
    assert date(text + "+02:30", utc=True) is None
    assert date(iso(exact)) == exact


@pytest.mark.parametrize(
    "text",
    ["", "2026-02-30 00:00:00", "2026-01-01", "2026-01-01 00:00:00.1234567891", "x", None, 5, ["2026"]],
)
def test_what_is_no_date(text):
    assert date(text) is None


@given(st.integers(0, 2**62 // 1000), st.sampled_from(["s", "ms", "us", "ns"]))
def test_decimal_numbers_are_exact(nanos, unit):
    digits = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit]
    text = format(Decimal(nanos).scaleb(-digits), "f")
    assert nanoseconds(text, unit, "t") == nanos
    assert nanoseconds(Decimal(text), unit, "t") == nanos


def test_times_that_are_none():
    for value, reason in (
        (-1, "below zero"),
        (10**40, "too large"),
        ("1e99", "too large"),
        (None, "missing"),
    ):
        with pytest.raises(Unusable, match=reason):
            nanoseconds(value, "s", "t")
    for text in ("5 h", "ms", "-1ms", None, "1e3ms"):
        with pytest.raises(Unusable, match="t is no duration"):
            duration(text, "t")


def test_durations_in_each_unit_and_both_micro_signs():
    texts = {
        "110.2ms": 110_200_000,
        "41.2µs": 41_200,
        "41.2μs": 41_200,
        "41.2us": 41_200,
        "6 ns": 6,
        "1.5s": 15 * 10**8,
    }
    assert {text: duration(text, "t") for text in texts} == texts


# -- fields ----------------------------------------------------------------------------------------


def test_counts_numbers_words_and_keys():
    assert [count(value, "n") for value in (0, "12", Decimal("12.0"), 2**31 - 1)] == [0, 12, 12, 2**31 - 1]
    for value in (-1, True, 1.5, "1.5", "٣", "+1", Decimal("1.5"), Decimal("1E+30"), 2**31, [], {}):
        with pytest.raises(Unusable, match="n is no count"):
            count(value, "n")
    for value in (None, ""):
        with pytest.raises(Unusable, match="n is missing"):
            count(value, "n")
    assert number("1e-05", "n") == Decimal("0.00001")
    for value in ("nan", "inf", "1e999", "0x1", True, Decimal("NaN"), float("inf")):
        with pytest.raises(Unusable, match="n is no number"):
            number(value, "n")
    assert [word(value, "w") for value in ("é", 7)] == ["é", "7"]
    for value, reason in (
        ("x" * 5000, "too long"),
        ("\ud800", "not valid text"),
        (10**40, "too long"),
        (1.5, "no text"),
    ):
        with pytest.raises(Unusable, match=reason):
            word(value, "w")
    assert keys([1, -1, 2**64 - 1, 2**63], "k") == (1, -1, -1, -(2**63))


# -- JSON ------------------------------------------------------------------------------------------

ROWS = [{"a": number, "text": "x" * number, "é": [1, {"b": '"}{'}]} for number in range(40)]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(map(json.dumps, ROWS)),
        "".join(map(json.dumps, ROWS)),
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "\n\n".join(json.dumps(row, indent=1) for row in ROWS) + "\n",
    ],
    ids=["lines", "no space", "array", "indented array", "indented objects"],
)
@pytest.mark.parametrize("size", [1, 7, 1 << 18])
def test_values_of_any_layout_with_their_lines(text, size, tmp_path, monkeypatch):
    monkeypatch.setattr("batchspec.traces.importers.jsontext._CHUNK", size)
    path = tmp_path / "x.json"
    path.write_text(text)
    found = list(values(path, ImportLog()))
    assert [value for _, value in found] == ROWS
    lines = text.splitlines()
    for line, _ in found:
        assert "{" in lines[line - 1]
    assert [line for line, _ in found] == sorted(line for line, _ in found)


def test_values_that_break_off_are_dropped_and_others_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    path.write_text('[{"a": 1},\n{"a": ')
    log = ImportLog()
    assert len(list(values(path, log))) == 1
    assert log.dropped == {"a JSON object that breaks off": 1}
    assert log.first["a JSON object that breaks off"].endswith("line 2")
    path.write_text('{"a": 1}\n7')
    with pytest.raises(TraceError, match="line 2: not a JSON object"):
        list(values(path, ImportLog()))
    monkeypatch.setattr("batchspec.traces.importers.jsontext.MAX_VALUE", 1000)
    path.write_text('{"a": "' + "x" * 600_000 + '"}')
    with pytest.raises(TraceError, match="line 1: not JSON, or an object of more than"):
        list(values(path, ImportLog()))


def test_documents_have_a_bound_on_size_and_on_values(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"a": [[]] * 1000}))
    assert document(path)["a"][999] == []
    monkeypatch.setattr("batchspec.traces.importers.jsontext.MAX_VALUES", 1000)
    with pytest.raises(TraceError, match="too large for a document that is read whole"):
        document(path)
    for text, says in (("[]", "not a JSON object"), ("{", "not JSON")):
        path.write_text(text)
        with pytest.raises(TraceError, match=says):
            document(path)


def test_numbers_with_a_point_keep_their_digits():
    assert parsed('{"t": 1772357400.118200001}')["t"] == Decimal("1772357400.118200001")


def test_keys_of_the_first_row_also_where_it_is_cut_or_nested():
    assert keys_of(b'\xef\xbb\xbf\n{"a": {"b": 1}, "c": "x\\"d\\": 2"}\n{"e": 1}') == {"a", "b", "c"}
    assert keys_of(b'[\n {\n  "a": 1,\n  "b": [') == {"a", "b"}
    assert keys_of(b"a,b\n") == frozenset()


# -- order -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60), st.booleans())
def test_by_arrival_is_a_stable_sort(arrivals, named):
    records = [
        Record(
            f"r{index}" if named else index, arrival, index, 1, prefix_hashes=(index,) * (index % 3) or None
        )
        for index, arrival in enumerate(arrivals)
    ]
    log = ImportLog()
    assert list(by_arrival(iter(records), log)) == sorted(records, key=lambda record: record.arrival_ns)
    ties = len(arrivals) - len(set(arrivals))
    assert sum(log.noted.values()) == ties


def test_by_arrival_crosses_the_bounds_of_its_pieces(monkeypatch):
    monkeypatch.setattr(stream, "_CHUNK", 4)
    records = [Record(f"r{index}", 100 - index, session=f"s{index % 3}") for index in range(23)]
    assert list(by_arrival(iter(records), ImportLog())) == records[::-1]
    monkeypatch.setattr(stream, "MOST_SORTED", 10)
    with pytest.raises(TraceError, match="more than 10 requests to put in order; split the file"):
        list(by_arrival(iter(records), ImportLog()))


def test_times_since_the_first_arrival_move_and_nulls_stay():
    log = ImportLog()
    records = [Record("b", 10**18 + 2, finish_ns=10**18 + 3), Record("a", 10**18, first_token_ns=10**18 + 5)]
    found = list(by_arrival(iter(records), log, since_first=True))
    assert found == [Record("a", 0, first_token_ns=5), Record("b", 2, finish_ns=3)]
    assert log.started_at == iso(10**18)


def test_runnable_drops_what_cannot_be_run():
    log = ImportLog(strict=True, kept=5)
    records = [
        Record(0, 0, 5, 1),
        Record(1, 0, 5, 1, status="rejected"),
        Record(2, 0, 5, 1, status="error"),
        Record(3, 0, None, 1),
        Record(4, 0, 5, 0),
    ]
    assert list(runnable(iter(records), log)) == records[:1]
    assert log.kept == 1
    assert sum(log.dropped.values()) == 4


def test_a_log_lists_so_many_reasons_and_no_more():
    log = ImportLog(place="f")
    for index in range(1000):
        log.drop(f"reason {index}")
    assert len(log.dropped) == 201
    assert log.dropped["further reasons, not listed"] == 800
