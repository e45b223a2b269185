"""`batchspec import`: production records into a workload."""

from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import Page
from batchspec.traces.importers import ImportLog, by_name, detect
from batchspec.traces.workload import write_records


def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The records, as their producer wrote them.")
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="The workload to write (.parquet or .csv).")],
    format: Annotated[
        str | None, typer.Option(metavar="F", help="The format; found out from the file when not given.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that cannot become a request.")
    ] = False,
) -> None:
    """Turn production records into a workload that can be simulated or replayed.

    Rows that cannot become a request are left out, counted, and named with their reason.

    Example:  batchspec import AzureLLMInferenceTrace_code.csv --out code.parquet
    """
    path = Path(source)
    importer = detect(path) if format is None else by_name(format)
    log = ImportLog(strict=strict)
    with bar("importing") as shown:
        write_records(out, counted(importer.read(path, log), shown), importer.header(path))
    page = Page()
    for line in log.summary():
        page.add(line)
    page.add(f"wrote {out} ({importer.NAME}: {importer.SAYS})")
    console.show(page)
