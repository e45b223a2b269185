"""Pictures of comparisons and sweeps, with matplotlib (extra `plot`): PNG, SVG, or SVG text for a page."""

from collections.abc import Callable, Sequence
from importlib import import_module
from io import BytesIO, StringIO
from math import ceil
from typing import Any, Final

from batchspec.replay.outcome import FIGURES, Outcome
from batchspec.replay.report.page import plain
from batchspec.spec.errors import BatchspecError

_FIGURES: Final = {figure.name: figure for figure in FIGURES}
_BARS: Final = (
    ("throughput", ("throughput",), "output tokens a second"),
    ("utilisation", ("slot_utilisation", "busy"), "share"),
    ("queueing delay", ("queueing_p50_ms", "queueing_p95_ms", "queueing_p99_ms"), "ms"),
    ("time to first token", ("ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms"), "ms"),
    ("time between tokens", ("tbt_p50_ms", "tbt_p95_ms", "tbt_p99_ms"), "ms"),
    ("preemption", ("recomputed_share",), "share of positions computed again"),
    ("fairness", ("service_spread",), "drift of two tenants' services, weighted tokens"),
)
_CURVES: Final = (
    ("throughput", "output tokens a second"),
    ("ttft_p95_ms", "p95 time to first token, ms"),
    ("tbt_p95_ms", "p95 time between tokens, ms"),
)
_COLOURS: Final = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#8c8c8c")
_STYLE: Final = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "batchspec",
}
_LONGEST_LABEL: Final = 32
_ACROSS: Final = 3


def bars(outcomes: Sequence[Outcome], title: str) -> Any:
    """A figure for runs side by side: one panel a group of figures, one bar a run and figure."""

    panels = [
        panel
        for panel in _BARS
        if any(_FIGURES[name].of(outcome) for name in panel[1] for outcome in outcomes)
    ]
    lines = max(1, ceil(len(panels) / _ACROSS))

    def draw(figure: Any) -> None:
        axes = figure.subplots(lines, _ACROSS, squeeze=False)
        names = [_label(outcome.label) for outcome in outcomes]
        for axis, (heading, shown, unit) in zip(axes.flat, panels, strict=False):
            high = 0.8 / len(shown)
            for number, name in enumerate(shown):
                values = [_FIGURES[name].of(outcome) or 0 for outcome in outcomes]
                places = [place + (number - (len(shown) - 1) / 2) * high for place in range(len(outcomes))]
                axis.barh(places, values, high, color=_COLOURS[number], label=_part(name))
            axis.set_yticks(range(len(names)), names, parse_math=False)
            axis.invert_yaxis()
            axis.set_xlim(left=0)
            axis.set_title(heading)
            axis.set_xlabel(unit)
            if len(shown) > 1:
                axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        figure.suptitle(_label(title, 100), parse_math=False)

    return _figure(draw, (14, lines * (1.2 + 0.45 * max(3, len(outcomes)))))


def curves(outcomes: Sequence[Outcome], over: str, title: str) -> Any:
    """A figure for a sweep: figures over `over` (a setting), a line a label, and the trade-off itself:
    p95 of the end-to-end latency against throughput."""
    lines: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        lines.setdefault(outcome.label, []).append(outcome)

    def draw(figure: Any) -> None:
        axes = figure.subplots(2, 2)
        for axis, (name, heading) in zip(axes.flat, _CURVES, strict=False):
            for number, (label, points) in enumerate(lines.items()):
                at = [outcome.settings[over] for outcome in points]
                values = [_FIGURES[name].of(outcome) for outcome in points]
                axis.plot(at, values, marker="o", color=_COLOURS[number % len(_COLOURS)], label=_label(label))
            axis.set_title(heading)
            axis.set_xlabel(
                over.replace("_", " ") + (", requests a second" if over == "offered_rate" else "")
            )
            axis.margins(y=0.1)
            axis.set_ylim(bottom=0)
        trade = axes.flat[3]
        for number, points in enumerate(lines.values()):
            reached = [_FIGURES["throughput"].of(outcome) for outcome in points]
            paid = [_FIGURES["e2e_p95_ms"].of(outcome) for outcome in points]
            trade.plot(reached, paid, marker="o", color=_COLOURS[number % len(_COLOURS)])
        trade.set_title("the trade-off")
        trade.set_xlabel("throughput, output tokens a second")
        trade.set_ylabel("p95 end to end, ms")
        trade.margins(y=0.1)
        trade.set_ylim(bottom=0)
        legend = axes.flat[0].legend(fontsize=8)
        for text in legend.get_texts():
            text.set_parse_math(False)
        figure.suptitle(_label(title, 100), parse_math=False)

    return _figure(draw, (11, 8))


def image(figure: Any, kind: str) -> bytes:
    """A figure as a `png` or `svg` file."""
    made = BytesIO()
    _write(figure, made, kind)
    return made.getvalue()


def svg(figure: Any) -> str:
    """A figure as an `<svg>` element for an HTML page."""
    made = StringIO()
    _write(figure, made, "svg")
    text = made.getvalue()
    return text[text.index("<svg") :]


def available() -> Any:
    """Matplotlib. Raises `BatchspecError` that says how to install it."""
    try:
        return import_module("matplotlib")
    except ModuleNotFoundError:
        raise BatchspecError(
            "pictures need matplotlib, which is not installed: pip install 'batchspec[plot]'"
        ) from None


def _figure(draw: Callable[[Any], None], size: tuple[float, float]) -> Any:
    matplotlib, figures = available(), import_module("matplotlib.figure")
    # A figure without pyplot: no window, no state that outlives it.
    with matplotlib.rc_context(_STYLE):
        figure = figures.Figure(figsize=size, layout="constrained")
        draw(figure)
    return figure


def _write(figure: Any, target: Any, kind: str) -> None:
    """No date, no version and no random id in a picture: the same run gives the same bytes."""
    said = {"Date": None, "Creator": "batchspec"} if kind == "svg" else {"Software": "batchspec"}
    with available().rc_context(_STYLE):
        figure.savefig(target, format=kind, dpi=150, metadata=said)


def _label(text: str, most: int = _LONGEST_LABEL) -> str:
    shown = plain(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _part(name: str) -> str:
    return name.removesuffix("_ms").rpartition("_")[2] if name.endswith("_ms") else name.replace("_", " ")
