"""Recording without losing: parts that rotate, and a journal of the part that is still open.

A Parquet file cannot be read until it is closed. So what goes into the open part also goes into a
journal beside it, flush by flush: `part-00003.journal` for `part-00003.parquet`, `run.parquet.journal`
for `run.parquet`. The journal goes away when its part is closed. After a `kill -9` it is what a reader
finds, and nothing but the last flush is lost.

A journal is a row of frames: `BSJ1`, CRC-32 of the payload, its length (both little-endian), payload.
The first payload is the trace's header as JSON, each other one an Arrow IPC stream of rows. Reading
stops at the first frame that is not whole: that is where the recorder died.
"""

import atexit
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import pyarrow as pa

from batchspec.spec.errors import TraceError
from batchspec.traces.header import Header
from batchspec.traces.text import one_line
from batchspec.traces.writer import Writer, cannot_write

SUFFIX: Final = ".journal"
MAGIC: Final = b"BSJ1"
FRAME: Final = struct.Struct("<4sIQ")
MAX_FRAME: Final = 256 * 1024 * 1024
"""A longer frame is taken for damage: a recorder's flushes are far smaller."""


class JournaledRecorder:
    """Writes record batches into a trace that survives the recorder's death.

    One file where `path` ends in `.parquet`, else a folder of parts. Rows are taken as they are: they
    come from a recorder's own columns, not from a stranger. Raises `TraceError` where the disk takes
    no more; what was written until then stays readable.
    """

    def __init__(
        self,
        path: str | Path,
        header: Header,
        *,
        rows_per_part: int = 1_000_000,
        rows_per_group: int = 65_536,
        sync: bool = False,
        overwrite: bool = False,
    ) -> None:
        """`sync` forces each flush to the disk: then a power cut loses no more than a kill does."""
        self.path = Path(path)
        self.header = header
        self.rows = 0
        """Rows taken so far."""
        self._single = self.path.suffix == ".parquet"
        self._rows_per_part = 2**63 if self._single else rows_per_part
        self._rows_per_group = rows_per_group
        self._sync = sync
        self._parts = 0
        self._writer: Writer | None = None
        self._journal: BinaryIO | None = None
        self._group: list[pa.RecordBatch] = []
        self._held = 0
        self._closed = False
        self._open_path: Path | None = None
        self.journaled = 0
        """Bytes in the journal of the open part."""
        self._prepare(overwrite)

    def __enter__(self) -> "JournaledRecorder":
        """The recorder itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; a trace left by an exception is not complete."""
        self.close(complete=kind is None)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Take rows of the trace's schema; when this returns they are safe from a `kill -9`."""
        if self._closed:
            raise TraceError(f"{one_line(self.path)}: the recorder is closed; nothing can be added")
        if self._writer is not None and self._writer.rows + self._held >= self._rows_per_part:
            self._finish(complete=False)
        if self._writer is None:
            self._begin(batch.schema)
        self._append(_stream(batch))
        self.rows += batch.num_rows
        self._group.append(batch)
        self._held += batch.num_rows
        if self._held >= self._rows_per_group:
            self._write_group()

    def end_part(self) -> Path | None:
        """Close the open part, if there is one; what follows begins another, with `header` as it is then."""
        path = self._open_path if self._writer is not None else None
        self._finish(complete=False)
        return path

    def close(self, complete: bool = True) -> None:
        """Close the open part; from then on the trace says whether it is complete."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None or self._journal is not None:
            self._finish(complete)

    def _prepare(self, overwrite: bool) -> None:
        try:
            folder = self.path.parent if self._single else self.path
            folder.mkdir(parents=True, exist_ok=True)
            old = [self.path, _journal_of(self.path)] if self._single else _files(self.path)
            for file in old:
                if file.exists():
                    if not overwrite and not self._single:
                        raise TraceError(
                            f"{one_line(self.path)}: this folder already holds parts of a trace;"
                            " choose another folder"
                        )
                    file.unlink()
        except OSError as error:
            raise cannot_write(self.path, error) from None

    def _begin(self, schema: pa.Schema) -> None:
        path = self.path if self._single else self.path / f"part-{self._parts:05}.parquet"
        self._parts += 1
        self._open_path = path
        self.journaled = 0
        try:
            self._journal = _journal_of(path).open("wb", buffering=0)
        except OSError as error:
            raise cannot_write(_journal_of(path), error) from None
        self._append(replace(self.header, complete=False).to_json().encode())
        self._writer = Writer(path, schema)

    def _append(self, payload: bytes | pa.Buffer) -> None:
        if self._journal is None:
            return
        try:
            view = memoryview(payload)
            frame = FRAME.pack(MAGIC, zlib.crc32(view), len(view)) + view
            at = 0
            while at < len(frame):
                at += self._journal.write(frame[at:])
            self.journaled += len(frame)
            if self._sync:
                os.fsync(self._journal.fileno())
        except OSError as error:
            raise cannot_write(Path(self._journal.name), error) from None

    def _write_group(self) -> None:
        group, self._group, self._held = self._group, [], 0
        if group and self._writer is not None:
            self._writer.append(pa.concat_batches(group))

    def _finish(self, complete: bool) -> None:
        journal, self._journal = self._journal, None
        try:
            self._write_group()
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close(replace(self.header, complete=complete))
        finally:
            if journal is not None:
                journal.close()
        if journal is not None:  # only now: until the part has its name the journal is all there is
            Path(journal.name).unlink(missing_ok=True)


def read_journal(path: Path) -> tuple[Header | None, Iterator[pa.RecordBatch]]:
    """The header and the rows of a journal, streamed up to the first frame that is not whole."""
    frames = _frames(path)
    first = next(frames, None)
    try:
        header = None if first is None else Header.from_json(first)
    except TraceError:
        return None, iter(())
    return header, _batches(frames)


def _batches(frames: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    schema: pa.Schema | None = None
    for payload in frames:
        try:
            found = pa.ipc.open_stream(payload).read_all().to_batches()
            for batch in found:
                batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError):
            return
        for batch in found:
            schema = schema or batch.schema
            if batch.schema != schema:
                return
            yield batch


def left_behind(path: Path) -> list[Path]:
    """Readable copies of the parts that a dead (or still living) recorder has only in its journal.

    `path` is a trace's file or folder. The copies are Parquet files in a scratch folder that goes
    away with the process; nothing is written beside the trace, which its recorder may still hold.
    """
    journals = sorted(path.glob(f"part-*{SUFFIX}")) if path.is_dir() else [_journal_of(path)]
    copies = []
    for journal in journals:
        part = journal.with_suffix(".parquet") if path.is_dir() else path
        if journal.is_file() and not part.exists():
            copy = _copy(journal, part.name)
            if copy is not None:
                copies.append(copy)
    return copies


_COPIES: Final[dict[tuple[str, int], Path]] = {}
"""Copies made so far, by journal and size: a journal that has not grown is copied once."""


def _copy(journal: Path, name: str) -> Path | None:
    key = (str(journal), journal.stat().st_size)
    if key in _COPIES:
        return _COPIES[key]
    header, batches = read_journal(journal)
    first = next(batches, None)
    if first is None:
        return None
    scratch = tempfile.mkdtemp(prefix="batchspec-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    path = Path(scratch) / name
    writer = Writer(path, first.schema)
    for batch in chain([first], batches):
        writer.append(batch)
    writer.close(replace(header or Header(), complete=False))
    _COPIES[key] = path
    return path


def _frames(path: Path) -> Iterator[bytes]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            while True:
                start = file.read(FRAME.size)
                if len(start) < FRAME.size:
                    return
                magic, checksum, length = FRAME.unpack(start)
                if magic != MAGIC or length > min(MAX_FRAME, size - file.tell()):
                    return
                payload = file.read(length)
                if len(payload) < length or zlib.crc32(payload) != checksum:
                    return
                yield payload
    except OSError as error:
        raise TraceError(f"{one_line(path)}: {error.strerror or 'cannot be read'}") from None


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def is_part(path: Path) -> bool:
    """Whether a file of a folder is a part of a trace, or the journal of one."""
    return path.name.startswith("part-") and path.suffix in (".parquet", SUFFIX)


def _journal_of(path: Path) -> Path:
    """`part-00000.journal` for a part of a folder, `run.parquet.journal` for a single file."""
    return path.with_suffix(SUFFIX) if path.name.startswith("part-") else path.with_name(path.name + SUFFIX)


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("part-*.parquet"), *folder.glob(f"part-*{SUFFIX}")])
