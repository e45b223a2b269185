"""`batchspec demo`: the main job on a fresh machine."""

from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console


def demo(
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where the two traces go.")] = "batchspec-demo",
) -> None:
    """Run a production workload under memory pressure, record it, check it, and break it on purpose.

    A slice of the Azure code trace of 2023 goes through a scheduler with a small KV pool. What
    happened is recorded and checked against the spec. A second run has a fault, to show how a
    finding reads.

    Example:  batchspec demo
    """
    # Only the demo needs all of this: the other commands start without it.
    from batchspec.replay.demo import demo as both_runs

    page, as_expected = both_runs(Path(out))
    console.show(page)
    if not as_expected:
        console.warn("the demo did not come out as it should; please report this with the text above")
        raise typer.Exit(console.VIOLATES)
