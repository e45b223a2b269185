"""`batchspec info`: what a trace holds, and which rules it lets one judge."""

from typing import Annotated

import typer

from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.replay.console import show
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.info import records_page, trace_page
from batchspec.replay.report.page import plain
from batchspec.traces.reader import open_any
from batchspec.traces.workload import RecordTable


def info(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, a folder of parts, or a workload.")],
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
) -> None:
    """Say what a trace holds: level, columns, span, claims, and what could be judged and what not.

    Example:  batchspec info run.parquet --profile vllm-v1
    """
    opened = open_any(trace)
    header = opened.header
    claims = claimed(
        header_profile=header.profile if header else None,
        header_config=header.config if header else None,
        profile=None if profile is None else named_profile(profile),
        config=None if config is None else load_config(config),
    )
    with bar(f"reading {plain(trace, 40)}", opened.num_rows) as shown:
        if isinstance(opened, RecordTable):
            page = records_page(opened, counted(opened.records(), shown))
        else:
            page = trace_page(opened, claims, counted(opened.events(), shown))
    show(page)
