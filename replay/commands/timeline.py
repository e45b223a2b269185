"""`batchspec timeline`: a stretch of a trace as a picture in text."""

from typing import Annotated

import typer

from batchspec.replay.claims import claimed
from batchspec.replay.console import show
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import plain
from batchspec.replay.slotline import Slotline
from batchspec.replay.timeline import collect, timeline_page
from batchspec.spec.errors import TraceError
from batchspec.traces.reader import open_any
from batchspec.traces.workload import RecordTable


def timeline(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or a folder of parts.")],
    first: Annotated[int | None, typer.Option("--from", metavar="N", min=0, help="The first step.")] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="M", min=0, help="The last step.")] = None,
    slots: Annotated[bool, typer.Option("--slots", help="A row a slot, in it who sits there.")] = False,
) -> None:
    """Draw a stretch of a trace in text: a row a request, a column a step, then the events.

    In colour on a terminal, plain in a pipe. With --slots the rows are the slots, as in the HTML report.

    Nothing is judged; `batchspec check TRACE --from N --to M` marks the findings as well. Without --from
    the picture begins at the first step.

    Example:  batchspec timeline run.parquet --from 100 --to 120
    """
    if first is not None and last is not None and last < first:
        raise typer.BadParameter(f"--from {first} lies behind --to {last}")
    opened = open_any(trace)
    if isinstance(opened, RecordTable):
        raise TraceError(f"{opened.path}: a table of requests has no steps; a trace has")
    if first is None:
        # Step numbers may begin anywhere.
        first = next((event.step for event in opened.events(0, 1)), 0)
        first = first if last is None else min(first, last)
    if slots:
        header = opened.header
        claims = claimed(
            header_profile=header.profile if header else None,
            header_config=header.config if header else None,
        )
        line = Slotline(
            first, last, barrier=claims is not None and claims.batching.mode in ("static", "dynamic")
        )
        with bar(f"reading {plain(trace, 40)}", opened.num_rows) as shown:
            show(line.feed(counted(opened.events(), shown)).page(plain(opened.path)))
        return
    with bar(f"reading {plain(trace, 40)}", opened.num_rows) as shown:
        drawn = collect(counted(opened.events(), shown), first, last)
    show(timeline_page(drawn, None, title=plain(opened.path)))
