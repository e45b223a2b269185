"""Comparing: one workload simulated under many claims, or at many loads, and what came of each.

A *case* is one run: claims, a load, and the label it is known by. Runs show no blocks (level L1), which
takes half the time and decides the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

from batchspec.replay.cost import Cost
from batchspec.replay.outcome import Outcome, measured
from batchspec.replay.report import plots
from batchspec.replay.report.comparison import comparison_html
from batchspec.replay.simulate import simulate
from batchspec.replay.workload import Workload
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.served import Objectives
from batchspec.traces.text import one_line
from batchspec.traces.writer import OPEN_SUFFIX, cannot_write

ENDINGS: Final = (".csv", ".parquet", ".png", ".svg", ".html")


@dataclass(frozen=True, slots=True)
class Case:
    """One run to make: `speed` scales the arrivals, `concurrency` replaces them by a closed loop."""

    label: str
    claims: Profile
    speed: float = 1.0
    concurrency: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def grid(choices: Mapping[str, Sequence[Any]], made: Callable[..., Profile]) -> list[Case]:
    """A case for each combination of choices; `made` turns one into claims.

    The label has what differs between cases: words as they are, numbers by name.
    """
    given = {name: list(values) or [None] for name, values in choices.items()}
    varied = [name for name, values in given.items() if len(values) > 1]
    cases = []
    for values in product(*given.values()):
        chosen = dict(zip(given, values, strict=True))
        shown = varied or [name for name in ("policy", "profile") if chosen[name] is not None][:1]
        words = [
            chosen[name] if isinstance(chosen[name], str) else f"{name}={chosen[name]}" for name in shown
        ]
        cases.append(Case(" ".join(words) or "run", made(**chosen)))
    return cases


def outcomes(
    cases: Iterable[Case],
    workload: Workload,
    *,
    seed: int = 0,
    cost: Cost | None = None,
    objectives: Objectives | None = None,
    peak_flops: float | None = None,
    seen: Callable[[Iterable[Event]], Iterable[Event]] = iter,
) -> Iterator[Outcome]:
    """Simulate each case over the workload and measure it. `seen` may count the events that pass by."""
    for case in cases:
        events = simulate(
            workload.records,
            case.claims,
            seed=seed,
            cost=cost,
            level="L1",
            speed=case.speed,
            concurrency=case.concurrency,
            hash_block=workload.hash_block,
        )
        offered = None
        if case.concurrency is None and workload.rate is not None:
            offered = workload.rate * case.speed
        yield measured(
            seen(events),
            case.claims,
            label=case.label,
            settings={"offered_rate": offered, "offered_concurrency": case.concurrency, **case.settings},
            recorded=case.claims.value("reuse.depth") > 1,
            objectives=objectives,
            peak_flops=peak_flops,
        )


def refuse_unwritable(paths: Sequence[str]) -> None:
    """Before hours of work: raise `BatchspecError` for a file that no comparison can be written to."""
    for path in paths:
        ending = Path(path).suffix.lower()
        if ending not in ENDINGS:
            raise BatchspecError(f"{one_line(path)}: --out must end in one of {', '.join(ENDINGS)}")
        if ending in (".png", ".svg", ".html"):
            plots.available()
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(Path(path), error) from None


def write(path: str, found: Sequence[Outcome], title: str, over: str | None = None) -> None:
    """Write a comparison as a table or a picture, by the ending; a sweep is drawn over `over`."""
    # pandas takes its time to load, and the other commands do without it.
    from batchspec.replay.frames import outcomes_frame

    target = Path(path)
    ending = target.suffix.lower()
    partial = target.with_name(target.name + OPEN_SUFFIX)
    try:
        if ending == ".csv":
            partial.write_text(outcomes_frame(found).to_csv(index=False), "utf-8")
        elif ending == ".parquet":
            outcomes_frame(found).to_parquet(partial, index=False)
        else:
            figure = plots.bars(found, title) if over is None else plots.curves(found, over, title)
            if ending == ".html":
                partial.write_text(comparison_html(found, title, plots.svg(figure)), "utf-8")
            else:
                partial.write_bytes(plots.image(figure, ending[1:]))
        partial.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
