"""The record hook: every decision as one small tuple, at the moment it is made.

A tape costs the scheduler one tuple and one append a decision, and nothing when it is off: the
scheduler then holds no tape at all. Turning tuples into columns happens a flush at a time.

A row is (kind, step, request, time_ns, *fields); `FIELDS` names the fields of each kind.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from batchspec.traces.schema import TRACE_SCHEMA, IdType, with_ids

Row = tuple[Any, ...]
Sink = Callable[[pa.RecordBatch], None]

FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "arrive": ("prompt_tokens", "max_tokens", "priority", "tenant"),
    "cancel": (),
    "reject": ("reason",),
    "admit": ("slot", "cached", "blocks", "block_ids", "block_hashes"),
    "resume": ("slot", "cached", "blocks", "block_ids", "block_hashes"),
    "schedule": ("start", "tokens", "blocks", "block_ids", "block_hashes"),
    "preempt": ("reason", "cause", "blocks", "block_ids"),
    "skip": ("reason",),
    "abort": ("reason", "output_tokens", "blocks", "block_ids"),
    "finish": ("reason", "output_tokens", "blocks", "block_ids"),
    "transfer_begin": ("reason", "block_ids"),
    "transfer_end": ("reason", "block_ids"),
    "step": ("free_blocks", "waiting", "running", "shared_blocks"),
}
"""The columns that each kind of row carries, in the order in which the scheduler gives them."""

KINDS: Final = tuple(FIELDS)
(
    ARRIVE,
    CANCEL,
    REJECT,
    ADMIT,
    RESUME,
    SCHEDULE,
    PREEMPT,
    SKIP,
    ABORT,
    FINISH,
    TRANSFER_BEGIN,
    TRANSFER_END,
    STEP,
) = range(len(KINDS))
_TRANSFERS: Final = (TRANSFER_BEGIN, TRANSFER_END)  # their only content is block ids

HIDDEN: Final[dict[str, frozenset[str]]] = {
    "L1": frozenset({"blocks", "free_blocks", "shared_blocks", "block_ids", "block_hashes"}),
    "L2": frozenset({"block_ids", "block_hashes"}),
    "L3": frozenset(),
}
"""The columns that a level leaves out."""


class Tape:
    """Collects rows and hands them on as record batches of the trace's schema.

    `sink` receives a batch whenever `flush_rows` rows have come together at the end of a step, and
    at `flush`. A sink that raises ends the recording, never the engine: `broken` then tells why.
    """

    def __init__(self, sink: Sink, level: str = "L3", id_type: IdType = str, flush_rows: int = 8192) -> None:
        """`level` is L1 (who runs), L2 (and block counts) or L3 (and block ids)."""
        self.rows: list[Row] = []
        self.broken: Exception | None = None
        self._sink = sink
        self._hidden = HIDDEN[level]
        self._schema = with_ids(TRACE_SCHEMA, id_type)
        self._flush_rows = flush_rows

    def end_step(self) -> None:
        """Flush if enough has come together."""
        if len(self.rows) >= self._flush_rows:
            self.flush()

    def flush(self) -> None:
        """Hand on everything collected so far."""
        rows, self.rows[:] = self.rows[:], []
        if self.broken is not None or not rows:
            return
        try:
            self._sink(batch_of(rows, self._schema, self._hidden))
        except Exception as error:  # whatever the sink's trouble is, the engine goes on
            self.broken = error


def batch_of(rows: Iterable[Row], schema: pa.Schema, hidden: frozenset[str] = frozenset()) -> pa.RecordBatch:
    """Rows as columns, in their order. Columns of kinds that do not occur, and hidden ones, are null."""
    rows = [row for row in rows if row[0] not in _TRANSFERS] if hidden else list(rows)
    kinds = np.fromiter((row[0] for row in rows), np.int8, len(rows))
    columns: dict[str, list[tuple[np.ndarray, tuple[Any, ...]]]] = {}
    for kind in np.unique(kinds).tolist():
        at = np.flatnonzero(kinds == kind)
        _, steps, requests, times, *fields = zip(*(rows[index] for index in at.tolist()), strict=True)
        named = ("step", "request", "time_ns", *FIELDS[KINDS[kind]])
        for name, values in zip(named, (steps, requests, times, *fields), strict=True):
            if name not in hidden:
                columns.setdefault(name, []).append((at, values))
    arrays = []
    for field in schema:
        if field.name == "event":
            words = pa.array(KINDS, pa.string())
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(kinds, pa.int32()), words))
        elif field.name in columns:
            arrays.append(_column(columns[field.name], len(rows), field.type))
        else:
            arrays.append(pa.nulls(len(rows), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(parts: list[tuple[np.ndarray, tuple[Any, ...]]], length: int, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(kind) and not any(None in values for _, values in parts):
        numbers = np.zeros(length, np.int64)
        absent = np.ones(length, bool)
        for at, values in parts:
            numbers[at] = values
            absent[at] = False
        return pa.array(numbers, kind, mask=absent)
    found: list[Any] = [None] * length
    for at, values in parts:
        for index, value in zip(at.tolist(), values, strict=True):
            found[index] = value
    return pa.array(found, kind)
