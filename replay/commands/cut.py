"""`batchspec cut`: a stretch of a trace as a trace of its own."""

from typing import Annotated

import typer

from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.replay.console import show
from batchspec.replay.cutting import cut as cut_out
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import Page, count, plain
from batchspec.replay.writing import write_trace
from batchspec.spec.errors import TraceError
from batchspec.traces.reader import open_any
from batchspec.traces.trace import Trace


def cut(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or a folder of parts.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The file to write (.parquet, or .txt).")],
    first: Annotated[int, typer.Option("--from", metavar="N", min=0, help="The first step.")] = 0,
    last: Annotated[
        int | None, typer.Option("--to", metavar="M", min=0, help="The last step; the end when not given.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
) -> None:
    """Write the steps N to M of a trace as a trace of its own, which can be checked on its own.

    It begins with a `live` row for each request that is in progress at step N; the header says what else
    stands in the books there. Claims that the header lacks belong to --profile and --config, here as in
    the check: lags and orders decide what is in progress.

    Example:  batchspec cut run.parquet --from 1200 --to 1260 --out stretch.parquet
    """
    if last is not None and last < first:
        raise typer.BadParameter(f"--from {first} lies behind --to {last}")
    opened = open_trace_or_scenario(trace)
    header = opened.header
    claims = claimed(
        header.profile if header else None,
        header.config if header else None,
        None if profile is None else named_profile(profile),
        None if config is None else load_config(config),
    )
    stretch = cut_out(opened, claims, first, last)
    with bar(f"writing {plain(out, 40)}", stretch.last - stretch.first) as shown:
        rows = write_trace(out, counted(stretch.events(), shown), stretch.header, opened.id_type)
    page = Page()
    page.add(f"wrote {plain(out)}: {count(rows, 'event')}, {len(stretch.live):,} of them live rows")
    page.add(f"check it with:  batchspec check {plain(out)}")
    show(page)


def open_trace_or_scenario(path: str) -> Trace:
    """The trace at `path`. Raises `TraceError` for a table of requests, which has no steps."""
    opened = open_any(path)
    if not isinstance(opened, Trace):
        raise TraceError(f"{opened.path}: a table of requests has no steps; name a trace")
    return opened
