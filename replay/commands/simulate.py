"""`batchspec simulate`: the reference scheduler over a workload, recorded as a trace."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.commands import options
from batchspec.replay.cost import Cost, named_cost
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.page import Page, count
from batchspec.replay.simulate import header_of
from batchspec.replay.simulate import simulate as simulated
from batchspec.replay.stopwatch import Stopwatch
from batchspec.replay.workload import Workload, load_workload
from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.spec.library import profile_names
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.recorder import Recorder

_SLICE = 4096


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
    config: options.Config = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="static, dynamic or continuous batching.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            help="fcfs, sjf, priority, fair or module:name; of a list each goes to TRACE/ORDER.parquet.",
        ),
    ] = None,
    victim: Annotated[
        str | None, typer.Option(metavar="RULE", help="Who is interrupted: a shipped rule, or module:name.")
    ] = None,
    max_seqs: Annotated[int | None, typer.Option(metavar="N", help="Most requests that run at once.")] = None,
    token_budget: Annotated[int | None, typer.Option(metavar="N", help="Most tokens in a step.")] = None,
    kv_blocks: Annotated[int | None, typer.Option(metavar="N", help="KV blocks in the pool.")] = None,
    block_size: Annotated[int | None, typer.Option(metavar="N", help="Positions in a KV block.")] = None,
    cost: options.Cost = None,
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help="L1, L2, L3 or L4: how much is recorded.")
    ] = "L3",
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="N clients in a closed loop, not times of arrival.")
    ] = None,
    seed: options.Seed = 0,
    limit: options.Limit = None,
    skip: options.Skip = 0,
    from_s: options.FromS = None,
    to_s: options.ToS = None,
    speed: options.Speed = 1.0,
    prompt_scale: options.PromptScale = 1.0,
    output_scale: options.OutputScale = 1.0,
    tenant: options.Tenant = None,
    tenants: options.Tenants = 0,
    priorities: options.Priorities = 0,
    timing: Annotated[
        bool, typer.Option("--timing", help="Say on standard error where the time went.")
    ] = False,
) -> None:
    """Run the reference scheduler over a workload, with a cost model instead of a device.

    Same workload, options and seed: the same trace, row for row.

    Example:  batchspec simulate code.parquet --out run.parquet --max-seqs 8 --kv-blocks 512 --block-size 16
    """
    shape = options.reshape(
        speed=speed,
        prompt_scale=prompt_scale,
        output_scale=output_scale,
        from_s=from_s,
        to_s=to_s,
        skip=skip,
        limit=limit,
        tenant=tenant,
        tenants=tenants,
        priorities=priorities,
        seed=seed,
    )
    orders = options.words(policy)
    runs = []
    wanted: Sequence[str | None] = orders or (policy,)
    for order in wanted:
        claims = options.claims_of(
            profile,
            config,
            mode=mode,
            policy=order,
            victim=victim,
            max_seqs=max_seqs,
            token_budget=token_budget,
            kv_blocks=kv_blocks,
            block_size=block_size,
        )
        runs.append((out if len(orders) < 2 else str(_file_of(out, order or "")), claims))
    took = None if cost is None else named_cost(cost)
    watch = Stopwatch()
    with watch.part("reading the workload"):
        requests = load_workload(workload, shape)
    page = Page()
    for path, claims in runs:
        events, steps = run_to(path, claims, requests, took, seed, level, concurrency, watch)
        written = (count(events, "event"), count(steps, "step"), count(len(requests.records), "request"))
        page.add(f"wrote {path}: {', '.join(written)}")
    traces = runs[0][0] if len(runs) == 1 else f"{out}/*.parquet"
    own = [
        f" --{kind} {name}" for kind, name in (("policy", policy), ("victim", victim)) if ":" in (name or "")
    ]
    page.add(f"check it with:  batchspec check {traces}{''.join(own)}")
    console.show(page)
    if timing:
        console.warn(watch.says(len(requests.records) * len(runs)))


def run_to(
    path: str,
    claims: Profile,
    workload: Workload,
    cost: Cost | None,
    seed: int,
    level: str,
    concurrency: int | None,
    watch: Stopwatch,
) -> tuple[int, int]:
    """Simulate and write one run; how many events and steps it has."""
    rows = simulated(
        workload.records,
        claims,
        seed=seed,
        cost=cost,
        level=level,
        concurrency=concurrency,
        hash_block=workload.hash_block,
    )
    header = replace(_header(claims), hash_block=workload.hash_block)
    with bar("simulating") as shown, Recorder(path, header) as recorder:
        steps = _write(counted(rows, shown), recorder, watch)
        with watch.part("writing"):
            recorder.flush()
    return recorder.rows, steps


def _header(claims: Profile) -> Header:
    """What the trace says about itself: a profile of the user's own is named by its claims alone."""
    overlaps = claims.value("reuse.depth") > 1
    made = replace(header_of(claims, recorded=overlaps), producer_version=version("batchspec"))
    return made if claims.name in profile_names() else replace(made, profile=None)


def _file_of(folder: str, order: str) -> Path:
    name = "".join(char if char.isalnum() or char in "-_." else "-" for char in order)
    if folder.endswith(".parquet"):
        raise TraceError(f"{folder}: several policies are written into a folder; leave .parquet off")
    return Path(folder) / f"{name}.parquet"


def _write(events: Iterator[Event], recorder: Recorder, watch: Stopwatch) -> int:
    """Write all events, in slices so that the time of scheduling and of writing can be told apart."""
    steps = members = 0
    clock = time.process_time
    began = clock()
    batch: list[Event] = []
    for event in events:
        batch.append(event)
        kind = event.event
        if kind == "schedule":
            members += 1
        elif kind == "step":
            steps += 1
            if len(batch) >= _SLICE:
                decided = clock()
                recorder.write_all(batch)
                batch = []
                written = clock()
                watch.add("scheduling", decided - began)
                watch.add("writing", written - decided)
                began = written
    watch.add("scheduling", clock() - began)
    recorder.write_all(batch)
    watch.members += members
    return steps
