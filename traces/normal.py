"""Normal form: one column of a file, in whatever types it came, checked and cast to `read_type`.

Everything here works on whole Arrow columns; a value at fault is looked up only once it is known
that there is one. Errors are `TraceError`s that name the file, the row and the column.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchspec.spec.errors import TraceError
from batchspec.spec.events import KINDS, REASONS, WITHOUT_REQUEST
from batchspec.traces.schema import SIGNED, IdType, family, is_list_view, is_string, wanted
from batchspec.traces.text import nearest, one_line, shown

EFFECT_BY_REASON: Final = ("preempt", "live")
"""Kinds whose `reason` decides what the event does to the state, so an unknown word cannot be read.
On every other kind an unknown word is the producer's own and is kept."""

MAX_LIST: Final = 1 << 20
MAX_TEXT: Final = 1 << 16
"""Longer lists and texts are refused: a few bytes of a hostile file can claim any length."""

_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch stands: its file, and the row of the table at which it begins."""

    file: str
    row: int

    def error(self, index: int, column: str, what: str) -> TraceError:
        """The error for one value of the batch."""
        return TraceError(f"{self.file}: row {self.row + index}: column {column}: {what}")


def normal(column: str, values: pa.Array, id_type: IdType | None, place: Place) -> pa.Array:
    """The column in its `read_type`. Raises `TraceError` for a value that the column cannot hold."""
    if pa.types.is_null(values.type):
        return values
    try:
        what = family(column)
        if what == "int":
            return _integers(column, values, place)
        if what == "ints":
            return _lists(column, values, place)
        if what == "word":
            return _words(column, values, place)
        return _ids(column, values, id_type, place)
    except pa.ArrowException as error:
        raise TraceError(f"{place.file}: column {column}: {one_line(error)}") from None


def check_events(batch: dict[str, pa.Array], place: Place) -> None:
    """Raise `TraceError` for a null, a kind or a reason with which no event can be read."""
    for column in ("step", "event"):
        no_nulls(column, batch[column], place)
    event = batch["event"]
    kinds = event.dictionary.to_pylist()
    code = event.indices.to_numpy()
    for unknown in (kind for kind in kinds if kind not in KINDS):
        if (rows := np.flatnonzero(code == kinds.index(unknown))).size:
            what = f"unknown event {shown(unknown)}{nearest(unknown, KINDS)}"
            raise place.error(int(rows[0]), "event", what)
    request = batch.get("request")
    nameless = np.array([kind in WITHOUT_REQUEST for kind in kinds], dtype=bool)[code]
    named = False if request is None else request.is_valid().to_numpy(zero_copy_only=False)
    if not (nameless | named).all():
        row = int(np.flatnonzero(~(nameless | named))[0])
        raise place.error(row, "request", f"null on {kinds[code[row]]!r}, an event about a request")
    if (reason := batch.get("reason")) is not None and reason.null_count < len(reason):
        _check_reasons(kinds, code, reason, place)


def no_nulls(column: str, values: pa.Array, place: Place) -> None:
    """Raise `TraceError` at the first null of a column that must not have one."""
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise place.error(row, column, "null; every row needs a value here")


def _check_reasons(kinds: list[str], code: Any, reason: pa.Array, place: Place) -> None:
    words = reason.dictionary.to_pylist()
    word = reason.indices.fill_null(-1).to_numpy()
    for kind in EFFECT_BY_REASON:
        if kind not in kinds:
            continue
        here = (code == kinds.index(kind)) & (word >= 0)
        for index in np.unique(word[here]):
            if words[index] not in REASONS[kind]:
                row = int(np.flatnonzero(here & (word == index))[0])
                known = ", ".join(REASONS[kind])
                what = f"{kind} with reason {shown(words[index])}; known are {known}"
                raise place.error(row, "reason", what)


def _integers(column: str, values: pa.Array, place: Place) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    values = _int64(column, values, place)
    if column not in SIGNED and len(values):
        least = pc.min(values).as_py()
        if least is not None and least < 0:
            row = int(np.flatnonzero(pc.less(values, 0).fill_null(False).to_numpy(zero_copy_only=False))[0])
            raise place.error(row, column, f"{values[row].as_py()} is negative")
    return values


def _int64(column: str, values: pa.Array, place: Place) -> pa.Array:
    if pa.types.is_uint64(values.type):
        large = pc.greater(values, pa.scalar(_LARGEST, pa.uint64())).fill_null(False)
        if pc.any(large).as_py():
            row = int(np.flatnonzero(large.to_numpy(zero_copy_only=False))[0])
            raise place.error(row, column, f"{values[row].as_py()} does not fit a 64-bit integer")
    return values.cast(pa.int64())


def _words(column: str, values: pa.Array, place: Place) -> pa.Array:
    kind = values.type
    if pa.types.is_dictionary(kind) and (
        values.dictionary.null_count or len(values.dictionary) > len(values)
    ):
        # A dictionary may be that of a whole file: keep only what this batch uses.
        values = values.dictionary_decode()
        kind = values.type
    if not pa.types.is_dictionary(kind):
        values = (values if pa.types.is_string(kind) else values.cast(pa.string())).dictionary_encode()
    longest = pc.max(pc.binary_length(values.dictionary)).as_py() or 0
    if longest > MAX_TEXT:
        raise TraceError(
            f"{place.file}: column {column}: a text of {longest} bytes; at most {MAX_TEXT} are read"
        )
    words = values.dictionary.cast(pa.string())
    try:
        words.validate(full=True)
    except pa.ArrowInvalid:
        raise TraceError(f"{place.file}: column {column}: text that is not valid UTF-8") from None
    return pa.DictionaryArray.from_arrays(values.indices.cast(pa.int32()), words)


def _ids(column: str, values: pa.Array, id_type: IdType | None, place: Place) -> pa.Array:
    textual = is_string(values.type)
    if column == "cause" and id_type is not None and textual != (id_type is str):
        return _converted(column, values, id_type, place)
    if textual:
        return _words(column, values, place)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return _int64(column, values, place)


def _converted(column: str, values: pa.Array, id_type: IdType, place: Place) -> pa.Array:
    """`cause` in the type of `request`: the format allows it to be a string beside integer ids."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if id_type is str:
        return _words(column, values.cast(pa.string()), place)
    numeric = pc.match_substring_regex(values, "^-?[0-9]{1,18}$").fill_null(True)
    if not pc.all(numeric).as_py():
        row = int(np.flatnonzero(~numeric.to_numpy(zero_copy_only=False))[0])
        what = f"{shown(values[row].as_py())} is no id here: the ids of this trace are integers"
        raise place.error(row, column, what)
    return values.cast(pa.int64())


def _lists(column: str, values: pa.Array, place: Place) -> pa.Array:
    if is_list_view(values.type):
        values = values.cast(pa.large_list(values.type.value_type))
    longest = pc.max(pc.list_value_length(values)).as_py() or 0
    if longest > MAX_LIST:
        row = int(np.flatnonzero(pc.list_value_length(values).fill_null(0).to_numpy() == longest)[0])
        raise place.error(row, column, f"a list of {longest} items; at most {MAX_LIST} are read")
    items = values.flatten()
    if items.null_count:
        row = next(at for at, item in enumerate(values.to_pylist()) if item is not None and None in item)
        raise place.error(row, column, "null inside the list")
    if pa.types.is_uint64(items.type) and len(items) and pc.max(items).as_py() > _LARGEST:
        row = next(at for at, item in enumerate(values.to_pylist()) if item and max(item) > _LARGEST)
        raise place.error(row, column, "a value that does not fit a 64-bit integer")
    return values.cast(pa.list_(pa.int64()))


def wrong_type(file: str, column: str, kind: pa.DataType) -> TraceError:
    """The error for a known column whose type cannot carry it."""
    hint = ""
    if pa.types.is_floating(kind) and family(column) in ("int", "id"):
        hint = "; cast it first (with pandas: .astype('Int64'))"
    return TraceError(f"{file}: column {column}: must be {wanted(column)}, not {one_line(kind, 60)}{hint}")
