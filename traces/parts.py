"""Parts: the Parquet file or the folder of `part-*.parquet` files behind a table, streamed.

Nothing here knows an event: parts are found in name order, held against each other, and read in
batches of at most `BATCH_ROWS` rows, so memory is bounded by the largest row group's pages. What
a file claims about its own size is checked before it is believed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchspec.spec.errors import TraceError
from batchspec.traces.header import KEY, Header
from batchspec.traces.journal import left_behind
from batchspec.traces.normal import Place, wrong_type
from batchspec.traces.schema import IdType, accepts, is_string
from batchspec.traces.text import one_line

BATCH_ROWS: Final = 8192
MAGIC: Final = b"PAR1"
MAX_FOOTER: Final = 128 * 1024 * 1024
"""A larger footer is refused: it would be read and parsed whole, before the first row."""


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file: its rows, its columns' types, its header.

    `repeated` rows at its beginning are passed over: `live` rows behind an earlier part.
    """

    path: Path
    rows: int
    schema: pa.Schema
    header: Header | None
    repeated: int = 0


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
    """The file itself, or the parts of a folder in name order, journals of a dead recorder included.

    Raises `TraceError` if there is none.
    """
    name = one_line(path)
    try:
        if path.is_dir():
            found = [item for item in path.glob("part-*.parquet") if item.is_file()]
            found = sorted([*found, *left_behind(path)], key=_number)
            if not found:
                raise TraceError(f"{name}: no part-*.parquet in this folder")
            return found
        if path.is_file():
            return [path]
        if copies := left_behind(path):
            return copies
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
    return pq.ParquetFile(
        path,
        buffer_size=1 << 16,
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=list(words),
    )


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
        first, *others = [inspect(part, columns) for part in find_parts(Path(path))]
        self.parts = [first, *map(_later, others)]
        self.num_rows = sum(part.rows for part in self.parts)
        if not self.num_rows:
            raise TraceError(f"{self.path}: no rows at all; is the recording still to come?")
        self.columns = [name for name in columns if name in self.parts[0].schema.names]
        self.id_type = self._id_type()
        self._agree(columns)

    @property
    def header(self) -> Header | None:
        """The header of the last part, which alone knows whether the table is complete.

        How the table begins is what its first part says.
        """
        first, last = self.parts[0].header, self.parts[-1].header
        return last if first is None or last is None else replace(last, begins=first.begins)

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
        self, columns: Sequence[str], first: int = 0, last: int | None = None, rows: int = BATCH_ROWS
    ) -> Iterator[tuple[Place, pa.RecordBatch]]:
        """Batches of the named columns over the rows [first, last), each with its place.

        A batch has at most `rows` rows.
        """
        end = self.num_rows if last is None else min(last, self.num_rows)
        at = 0
        for part in self.parts:
            if at >= end:
                return
            if at + part.rows > first:
                yield from _part_batches(part, columns, at, first, end, rows)
            at += part.rows

    def present(self) -> frozenset[str]:
        """The known columns with a value in any row."""
        found: set[str] = set()
        for part in self.parts:
            found |= _filled(part, [column for column in self.columns if column not in found])
        return frozenset(found)


def _later(part: Part) -> Part:
    """A part behind another: the requests that were live when it began are known by then."""
    told = 0 if part.header is None else part.header.live_rows
    if told > part.rows:
        raise TraceError(f"{one_line(part.path)}: damaged: {told} live rows of {part.rows}")
    return replace(part, rows=part.rows - told, repeated=told)


def _identity(header: Header | None) -> Any:
    if header is None:
        return None
    return (header.producer_name, header.clock, header.profile, header.config, header.started_at)


def _filled(part: Part, columns: Sequence[str]) -> set[str]:
    """The columns with a value, by looking: the first batch settles most, a null column is quick to read.

    The statistics would say so at once, but asking pyarrow for those of a damaged file can end the process.
    """
    left = [column for column in columns if not pa.types.is_null(part.schema.field(column).type)]
    found: set[str] = set()
    with _reading(one_line(part.path)), _open(part.path) as file:
        for batch in islice(file.iter_batches(BATCH_ROWS, columns=left), 1):
            found = {column for column in left if batch.column(column).null_count < batch.num_rows}
        for column in left:
            if column not in found:
                batches = file.iter_batches(BATCH_ROWS, columns=[column])
                if any(batch.column(column).null_count < batch.num_rows for batch in batches):
                    found.add(column)
    return found


def _part_batches(
    part: Part, columns: Sequence[str], at: int, first: int, end: int, rows: int
) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """The batches of one part whose first row is row `at` of the table, cut to [first, end)."""
    name = one_line(part.path)
    words = [column for column in columns if is_string(part.schema.field(column).type)]
    with _reading(name), _open(part.path, words) as file:
        first = max(first, at)
        group, row = _skip(file, first, at - part.repeated)
        groups = range(group, file.num_row_groups)
        for batch in _joined(file.iter_batches(rows, row_groups=groups, columns=list(columns)), rows):
            low, high = max(first - row, 0), min(end - row, batch.num_rows)
            if low < high:
                yield Place(name, row + low), batch.select(columns).slice(low, high - low)
            row += batch.num_rows
            if row >= end:
                return
        if row < min(end, at + part.rows):
            raise TraceError(f"{name}: damaged: claims {part.rows} rows, but row {row} is missing")


def _skip(file: pq.ParquetFile, first: int, row: int) -> tuple[int, int]:
    """The first row group with a row at or behind `first`, and the row at which it begins."""
    group = 0
    while row < first and group < file.num_row_groups:
        # Without columns only the metadata is read; pyarrow's own metadata objects trust a damaged file.
        rows = file.read_row_group(group, columns=[]).num_rows
        if row + rows > first:
            break
        row += rows
        group += 1
    return group, row


def _joined(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Small batches put together: a file of tiny row groups would else pay the price of each."""
    few: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if few and rows + batch.num_rows > most:
            yield _one(few)
            few, rows = [], 0
        few.append(batch)
        rows += batch.num_rows
    if few:
        yield _one(few)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(list(chunks)) for chunks in zip(*(b.columns for b in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
