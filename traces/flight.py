"""The flight recorder: a trace that is always running and never grows beyond what is kept.

A folder of parts as of any other recorder. Each part begins with a `live` row for each request that was
live then, so the parts that are left can be checked when older ones have been dropped: a reader takes
those rows of the first part that it finds and passes over them in the others (`live_rows` in the header
says how many they are). `save` copies what is there, for the moment when something has gone wrong.
"""

import re
import shutil
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from batchspec.spec.errors import TraceError
from batchspec.traces.header import LIVE_ROWS, Header
from batchspec.traces.journal import JournaledRecorder, is_part
from batchspec.traces.text import one_line, shown
from batchspec.traces.writer import cannot_write

_UNITS: Final = {
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_PARTS: Final = 8
"""Into how many parts what is kept is divided: so much of it is there at least, (n - 1) / n."""

SECONDS_PER_PART: Final = 600
BYTES_PER_PART: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Keep:
    """How much is kept: the last `ns` nanoseconds, or the last `size` bytes; both: whichever is less."""

    ns: int | None = None
    size: int | None = None

    @classmethod
    def of(cls, text: str) -> "Keep":
        """`30min`, `2GiB` or both, `2h 4GiB`. Units are s, min, h, MiB, GiB. Raises `TraceError`."""
        ns = size = None
        for word in text.split():
            found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(s|min|h|MiB|GiB)", word)
            amount = int(float(found[1]) * _UNITS[found[2]]) if found else 0
            if found is None or amount < 1:
                raise TraceError(f"keep {shown(word)}: write how much as 30min, 2h, 500MiB or 4GiB")
            if found[2].endswith("iB"):
                size = amount
            else:
                ns = amount
        return cls(ns, size)

    @property
    def part_ns(self) -> int:
        """How long a part is at most."""
        longest = SECONDS_PER_PART * 10**9
        return longest if self.ns is None else max(1, min(longest, self.ns // _PARTS))

    @property
    def part_size(self) -> int:
        """How many bytes a part's journal has at most. (The closed part is smaller.)"""
        return BYTES_PER_PART if self.size is None else max(1, min(BYTES_PER_PART, self.size // _PARTS))


@dataclass(frozen=True, slots=True)
class _Closed:
    path: Path
    ended_ns: int
    size: int


class FlightRecorder:
    """Records batches into a folder and drops its oldest parts. Times are the caller's, monotonic, in ns.

    A folder that holds parts of an earlier run is refused, as by every recorder. Raises `TraceError` where
    the disk takes no more; what was written until then stays readable.
    """

    def __init__(
        self, path: str | Path, header: Header, keep: Keep | None = None, *, sync: bool = False
    ) -> None:
        """`keep` None drops nothing. Nothing is live before the first batch."""
        self.path = Path(path)
        self.keep = keep or Keep()
        self._header = header
        self._recorder = JournaledRecorder(path, header, rows_per_part=2**62, sync=sync)
        self._closed: deque[_Closed] = deque()
        self._began_ns: int | None = None
        self.dropped = 0
        """Parts dropped so far."""

    @property
    def rows(self) -> int:
        """Rows taken so far, dropped ones and repeated `live` rows included."""
        return self._recorder.rows

    def write_batch(self, batch: pa.RecordBatch, now_ns: int) -> None:
        """Take rows; when this returns they are safe from a `kill -9`."""
        if self._began_ns is None:
            self._began_ns = now_ns
        self._recorder.write_batch(batch)

    def due(self, now_ns: int) -> bool:
        """Whether the open part is long enough: it is time to call `begin_part`."""
        began = self._began_ns
        if began is None:
            return False
        return now_ns - began >= self.keep.part_ns or self._recorder.journaled >= self.keep.part_size

    def begin_part(self, live: pa.RecordBatch, now_ns: int) -> None:
        """Close the open part and begin another with `live`, one row for each request that is live now.

        To be called between two steps: the part before ends with a `step` row.
        """
        self._end_part(now_ns)
        more = {**self._header.extra, LIVE_ROWS: live.num_rows}
        self._recorder.header = replace(self._header, begins="running", extra=more)
        self._began_ns = now_ns
        if live.num_rows:
            self.write_batch(live, now_ns)
        self._drop(now_ns)

    def close(self, complete: bool = True) -> None:
        """Close the open part. The trace is complete if nobody is live, and never where parts are gone."""
        self._recorder.close(complete)

    def save(self, folder: str | Path) -> list[Path]:
        """Copy the parts that are left, the open one's journal included, into an empty or new folder.

        Returns the copies, oldest first: a trace that can be checked. Raises `TraceError`.
        """
        target = Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if any(is_part(found) for found in target.iterdir()):
                raise TraceError(
                    f"{one_line(target)}: this folder already holds parts of a trace; choose another folder"
                )
            found = sorted(item for item in self.path.iterdir() if is_part(item))
            return [Path(shutil.copy2(item, target / item.name)) for item in found]
        except OSError as error:
            raise cannot_write(target, error) from None

    def _end_part(self, now_ns: int) -> None:
        path = self._recorder.end_part()
        if path is not None:
            self._closed.append(_Closed(path, now_ns, path.stat().st_size))

    def _drop(self, now_ns: int) -> None:
        keep = self.keep
        size = sum(part.size for part in self._closed)
        while self._closed:
            oldest = self._closed[0]
            old = keep.ns is not None and now_ns - oldest.ended_ns >= keep.ns
            # Room is left for the part that is now open.
            large = keep.size is not None and size + keep.part_size > keep.size
            if not (old or large):
                return
            self._closed.popleft()
            size -= oldest.size
            oldest.path.unlink(missing_ok=True)
            self.dropped += 1
