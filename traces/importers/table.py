"""CSV tables of other people, by the names of their columns."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.importers.fields import Unusable
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import Make, kept
from batchspec.traces.text import one_line, shown
from batchspec.traces.textfile import csv_rows

Row = Sequence[str]


def columns_of(head: bytes) -> tuple[str, ...]:
    """The column names in the first line of a CSV file, for telling formats apart."""
    first = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].strip()
    return tuple(name.strip().strip('"') for name in first.decode("utf-8", "replace").split(","))


def table(
    path: Path,
    needed: Sequence[str],
    make: Make[Row],
    log: ImportLog,
    *,
    also: Sequence[str] = (),
    ordered: str | None = None,
) -> Iterator[Record]:
    """The records of a CSV file with the columns `needed`, and `also` where they are there.

    `make` gets the fields in that order, an absent one as an empty text. Raises `TraceError` for a
    column that is missing or stands twice.
    """
    rows, pick = opened(path, needed, log, also)
    return kept(rows, lambda index, row: make(index, pick(row)), log, path, ordered)


def opened(
    path: Path, needed: Sequence[str], log: ImportLog, also: Sequence[str] = ()
) -> tuple[Iterator[tuple[int, list[str]]], Callable[[list[str]], Row]]:
    """The rows below the header, and what puts one of them in the order of `needed` and `also`.

    A column that is neither is left out and said so. The second raises `Unusable` for a row of
    another width than the header.
    """
    log.place, log.line = one_line(path), 1
    rows = csv_rows(path)
    names = [name.strip() for name in next(rows, (0, [""]))[1]]
    for name in needed:
        if name not in names:
            raise TraceError(f"{log.where}: column {name}: missing; the columns must be {','.join(needed)}")
    wanted = (*needed, *also)
    for name in wanted:
        if names.count(name) > 1:
            raise TraceError(f"{log.where}: column {name}: stands more than once; keep one")
    for name in names:
        if name not in wanted:
            log.lose(f"column {shown(name)}, which this format does not have")
    where = [names.index(name) if name in names else None for name in wanted]
    width = len(names)
    wrong_width = f"not {width} fields"
    absent = [""] * (len(wanted) - width)
    if where == [*range(width), *[None] * len(absent)]:
        # The usual case: the columns wanted, in their order, but for some at the end.
        def as_it_is(row: list[str]) -> Row:
            if len(row) != width:
                raise Unusable(wrong_width)
            return row + absent if absent else row

        return rows, as_it_is

    def in_order(row: list[str]) -> Row:
        if len(row) != width:
            raise Unusable(wrong_width)
        return ["" if at is None else row[at] for at in where]

    return rows, in_order
