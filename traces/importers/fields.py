"""Fields of a row from strangers, checked: counts, numbers, texts, hashes. All raise `Unusable`."""

import math
import re
from array import array
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

MAX_WORD: Final = 4096
"""Longest id, tenant or session that is taken over, in characters."""

MAX_COUNT: Final = 2**31 - 1

_WHOLE: Final = frozenset({int})
_COUNT: Final = re.compile(r"[0-9]{1,10}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?")


class Unusable(Exception):
    """A row that cannot become a request or an event; its text is the reason, without numbers."""


def count(value: object, name: str) -> int:
    """A whole number that is not negative, or its digits as a text."""
    if type(value) is int:
        if 0 <= value <= MAX_COUNT:
            return value
    elif isinstance(value, str) and _COUNT.fullmatch(value) and int(value) <= MAX_COUNT:
        return int(value)
    elif isinstance(value, Decimal) and value.adjusted() < 10 and value >= 0 and value == int(value):
        # pandas writes whole numbers of a column with gaps as 12.0.
        return count(int(value), name)
    missing(value, name)
    raise Unusable(f"{name} is no count")


def some(value: object, name: str) -> int:
    """A count of at least one."""
    # Most values are whole numbers at once: they are spared a call.
    known = value if type(value) is int and 0 < value <= MAX_COUNT else count(value, name)
    if not known:
        raise Unusable(f"{name} is zero")
    return known


def maybe_count(value: object, name: str) -> int | None:
    """A count, or None for a null or an empty text."""
    return None if value is None or value == "" else count(value, name)


def number(value: object, name: str) -> int | Decimal:
    """A number, or its digits as a text, exactly as written."""
    if type(value) is int:
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return value
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    missing(value, name)
    raise Unusable(f"{name} is no number")


def word(value: object, name: str) -> str:
    """A text or a whole number, as text."""
    if type(value) is int:
        return str(value) if abs(value) < 2**64 else too_long(name)
    if not isinstance(value, str) or not value:
        missing(value, name)
        raise Unusable(f"{name} is no text")
    if len(value) > MAX_WORD:
        too_long(name)
    if not value.isascii() and not _encodable(value):
        raise Unusable(f"{name} is not valid text")
    return value


def maybe_word(value: object, name: str) -> str | None:
    """A text, or None for a null or an empty text."""
    return None if value is None or value == "" else word(value, name)


def keys(value: object, name: str) -> tuple[int, ...]:
    """A list of 64-bit numbers; those of 2^63 and more become their two's complement."""
    if not isinstance(value, list):
        missing(value, name)
        raise Unusable(f"{name} is no list")
    if not _WHOLE.issuperset(map(type, value)):
        raise Unusable(f"{name} holds something that is no whole number")
    try:
        # The quickest way to ask whether each fits.
        array("q", value)
    except OverflowError:
        return _wrapped(value, name)
    return tuple(value)


def mapping(value: object, name: str) -> Mapping[str, Any]:
    """An object; a null or nothing is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unusable(f"{name} is no object")
    return value


def items(value: object, name: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        missing(value, name)
        raise Unusable(f"{name} is no list")
    return value


def missing(value: object, name: str) -> None:
    """Raise `Unusable` if there is no value at all."""
    if value is None or value == "":
        raise Unusable(f"{name} is missing")


def too_long(name: str) -> NoReturn:
    """Raise `Unusable` for a text that no honest record holds."""
    raise Unusable(f"{name} is too long")


def _wrapped(value: list[Any], name: str) -> tuple[int, ...]:
    if any(type(item) is not int or not -(2**63) <= item < 2**64 for item in value):
        raise Unusable(f"{name} holds something that is no 64-bit number")
    return tuple(item - 2**64 if item >= 2**63 else item for item in value)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
