"""Parts: the Parquet file or the folder of `part-*.parquet` files behind a table, streamed.

Nothing here knows an event: parts are found in name order, held against each other, and read in
batches of at most `BATCH_ROWS` rows, so memory is bounded by the largest row group's pages. What
a file claims about its own size is checked before it is believed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchspec.spec.errors import TraceError
from batchspec.traces.header import KEY, Header
from batchspec.traces.normal import Place, wrong_type
from batchspec.traces.schema import IdType, accepts, is_string
from batchspec.traces.text import one_line

BATCH_ROWS: Final = 8192
MAGIC: Final = b"PAR1"
MAX_FOOTER: Final = 256 * 1024 * 1024
"""A larger footer is refused: it would be read and parsed whole, before the first row."""


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file: its rows, its columns' types, its header."""

    path: Path
    rows: int
    schema: pa.Schema
    header: Header | None


@contextmanager
def _reading(file: str) -> Iterator[None]:
    """Turn whatever a damaged file makes Arrow say into one line."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, EOFError) as error:
        raise TraceError(f"{file}: damaged, or not a Parquet file ({one_line(error)})") from None


def is_parquet(path: Path) -> bool:
    """Does the file begin as Parquet files do? Raises `TraceError` if it cannot be opened."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise TraceError(f"{one_line(path)}: {error.strerror or 'cannot be read'}") from None


def find_parts(path: Path) -> list[Path]:
    """The file itself, or the parts of a folder in name order. Raises `TraceError` if there is none."""
    name = one_line(path)
    try:
        if path.is_dir():
            found = sorted((item for item in path.glob("part-*.parquet") if item.is_file()), key=_number)
            if not found:
                raise TraceError(f"{name}: no part-*.parquet in this folder")
            return found
        if path.is_file():
            return [path]
        there = path.exists()
    except (OSError, ValueError) as error:
        raise TraceError(f"{name}: cannot be read ({one_line(error)})") from None
    raise TraceError(f"{name}: {'neither a file nor a folder' if there else 'no such file or folder'}")


def _number(path: Path) -> tuple[int, str]:
    # part-10 follows part-9 also where a writer did not pad; padded names sort the same either way.
    digits = path.stem.removeprefix("part-")
    return (int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1, path.name)


def _open(path: Path, words: Sequence[str] = ()) -> pq.ParquetFile:
    # No memory map: a file cut short while it is read must be an error, not a dead process.
    return pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False, read_dictionary=list(words))


def inspect(path: Path, columns: Sequence[str]) -> Part:
    """Read the footer of one part and check the types of the `columns` that it has."""
    name = one_line(path)
    _check_size(path, name)
    with _reading(name), _open(path) as file:
        metadata = file.metadata
        schema = file.schema_arrow
        rows = metadata.num_rows
        text = (metadata.metadata or {}).get(KEY)
    if rows < 0:
        raise TraceError(f"{name}: damaged: claims {rows} rows")
    for column in columns:
        found = schema.get_all_field_indices(column)
        if len(found) > 1:
            raise TraceError(f"{name}: column {column}: stands {len(found)} times; keep one")
        if found:
            kind = schema.field(found[0]).type
            if not pa.types.is_null(kind) and not accepts(column, kind):
                raise wrong_type(name, column, kind)
    try:
        header = None if text is None else Header.from_json(text)
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from None
    return Part(path, rows, schema, header)


def _check_size(path: Path, name: str) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(4)
            size = file.seek(0, 2)
            file.seek(max(0, size - 8))
            end = file.read(8)
    except OSError as error:
        raise TraceError(f"{name}: {error.strerror or 'cannot be read'}") from None
    if not size:
        raise TraceError(f"{name}: empty file; a trace is a Parquet file with at least one row")
    if start != MAGIC:
        raise TraceError(f"{name}: not a Parquet file")
    if size < 12 or end[4:] != MAGIC:
        raise TraceError(f"{name}: truncated: a Parquet file that does not end as one")
    footer = int.from_bytes(end[:4], "little")
    if footer > size - 12:
        raise TraceError(f"{name}: damaged: its footer would be larger than the file")
    if footer > MAX_FOOTER:
        raise TraceError(f"{name}: its footer has {footer} bytes; at most {MAX_FOOTER} are read")


class Parts:
    """All parts of one table, in order. `columns` are the known ones that the table may have."""

    def __init__(self, path: str | Path, columns: Sequence[str]) -> None:
        """Open the table at `path`; only footers are read. Raises `TraceError`."""
        self.path = one_line(path)
        self.parts = [inspect(part, columns) for part in find_parts(Path(path))]
        self.num_rows = sum(part.rows for part in self.parts)
        if not self.num_rows:
            raise TraceError(f"{self.path}: no rows at all; is the recording still to come?")
        self.columns = [name for name in columns if name in self.parts[0].schema.names]
        self.id_type = self._id_type()
        self._agree(columns)

    @property
    def header(self) -> Header | None:
        """The header of the last part, which alone knows whether the table is complete."""
        return self.parts[-1].header

    def _id_type(self) -> IdType | None:
        kinds: dict[IdType, Part] = {}
        for part in self.parts:
            if "request" in part.schema.names and not pa.types.is_null(part.schema.field("request").type):
                kinds.setdefault(str if is_string(part.schema.field("request").type) else int, part)
        if len(kinds) > 1:
            first, other = kinds.values()
            raise TraceError(
                f"{one_line(other.path)}: column request: not the type of ids that {first.path.name} has"
            )
        return next(iter(kinds), None)

    def _agree(self, columns: Sequence[str]) -> None:
        first = self.parts[0]
        for part in self.parts[1:]:
            name = one_line(part.path)
            for column in columns:
                if (column in part.schema.names) != (column in first.schema.names):
                    less, more = (part, first) if column in first.schema.names else (first, part)
                    raise TraceError(
                        f"{name}: another schema: {more.path.name} has a column {column}, "
                        f"{less.path.name} has not"
                    )
            if _identity(part.header) != _identity(first.header):
                raise TraceError(f"{name}: its header differs from that of {first.path.name}: another trace")

    def batches(
        self, columns: Sequence[str], first: int = 0, last: int | None = None
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """Batches of the named columns over the rows [first, last), each with its place."""
        end = self.num_rows if last is None else min(last, self.num_rows)
        at = 0
        for part in self.parts:
            if at >= end:
                return
            if at + part.rows > first:
                yield from _part_batches(part, columns, at, first, end)
            at += part.rows

    def present(self, column: str) -> bool:
        """Does the column have a value in any row? From the statistics, else from its values."""
        parts = [part for part in self.parts if column in part.schema.names]
        for part in parts:
            if pa.types.is_null(part.schema.field(column).type):
                continue
            told = _told(part, column)
            if told is None:
                told = any(
                    batch.column(0).null_count < batch.num_rows
                    for _, batch in _part_batches(part, [column], 0, 0, part.rows)
                )
            if told:
                return True
        return False


def _identity(header: Header | None) -> Any:
    if header is None:
        return None
    return (header.producer_name, header.clock, header.profile, header.config, header.started_at)


def _told(part: Part, column: str) -> bool | None:
    """What the statistics say about a column of plain values; None where they do not say."""
    if pa.types.is_nested(part.schema.field(column).type):
        return None
    name = one_line(part.path)
    with _reading(name), _open(part.path) as file:
        paths = [file.schema.column(index).path for index in range(len(file.schema))]
        leaf = paths.index(column)
        for group in range(file.metadata.num_row_groups):
            chunk = file.metadata.row_group(group).column(leaf)
            statistics = chunk.statistics
            if statistics is None or not statistics.has_null_count:
                return None
            if statistics.null_count < chunk.num_values:
                return True
    return False


def _part_batches(
    part: Part, columns: Sequence[str], at: int, first: int, end: int
) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """The batches of one part whose first row is row `at` of the table, cut to [first, end)."""
    name = one_line(part.path)
    words = [column for column in columns if is_string(part.schema.field(column).type)]
    with _reading(name), _open(part.path, words) as file:
        groups = []
        begin = row = at
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row + rows <= first:
                begin = row + rows
            elif row < end:
                groups.append(group)
            row += rows
        row = begin
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(columns)):
            low, high = max(first - row, 0), min(end - row, batch.num_rows)
            if low < high:
                yield Place(name, row + low), batch.slice(low, high - low)
            row += batch.num_rows
            if row >= end:
                return
        if row < min(end, at + part.rows):
            raise TraceError(f"{name}: damaged: claims {part.rows} rows, but row {row} is missing")
