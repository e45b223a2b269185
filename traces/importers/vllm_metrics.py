"""vLLM's `/metrics`: one scrape, in the text format of Prometheus.

| metric | meaning | event |
| --- | --- | --- |
| `vllm:num_requests_running`, `vllm:num_requests_waiting` | at the scrape | `running`, `waiting` |
| `vllm:iteration_tokens_total_count` | iterations so far | `step` |
| counters and the `_sum` and `_count` of histograms | totals so far | `totals` in the header |
| `vllm:kv_cache_usage_perc` | share of the pool, not a number of blocks | not carried |
| buckets of histograms, all other metrics | | not carried |

A scrape is one state and names no request: the trace has one `step` row, and the totals stand in the
header, keyed by the metric's name without `vllm:`; `request_success_total` is keyed further by
`finished_reason`. Several engines in one scrape are refused, and so is a metric that stands twice, as in
two scrapes one after the other.

Source: https://github.com/vllm-project/vllm (Apache-2.0), `vllm/v1/metrics`; the Prometheus text format.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, number
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import filled_lines
from batchspec.traces.text import one_line, shown

NAME: Final = "vllm-metrics"
SAYS: Final = "vLLM metrics, one scrape (Prometheus text)"
MOST: Final = 100_000
"""Most samples that a scrape is believed to hold."""

_SAMPLE: Final = re.compile(r"vllm:([a-z0-9_]{1,100})(?:\{(.{0,4000})\})? (\S{1,40})(?: -?\d{1,20})?")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w{0,100})="((?:[^"\\]|\\.){0,1000})"', re.ASCII)
_TOTALS: Final = ("_total", "_sum", "_count")


class Scrape(NamedTuple):
    """One state of one engine, and its totals so far."""

    engine: str | None
    gauges: dict[str, int | Decimal]
    totals: dict[str, Any]


def detect(head: bytes, path: Path) -> bool:
    """True for a scrape with a metric of vLLM's."""
    return re.search(rb"(?m)^(?:# (?:HELP|TYPE) )?vllm:[a-z_]+[ {]", head) is not None


def header(path: Path) -> Header:
    """What the resulting trace says about itself: the totals of the scrape. Reads the file."""
    totals = scrape(path, ImportLog()).totals
    return Header(producer_name="vllm", clock="wall", extra={"totals": totals})


def scrape(path: Path, log: ImportLog) -> Scrape:
    """The scrape. Raises `TraceError` for several engines or several scrapes."""
    log.place = one_line(path)
    engine: str | None = None
    gauges: dict[str, int | Decimal] = {}
    totals: dict[str, Any] = {}
    seen: set[tuple[str, str]] = set()
    for line, text in filled_lines(path):
        log.line = line
        found = _SAMPLE.fullmatch(text)
        if found is None:
            if not text.startswith("#"):
                log.note("samples of other programs")
            continue
        metric, labels = found[1], dict(_LABEL.findall(found[2] or ""))
        if (metric, found[2] or "") in seen:
            raise TraceError(f"{log.where}: {metric} stands twice; give one scrape a file")
        seen.add((metric, found[2] or ""))
        if len(seen) > MOST:
            raise TraceError(f"{log.where}: more than {MOST} samples; give one scrape a file")
        if "engine" in labels:
            engine = labels["engine"] if engine is None else engine
            if labels["engine"] != engine:
                other = f"engine {shown(labels['engine'])} beside {shown(engine)}"
                raise TraceError(f"{log.where}: {other}: a trace is of one engine; keep the lines of one")
        try:
            value = number(found[3], metric)
        except Unusable as problem:
            log.drop(str(problem))
            continue
        if metric == "request_success_total":
            totals.setdefault(metric, {})[labels.get("finished_reason", "")] = _plain(value)
        elif metric.endswith(_TOTALS):
            totals[metric] = _plain(value)
        elif not metric.endswith("_bucket"):
            gauges[metric] = value
    log.line = 0
    return Scrape(engine, gauges, totals)


def events(path: Path, log: ImportLog) -> Iterator[Event]:
    """One `step` row. Raises `TraceError` for a scrape without requests that run and wait."""
    log.what = "events"
    found = scrape(path, log)
    try:
        running = count(found.gauges.get("num_requests_running"), "num_requests_running")
        waiting = count(found.gauges.get("num_requests_waiting"), "num_requests_waiting")
        step = count(found.totals.get("iteration_tokens_total_count", 0), "iteration_tokens_total_count")
    except Unusable as problem:
        raise TraceError(f"{log.where}: {problem}; not a scrape of vLLM's metrics") from None
    log.kept += 1
    yield Event(step, "step", running=running, waiting=waiting)


def _plain(value: int | Decimal) -> int | float:
    """A number as JSON has it, whole where it is whole."""
    if isinstance(value, Decimal) and value.adjusted() < 18 and value == int(value):
        return int(value)
    return value if isinstance(value, int) else float(value)
