"""A progress bar on standard error, for work that lasts more than a second on a terminal."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE_S: Final = 1.0
"""Work that ends sooner shows no bar."""

_EVERY: Final = 4096

T = TypeVar("T")


class Bar:
    """Counts what is done and draws a bar once the work has lasted `PATIENCE_S` seconds.

    `clock` gives seconds; a test hands in its own.
    """

    def __init__(
        self, what: str, total: int | None, screen: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """A bar for `total` items (None: unknown), not drawn yet."""
        self._clock = clock
        self._began = clock()
        self._what, self._total = what, total
        self._shown: Progress | None = None
        self._screen = screen
        self._done = 0
        self._next = 0

    def to(self, done: int) -> None:
        """`done` items are done in all."""
        self._done = done
        # The clock is read at every few thousandth item, so that a check does not pay for its bar.
        if done >= self._next:
            self._next = done + _EVERY
            self._draw()

    def step(self) -> None:
        """One more item is done."""
        self.to(self._done + 1)

    def close(self) -> None:
        """Take the bar away."""
        if self._shown is not None:
            self._shown.stop()

    def _draw(self) -> None:
        if self._shown is None:
            if self._clock() - self._began < PATIENCE_S:
                return
            self._shown = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self._screen,
                transient=True,
            )
            self._shown.add_task(self._what, total=self._total)
            self._shown.start()
        self._shown.update(self._shown.task_ids[0], completed=self._done)


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Bar | None]:
    """A bar while the block runs; None where standard error is no terminal, so that nothing is counted."""
    if not sys.stderr.isatty():
        yield None
        return
    shown = Bar(what, total, Console(stderr=True))
    try:
        yield shown
    finally:
        shown.close()


def counted(items: Iterable[T], shown: Bar | None) -> Iterator[T]:
    """The items as they are, each counted on the bar."""
    if shown is None:
        yield from items
        return
    for item in items:
        yield item
        shown.step()
