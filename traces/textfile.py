"""Text files from strangers: lines, CSV rows and whole texts, with their line numbers.

A line is bounded before it is read, so a file without line ends cannot fill the memory. UTF-8 with
or without a byte order mark, any line end, with or without one at the end of the file, plain or gzip.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

from batchspec.spec.errors import TraceError
from batchspec.traces.text import one_line

MAX_LINE: Final = 8 * 1024 * 1024
MAX_FIELD: Final = 4 * 1024 * 1024
GZIP: Final = b"\x1f\x8b"


def head(path: Path, size: int = 65_536) -> bytes:
    """The first bytes of a file, unpacked if it is gzip. Raises `TraceError` if it cannot be read."""
    with _reported(path), _binary(path) as file:
        return file.read(size)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line number (the first is 1) and line with its end. Raises `TraceError` for what is no text."""
    name = one_line(path)
    number = 0
    try:
        with _reported(path), _text(path) as file:
            while line := file.readline(MAX_LINE):
                number += 1
                if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                    raise TraceError(f"{name}: line {number}: longer than {MAX_LINE} characters")
                yield number, line
    except UnicodeDecodeError:
        raise TraceError(f"{name}: line {number + 1}: not UTF-8 text") from None


def chunks(path: Path, size: int) -> Iterator[str]:
    """The text of a file in pieces of at most `size` characters. Raises `TraceError` for what is no text."""
    try:
        with _reported(path), _text(path) as file:
            while piece := file.read(size):
                yield piece
    except UnicodeDecodeError:
        raise TraceError(f"{one_line(path)}: not UTF-8 text") from None


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each CSV row that is not blank, the header row included."""
    name = one_line(path)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD))
    reader = csv.reader((line for _, line in lines(path)), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise TraceError(f"{name}: line {reader.line_num}: not CSV ({error})") from None


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turns what the system says of a file into one line about it."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise TraceError(f"{one_line(path)}: a gzip file that is damaged or cut short") from None
    except OSError as error:
        raise TraceError(f"{one_line(path)}: {error.strerror or 'cannot be read'}") from None
    except ValueError as error:
        if isinstance(error, UnicodeError):
            raise
        raise TraceError(f"{one_line(path)}: cannot be read ({one_line(error)})") from None


@contextmanager
def _binary(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast("BinaryIO", unpacked)


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    with _binary(path) as file, TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        yield text
