"""The writer of one Parquet file: a temporary name until it is closed, one line for a full disk."""

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchspec.spec.errors import TraceError
from batchspec.traces.header import KEY, Header
from batchspec.traces.schema import is_string
from batchspec.traces.text import one_line

OPEN_SUFFIX: Final = ".open"
"""What an unfinished file is called behind its name; no reader looks at it."""


class Writer:
    """One open file of a schema. The header is written last, when it is known how things ended."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Create `path` under its temporary name. Raises `TraceError` where that is not possible."""
        self.rows = 0
        self._path = path
        self._open = path.with_name(path.name + OPEN_SUFFIX)
        words = [field.name for field in schema if is_string(field.type)]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._open, schema, compression="zstd", use_dictionary=words, write_page_checksum=True
            )
        except (OSError, pa.ArrowException) as error:
            raise cannot_write(path, error) from None

    def append(self, batch: pa.RecordBatch) -> None:
        """Write one row group."""
        try:
            self._writer.write_batch(batch)
        except (OSError, pa.ArrowException) as error:
            raise cannot_write(self._path, error) from None
        self.rows += batch.num_rows

    def close(self, header: Header) -> None:
        """Finish the file and give it its name."""
        try:
            self._writer.add_key_value_metadata({KEY: header.to_json().encode()})
            self._writer.close()
            os.replace(self._open, self._path)
        except (OSError, pa.ArrowException) as error:
            raise cannot_write(self._path, error) from None

    def discard(self) -> None:
        """Give the file up; nothing of it stays."""
        try:
            self._writer.close()
            self._open.unlink(missing_ok=True)
        except (OSError, pa.ArrowException) as error:
            raise cannot_write(self._path, error) from None


def cannot_write(path: Path, error: Exception) -> TraceError:
    """The error for a file or folder that takes no more."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return TraceError(f"{one_line(path)}: cannot be written ({one_line(reason)})")
