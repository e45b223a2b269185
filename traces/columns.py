"""Rows gathered by the column, for recorders in whose hot path a row must cost little.

Rows come singly, as events, or in runs: many rows of one kind in one step, a sequence for each column.
`take` makes one record batch of them, in order.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from batchspec.spec.events import COLUMNS, KINDS, Event, RequestId
from batchspec.traces.schema import TRACE_SCHEMA, IdType, family, with_ids

_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}
_WORDS: Final = pa.array(KINDS, pa.string())
_PLACE: Final = {name: place for place, name in enumerate(COLUMNS)}
_SINGLE: Final = [name for name in COLUMNS if name not in ("step", "event", "request", "time_ns")]


class Columns:
    """Collects rows of a trace. Nothing is checked: the rows are a recorder's own."""

    def __init__(self, id_type: IdType = str) -> None:
        """`id_type` is what the request ids are."""
        self.rows = 0
        self._schema = with_ids(TRACE_SCHEMA, id_type)
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self._heads: list[tuple[int, int, int, int | None]] = []  # (rows, kind, step, time) of each run
        self._names: list[RequestId | None] = []
        self._runs: dict[str, list[tuple[int, Sequence[int]]]] = {}
        self._cells: dict[str, tuple[list[int], list[Any]]] = {}

    def add(self, event: Event) -> None:
        """One row."""
        row = self.rows
        self._heads.append((1, _CODE[event.event], event.step, event.time_ns))
        self._names.append(event.request)
        for name in _SINGLE:
            value = event[_PLACE[name]]
            if value is not None:
                rows, values = self._cells.setdefault(name, ([], []))
                rows.append(row)
                values.append(value)
        self.rows += 1

    def add_run(
        self,
        kind: str,
        step: int,
        time_ns: int | None,
        requests: Sequence[RequestId],
        columns: Mapping[str, Sequence[int]],
        cells: Mapping[str, Iterable[tuple[int, Any]]] | None = None,
    ) -> None:
        """A row for each of `requests`. `cells` are columns with a value in some rows: (index, value)."""
        at, count = self.rows, len(requests)
        if not count:
            return
        self._heads.append((count, _CODE[kind], step, time_ns))
        self._names += requests
        for name, values in columns.items():
            self._runs.setdefault(name, []).append((at, values))
        for name, pairs in (cells or {}).items():
            rows, found = self._cells.setdefault(name, ([], []))
            for index, value in pairs:
                rows.append(at + index)
                found.append(value)
        self.rows += count

    def take(self) -> pa.RecordBatch:
        """All rows so far as one batch of the trace's schema; from here on there are none."""
        counts, kinds, steps, times = zip(*self._heads, strict=True) if self._heads else ((), (), (), ())
        arrays = []
        for field in self._schema:
            name = field.name
            if name == "event":
                codes = pa.array(np.repeat(np.array(kinds, np.int32), counts), pa.int32())
                arrays.append(pa.DictionaryArray.from_arrays(codes, _WORDS))
            elif name == "step":
                arrays.append(pa.array(np.repeat(np.array(steps, np.int64), counts)))
            elif name == "request":
                arrays.append(pa.array(self._names, field.type))
            elif name == "time_ns":
                known = np.array([time is not None for time in times], bool)
                values = np.array([time or 0 for time in times], np.int64)
                arrays.append(pa.array(np.repeat(values, counts), mask=np.repeat(~known, counts)))
            elif name not in self._runs and name not in self._cells:
                arrays.append(pa.nulls(self.rows, field.type))
            else:
                arrays.append(self._array(name, field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._clear()
        return batch

    def _array(self, name: str, kind: pa.DataType) -> pa.Array:
        rows, values = self._cells.get(name, ([], []))
        what = family(name)
        if what == "int":
            numbers = np.zeros(self.rows, np.int64)
            absent = np.ones(self.rows, bool)
            for at, run in self._runs.get(name, ()):
                numbers[at : at + len(run)] = run
                absent[at : at + len(run)] = False
            numbers[rows] = values
            absent[rows] = False
            return pa.array(numbers, mask=absent).cast(kind)
        if what == "ints":
            return self._lists(rows, values, kind)
        found: list[Any] = [None] * self.rows
        for row, value in zip(rows, values, strict=True):
            found[row] = value
        return pa.array(found, kind)

    def _lists(self, rows: list[int], values: list[Any], kind: pa.DataType) -> pa.Array:
        lengths = np.zeros(self.rows, np.int64)
        absent = np.ones(self.rows, bool)
        lengths[rows] = [len(value) for value in values]
        absent[rows] = False
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
        flat = pa.array(np.fromiter(chain.from_iterable(values), np.int64, int(ends[-1])))
        return pa.ListArray.from_arrays(
            pa.array(ends), flat.cast(kind.value_type), type=kind, mask=pa.array(absent)
        )
