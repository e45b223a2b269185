"""`batchspec anonymise`: names hashed with a key, verdicts as before."""

import os
from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay.anonymous import Anonymous
from batchspec.replay.console import show
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import Page, count, plain
from batchspec.replay.writing import write_trace
from batchspec.spec.errors import TraceError
from batchspec.traces.header import Header
from batchspec.traces.pseudonyms import MAX_KEY
from batchspec.traces.reader import open_any
from batchspec.traces.workload import RecordTable, write_records


def anonymise(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, a folder of parts, or a workload.")],
    key: Annotated[
        str,
        typer.Option(
            metavar="FILE|ENV", help="A file with the key, or an environment variable that holds it."
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="The file to write.")],
) -> None:
    """Hash the ids, tenants and content keys of a trace or a workload with a key.

    Times, lengths, block ids and claims are kept, so every rule finds what it found before; equal names
    stay equal. The same key gives the same names in another trace. Integer ids stay integers.

    Example:  batchspec anonymise run.parquet --key key.txt --out shared.parquet
    """
    hidden = Anonymous(_key(key))
    opened = open_any(trace)
    header = hidden.header(opened.header or Header())
    with bar(f"writing {plain(out, 40)}", opened.num_rows) as shown:
        if isinstance(opened, RecordTable):
            records = hidden.records(counted(opened.records(), shown))
            rows, what = write_records(out, records, header), "request"
        else:
            events = hidden.events(counted(opened.events(), shown))
            rows, what = write_trace(out, events, header, opened.id_type), "event"
    page = Page()
    page.add(f"wrote {plain(out)}: {count(rows, what)}, ids, tenants and content keys hashed")
    show(page)


def _key(name: str) -> bytes:
    """The key in a file (a line end behind it is none of it), else in the environment."""
    path = Path(name)
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(MAX_KEY + 3).rstrip(b"\r\n")
    except (OSError, ValueError) as error:
        raise TraceError(f"--key {plain(name, 60)}: cannot be read ({plain(error, 80)})") from None
    found = os.environ.get(name)
    if found is None:
        raise TraceError(f"--key {plain(name, 60)}: neither a file nor an environment variable")
    return os.fsencode(found)
