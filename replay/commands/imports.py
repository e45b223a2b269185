"""`batchspec import`: production records into a workload, a scheduler's own log into a trace."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.progress import Bar, bar, counted
from batchspec.replay.report.page import Page
from batchspec.spec.errors import TraceError
from batchspec.traces.header import Header
from batchspec.traces.importers import (
    EventImporter,
    Importer,
    ImportLog,
    RecordImporter,
    by_name,
    detect,
    gives_events,
    gives_records,
    runnable,
)
from batchspec.traces.recorder import Recorder
from batchspec.traces.workload import write_records


def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The records, as their producer wrote them.")
    ],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="The workload (.parquet or .csv) or trace to write.")
    ],
    format: Annotated[
        str | None, typer.Option(metavar="F", help="The format; found out from the file when not given.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that cannot be carried over whole.")
    ] = False,
    only_runnable: Annotated[
        bool,
        typer.Option("--runnable", help="Leave out requests that failed, or whose lengths are not known."),
    ] = False,
) -> None:
    """Turn production records into a workload, or a scheduler's own log into a trace.

    Rows that cannot become a request or an event are left out, counted, and named with their reason.
    A failed or refused request is a record too, but no engine can run it: see --runnable.

    Example:  batchspec import AzureLLMInferenceTrace_code.csv --out code.parquet
    """
    path = Path(source)
    importer = detect(path) if format is None else by_name(format)
    log = ImportLog(strict=strict)
    with _uncollected(), bar("importing") as shown:
        if gives_events(importer):
            if only_runnable:
                raise TraceError(
                    f"{source}: {importer.NAME} gives a trace of steps; --runnable is for requests"
                )
            _trace(importer, path, out, log, shown)
        elif gives_records(importer):
            _workload(importer, path, out, log, shown, only_runnable)
    page = Page()
    for line in log.summary():
        page.add(line)
    page.add(f"wrote {out} ({importer.NAME}: {importer.SAYS})")
    console.show(page)


def _workload(
    importer: RecordImporter, path: Path, out: str, log: ImportLog, shown: Bar | None, only_runnable: bool
) -> None:
    records = importer.read(path, log)
    if only_runnable:
        records = runnable(records, log)
    write_records(out, counted(records, shown), lambda: _header(importer, path, log))


def _trace(importer: EventImporter, path: Path, out: str, log: ImportLog, shown: Bar | None) -> None:
    target = Path(out)
    if target.suffix != ".parquet":
        raise TraceError(f"{out}: {importer.NAME} gives a trace, and that is a file named *.parquet")
    partial = target.with_name(f"{target.stem}.importing.parquet")
    header = importer.header(path)
    try:
        with Recorder(partial, header) as recorder:
            recorder.write_all(counted(importer.events(path, log), shown))
            recorder.header = _header(importer, path, log)
            recorder.close(complete=header.complete)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic garbage collector: millions of rows, none of which refers to another."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _header(importer: Importer, path: Path, log: ImportLog) -> Header:
    header = importer.header(path)
    return header if log.started_at is None else replace(header, started_at=log.started_at)
