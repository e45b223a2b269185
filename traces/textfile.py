"""Text files from strangers: lines and CSV rows, streamed, with their line numbers.

A line is bounded before it is read, so a file without line ends cannot fill the memory. UTF-8 with
or without a byte order mark, any line end, with or without one at the end of the file.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.errors import TraceError
from batchspec.traces.text import one_line

MAX_LINE: Final = 8 * 1024 * 1024
MAX_FIELD: Final = 4 * 1024 * 1024


def head(path: Path, size: int = 65_536) -> bytes:
    """The first bytes of a file. Raises `TraceError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise TraceError(f"{one_line(path)}: {error.strerror or 'cannot be read'}") from None


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line number (the first is 1) and line with its end. Raises `TraceError` for what is no text."""
    name = one_line(path)
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            while line := file.readline(MAX_LINE):
                number += 1
                if len(line) == MAX_LINE and not line.endswith(("\n", "\r")):
                    raise TraceError(f"{name}: line {number}: longer than {MAX_LINE} characters")
                yield number, line
    except UnicodeDecodeError:
        raise TraceError(f"{name}: line {number + 1}: not UTF-8 text") from None
    except OSError as error:
        raise TraceError(f"{name}: {error.strerror or 'cannot be read'}") from None


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
