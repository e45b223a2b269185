"""`batchspec simulate`: the reference scheduler over a workload, recorded as a trace."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from batchspec.replay import console
from batchspec.replay.claims import load_config, named_profile
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import Page, count
from batchspec.replay.simulate import header_of
from batchspec.replay.simulate import simulate as simulated
from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.spec.library import profile_names
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers import IMPORTERS, ImportLog, gives_records
from batchspec.traces.reader import open_any
from batchspec.traces.recorder import Recorder
from batchspec.traces.textfile import head
from batchspec.traces.workload import RecordTable

_SIZES = ("max_seqs", "token_budget", "kv_blocks", "block_size")


def simulate(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="A request table, or records to import.")
    ],
    out: Annotated[
        str, typer.Option(metavar="TRACE", help="The trace to write: a .parquet file, or a folder.")
    ],
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="What to schedule by: a shipped profile, or a file.")
    ] = "batchspec",
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="static, dynamic or continuous batching.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="ORDER", help="Order of admission: fcfs, sjf, priority or fair.")
    ] = None,
    max_seqs: Annotated[int | None, typer.Option(metavar="N", help="Most requests that run at once.")] = None,
    token_budget: Annotated[int | None, typer.Option(metavar="N", help="Most tokens in a step.")] = None,
    kv_blocks: Annotated[int | None, typer.Option(metavar="N", help="KV blocks in the pool.")] = None,
    block_size: Annotated[int | None, typer.Option(metavar="N", help="Positions in a KV block.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same trace.")] = 0,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Take only the first N requests.")
    ] = None,
) -> None:
    """Run the reference scheduler over a workload, with a cost model instead of a device.

    Same workload, options and seed: the same trace, row for row.

    Example:  batchspec simulate code.parquet --out run.parquet --max-seqs 8 --kv-blocks 512 --block-size 16
    """
    sizes = zip(_SIZES, (max_seqs, token_budget, kv_blocks, block_size), strict=True)
    given: dict[str, Any] = {
        "batching": {} if mode is None else {"mode": mode},
        "admission": {} if policy is None else {"order": policy},
        "limits": {name: size for name, size in sizes if size is not None},
    }
    claims = named_profile(profile)
    if config is not None:
        claims = claims.merged(load_config(config))
    claims = claims.merged(Profile.from_dict(given, "options"))
    requests = list(islice(workload_of(Path(workload)), limit))
    with bar("simulating") as shown, Recorder(out, _header(claims)) as recorder:
        steps = _write(counted(simulated(requests, claims, seed=seed), shown), recorder)
    page = Page()
    sizes_written = (count(recorder.rows, "event"), count(steps, "step"), count(len(requests), "request"))
    page.add(f"wrote {out}: {', '.join(sizes_written)}")
    page.add(f"check it with:  batchspec check {out}")
    console.show(page)


def _header(claims: Profile) -> Header:
    """What the trace says about itself: a profile of the user's own is named by its claims alone."""
    made = replace(header_of(claims), producer_version=version("batchspec"))
    return made if claims.name in profile_names() else replace(made, profile=None)


def workload_of(path: Path) -> Iterator[Record]:
    """The requests of a table, or of a file that an importer knows."""
    if path.is_file():
        start = head(path)
        for importer in IMPORTERS.values():
            if importer.detect(start, path) and gives_records(importer):
                return importer.read(path, ImportLog())
    table = open_any(path)
    if not isinstance(table, RecordTable):
        raise TraceError(
            f"{table.path}: a trace of a run, not a workload; simulate needs a table of requests"
        )
    return table.workload()


def _write(events: Iterator[Event], recorder: Recorder) -> int:
    steps = 0
    for event in events:
        recorder.write(event)
        steps += event.event == "step"
    return steps
