"""Detail: runs one by one, as many as a page can hold; of a longer trace the stretches that matter."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from batchspec.spec.events import RequestId
from batchspec.traces.seats import Run

MOST_RUNS: Final = 60_000
AROUND: Final = 150
"""Steps before and after a finding that are kept in full, whatever the length of the trace."""


class Detail:
    """Keeps runs. Too many: those of the beginning and those around `wanted` steps stay.

    `spans` says which steps are there in full, as ordinals, both ends included.
    """

    def __init__(self, wanted: Iterable[int] = (), most: int = MOST_RUNS) -> None:
        """`wanted` are step numbers as in the trace."""
        self._wanted = sorted(set(wanted))
        self._at = 0
        self._most = most
        self._windows: list[list[int]] = []
        self._head: int | None = None
        self._full = False
        self._lost = 0
        self.runs: list[Run] = []
        self.names: set[RequestId] = set()
        """Who occurs in the runs that are kept."""

    def turn(self, ordinal: int, step: int) -> None:
        """A step begins."""
        while self._at < len(self._wanted) and self._wanted[self._at] + AROUND < step:
            self._at += 1
        if self._at < len(self._wanted) and abs(self._wanted[self._at] - step) <= AROUND:
            if self._windows and self._windows[-1][1] == ordinal - 1:
                self._windows[-1][1] = ordinal
            else:
                self._windows.append([ordinal, ordinal])

    def add(self, run: Run) -> None:
        """Take in one run."""
        if self._head is not None and not (run.first <= self._head or self._is_wanted(run)):
            return
        if self._full:
            # Runs come in the order of their ends: one that is left out may have begun long ago.
            self._lost = min(self._lost, run.first)
        elif len(self.runs) < self._most:
            self.runs.append(run)
            self.names.add(run.request)
        elif self._head is None:
            self._thin()
            self.add(run)
        else:
            self._full = True
            self._lost = run.first

    def spans(self, steps: int) -> list[tuple[int, int]]:
        """The steps of which every run was kept."""
        if self._head is None:
            return [(0, steps - 1)] if steps else []
        spans = [(0, self._head)] if self._head >= 0 else []
        for first, last in self._windows:
            if spans and first <= spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
            else:
                spans.append((first, last))
        if self._full:
            spans = [(first, min(last, self._lost - 1)) for first, last in spans if first < self._lost]
        return spans

    def _is_wanted(self, run: Run) -> bool:
        # Windows are apart and in order: only the last that begins before the run's end can reach it.
        at = bisect_right(self._windows, run.last, key=_first) - 1
        return at >= 0 and self._windows[at][1] >= run.first

    def _thin(self) -> None:
        """Half of the room is for the beginning, the rest for what is wanted."""
        ends = sorted(run.last for run in self.runs)
        self._head = ends[len(ends) // 2]
        self.runs = [run for run in self.runs if run.first <= self._head or self._is_wanted(run)]
        self.names = {run.request for run in self.runs}


def _first(window: list[int]) -> int:
    return window[0]
