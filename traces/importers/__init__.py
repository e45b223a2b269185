"""Importers: other people's records turned into requests, one format a module.

A module of this folder is an importer once it stands in `IMPORTERS`. It has the members of
`Importer`, a table of its fields in its docstring, and never guesses: what it cannot place is
dropped through the log, with a reason, or refused by name and row.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers import azure
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.text import nearest, one_line, shown
from batchspec.traces.textfile import head

__all__ = ["IMPORTERS", "ImportLog", "Importer", "by_name", "detect"]


class Importer(Protocol):
    """The members of an importer's module."""

    @property
    def NAME(self) -> str:
        """What `--format` calls it."""

    @property
    def SAYS(self) -> str:
        """What it reads, in one line."""

    def detect(self, head: bytes, path: Path) -> bool:
        """Is this file one of mine? `head` holds its first 64 KiB (nothing for a folder)."""

    def header(self, path: Path) -> Header:
        """What the resulting table says about itself."""

    def read(self, path: Path, log: ImportLog) -> Iterator[Record]:
        """The requests in order, streamed; dropped rows go through the log."""


IMPORTERS: Final[dict[str, Importer]] = {module.NAME: module for module in (azure,)}
"""Every importer by name."""


def by_name(name: str) -> Importer:
    """The importer called `name`. Raises `TraceError` that names the nearest one."""
    if name not in IMPORTERS:
        raise TraceError(f"unknown format {shown(name)}{nearest(name, IMPORTERS)}")
    return IMPORTERS[name]


def detect(path: str | Path) -> Importer:
    """The one importer that knows the file. Raises `TraceError` if none does, or several."""
    path = Path(path)
    start = b"" if path.is_dir() else head(path)
    found = [importer for importer in IMPORTERS.values() if importer.detect(start, path)]
    if len(found) == 1:
        return found[0]
    which = ", ".join(importer.NAME for importer in found or IMPORTERS.values())
    problem = "could be any of" if found else "format not recognised; known are"
    raise TraceError(f"{one_line(path)}: {problem} {which}; name one with --format")
