"""Scenario values: the tokens of a scenario line, each with its way in and its way out.

A value error is a `ValueError` with a few words; the parser puts file and line before it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from batchspec.spec.profile import GROUPS
from batchspec.traces.text import nearest, shown

UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_TOKEN: Final = re.compile(
    r"""(?P<quoted>(?:[^\s"\#][^\s"]*)?"(?:[^"\\]|\\.)*"(?=\s|$))|(?P<plain>[^\s"\#]\S*)|(?P<comment>\#.*)""",
    re.VERBOSE,
)
_PAIR: Final = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_PLAIN: Final = re.compile(r'[^\s"#=][^\s"=]*')
_TIME: Final = re.compile(r"(-?)([0-9]{1,19})(?:\.([0-9]{1,9}))?(ns|us|ms|s)?")
_INT: Final = re.compile(r"-?[0-9]{1,19}")


def tokens(line: str) -> list[str]:
    """The tokens of one line without its comment; a quoted part may hold spaces."""
    out = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        found = _TOKEN.match(line, at)
        if found is None:
            raise ValueError(f"a quote that does not close: {shown(line[at:])}")
        at = found.end()
        if found["comment"] is None:
            out.append(found[0])
    return out


def pair(token: str) -> tuple[str, str] | None:
    """`key=value` taken apart; None for a bare token."""
    found = None if token.startswith('"') else _PAIR.fullmatch(token)
    return None if found is None else (found[1], found[2])


def text(token: str) -> str:
    """A string value: plain, or quoted as in JSON."""
    if not token.startswith('"'):
        return token
    try:
        value = json.loads(token)
        str(value).encode()
    except (ValueError, UnicodeError):
        raise ValueError(f"{shown(token)} is not a quoted text as in JSON") from None
    return str(value)


def quoted(value: str) -> str:
    """The way back of `text`: plain where it can be."""
    return value if _PLAIN.fullmatch(value) and value.isprintable() else json.dumps(value)


def integer(token: str) -> int:
    """A whole number within 64 bits."""
    number = int(token) if _INT.fullmatch(token) else 2**63
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{shown(token)} is not a whole number")
    return number


def integers(token: str) -> tuple[int, ...]:
    """`1,2,3`; nothing is an empty list."""
    return tuple(integer(item) for item in token.split(",")) if token else ()


def duration(token: str) -> int:
    """`5ms`, `1.5s`, `250`: nanoseconds, exactly. Without a unit the number is nanoseconds."""
    found = _TIME.fullmatch(token)
    if found is None:
        raise ValueError(f"{shown(token)} is not a time such as 5ms (ns, us, ms, s)")
    sign, whole, fraction, unit = found.groups()
    scale = UNITS[unit or "ns"]
    digits = fraction or ""
    parts = int(digits or "0") * scale
    places = int(10 ** len(digits))
    if parts % places:
        raise ValueError(f"{shown(token)} is finer than a nanosecond")
    value = int(whole) * scale + parts // places
    value = -value if sign else value
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{shown(token)} does not fit 64 bits")
    return value


def duration_text(value: int) -> str:
    """The way back of `duration`, in the largest unit that stays whole."""
    for unit in ("s", "ms", "us"):
        if value and value % UNITS[unit] == 0:
            return f"{value // UNITS[unit]}{unit}"
    return str(value)


def option(key: str) -> tuple[str, str]:
    """Group and name of a profile option; the group may be left out where only one has that name."""
    group, dot, name = key.rpartition(".")
    if dot:
        if group not in GROUPS:
            raise ValueError(f"unknown option {shown(key)}{nearest(group, GROUPS)}")
        if name not in GROUPS[group].__dataclass_fields__:
            raise ValueError(f"unknown option {key}{nearest(name, GROUPS[group].__dataclass_fields__)}")
        return group, name
    homes = [group for group in GROUPS if name in GROUPS[group].__dataclass_fields__]
    if len(homes) > 1:
        raise ValueError(f"option {name} is ambiguous: {' or '.join(f'{home}.{name}' for home in homes)}")
    if not homes:
        every = [item for table in GROUPS.values() for item in table.__dataclass_fields__]
        raise ValueError(f"unknown option {shown(name)}{nearest(name, every)}")
    return homes[0], name


def option_value(group: str, name: str, token: str) -> Any:
    """The value of an option as JSON would hold it. The profile itself judges kind and range."""
    kind = GROUPS[group].__dataclass_fields__[name].metadata["kind"]
    if token.startswith(("{", "[")):
        return _json(token)
    if kind == "int":
        return duration(token) if name.endswith("_ns") else integer(token)
    if kind == "bool":
        return flag(token)
    if kind == "number":
        return _number(token)
    if kind == "ints":
        return list(integers(token))
    if kind == "lag" and _INT.fullmatch(token):
        return integer(token)
    if kind == "rates":
        return dict(_rates(token))
    if kind in ("word", "need", "lag"):
        return text(token)
    read = _number if kind == "weights" else integer
    return {key: read(value) for key, value in _entries(token)}


def option_text(value: Any) -> str:
    """The way back of `option_value`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and not _whole(value)):
        # Spaces only ever stand inside JSON strings here, where they may be escaped.
        return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def flag(token: str) -> bool:
    """`true` or `false`."""
    if token not in ("true", "false"):
        raise ValueError(f"{shown(token)} is neither true nor false")
    return token == "true"


def _whole(values: Any) -> bool:
    return bool(values) and all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _json(token: str) -> Any:
    try:
        return json.loads(token)
    except (ValueError, RecursionError):
        raise ValueError(f"{shown(token)} is not valid JSON without spaces") from None


def _number(token: str) -> float:
    if _INT.fullmatch(token):
        return int(token)
    if re.fullmatch(r"-?[0-9]{1,19}(\.[0-9]{1,30})?(e[-+]?[0-9]{1,2})?", token):
        return float(token)
    raise ValueError(f"{shown(token)} is not a number")


def _entries(token: str) -> Iterator[tuple[str, str]]:
    for item in token.split(","):
        key, colon, value = item.rpartition(":")
        if not colon:
            raise ValueError(f"{shown(item)} is not name:value")
        yield key, value


def _rates(token: str) -> Iterator[tuple[str, dict[str, int]]]:
    for key, value in _entries(token):
        requests, slash, per = value.partition("/")
        if not slash:
            raise ValueError(f"{shown(value)} is not requests/time, such as 5/60s")
        yield key, {"requests": integer(requests), "per_ns": duration(per)}
