"""`batchspec record`: the engine over a workload, recorded; or the membership of a trace, repeated."""

from importlib import import_module
from typing import Annotated, Any

import typer

from batchspec.replay import console
from batchspec.replay.claims import claimed
from batchspec.replay.commands import options
from batchspec.replay.progress import bar
from batchspec.replay.report.page import Page, count
from batchspec.replay.workload import Workload, load_workload
from batchspec.spec.errors import BatchspecError
from batchspec.spec.profile import Profile
from batchspec.traces.reader import open_trace


def record(
    workload: Annotated[
        str | None, typer.Argument(metavar="WORKLOAD", help="A request table, or records to import.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="TRACE", help="The trace to write: a .parquet file, or a folder.")
    ] = None,
    follow: Annotated[
        str | None, typer.Option(metavar="TRACE", help="Repeat this trace's steps and compare the tokens.")
    ] = None,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="What to schedule by: a shipped profile, or a file.")
    ] = "batchspec",
    config: options.Config = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="static, dynamic or continuous batching.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="ORDER", help="Order of admission: fcfs, sjf, priority or fair.")
    ] = None,
    preempt: Annotated[str | None, typer.Option(metavar="HOW", help="none, recompute or swap.")] = None,
    max_seqs: Annotated[int | None, typer.Option(metavar="N", help="Most requests that run at once.")] = None,
    token_budget: Annotated[int | None, typer.Option(metavar="N", help="Most tokens in a step.")] = None,
    kv_blocks: Annotated[int | None, typer.Option(metavar="N", help="KV blocks in the pool.")] = None,
    block_size: Annotated[int | None, typer.Option(metavar="N", help="Positions in a KV block.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A folder of config.json and safetensors; else a tiny random model."
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda or cuda:N.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="float32, float64, bfloat16, float16.")
    ] = "float32",
    clock: Annotated[
        str, typer.Option(metavar="KIND", help="virtual (the same rows each time), or wall (in real time).")
    ] = "virtual",
    level: Annotated[str, typer.Option(metavar="LEVEL", help="L1, L2 or L3: how much is recorded.")] = "L3",
    threads: Annotated[int, typer.Option(metavar="N", min=1, help="CPU threads of the engine.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Prompts and random weights.")] = 0,
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
    prompt_divisor: Annotated[
        int, typer.Option(metavar="N", min=1, help="Divide prompt lengths, for a small model.")
    ] = 1,
    output_divisor: Annotated[
        int, typer.Option(metavar="N", min=1, help="Divide output lengths, for a small model.")
    ] = 1,
) -> None:
    """Run the engine over a workload and record what it decides; or repeat a trace and compare tokens.

    The clock is virtual by default: same workload, options and seed, the same rows. `--follow` runs the
    recorded membership step for step; greedy tokens must be those of each request alone.

    Example:  batchspec record code.parquet --out run --max-seqs 8 --kv-blocks 64 --block-size 16
    """
    if (follow is None) == (workload is None or out is None):
        raise typer.BadParameter("give WORKLOAD and --out, or --follow TRACE")
    for name, value, known in (
        ("--clock", clock, ("virtual", "wall")),
        ("--level", level, ("L1", "L2", "L3")),
    ):
        if value not in known:
            raise typer.BadParameter(f"{name} must be one of {', '.join(known)}, not {value!r}")
    built = _model(model, device, dtype, seed, threads)
    if follow is not None:
        _follow(follow, built, seed)
        return
    claims = options.claims_of(
        profile,
        config,
        mode=mode,
        policy=policy,
        preempt=preempt,
        max_seqs=max_seqs,
        token_budget=token_budget,
        kv_blocks=kv_blocks,
        block_size=block_size,
    )
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
    _record(
        load_workload(workload or "", shape),
        out or "",
        claims,
        model=built,
        clock=clock,
        level=level,
        seed=seed,
        divisors=(prompt_divisor, output_divisor),
    )


def _record(
    workload: Workload,
    out: str,
    claims: Profile,
    *,
    model: Any,
    clock: str,
    level: str,
    seed: int,
    divisors: tuple[int, int],
) -> None:
    engine = _engine("record")
    clocks = _engine("clock")
    requests = _engine("workload").requests_of(
        workload.records,
        model.config.vocab_size,
        seed,
        prompt_divisor=divisors[0],
        output_divisor=divisors[1],
        hash_block=workload.hash_block,
    )
    with bar("recording") as shown:

        def tell(running: Any) -> None:
            if shown is not None:
                shown.to(running.scheduler.step)

        done = engine.record(
            requests,
            out,
            _engine("options").completed(claims),
            model=model,
            clock=clocks.WallClock() if clock == "wall" else clocks.VirtualClock(),
            level=level,
            seed=seed,
            warn=console.warn,
            each_step=tell,
        )
    if done.stopped is not None:
        raise BatchspecError(f"{out}: not complete: {done.stopped}")
    page = Page()
    written = (count(done.rows, "event"), count(done.steps, "step"), count(done.requests, "request"))
    page.add(f"wrote {out}: {', '.join(written)}, {count(done.preemptions, 'preemption')}")
    page.add(f"check it with:  batchspec check {out}")
    page.add(f"and its tokens: batchspec record --follow {out} --seed {seed}")
    console.show(page)


def _follow(trace: str, model: Any, seed: int) -> None:
    following = _engine("follow")
    opened = open_trace(trace)
    header = opened.header
    claims = claimed(header.profile, header.config) if header is not None else None
    size = (claims.limits.block_size if claims is not None else None) or 16
    done = following.follow(model, opened.events, seed=seed, block_size=size)
    result, findings = following.compare(model, done)
    page = Page()
    page.add(
        f"{result.id}: {result.verdict}; {count(result.checked, 'token')} of {count(len(done), 'request')}"
        f" compared, {count(result.skipped, 'first difference')} within rounding"
    )
    for finding in findings[:10]:
        page.add(f"step {finding.step}: {finding.message}")
        page.add(f"  seen:      {finding.observed}")
        page.add(f"  should be: {finding.expected}")
    console.show(page)
    if findings:
        raise typer.Exit(1)


def _model(folder: str | None, device: str, dtype: str, seed: int, threads: int) -> Any:
    made = _engine("model").Model
    # One thread by default: a small model gains nothing from more, and rounding is then the same anywhere.
    import_module("torch").set_num_threads(threads)
    return (
        made.random(seed=seed, device=device, dtype=dtype)
        if folder is None
        else made.from_folder(folder, device, dtype)
    )


def _engine(module: str) -> Any:
    """A module of the engine, which this room must not import by itself: it needs torch."""
    try:
        return import_module(f"batchspec.engine.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise BatchspecError(
            "the engine needs PyTorch, which is not installed: pip install 'batchspec[engine]'"
        ) from None
