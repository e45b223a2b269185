"""The data block: what the scripts of a page draw, as plain values. Packed, because a page is one file.

A run of the picture is packed as differences: `first` from the run before, `length`, `request` (its number)
from the run before, `code` = seat row · 16 + kind · 4 + end, `late` = the step of its end − its last step.
"""

import json
import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final

from batchspec.replay.overview.heat import MOST_STRETCHES
from batchspec.replay.overview.latencies import SHARES, Latencies
from batchspec.replay.overview.overview import Overview
from batchspec.replay.report.context import short
from batchspec.replay.report.page import plain
from batchspec.spec.events import RequestId
from batchspec.spec.rules.fairness import service_bound
from batchspec.spec.verdict import Finding
from batchspec.traces.seats import Run

_ENDS: Final = {"": 0, "finish": 1, "preempt": 2, "abort": 3, "reject": 3}
_CURVES: Final = {
    "queueing delay": "queueing_ns",
    "time to first token": "ttft_ns",
    "time per output token": "tpot_ns",
    "end to end": "end_to_end_ns",
}


def page_data(overview: Overview, findings: Sequence[Finding]) -> dict[str, Any]:
    """Everything that the scripts draw of a trace."""
    runs = sorted(overview.detail.runs, key=lambda run: (run.first, run.seat))
    numbers: dict[RequestId, int] = {}
    for run in runs:
        numbers.setdefault(run.request, len(numbers))
    tenants = list(overview.tenants.names)
    return {
        "steps": overview.steps,
        "breaks": overview.breaks or [(0, 0)],
        "limits": _limits(overview),
        "buckets": {"width": overview.buckets.width, "columns": _columns(overview)},
        "seats": _seats(overview, runs, numbers),
        "requests": _requests(overview, numbers),
        "tenants": [plain(name, 40) for name in tenants],
        "bound": _bound(overview),
        "service": "2U" if overview.profile.admission.order == "fair" else "2U of a fair order",
        "latency": latency_data(overview.latencies),
        "findings": [
            {
                "at": None if finding.step is None else overview.places.get(finding.step),
                "requests": [numbers[name] for name in finding.requests if name in numbers],
            }
            for finding in findings
        ],
    }


def latency_data(latencies: Latencies) -> dict[str, Any] | None:
    """The quantiles of each latency, or None where there are no times."""
    curves = {says: latencies.quantiles(name) for says, name in _CURVES.items()}
    known = {says: [round(value) for value in values] for says, values in curves.items() if values}
    return {"shares": SHARES, "curves": known} if known else None


def embedded(data: dict[str, Any]) -> str:
    """JSON that may stand inside a `<script>` element: no character of it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _limits(overview: Overview) -> dict[str, int | None]:
    names = ("max_seqs", "token_budget", "kv_blocks", "block_size", "max_waiting")
    return {name: getattr(overview.limits, name) for name in names}


def _columns(overview: Overview) -> dict[str, list[float | None]]:
    buckets = overview.buckets
    columns: dict[str, list[float | None]] = {
        name: _rounded(buckets.means(name))
        for name in ("prefill", "decode", "again", "members", "waiting", "running")
    }
    columns["time_ns"] = buckets.peaks("time_ns")
    if overview.has_blocks:
        columns["blocks"] = buckets.peaks("blocks")
    if buckets.width > 1:
        columns["waiting_peak"] = buckets.peaks("waiting")
        columns["tokens_peak"] = buckets.peaks("tokens")
    if overview.tenants.names:
        columns["drift"] = _rounded(buckets.peaks("drift"))
        for number in range(len(overview.tenants.names)):
            columns[f"service{number}"] = _rounded(buckets.peaks(f"service{number}"))
    return columns


def _seats(overview: Overview, runs: Sequence[Run], numbers: dict[RequestId, int]) -> dict[str, Any]:
    seats = sorted(overview.heat.rows)
    row_of = {seat: row for row, seat in enumerate(seats)}
    packed: dict[str, list[float]] = {
        name: [] for name in ("first", "length", "code", "late", "request", "tokens")
    }
    at = name = 0
    for run in runs:
        row = row_of.get(run.seat)
        if row is None:
            continue
        packed["first"].append(run.first - at)
        packed["length"].append(run.last - run.first + 1)
        packed["code"].append(row * 16 + run.kind * 4 + _ENDS[run.end])
        packed["late"].append(run.end_at - run.last if run.end else 0)
        packed["request"].append(numbers[run.request] - name)
        packed["tokens"].append(run.tokens)
        at, name = run.first, numbers[run.request]
    spans = overview.detail.spans(overview.steps)
    whole = spans == [(0, overview.steps - 1)]
    heat = None
    if overview.steps > MOST_STRETCHES or not whole:
        levels = b64encode(overview.heat.levels(seats, overview.steps)).decode()
        heat = {"width": overview.heat.width, "levels": levels}
    return {
        "labels": seats,
        "spans": spans,
        "heat": heat,
        "runs": packed,
    }


def _requests(overview: Overview, numbers: dict[RequestId, int]) -> dict[str, list[Any]]:
    tenants = overview.tenants.names
    about: dict[str, list[Any]] = {
        "id": [],
        "prompt": [],
        "outputs": [],
        "preemptions": [],
        "tenant": [],
    }
    for request in numbers:
        served = overview.served.get(request)
        about["id"].append(short(plain(request, 60)))
        about["prompt"].append(None if served is None else served.prompt_tokens)
        about["outputs"].append(None if served is None else served.output_tokens)
        about["preemptions"].append(0 if served is None else served.preemptions)
        about["tenant"].append(
            None if served is None or served.tenant is None else tenants.get(served.tenant)
        )
    return about


def _bound(overview: Overview) -> float | None:
    limits = overview.limits
    if limits.kv_blocks is None or limits.block_size is None:
        return None
    return service_bound(overview.profile, overview.tenants.longest_prompt)


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    """Four digits are more than a plot shows."""
    return [None if value is None else _round(value) for value in values]


def _round(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = round(value, max(0, 3 - math.floor(math.log10(abs(value)))))
    return int(rounded) if rounded == int(rounded) else rounded
