"""The document: sections, styles, scripts and data put together into one file.

The scripts are package data beside this module: uPlot (MIT, its licence beside it) and our own. A content
security policy names the hash of each, so that nothing that a trace may hold can run, and forbids requests.
"""

import hashlib
import json
import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import Any, Final

from batchspec.replay.coverage import Coverage
from batchspec.replay.overview.latencies import Latencies
from batchspec.replay.overview.overview import Overview
from batchspec.replay.report.html import figures
from batchspec.replay.report.html.covered import coverage_section
from batchspec.replay.report.html.data import embedded, latency_data, page_data
from batchspec.replay.report.html.findings import Evidence, findings_section
from batchspec.replay.report.html.markup import Html, block, join, safe, section, tag
from batchspec.replay.report.html.preempted import preemptions_section
from batchspec.replay.report.html.verdict import rules_section, verdict_section
from batchspec.replay.report.page import plain
from batchspec.spec.catalogue import RULES
from batchspec.spec.verdict import Report

_STYLES: Final = ("uplot.min.css", "page.css")
_SCRIPTS: Final = ("uplot.min.js", "picture.js", "charts.js", "page.js")


def trace_html(
    report: Report,
    overview: Overview,
    found: Evidence,
    command: Sequence[str] = (),
    coverage: Coverage | None = None,
) -> str:
    """The report of a trace. `command` is the command line that made it."""
    metrics = overview.metrics
    data = page_data(overview, report.findings)
    key = [] if metrics is None else figures.tiles(metrics)
    parts = [
        ("verdict", "Verdict", verdict_section(report, key)),
        ("findings", "Findings", findings_section(report, found, RULES, pictured=True)),
        ("picture-section", "Slots", figures.picture_section(overview)),
        ("plots", "Over steps", figures.plots_section(overview)),
        ("latency", "Latency", figures.latency_section(metrics, data["latency"] is not None)),
        ("tenants", "Tenants", figures.tenants_section(overview)),
        ("preemptions", "Preemptions", preemptions_section(overview)),
        ("figures", "Figures", Html("") if metrics is None else figures.figures_section(metrics)),
        ("rules", "Rules", rules_section(report, RULES)),
        ("coverage", "Coverage", coverage_section(coverage)),
        ("claims", "Claims", _claims(report.config)),
    ]
    return _document(report, parts, data, command)


def records_html(
    report: Report,
    latencies: Latencies,
    found: Evidence,
    command: Sequence[str] = (),
    coverage: Coverage | None = None,
) -> str:
    """The report of a table of requests, which has no steps: no picture and no plots over steps."""
    data: dict[str, Any] = {
        "steps": 0,
        "latency": latency_data(latencies),
        "limits": {},
        "tenants": [],
        "findings": [],
    }
    parts = [
        ("verdict", "Verdict", verdict_section(report, ())),
        ("findings", "Findings", findings_section(report, found, RULES, pictured=False)),
        ("latency", "Latency", figures.latency_section(None, data["latency"] is not None)),
        ("rules", "Rules", rules_section(report, RULES)),
        ("coverage", "Coverage", coverage_section(coverage)),
        ("claims", "Claims", _claims(report.config)),
    ]
    return _document(report, parts, data, command)


def _document(
    report: Report, parts: Sequence[tuple[str, str, Html]], data: dict[str, Any], command: Sequence[str]
) -> str:
    there = [(name, heading, made) for name, heading, made in parts if made.text]
    scripts = [_asset(name) for name in _SCRIPTS]
    made_by = f"batchspec {version('batchspec')}"
    by = f"  {plain(shlex.join(command), 1000)}" if command else ""
    return Template(_asset("page.html")).substitute(
        title=safe(f"{report.trace}: {report.verdict}"),
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in scripts),
        styles="\n".join(map(_asset, _STYLES)),
        nav=join(tag("a", heading, href=f"#{name}") for name, heading, _ in there),
        body=join((made for _, _, made in there), "\n"),
        footer=join([made_by, tag("code", by) if by else "", ". Plots by uPlot (MIT licence)."]),
        data=embedded(data),
        licence=_asset("uplot.LICENSE.txt").strip(),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _claims(config: Mapping[str, Any]) -> Html:
    if not config:
        return Html("")
    text = json.dumps(config, indent=1, sort_keys=False)
    return section(
        "claims",
        "Claims",
        tag("p", "What the trace was held against: its profile and config, merged."),
        tag("details", tag("summary", "Show them"), block(text), class_="screen"),
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(script: str) -> str:
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()
