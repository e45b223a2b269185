"""Heat: what each seat did in each stretch of steps, as shares, for a picture of the whole trace."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from batchspec.traces.seats import KIND_NAMES, Run

MOST_ROWS: Final = 256
MOST_STRETCHES: Final = 512
"""A picture with more rows or columns than this shows no more on a screen."""

_LEVELS: Final = 15


class Heat:
    """Counts the steps of each kind, by seat and stretch. Stretches double in width as the trace grows.

    Seats beyond the first `MOST_ROWS` that the trace uses are only counted.
    """

    def __init__(self) -> None:
        """Nobody sat anywhere."""
        self.width = 1
        self.rows: dict[int, int] = {}
        """Row of each seat, in order of first use."""
        self.left_out: set[int] = set()
        self._counts = np.zeros((8, MOST_STRETCHES, len(KIND_NAMES)), dtype=np.int64)

    def add(self, run: Run) -> None:
        """Take in one run."""
        row = self._row(run.seat)
        if row is None:
            return
        while run.last >= self.width * MOST_STRETCHES:
            self._merge()
        width, kind, counts = self.width, run.kind, self._counts[row]
        first, last = run.first // width, run.last // width
        if first == last:
            counts[first, kind] += run.last - run.first + 1
            return
        counts[first, kind] += (first + 1) * width - run.first
        counts[first + 1 : last, kind] += width
        counts[last, kind] += run.last - last * width + 1

    def levels(self, seats: Sequence[int], steps: int) -> bytes:
        """For each of `seats` and each stretch four levels of 0 to 15, one a kind, packed in two bytes.

        A level is the share of the stretch's steps, rounded up from 0: what happened at all shows.
        """
        stretches = -(-steps // self.width)
        widths = np.full(stretches, self.width)
        if stretches:
            widths[-1] = steps - (stretches - 1) * self.width
        counts = self._counts[[self.rows[seat] for seat in seats], :stretches]
        shares = np.clip(np.ceil(counts * _LEVELS / widths[None, :, None]), 0, _LEVELS).astype(np.uint8)
        packed: Any = np.stack(
            [shares[..., 0] | shares[..., 1] << 4, shares[..., 2] | shares[..., 3] << 4], axis=-1
        )
        return bytes(packed.tobytes())

    def _row(self, seat: int) -> int | None:
        row = self.rows.get(seat)
        if row is None:
            if len(self.rows) == MOST_ROWS:
                if len(self.left_out) < MOST_ROWS * 64:
                    self.left_out.add(seat)
                return None
            row = self.rows[seat] = len(self.rows)
            if row == len(self._counts):
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        return row

    def _merge(self) -> None:
        merged = self._counts[:, 0::2] + self._counts[:, 1::2]
        self._counts[:] = 0
        self._counts[:, : MOST_STRETCHES // 2] = merged
        self.width *= 2
