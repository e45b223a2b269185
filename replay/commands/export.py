"""`batchspec export`: a trace for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import Page, plain
from batchspec.spec.errors import TraceError
from batchspec.spec.profile import Profile
from batchspec.traces.export import perfetto as perfetto_of
from batchspec.traces.reader import open_any
from batchspec.traces.text import one_line
from batchspec.traces.workload import RecordTable


def export(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or a folder of parts.")],
    perfetto: Annotated[
        str, typer.Option(metavar="FILE", help="The file to write, for ui.perfetto.dev or trace_processor.")
    ],
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
) -> None:
    """Write a trace for the Perfetto viewer: a track a slot, counters, arrows from preempt to resume.

    The bounds of the counters (KV pool, token budget) are those that the trace or the profile claims. A
    trace without times is drawn with a millisecond a step.

    Example:  batchspec export run.parquet --perfetto run.pftrace
    """
    opened = open_any(trace)
    if isinstance(opened, RecordTable):
        raise TraceError(f"{opened.path}: a table of requests has no steps; a trace has")
    header = opened.header
    claims = claimed(
        header_profile=header.profile if header else None,
        header_config=header.config if header else None,
        profile=None if profile is None else named_profile(profile),
        config=None if config is None else load_config(config),
    )
    columns = opened.columns
    with bar(f"reading {plain(trace, 40)}", opened.num_rows) as shown:
        pieces = perfetto_of(
            counted(opened.events(), shown),
            claims or Profile(),
            has_time="time_ns" in columns,
            has_blocks="free_blocks" in columns or "blocks" in columns,
        )
        try:
            Path(perfetto).parent.mkdir(parents=True, exist_ok=True)
            with Path(perfetto).open("wb") as file:
                for piece in pieces:
                    file.write(piece)
        except OSError as error:
            raise TraceError(f"{one_line(perfetto)}: cannot be written ({error.strerror or error})") from None
    page = Page()
    page.add(f"wrote {perfetto}; open it in the Perfetto viewer (ui.perfetto.dev reads it on your machine)")
    console.show(page)
