"""The feed: Arrow batches of a trace as the arrays that the kernel reads, made ready on a second core.

Values stay where Arrow has put them; nulls stay bitmaps. Only what comes in another width is copied. A
batch that no event can be made of is not judged here at all: `Refused` sends the whole trace to the
readable checker, which says what is wrong with it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from threading import Event as Flag
from threading import Thread
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchspec.replay.fast import layout
from batchspec.replay.fast.kernel import Rows
from batchspec.traces.normal import Place, normal
from batchspec.traces.schema import SIGNED, IdType

_AHEAD: Final = 2
"""Batches that are read ahead of the kernel."""


class Refused(Exception):
    """A batch that the kernel cannot take. Internal: the readable checker judges the trace instead."""


@dataclass(frozen=True, slots=True)
class Ready:
    """One batch made ready: the rows, where they stand, and what is needed to read them as events.

    `names` has the words of the ids where those are strings: `rows.wide` holds their codes then.
    `filled` are the columns with a value in this batch.
    """

    place: Place
    batch: pa.RecordBatch
    rows: Rows
    filled: frozenset[str]
    kinds: tuple[str, ...]
    names: dict[str, list[str]]


def _frozen(values: Any) -> Any:
    values.flags.writeable = False
    return values


_NO_INTS: Final = _frozen(np.empty(0, np.int32))
_NO_LONGS: Final = _frozen(np.empty(0, np.int64))
_NO_MASK: Final = _frozen(np.empty(0, np.uint8))


def _parts(values: pa.Array, width: Any) -> tuple[Any, Any, int]:
    """Values, bitmap (empty: no nulls) and the bitmap's first bit of an integer array."""
    size = np.dtype(width).itemsize
    mask, data = values.buffers()[:2]
    at = values.offset
    # Every array is read-only and of one layout: another type would have the kernel compiled once more.
    numbers = _frozen(np.frombuffer(data or b"", width, len(values) if data else 0, at * size if data else 0))
    if mask is None or not values.null_count:
        return numbers, _NO_MASK, 0
    return numbers, _frozen(np.frombuffer(mask, np.uint8)), at


def make_ready(
    place: Place, batch: pa.RecordBatch, id_type: IdType | None, expected: frozenset[str]
) -> Ready:
    """One batch for the kernel. `expected` are the kinds of events that this trace is taken to have.

    Raises `Refused` for what only the readable checker can judge or refuse.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    filled = frozenset(name for name, values in columns.items() if values.null_count < len(values))
    names: dict[str, list[str]] = {}
    narrow, narrow_masks, wide, wide_masks = [], [], [], []
    bits = np.zeros(layout.BITS, np.int64)
    for index, name in enumerate(layout.NARROW):
        numbers, mask, bits[index] = _integers(name, columns.pop(name, None), pa.int32(), filled)
        narrow.append(numbers)
        narrow_masks.append(mask)
    for index, name in enumerate(layout.WIDE):
        values = columns.pop(name, None)
        if name != "time_ns" and values is not None and name in filled:
            values = normal(name, values, id_type, place)
            if pa.types.is_dictionary(values.type):
                names[name] = values.dictionary.to_pylist()
                # Under a null an index may be anything; it is looked up all the same.
                mask = values.is_null() if values.null_count else None
                codes = np.asarray(values.indices.fill_null(0)).astype(np.int64)
                values = pa.array(codes, mask=None if mask is None else np.asarray(mask))
        numbers, mask, bit = _integers(name, values, pa.int64(), filled)
        bits[layout.REQUEST_BIT + index] = bit
        wide.append(numbers)
        wide_masks.append(mask)
    step, event, reason = columns.pop("step"), columns.pop("event"), columns.pop("reason", None)
    if step.null_count or event.null_count:
        raise Refused("a null step or event")
    event = normal("event", event, None, place)
    kinds = event.dictionary.to_pylist()
    kind_of = [layout.KINDS.get(kind, 0) if kind in expected else layout.K_SURPRISE for kind in kinds]
    codes, reason_of, reason_mask = _NO_INTS, np.zeros(1, np.int64), _NO_MASK
    if reason is not None and "reason" in filled:
        reason = normal("reason", reason, None, place)
        codes, reason_mask, bits[layout.REASON_BIT] = _parts(reason.indices, np.int32)
        reason_of = np.array(
            [layout.REASONS.get(word, 0) for word in reason.dictionary.to_pylist()], np.int64
        )
    for name, values in columns.items():
        if name in filled:
            normal(name, values, id_type, place)
    rows = Rows(
        step=_integers("step", step, pa.int64(), filled)[0],
        kind=_parts(event.indices, np.int32)[0],
        kind_of=_frozen(np.array(kind_of, np.int64)),
        reason=codes,
        reason_of=_frozen(reason_of),
        reason_mask=reason_mask,
        wide=tuple(wide),
        wide_masks=tuple(wide_masks),
        narrow=tuple(narrow),
        narrow_masks=tuple(narrow_masks),
        bits=_frozen(bits),
    )
    return Ready(place, batch, rows, filled, tuple(kinds), names)


def _integers(
    name: str, values: pa.Array | None, width: pa.DataType, filled: frozenset[str]
) -> tuple[Any, Any, int]:
    kind = np.int32 if width == pa.int32() else np.int64
    if values is None or name not in filled:
        return (_NO_INTS if kind is np.int32 else _NO_LONGS), _NO_MASK, 0
    if values.type != width:
        try:
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            values = values.cast(width)
        except pa.ArrowException:
            raise Refused(f"a value of {name} beyond {width}") from None
    numbers, mask, bit = _parts(values, kind)
    least = 0 if name not in SIGNED else layout.NIL + 1
    # Under a null anything may stand: only where the least of all is too small is it looked for closely.
    if name not in ("request", "cause") and numbers.size and numbers.min() < least:
        exact = pc.min(values).as_py()
        if exact is not None and exact < least:
            raise Refused(f"a value of {name} below {least}")
    return numbers, mask, bit


class Ahead:
    """An iterator that is worked off on a thread of its own, a few items ahead."""

    def __init__(self, items: Iterable[Ready]) -> None:
        """Begin to read."""
        self._items = items
        self._queue: Queue[Ready | BaseException | None] = Queue(_AHEAD)
        self._stop = Flag()
        self._thread = Thread(target=self._read, name="batchspec-reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        last: BaseException | None = None
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as error:
            last = error
        self._put(last)

    def _put(self, item: Ready | BaseException | None) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except Full:  # is anybody still there?
                continue
        return False

    def __iter__(self) -> Iterator[Ready]:
        """The items, in order; what the thread raised is raised here."""
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Read no further."""
        self._stop.set()
        while True:
            try:
                self._queue.get_nowait()
            except Empty:
                break
        self._thread.join()
