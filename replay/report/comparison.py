"""A comparison of runs: as a page, as one JSON object, as an HTML page of its own."""

import html
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from batchspec.replay.outcome import FIGURES, Outcome
from batchspec.replay.report.page import Page, plain

SCHEMA_VERSION: Final = 1

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child { text-align: left }
thead th { border-bottom: 2px solid #888 }
.wide { overflow-x: auto }
svg { max-width: 100%; height: auto }
"""


def comparison_page(outcomes: Sequence[Outcome], whole: bool = False) -> Page:
    """A table with a line a figure and a column a run; figures that no run has are left out."""
    page = Page()
    head, rows = _cells(outcomes, whole)
    page.table(head, rows, "l" + "r" * len(outcomes), indent=0)
    return page


_SWEPT: Final = (
    "throughput",
    "request_rate",
    "slo_share",
    "slo_goodput",
    "slot_utilisation",
    "busy",
    "ttft_p50_ms",
    "ttft_p95_ms",
    "tbt_p50_ms",
    "tbt_p95_ms",
    "e2e_p95_ms",
    "preemptions",
)


def sweep_page(outcomes: Sequence[Outcome], over: str, whole: bool = False) -> Page:
    """A table with a line a point, in order; with `whole` a column for every figure that a run has."""
    page = Page()
    figures = [figure for figure in FIGURES if whole or figure.name in _SWEPT]
    kept = [figure for figure in figures if any(figure.of(outcome) is not None for outcome in outcomes)]
    rows = [
        (
            outcome.label,
            f"{outcome.settings[over]:g}",
            *(said(figure.of(outcome), figure.unit) for figure in kept),
        )
        for outcome in outcomes
    ]
    page.table(("", over, *(figure.name for figure in kept)), rows, "l" + "r" * (len(kept) + 1), indent=0)
    return page


def comparison_object(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Every setting and figure of each run as plain data."""
    return {
        "schema": SCHEMA_VERSION,
        "version": version("batchspec"),
        "runs": [
            {**outcome.row(), "run": outcome.label, "tenant_ttft_p95_ms": _milliseconds(outcome)}
            for outcome in outcomes
        ],
    }


def comparison_html(outcomes: Sequence[Outcome], title: str, picture: str) -> str:
    """One file with the picture (SVG of our own making) and the whole table; nothing is loaded."""
    head, rows = _cells(outcomes, whole=True)
    top = "".join(f"<th>{_safe(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{_safe(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{_safe(title)}</h1>\n"
        f'{picture}\n<div class="wide"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n'
        "</table></div>\n</body>\n</html>\n"
    )


def said(value: Any, unit: str) -> str:
    """A figure as it is read: three digits behind the point of small numbers, shares as per cent."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if unit == "share":
        return f"{value:.1%}"
    size = abs(value)
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3}f}"


def _cells(outcomes: Sequence[Outcome], whole: bool) -> tuple[list[str], list[list[str]]]:
    rows = []
    for figure in FIGURES:
        values = [figure.of(outcome) for outcome in outcomes]
        if (figure.brief or whole) and any(value is not None for value in values):
            unit = "" if figure.unit == "share" or figure.name.endswith(f"_{figure.unit}") else figure.unit
            name = f"{figure.name} ({unit})" if unit else figure.name
            rows.append([name, *(said(value, figure.unit) for value in values)])
    return ["", *(outcome.label for outcome in outcomes)], rows


def _milliseconds(outcome: Outcome) -> dict[str, float]:
    return {name: value / 1e6 for name, value in outcome.tenant_ttft_p95.items()}


def _safe(text: object) -> str:
    return html.escape(plain(text))
