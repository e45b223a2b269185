"""Single faults in request tables (level L0): one record is made wrong.

The kinds are those of faults.py, as far as a table has them: kind (the status), request, count, order,
drop, duplicate, shift (a time).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from batchspec.spec.records import Record

_COUNTS: Final = ("prompt_tokens", "output_tokens", "max_tokens", "priority")
_TIMES: Final = ("arrival_ns", "admitted_ns", "first_token_ns", "finish_ns")
_STATUS: Final = ("rejected", "aborted", None)
_BY_NS: Final = (-1_000, -30, -10, -1, 1, 10, 30, 1_000)


class TableFault(NamedTuple):
    """What was changed. `column` is None where whole records changed; `before` and `after` are its values."""

    kind: str
    row: int
    column: str | None
    before: object
    after: object
    text: str


class TableMutant(NamedTuple):
    """A table with one fault."""

    fault: TableFault
    records: list[Record]


def table_mutant(records: Sequence[Record], kind: str, random: Random) -> TableMutant | None:
    """The table with one fault of a kind; None where no record can have such a fault."""
    if not records or kind not in _MAKERS:
        return None
    return _MAKERS[kind](records, random)


def changed(records: Sequence[Record], row: int, kind: str, column: str, value: Any) -> TableMutant:
    """The table with another value in one cell."""
    before = getattr(records[row], column)
    text = f"{records[row].request}: {column} {before} becomes {value}"
    record = records[row]._replace(**{column: value})
    return TableMutant(
        TableFault(kind, row, column, before, value, text), [*records[:row], record, *records[row + 1 :]]
    )


def _kind(records: Sequence[Record], random: Random) -> TableMutant | None:
    row = random.randrange(len(records))
    others = [word for word in _STATUS if word != records[row].status]
    return changed(records, row, "kind", "status", random.choice(others))


def _request(records: Sequence[Record], random: Random) -> TableMutant | None:
    row = random.randrange(len(records))
    others = [record.request for record in records if record.request != records[row].request]
    return changed(records, row, "request", "request", random.choice(others)) if others else None


def _cell(
    records: Sequence[Record], random: Random, kind: str, columns: Sequence[str], steps: Sequence[int]
) -> TableMutant | None:
    column = random.choice(columns)
    rows = [row for row, record in enumerate(records) if getattr(record, column) is not None]
    if not rows:
        return None
    row = random.choice(rows)
    value = getattr(records[row], column)
    return changed(records, row, kind, column, max(0, value + random.choice(steps)))


def _count(records: Sequence[Record], random: Random) -> TableMutant | None:
    return _cell(records, random, "count", _COUNTS, (-2, -1, 1, 2, 7, 900))


def _shift(records: Sequence[Record], random: Random) -> TableMutant | None:
    return _cell(records, random, "shift", _TIMES, _BY_NS)


def _order(records: Sequence[Record], random: Random) -> TableMutant | None:
    if len(records) < 2:
        return None
    row = random.randrange(len(records) - 1)
    one, other = records[row : row + 2]
    text = f"{one.request} and {other.request} change places"
    return TableMutant(
        TableFault("order", row, None, one, other, text), [*records[:row], other, one, *records[row + 2 :]]
    )


def _drop(records: Sequence[Record], random: Random) -> TableMutant | None:
    if len(records) < 2:
        return None
    row = random.randrange(len(records))
    fault = TableFault("drop", row, None, records[row], None, f"{records[row].request} is missing")
    return TableMutant(fault, [*records[:row], *records[row + 1 :]])


def _duplicate(records: Sequence[Record], random: Random) -> TableMutant | None:
    row = random.randrange(len(records))
    fault = TableFault(
        "duplicate", row, None, records[row], records[row], f"{records[row].request} comes twice"
    )
    return TableMutant(fault, [*records[: row + 1], *records[row:]])


_MAKERS: Final[dict[str, Callable[[Sequence[Record], Random], TableMutant | None]]] = {
    "kind": _kind,
    "request": _request,
    "count": _count,
    "order": _order,
    "drop": _drop,
    "duplicate": _duplicate,
    "shift": _shift,
}
