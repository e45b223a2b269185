"""Buckets: figures of every step, kept for at most so many stretches of steps.

As long as the steps are few a bucket is one step. When they become too many, neighbours are merged and all
buckets are twice as wide: a million steps end as a few hundred buckets, without their number being known
before.
"""

from collections.abc import Sequence
from typing import Final

MOST_BUCKETS: Final = 1024


class Buckets:
    """Named columns over steps: sums of what each step adds, and peaks of what it reaches.

    A peak that was never known is None.
    """

    def __init__(self, sums: Sequence[str], peaks: Sequence[str], most: int = MOST_BUCKETS) -> None:
        """No step so far; at most `most` buckets."""
        self.width = 1
        self.steps = 0
        self._most = most
        self._sums: dict[str, list[float]] = {name: [] for name in sums}
        self._peaks: dict[str, list[float | None]] = {name: [] for name in peaks}
        self._sum_lists = list(self._sums.values())
        self._peak_lists = list(self._peaks.values())

    def __len__(self) -> int:
        """Buckets in use."""
        return -(-self.steps // self.width)

    def add(self, sums: Sequence[float], peaks: Sequence[float | None]) -> None:
        """The next step's figures, in the order of the columns."""
        if self.steps == self.width * self._most:
            self._merge()
        if self.steps % self.width == 0:
            for total, value in zip(self._sum_lists, sums, strict=True):
                total.append(value)
            for peak, most in zip(self._peak_lists, peaks, strict=True):
                peak.append(most)
        else:
            for total, value in zip(self._sum_lists, sums, strict=True):
                total[-1] += value
            for peak, most in zip(self._peak_lists, peaks, strict=True):
                last = peak[-1]
                if last is None or (most is not None and most > last):
                    peak[-1] = most
        self.steps += 1

    def sums(self, name: str) -> list[float]:
        """One column, a value a bucket."""
        return list(self._sums[name])

    def means(self, name: str) -> list[float]:
        """One column of sums, each divided by the steps of its bucket."""
        width, rest = self.width, self.steps % self.width
        values = [value / width for value in self._sums[name]]
        if rest and values:
            values[-1] = self._sums[name][-1] / rest
        return values

    def peaks(self, name: str) -> list[float | None]:
        """The largest value of each bucket, None where no step of it has one."""
        return list(self._peaks[name])

    def _merge(self) -> None:
        for total in self._sum_lists:
            total[:] = [sum(total[at : at + 2]) for at in range(0, len(total), 2)]
        for peak in self._peak_lists:
            peak[:] = [_larger(peak[at : at + 2]) for at in range(0, len(peak), 2)]
        self.width *= 2


def _larger(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
