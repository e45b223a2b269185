"""JSON from strangers: one object a line, a whole document, or values one after the other.

Numbers with a point are `Decimal`, so that a time keeps all its digits. Sizes are bounded before
anything is built: a line by the reader of lines, a document and a value here.
"""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.importers.fields import Unusable
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import Make, filled_lines, kept
from batchspec.traces.text import one_line
from batchspec.traces.textfile import chunks

MAX_DOCUMENT: Final = 64 * 1024 * 1024
"""Longest document that is read whole, in characters."""

MAX_VALUES: Final = 4_000_000
"""Most values in such a document, by its commas and brackets: a few characters can become many bytes."""

MAX_VALUE: Final = 8 * 1024 * 1024
"""Longest of the values that stand one after the other."""

_CHUNK: Final = 1 << 18
_KEY: Final = re.compile(rb'"([^"\\]{1,80})"\s*:')
_SPACE: Final = re.compile(r"[\s,\[\]]*")


def _refused(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


# What `raw_decode` calls, without its detour: a value and the place behind it, or StopIteration.
_Scan = Callable[[str, int], tuple[Any, int]]
_exactly: Final[_Scan] = cast(Any, json.JSONDecoder(parse_float=Decimal, parse_constant=_refused)).scan_once
# Where a document is mostly numbers whose last digits do not matter, floats take a quarter of the memory.
_nearly: Final[_Scan] = cast(Any, json.JSONDecoder(parse_constant=_refused)).scan_once
_NO_JSON: Final = (ValueError, ArithmeticError, StopIteration)


def parsed(text: str) -> dict[str, Any]:
    """The JSON object that a line is. Raises `Unusable`."""
    value = _decoded(_exactly, text)
    if not isinstance(value, dict):
        raise Unusable("not a JSON object")
    return value


def nested(text: object, name: str) -> dict[str, Any]:
    """The JSON object that a text inside a JSON object holds. Raises `Unusable`."""
    if not isinstance(text, str):
        raise Unusable(f"{name} is no text")
    try:
        return parsed(text)
    except Unusable:
        raise Unusable(f"{name} holds no JSON object") from None


def json_lines(
    path: Path, make: Make[dict[str, Any]], log: ImportLog, ordered: str | None = None
) -> Iterator[Record]:
    """The records of a file with a JSON object a line; blank lines are nothing."""
    return kept(filled_lines(path), lambda index, text: make(index, parsed(text)), log, path, ordered)


def document(path: Path, floats: bool = False) -> dict[str, Any]:
    """A whole file as one JSON object. Raises `TraceError`."""
    name = one_line(path)
    pieces, size, values = [], 0, 0
    for piece in chunks(path, _CHUNK):
        pieces.append(piece)
        size += len(piece)
        values += piece.count(",") + piece.count("[") + piece.count("{")
        if size > MAX_DOCUMENT or values > MAX_VALUES:
            raise TraceError(f"{name}: too large for a document that is read whole; split it")
    try:
        value = _decoded(_nearly if floats else _exactly, "".join(pieces))
    except Unusable as problem:
        raise TraceError(f"{name}: {problem}") from None
    if not isinstance(value, dict):
        raise TraceError(f"{name}: not a JSON object")
    return value


def values(path: Path, log: ImportLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each JSON object that stands one after the other, or in one array.

    Takes lines, indented objects and arrays alike. Raises `TraceError` at the first that is not JSON;
    one that the end of the file cuts is dropped.
    """
    log.place = one_line(path)
    pieces = chunks(path, _CHUNK)
    text, at, line, wanted, ended = "", 0, 1, 0, False
    while True:
        begin = _after_space(text, at)
        line += text.count("\n", at, begin)
        at = begin
        log.line = line
        if at < len(text) and text[at] != "{":
            raise TraceError(f"{log.where}: not a JSON object")
        # Reading anew with every piece would take quadratic time: the next attempt waits for twice as much.
        if at < len(text) and (ended or len(text) - at >= wanted):
            value, end = _first(text, at)
            if value is not None:
                yield line, value
                line += text.count("\n", at, end)
                at, wanted = end, 0
                continue
        if ended:
            if at < len(text):
                log.drop("a JSON object that breaks off")
            return
        text, at = text[at:], 0
        if len(text) > MAX_VALUE:
            raise TraceError(f"{log.where}: not JSON, or an object of more than {MAX_VALUE} characters")
        wanted = 2 * len(text)
        piece = next(pieces, "")
        ended = not piece
        text += piece


@lru_cache(maxsize=2)
def keys_of(head: bytes) -> frozenset[str]:
    """The keys in the first line of a file of JSON; of all that was read, if that line is a bracket.

    Nested keys are among them. For telling formats apart, also where the line is longer than the head.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] not in (b"{", b"["):
        return frozenset()
    first = text.split(b"\n", 1)[0].strip()
    if len(first) > 2:
        text = first
    return frozenset(key.decode("utf-8", "replace") for key in _KEY.findall(text))


def _first(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    try:
        value, end = _exactly(text, at)
    except (*_NO_JSON, RecursionError):
        return None, 0
    return value, end


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _decoded(scan: _Scan, text: str) -> Any:
    text = text.strip()
    try:
        value, end = scan(text, 0)
    except RecursionError:
        raise Unusable("nested too deeply") from None
    except _NO_JSON:
        end = -1
    if end != len(text):
        raise Unusable("not JSON, or a line that breaks off")
    return value
