"""Standard output and standard error: colour on a terminal, plain text in a pipe, one line for an error."""

import os
import sys
from contextlib import suppress
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from batchspec.replay.report.page import Page, plain

CONFORMS, VIOLATES, UNUSABLE = 0, 1, 2
INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit statuses; the last two are what a shell reports for the signals of the same cause."""


def show(page: Page) -> None:
    """Print a page on standard output."""
    if not _coloured():
        emit(page.text())
        return
    console = Console(file=sys.stdout, force_terminal=True, highlight=False, soft_wrap=True)
    with _pipe():
        for line in page.lines:
            console.print(Text.assemble(*line, no_wrap=True))


def emit(text: str) -> None:
    """Write text on standard output as it stands, now."""
    with _pipe():
        sys.stdout.write(text)
        sys.stdout.flush()


def warn(message: object) -> None:
    """Write exactly one line on standard error."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"batchspec: {plain(message)}\n")
        sys.stderr.flush()


def line_of(error: BaseException) -> str:
    """An error that a user can cause, as one line that says what to do."""
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        return f"{name}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return "out of memory; check a shorter trace, or fewer at a time"
    return " ".join(str(error).split())


def _coloured() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


class _pipe:
    """Ends the program quietly when whoever reads the output has gone away."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, BrokenPipeError):
            gone()


def gone() -> NoReturn:
    """The reader has closed the pipe: nothing more can be said."""
    # The interpreter flushes standard output once more at its end; that must not fail aloud.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(BROKEN_PIPE)
