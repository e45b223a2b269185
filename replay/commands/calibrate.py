"""`batchspec calibrate`: the cost model of `simulate`, fitted to a recorded trace."""

from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.cost import calibrate as fitted
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import Page, count
from batchspec.spec.errors import TraceError
from batchspec.spec.passes import passes
from batchspec.traces.reader import open_any
from batchspec.traces.workload import RecordTable
from batchspec.traces.writer import cannot_write


def calibrate(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A run recorded with a wall clock.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The cost model to write (.json).")],
    warmup: Annotated[int, typer.Option(metavar="N", min=0, help="Leave the first N passes out.")] = 8,
) -> None:
    """Fit the cost model of `simulate` to the durations of a recorded trace's steps.

    A step takes base + per token + per KV position + per member; no part is below zero.

    Example:  batchspec calibrate run.parquet --out cost.json
    """
    target = Path(out)
    if target.suffix != ".json":
        raise typer.BadParameter(f"--out must end in .json, not {target.suffix or 'nothing'!r}")
    opened = open_any(trace)
    if isinstance(opened, RecordTable):
        raise TraceError(f"{opened.path}: a table of requests has no steps; calibrate needs a recorded trace")
    with bar("reading", opened.num_rows) as shown:
        found = fitted(passes(counted(opened.events(), shown)), warmup=warmup)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(found.to_json(), "utf-8")
    except OSError as error:
        raise cannot_write(target, error) from None
    model = found.model
    page = Page()
    page.table(
        ("part", "ns"),
        [
            ("base", f"{model.base_ns:,.0f}"),
            ("per token", f"{model.per_token_ns:,.1f}"),
            ("per KV position", f"{model.per_kv_position_ns:,.2f}"),
            ("per member", f"{model.per_member_ns:,.1f}"),
        ],
        "lr",
        indent=0,
    )
    page.add(
        f"fitted to {count(found.passes, 'pass', 'passes')}: off by {found.median_error:.1%} (median) and"
        f" {found.p95_error:.1%} (p95), R² {found.explained:.3f}"
    )
    page.add(f"use it with:  batchspec simulate WORKLOAD --out TRACE --cost {out}")
    console.show(page)
