"""Times of other people's records as exact nanoseconds: dates, decimal numbers with a unit, durations."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

from batchspec.traces.importers.fields import Unusable, number

UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 1000, "µs": 1000, "μs": 1000, "ns": 1}
"""Nanoseconds of each unit (micro with either sign)."""

_FACTORS: Final = {unit: Decimal(nanos) for unit, nanos in UNITS.items()}

LARGEST: Final = 2**62
"""Largest time in nanoseconds (146 years), so that sums of two still fit 64 bits."""

_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_ZERO: Final = datetime(1970, 1, 1)
_DURATION: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([nuµμm]?s)")


def date(text: object, utc: bool = False) -> int | None:
    """Nanoseconds since 1970 of a date such as `2026-03-01T09:30:00.118200Z`; None if it is none.

    Up to nine fraction digits, exactly. Without a zone the clock is taken as it is; with `utc` any
    other zone is none.
    """
    found = _DATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    clock, fraction, zone = found.groups()
    whole = seconds(clock)
    if whole is None:
        return None
    if zone and zone != "Z" and zone != "+00:00":
        if utc:
            return None
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            return None
        whole -= (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
    return whole * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)


def nanoseconds(value: object, unit: str, name: str) -> int:
    """A number of `unit`s as nanoseconds, rounded to the nearest. Raises `Unusable` below zero."""
    if type(value) is Decimal and value.adjusted() <= 19:
        # Most times of a document are these: they are spared the calls below.
        nanos = round(value * _FACTORS[unit])
        if 0 <= nanos <= LARGEST:
            return nanos
    known = value if type(value) is int else number(value, name)
    # A number of any length can be written; it is bounded before it is multiplied out.
    if not isinstance(known, int) and known.adjusted() > 19:
        raise Unusable(f"{name} is too large for a time")
    nanos = round(known * UNITS[unit])
    if nanos < 0:
        raise Unusable(f"{name} is below zero")
    if nanos > LARGEST:
        raise Unusable(f"{name} is too large for a time")
    return nanos


def duration(text: object, name: str) -> int:
    """Nanoseconds of a text such as `110.2ms`, `41.2µs` or `1.5s`. Raises `Unusable`."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise Unusable(f"{name} is no duration")
    return nanoseconds(Decimal(found[1]), found[2], name)


def iso(nanos: int) -> str:
    """Nanoseconds since 1970 as a date in UTC, with nine fraction digits."""
    seconds, rest = divmod(nanos, 1_000_000_000)
    return f"{(_ZERO + timedelta(seconds=seconds)).isoformat()}.{rest:09}Z"


@lru_cache(maxsize=1024)
def seconds(text: str) -> int | None:
    """Seconds since 1970 of `YYYY-MM-DD hh:mm:ss`; None if it is no such moment."""
    # Many rows share a second, and reading a date is the dearest part of a row.
    try:
        whole = datetime.fromisoformat(text) - _ZERO
    except ValueError:
        return None
    return whole.days * 86_400 + whole.seconds
