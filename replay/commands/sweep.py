"""`batchspec sweep`: the trade-off curve of a workload at many loads."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import comparing
from batchspec.replay.commands import options
from batchspec.replay.commands.compare import All, Format, Formats, Out, Peak, finish
from batchspec.replay.comparing import Case
from batchspec.replay.cost import named_cost
from batchspec.replay.outcome import Outcome
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.comparison import sweep_page
from batchspec.replay.report.page import plain
from batchspec.replay.workload import Workload, load_workload
from batchspec.spec.errors import TraceError


class Over(StrEnum):
    """What a sweep changes from point to point."""

    rate = "rate"
    concurrency = "concurrency"


def sweep(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="A request table, or records to import.")
    ],
    at: Annotated[
        str, typer.Option(metavar="LIST", help="The loads: requests a second, or clients in a closed loop.")
    ],
    over: Annotated[
        Over, typer.Option(metavar="rate|concurrency", help="What the loads in --at are.")
    ] = Over.rate,
    policy: Annotated[
        str | None, typer.Option(metavar="LIST", help="Orders: fcfs, sjf, priority, fair, module:name.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="LIST", help="Modes: static, dynamic, continuous.")
    ] = None,
    profile: Annotated[
        str, typer.Option(metavar="LIST", help="Shipped profiles, or files, to schedule by.")
    ] = "batchspec",
    config: options.Config = None,
    max_seqs: Annotated[str | None, typer.Option(metavar="LIST", help="Most requests at once.")] = None,
    token_budget: Annotated[str | None, typer.Option(metavar="LIST", help="Most tokens in a step.")] = None,
    kv_blocks: Annotated[str | None, typer.Option(metavar="LIST", help="KV blocks in the pool.")] = None,
    block_size: Annotated[str | None, typer.Option(metavar="LIST", help="Positions in a block.")] = None,
    cost: options.Cost = None,
    slo: options.Slo = None,
    peak_tflops: Peak = None,
    out: Out = None,
    format: Formats = Format.text,
    whole: All = False,
    seed: options.Seed = 0,
    limit: options.Limit = None,
    skip: options.Skip = 0,
    from_s: options.FromS = None,
    to_s: options.ToS = None,
    prompt_scale: options.PromptScale = 1.0,
    output_scale: options.OutputScale = 1.0,
    tenant: options.Tenant = None,
    tenants: options.Tenants = 0,
    priorities: options.Priorities = 0,
) -> None:
    """Throughput against latency: the same workload at one load after the other, a curve a choice.

    A rate lets the workload's own arrivals come faster or slower; concurrency is that many clients, each
    of whom sends its next request when its last one has ended.

    Example:  batchspec sweep code.parquet --at 1,2,4,8 --policy fcfs,sjf --max-seqs 16 --out curve.png
    """
    files = list(out or ())
    comparing.refuse_unwritable(files)
    loads = _loads(at, over)
    objectives = options.objectives(slo)
    shape = options.reshape(
        speed=1.0,
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
    lines = comparing.grid(
        {
            "profile": options.words(profile),
            "policy": options.words(policy),
            "mode": options.words(mode),
            "max_seqs": options.numbers(max_seqs, "--max-seqs"),
            "token_budget": options.numbers(token_budget, "--token-budget"),
            "kv_blocks": options.numbers(kv_blocks, "--kv-blocks"),
            "block_size": options.numbers(block_size, "--block-size"),
        },
        lambda **chosen: options.claims_of(config=config, **chosen),
    )
    took = None if cost is None else named_cost(cost)
    requests = load_workload(workload, shape)
    cases = [_case(line, load, over, requests) for line in lines for load in loads]
    with bar("sweeping") as shown:
        found: list[Outcome] = list(
            comparing.outcomes(
                cases,
                requests,
                seed=seed,
                cost=took,
                objectives=objectives,
                peak_flops=None if peak_tflops is None else peak_tflops * 1e12,
                seen=lambda events: counted(events, shown),
            )
        )
    axis = f"offered_{over}"
    for path in files:
        comparing.write(path, found, f"Trade-off of {Path(workload).name}", axis)
    page = sweep_page(found, axis, whole)
    finish(page, found, files, format)


def _loads(text: str, over: Over) -> list[float]:
    if not options.words(text):
        raise typer.BadParameter("--at names no load; write for example 1,2,4")
    if over is Over.concurrency:
        return [float(number) for number in options.numbers(text, "--at")]
    found = []
    for word in options.words(text):
        try:
            rate = float(word)
        except ValueError:
            rate = 0.0
        if not 1e-6 <= rate <= 1e9:
            raise typer.BadParameter(f"--at must be rates such as 0.5,1,2, not {plain(word, 40)!r}")
        found.append(rate)
    return found


def _case(line: Case, load: float, over: Over, workload: Workload) -> Case:
    if over is Over.concurrency:
        return replace(line, concurrency=int(load))
    if workload.rate is None:
        raise TraceError(
            f"{workload.path}: all requests arrive at once, so they have no rate; use --over concurrency"
        )
    return replace(line, speed=load / workload.rate, settings={"offered_rate": load})
