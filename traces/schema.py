"""The schema: the columns of a trace and of a request table, and which Arrow types may carry them.

A producer writes the types of `TRACE_SCHEMA`. A reader takes more (narrow, wide and unsigned
integers, plain, large or dictionary strings, any list of integers) and hands out the types of
`read_type`, so that nothing behind the reader has to know how a file was encoded.
"""

from typing import Final, Literal

import pyarrow as pa

from batchspec.spec.events import COLUMNS
from batchspec.spec.records import RECORD_COLUMNS

IdType = type[str] | type[int]
Family = Literal["int", "word", "id", "ints"]
"""What a column holds: one integer, one string, a request id, a list of integers."""

WORD: Final = pa.dictionary(pa.int32(), pa.string())

_LONG: Final = (
    "step",
    "time_ns",
    "pass",
    "arrival_ns",
    "admitted_ns",
    "first_token_ns",
    "finish_ns",
)
_WORDS: Final = ("event", "tenant", "reason", "resource", "session", "status")
_IDS: Final = ("request", "cause")
_LISTS: Final = {"block_ids": pa.int32(), "block_hashes": pa.int64(), "prefix_hashes": pa.int64()}

SIGNED: Final = frozenset(
    {"time_ns", "priority", "slot", "start", "arrival_ns", "admitted_ns", "first_token_ns", "finish_ns"}
)
"""Integer columns that may hold a number below zero. All others are counts or step numbers, where one
makes the file unusable. A negative `slot` or `start` is a fault of the scheduler, so a rule judges it."""


def _written(name: str) -> pa.DataType:
    if name in _WORDS:
        return WORD
    if name in _IDS:
        return pa.string()
    if name in _LISTS:
        return pa.list_(_LISTS[name])
    return pa.int64() if name in _LONG else pa.int32()


TRACE_SCHEMA: Final = pa.schema([pa.field(name, _written(name)) for name in COLUMNS])
"""The types a recorder writes (string ids; `with_ids` gives the variant with integer ids)."""

WORKLOAD_SCHEMA: Final = pa.schema([pa.field(name, _written(name)) for name in RECORD_COLUMNS])
"""The types of the request table: a workload, or the L0 records of a run."""


def with_ids(schema: pa.Schema, id_type: IdType) -> pa.Schema:
    """The schema whose request ids (and `cause`) are strings (`str`) or int64 (`int`)."""
    ids = pa.int64() if id_type is int else pa.string()
    return pa.schema([field.with_type(ids) if field.name in _IDS else field for field in schema])


def family(column: str) -> Family:
    """What a known column of a trace or a request table holds."""
    if column in _IDS:
        return "id"
    if column in _LISTS:
        return "ints"
    return "word" if column in _WORDS else "int"


def is_string(kind: pa.DataType) -> bool:
    """True for plain, large and view strings, also inside a dictionary."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value) or _is_string_view(value))


def is_integer(kind: pa.DataType) -> bool:
    """True for integers of any width and sign, also inside a dictionary."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_integer(value))


def is_integer_list(kind: pa.DataType) -> bool:
    """True for lists of integers: plain, large, fixed-size and views."""
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool((lists or is_list_view(kind)) and pa.types.is_integer(kind.value_type))


def is_list_view(kind: pa.DataType) -> bool:
    """True for list views, of either size."""
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def accepts(column: str, kind: pa.DataType) -> bool:
    """May a file carry this column in this Arrow type?"""
    what = family(column)
    if what == "int":
        return is_integer(kind)
    if what == "word":
        return is_string(kind)
    if what == "ints":
        return is_integer_list(kind)
    return is_string(kind) or is_integer(kind)


def wanted(column: str) -> str:
    """The types a file may use for this column, in words for an error text."""
    texts = {
        "int": "an integer column",
        "word": "a string column",
        "ints": "a list of integers",
        "id": "a string or an integer column",
    }
    return texts[family(column)]


def read_type(column: str, id_type: IdType | None) -> pa.DataType:
    """The one Arrow type in which a reader hands out this column."""
    what = family(column)
    if what == "ints":
        return pa.list_(pa.int64())
    if what == "int" or (what == "id" and id_type is int):
        return pa.int64()
    return WORD


def _is_string_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind))
