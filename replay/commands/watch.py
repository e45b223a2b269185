"""`batchspec watch`: a growing trace, judged as it grows."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from batchspec.replay import console
from batchspec.replay.claims import load_config, named_profile
from batchspec.replay.exposition import Exposition
from batchspec.replay.report.page import Page
from batchspec.replay.report.text import finding_lines
from batchspec.replay.watching import Look, Watch, save_parts
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import BatchspecError


def watch(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="The folder or file that is being written.")],
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the scheduler claims, in place of the header.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="How often to look.", min=0.05)] = 2.0,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve Prometheus metrics there.", min=0, max=65535)
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="FILE", help="Remember what was reported, over restarts.")
    ] = None,
    save: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Copy the trace there at the first finding.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, give the verdict and end.")] = False,
    until_violation: Annotated[
        bool, typer.Option("--until-violation", help="End with status 1 at the first finding.")
    ] = False,
) -> None:
    """Follow a trace while it is written: findings as they come, metrics for Prometheus.

    It ends when the producer says that the trace is complete, or at an interrupt (Ctrl-C, SIGTERM);
    the exit status is the verdict on what was judged until then.

    Example:  batchspec watch traces/ --profile vllm-v1 --metrics 9400
    """
    follower = Watch(
        trace,
        profile=None if profile is None else named_profile(profile),
        config=None if config is None else load_config(config),
        state=state,
    )
    exposition = None if metrics is None else Exposition(metrics)
    if exposition is not None:
        console.warn(f"metrics at http://localhost:{exposition.port}/metrics")
    saved = None if save is None else Path(save)
    with _interrupts() as interrupted:
        for look in looks(follower, every, interrupted, once=once):
            if exposition is not None:
                exposition.set(look)
            if look.began_again is not None:
                console.warn(f"judged again from the first row that is there ({look.began_again})")
            if look.findings:
                _show(look, trace)
                if saved is not None:
                    count = save_parts(Path(trace), saved)
                    console.warn(f"saved {count} files to {saved}")
                    saved = None
                if until_violation:
                    break
    report = follower.report()
    if report is None:
        raise BatchspecError(f"{trace}: nothing there to judge yet; is the recording still to come?")
    console.emit(f"{trace}: {report.verdict}, {report.events:,} events, {report.steps:,} steps\n")
    raise typer.Exit(console.VIOLATES if report.verdict == "violates" else console.CONFORMS)


def looks(
    follower: Watch,
    every: float,
    interrupted: Callable[[], bool],
    *,
    once: bool = False,
    sleep: Callable[[float], Any] = time.sleep,
    clock: Callable[[], int] = time.time_ns,
) -> Iterator[Look]:
    """One look after the other, `every` so many seconds, until the trace is complete or it is enough."""
    while not interrupted():
        look = follower.look(clock())
        yield look
        if look.complete or once:
            return
        sleep(every)


def _show(look: Look, trace: str) -> None:
    page = Page()
    for finding in look.findings:
        finding_lines(page, finding, RULES[finding.rule].sentence, None, f"batchspec check {trace}")
        page.gap()
    console.show(page)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether an end was asked for; the first request lets the look that is under way finish."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
