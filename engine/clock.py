"""The engine's clock. Virtual by default: a run then writes the same rows each time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Nanoseconds since the engine started."""

    kind: str
    """What the trace's header calls it: `virtual` or `monotonic`."""

    def now(self) -> int:
        """The time."""

    def ran(self, rows: int) -> None:
        """A pass over `rows` packed rows has just been run."""

    def wait_until(self, moment: int) -> None:
        """Nothing is to be done before `moment`."""


class VirtualClock:
    """Time as a cost model: a step costs `step_ns`, each packed row `row_ns` on top."""

    kind = "virtual"

    def __init__(self, step_ns: int = 10_000_000, row_ns: int = 50_000) -> None:
        """The defaults resemble a small model on a slow device; a measurement uses `WallClock`."""
        self._now = 0
        self._step_ns, self._row_ns = step_ns, row_ns

    def now(self) -> int:
        """See `Clock`."""
        return self._now

    def ran(self, rows: int) -> None:
        """See `Clock`."""
        self._now += self._step_ns + rows * self._row_ns

    def wait_until(self, moment: int) -> None:
        """See `Clock`."""
        self._now = max(self._now, moment)


class WallClock:
    """Real time, counted from the first look at it."""

    kind = "monotonic"

    def __init__(self) -> None:
        """Not started yet."""
        self._start: int | None = None

    def now(self) -> int:
        """See `Clock`."""
        moment = time.monotonic_ns()
        if self._start is None:
            self._start = moment
        return moment - self._start

    def ran(self, rows: int) -> None:
        """Real time has passed by itself."""

    def wait_until(self, moment: int) -> None:
        """See `Clock`."""
        time.sleep(max(0, moment - self.now()) / 1e9)
