"""The request table: one row a request, as a workload to replay or as the L0 records of a run."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from batchspec.spec.errors import TraceError
from batchspec.spec.events import RequestId
from batchspec.spec.records import RECORD_COLUMNS, Record
from batchspec.traces.header import Header
from batchspec.traces.normal import Place, no_nulls, normal
from batchspec.traces.parts import Parts, find_parts, is_parquet
from batchspec.traces.rows import batch_of, tuples
from batchspec.traces.schema import SIGNED, WORKLOAD_SCHEMA, IdType, family, with_ids
from batchspec.traces.text import one_line, shown
from batchspec.traces.textfile import csv_rows
from batchspec.traces.writer import OPEN_SUFFIX, Writer, cannot_write

ROWS_PER_GROUP: Final = 65_536
ROWS_PER_PIECE: Final = 8_192
_INT: Final = re.compile(r"-?[0-9]{1,19}")
_ID: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")


class Source(Protocol):
    """Where the records of a table come from."""

    num_rows: int
    id_type: IdType | None

    def columns(self) -> frozenset[str]:
        """Columns with at least one value."""

    def records(self, first: int, last: int | None) -> Iterator[Record]:
        """The rows [first, last) in order."""


class RecordTable:
    """Requests in order, streamed. Reading raises `TraceError` at the first row that is no request."""

    def __init__(self, path: str, header: Header | None, source: Source) -> None:
        """Use `read_records` or `RecordTable.from_records`."""
        self.path = path
        self.header = header
        self._source = source

    @classmethod
    def from_records(
        cls, records: Sequence[Record], header: Header | None = None, path: str = "<memory>"
    ) -> "RecordTable":
        """A table of records that are at hand."""
        return cls(path, header, _Memory(records))

    @property
    def num_rows(self) -> int:
        """Requests in all."""
        return self._source.num_rows

    @property
    def id_type(self) -> IdType | None:
        """`str` or `int`: what request ids are. A table without the column has row numbers."""
        return self._source.id_type

    @property
    def complete(self) -> bool:
        """Did the producer say that nothing follows?"""
        return self.header is not None and self.header.complete

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that exist and are not all null."""
        return self._source.columns()

    def records(self, first: int = 0, last: int | None = None) -> Iterator[Record]:
        """The records of the rows [first, last), in order; `last` None is the end."""
        return self._source.records(first, last)

    def workload(self) -> Iterator[Record]:
        """The records as a workload: both lengths are known, and `max_tokens` is never null.

        Raises `TraceError` for a request without a prompt or without an output, which no engine can run.
        """
        for row, record in enumerate(self.records()):
            for column in ("prompt_tokens", "output_tokens"):
                if not getattr(record, column):
                    found = "null" if getattr(record, column) is None else "0"
                    raise TraceError(
                        f"{self.path}: row {row}: column {column}: {found}; to replay a request, "
                        "its prompt and its output must have at least one token"
                    )
            limit = record.output_tokens if record.max_tokens is None else record.max_tokens
            yield record._replace(max_tokens=limit)


def read_records(path: str | Path) -> RecordTable:
    """Open a request table: Parquet (one file or parts), or CSV with the same column names.

    Raises `TraceError`, one line that names the file and the column or row at fault.
    """
    path = Path(path)
    parquet = path.is_dir() or path.suffix == ".parquet" or is_parquet(find_parts(path)[0])
    if not parquet:
        return RecordTable(one_line(path), None, _Csv(path))
    parts = Parts(path, RECORD_COLUMNS)
    if "arrival_ns" not in parts.columns:
        raise TraceError(f"{parts.path}: column arrival_ns: missing; a request table needs it in every row")
    return RecordTable(parts.path, parts.header, _Files(parts))


def write_records(
    path: str | Path, records: Iterable[Record], header: Header | Callable[[], Header] | None = None
) -> int:
    """Write a request table as it streams by; `.csv` gives CSV, else Parquet. Returns the rows.

    A header that is known only once the records are is given as a function. A CSV has no header and
    writes a list as numbers with spaces between. The file appears under its name only when it is
    whole. Raises `TraceError` for a record the table cannot hold.
    """
    path = Path(path)
    stream = iter(records)
    if path.suffix.lower() == ".csv":
        return _write_csv(path, stream)
    first = list(islice(stream, 1))
    id_type: IdType = int if first and isinstance(first[0].request, int) else str
    schema = with_ids(WORKLOAD_SCHEMA, id_type)
    name = one_line(path)
    writer = Writer(path, schema)
    try:
        rows = chain(first, stream)
        while pieces := list(_pieces(islice(rows, ROWS_PER_GROUP), schema, writer.rows, name)):
            group = pa.Table.from_batches(pieces).combine_chunks().to_batches(ROWS_PER_GROUP)[0]
            _checked(dict(zip(RECORD_COLUMNS, group.columns, strict=True)), id_type, Place(name, writer.rows))
            writer.append(group)
        said = header() if callable(header) else header or Header(complete=True)
    except BaseException:
        writer.discard()
        raise
    writer.close(said)
    return writer.rows


def _pieces(rows: Iterator[Record], schema: pa.Schema, first: int, name: str) -> Iterator[pa.RecordBatch]:
    """A row group in pieces: of rows with long lists, few are held as Python objects at a time."""
    while chunk := list(islice(rows, ROWS_PER_PIECE)):
        yield batch_of(chunk, schema, first, name)
        first += len(chunk)


def _checked(columns: dict[str, pa.Array], id_type: IdType | None, place: Place) -> dict[str, pa.Array]:
    out = {name: normal(name, values, id_type, place) for name, values in columns.items()}
    no_nulls("request", out["request"], place)
    no_nulls("arrival_ns", out["arrival_ns"], place)
    return out


class _Files:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.num_rows = parts.num_rows
        self._numbered = "request" not in parts.columns
        self.id_type: IdType | None = int if self._numbered else parts.id_type

    def columns(self) -> frozenset[str]:
        return self._parts.present()

    def records(self, first: int, last: int | None) -> Iterator[Record]:
        for place, batch in self._parts.batches(self._parts.columns, first, last):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            if self._numbered:
                columns["request"] = pa.array(range(place.row, place.row + batch.num_rows), pa.int64())
            yield from tuples(Record, RECORD_COLUMNS, _checked(columns, self.id_type, place), batch.num_rows)


class _Memory:
    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.num_rows = len(records)
        first = records[0].request if records else None
        self.id_type: IdType | None = None if first is None else int if isinstance(first, int) else str

    def columns(self) -> frozenset[str]:
        by_column = (
            zip(RECORD_COLUMNS, zip(*self._records, strict=True), strict=True) if self._records else ()
        )
        return frozenset(name for name, values in by_column if values.count(None) < self.num_rows)

    def records(self, first: int, last: int | None) -> Iterator[Record]:
        return islice(self._records, first, last)


class _Csv:
    """A CSV file. One pass ahead finds its columns, its rows, and whether all ids are integers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = one_line(path)
        rows = csv_rows(path)
        self._names = next(rows, (0, []))[1]
        if "arrival_ns" not in self._names:
            raise TraceError(f"{self._name}: column arrival_ns: missing in the first line")
        for column in RECORD_COLUMNS:
            if self._names.count(column) > 1:
                raise TraceError(f"{self._name}: column {column}: stands more than once; keep one")
        self.num_rows = 0
        filled: set[str] = set()
        integers = True
        identity = self._names.index("request") if "request" in self._names else None
        for number, row in rows:
            self._fits(number, row)
            self.num_rows += 1
            if len(filled) < len(self._names):
                filled.update(name for name, text in zip(self._names, row, strict=True) if text)
            if identity is not None and integers:
                integers = _ID.fullmatch(row[identity]) is not None
        if not self.num_rows:
            raise TraceError(f"{self._name}: no rows at all")
        self._columns = frozenset(filled & set(RECORD_COLUMNS))
        self.id_type: IdType | None = int if integers else str

    def _fits(self, number: int, row: list[str]) -> None:
        if len(row) != len(self._names):
            raise TraceError(
                f"{self._name}: line {number}: {len(row)} fields, but the first line names {len(self._names)}"
            )

    def columns(self) -> frozenset[str]:
        return self._columns

    def records(self, first: int, last: int | None) -> Iterator[Record]:
        rows = csv_rows(self._path)
        next(rows, None)
        where = [self._names.index(name) if name in self._names else None for name in RECORD_COLUMNS]
        for index, (number, row) in enumerate(islice(rows, first, last), first):
            self._fits(number, row)
            values = [
                None if at is None else self._value(name, row[at], number)
                for name, at in zip(RECORD_COLUMNS, where, strict=True)
            ]
            if where[0] is None:
                values[0] = index
            if values[0] is None or values[1] is None:
                column = "request" if values[0] is None else "arrival_ns"
                raise TraceError(f"{self._name}: line {number}: column {column}: empty")
            yield Record._make(values)

    def _value(self, column: str, text: str, number: int) -> Any:
        if not text:
            return None
        what = family(column)
        if what == "word":
            return text
        if what == "id":
            return self._integer(column, text, number) if self.id_type is int else text
        if what == "ints":
            return tuple(self._integer(column, item, number) for item in text.split())
        value = self._integer(column, text, number)
        if value < 0 and column not in SIGNED:
            raise TraceError(f"{self._name}: line {number}: column {column}: {value} is negative")
        return value

    def _integer(self, column: str, text: str, number: int) -> int:
        value = int(text) if _INT.fullmatch(text) else 2**63
        if not -(2**63) <= value < 2**63:
            raise TraceError(
                f"{self._name}: line {number}: column {column}: {shown(text)} is not a whole number"
            )
        return value


def _write_csv(path: Path, records: Iterator[Record]) -> int:
    partial = path.with_name(path.name + OPEN_SUFFIX)
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            # The csv module leaves a carriage return bare where rows end in a plain newline.
            quoting = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
            writer.writerow(RECORD_COLUMNS)
            for record in records:
                row = [_csv_text(value) for value in record]
                (quoting if any("\r" in text for text in row) else writer).writerow(row)
                count += 1
        partial.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return count


def _csv_text(value: RequestId | tuple[int, ...] | None) -> str:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
