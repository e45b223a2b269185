"""Rows: columns in normal form turned into plain tuples, and plain tuples into columns.

The way out is the hot path of the reference checker, so whole columns become lists through numpy
and are zipped into tuples without a Python call a row. An all-null column costs nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.schema import IdType
from batchspec.traces.text import one_line, shown

MANY: Final = 1 << 20
"""List items in a batch, from which on they are turned into tuples only as their rows are asked for."""

Row = TypeVar("Row", bound="tuple[Any, ...]")


def tuples(kind: type[Row], columns: Sequence[str], batch: dict[str, pa.Array], rows: int) -> Iterator[Row]:
    """The rows of a batch as named tuples of `kind`, whose fields stand in the order of `columns`."""
    lists = [_values(batch.get(column), rows) for column in columns]
    # tuple.__new__ skips the Python-level constructor of a named tuple; zip gives the right length.
    return map(tuple.__new__, repeat(kind), zip(*lists, strict=False))


def _values(array: pa.Array | None, rows: int) -> Iterable[Any]:
    if array is None or array.null_count == rows:
        return repeat(None, rows)
    if pa.types.is_dictionary(array.type):
        return _words(array)
    if pa.types.is_list(array.type):
        return _lists(array, rows)
    if not array.null_count:
        return array.to_numpy().tolist()  # type: ignore[no-any-return]
    values = array.fill_null(0).to_numpy().astype(object)
    values[array.is_null().to_numpy(zero_copy_only=False)] = None
    return values.tolist()  # type: ignore[no-any-return]


def _words(array: pa.Array) -> list[Any]:
    words = np.array([*array.dictionary.to_pylist(), None], dtype=object)
    # A null is encoded as -1: the None at the end.
    code = array.indices.fill_null(-1) if array.null_count else array.indices
    return words[code.to_numpy()].tolist()  # type: ignore[no-any-return]


def _lists(array: pa.Array, rows: int) -> Iterable[Any]:
    out: list[Any] = [None] * rows
    flat = array.flatten().to_numpy()
    ends = np.cumsum(array.value_lengths().fill_null(0).to_numpy())
    valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)).tolist()
    if len(flat) > MANY:
        return _lists_one_by_one(flat, ends.tolist(), valid, rows)
    items = flat.tolist()
    at = 0
    for row, end in zip(valid, ends[valid].tolist(), strict=True):
        out[row] = tuple(items[at:end])
        at = end
    return out


def _lists_one_by_one(flat: Any, ends: list[int], valid: list[int], rows: int) -> Iterator[Any]:
    """For long lists: never more of them as Python objects than the row at hand."""
    there = set(valid)
    at = 0
    for row in range(rows):
        yield tuple(flat[at : ends[row]].tolist()) if row in there else None
        at = ends[row]


def id_type_of(events: Iterable[Event]) -> IdType | None:
    """`str` or `int`, from the first event that has an id; None if none has."""
    for event in events:
        named = event.cause if event.request is None else event.request
        if named is not None:
            return int if isinstance(named, int) else str
    return None


def batch_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema, first: int, where: str) -> pa.RecordBatch:
    """Rows as one record batch of `schema`. `first` is the index of its first row, for errors.

    Raises `TraceError` that names the row and the column of a value the schema cannot hold.
    """
    count = len(rows)
    width = len(schema)
    # Every width-th value of all rows strung together: quicker than zip over thousands of rows.
    flat = list(chain.from_iterable(rows))
    arrays = []
    for index, field in enumerate(schema):
        values = flat[index::width]
        if values.count(None) == count:
            arrays.append(pa.nulls(count, field.type))
            continue
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise _misfit(values, field, first, where) or TraceError(
                f"{where}: column {field.name}: {one_line(error)}"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _misfit(values: list[Any], field: pa.Field, first: int, where: str) -> TraceError | None:
    for index, value in enumerate(values):
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            return TraceError(
                f"{where}: row {first + index}: column {field.name}: {shown(value)} is no {kind}"
            )
    return None
