"""`batchspec compare`: runs side by side, simulated over a workload or recorded as traces."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from batchspec.replay import comparing, console
from batchspec.replay.commands import options
from batchspec.replay.cost import named_cost
from batchspec.replay.outcome import Outcome, measured_trace
from batchspec.replay.progress import Bar, bar, counted
from batchspec.replay.report.comparison import comparison_object, comparison_page
from batchspec.replay.report.json import to_json
from batchspec.replay.report.page import Page
from batchspec.replay.workload import Workload, workload_or_trace
from batchspec.spec.served import Objectives
from batchspec.traces.trace import Trace


class Format(StrEnum):
    """What a comparison is printed as."""

    text = "text"
    json = "json"


Formats = Annotated[Format, typer.Option(metavar="text|json", help="What to print.")]
Out = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="Write .csv, .parquet, .png, .svg or .html too. May be repeated."),
]
All = Annotated[bool, typer.Option("--all", help="Print every figure, not only the usual ones.")]
Peak = Annotated[
    float | None,
    typer.Option(
        metavar="T", min=0.001, help="Peak TFLOP/s of the device, for the share that is used (MFU)."
    ),
]


def compare(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="A workload to simulate, or recorded traces.")
    ],
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
    victim: Annotated[
        str | None, typer.Option(metavar="LIST", help="Who is interrupted: shipped rules, or module:name.")
    ] = None,
    preempt: Annotated[str | None, typer.Option(metavar="LIST", help="none, recompute, swap.")] = None,
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
    speed: options.Speed = 1.0,
    prompt_scale: options.PromptScale = 1.0,
    output_scale: options.OutputScale = 1.0,
    tenant: options.Tenant = None,
    tenants: options.Tenants = 0,
    priorities: options.Priorities = 0,
) -> None:
    """Compare runs: utilisation, throughput, delays, fairness, preemptions, side by side.

    Of a workload each combination of the listed choices is simulated; traces are measured as they are.

    Example:  batchspec compare code.parquet --policy fcfs,sjf --max-seqs 8,16 --out policies.html
    """
    files = list(out or ())
    comparing.refuse_unwritable(files)
    objectives = options.objectives(slo)
    peak = None if peak_tflops is None else peak_tflops * 1e12
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
    cases = comparing.grid(
        {
            "profile": options.words(profile),
            "policy": options.words(policy),
            "mode": options.words(mode),
            "victim": options.words(victim),
            "preempt": options.words(preempt),
            "max_seqs": options.numbers(max_seqs, "--max-seqs"),
            "token_budget": options.numbers(token_budget, "--token-budget"),
            "kv_blocks": options.numbers(kv_blocks, "--kv-blocks"),
            "block_size": options.numbers(block_size, "--block-size"),
        },
        lambda **chosen: options.claims_of(config=config, **chosen),
    )
    took = None if cost is None else named_cost(cost)
    found: list[Outcome] = []
    several = len(sources) > 1
    with bar("comparing") as shown:
        for source in sources:
            opened = workload_or_trace(source, shape)
            if isinstance(opened, Trace):
                found.append(_recorded(opened, objectives, peak, shown))
                continue
            found += _named(
                comparing.outcomes(
                    cases,
                    opened,
                    seed=seed,
                    cost=took,
                    objectives=objectives,
                    peak_flops=peak,
                    seen=lambda events: counted(events, shown),
                ),
                opened if several else None,
            )
    title = f"Comparison of {', '.join(Path(name).name for name in sources)}"
    for path in files:
        comparing.write(path, found, title)
    finish(comparison_page(found, whole), found, files, format)


def finish(page: Page, found: Sequence[Outcome], files: Sequence[str], format: Format) -> None:
    """Print a comparison, and which files it was written to."""
    if format is Format.json:
        console.emit(to_json(comparison_object(found)))
        return
    for path in files:
        page.add(f"wrote {path}")
    console.show(page)


def _recorded(trace: Trace, objectives: Objectives | None, peak: float | None, shown: Bar | None) -> Outcome:
    label = Path(trace.path).stem
    return measured_trace(
        trace,
        label=label,
        objectives=objectives,
        peak_flops=peak,
        seen=lambda events: counted(events, shown),
    )


def _named(outcomes: Iterator[Outcome], workload: Workload | None) -> Iterator[Outcome]:
    """Where several sources are compared, each label says whose it is."""
    for outcome in outcomes:
        if workload is None:
            yield outcome
        else:
            yield replace(outcome, label=f"{Path(workload.path).stem} {outcome.label}")
