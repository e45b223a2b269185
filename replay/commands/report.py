"""`batchspec report`: the HTML report of a trace."""

from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.replay.fast.choose import check_with
from batchspec.replay.progress import bar
from batchspec.replay.records import check_records
from batchspec.replay.report.html.make import html_of, save
from batchspec.replay.report.page import Page, count, plain
from batchspec.replay.selection import chosen
from batchspec.traces.reader import open_any
from batchspec.traces.workload import RecordTable


def report(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, a folder of parts, or a workload.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The .html file to write.")],
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the scheduler claims: a shipped profile, or a file."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Judge only this rule or family. May be repeated.")
    ] = None,
    findings: Annotated[
        int, typer.Option(metavar="N", min=0, help="List up to N violations of each rule.")
    ] = 5,
    first: Annotated[
        int | None,
        typer.Option("--from", metavar="N", min=0, help="Keep steps from N on in full, however long it is."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="M", min=0, help="Keep steps up to M in full.")
    ] = None,
) -> None:
    """Check a trace and write one HTML file: verdict, findings, the slot-by-step picture, plots.

    The file needs nothing else and loads nothing: open it from disk, send it on. Exit status: 0 the trace
    conforms, 1 it violates a rule, 2 unusable input or usage error.

    Example:  batchspec report run.parquet --out run.html
    """
    if first is not None and last is not None and last < first:
        raise typer.BadParameter(f"--from {first} lies behind --to {last}")
    opened = open_any(trace)
    header = opened.header
    claims = claimed(
        header_profile=header.profile if header else None,
        header_config=header.config if header else None,
        profile=None if profile is None else named_profile(profile),
        config=None if config is None else load_config(config),
    )
    rules = chosen(rule) if rule else None
    with bar(f"checking {plain(trace, 40)}", opened.num_rows) as shown:
        if isinstance(opened, RecordTable):
            found = check_records(opened, claims, findings=findings, rules=rules)
        else:
            progress = (lambda done, _: shown.to(done)) if shown else None
            found = check_with(
                "auto", opened, claims, findings=findings, rules=rules, progress=progress, say=console.warn
            )
    stretch = None
    if first is not None or last is not None:
        stretch = (first or 0, (first or 0) + 2000 if last is None else last)
    options = [("--profile", profile), ("--config", config), *(("--rule", each) for each in rule or ())]
    command = ["batchspec", "report", trace, "--out", out]
    command += [word for name, value in options if value is not None for word in (name, value)]
    with bar(f"drawing {plain(trace, 40)}", opened.num_rows) as shown:
        save(out, html_of(opened, found, command=command, stretch=stretch, shown=shown))
    page = Page()
    said = f", {count(found.count, 'violation')}" if found.count else ""
    page.add(f"wrote {out}: ", (found.verdict, "green" if found.verdict == "conforms" else "bold red"), said)
    console.show(page)
    raise typer.Exit(console.CONFORMS if found.verdict == "conforms" else console.VIOLATES)
