"""Making a report: a trace and what a check said of it, read once more and written as one file."""

from collections.abc import Sequence
from pathlib import Path

from batchspec.replay.coverage import Coverage
from batchspec.replay.overview.latencies import Latencies
from batchspec.replay.overview.overview import Overview
from batchspec.replay.progress import Bar, counted
from batchspec.replay.report.html.document import records_html, trace_html
from batchspec.replay.report.html.findings import MOST_FINDINGS, Evidence, evidence
from batchspec.spec.errors import BatchspecError
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.served import Served
from batchspec.spec.verdict import Report
from batchspec.traces.text import one_line
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable

MOST_IN_FULL = 5000
"""Steps of a stretch that is asked for by number, shown in full whatever the length of the trace."""


def html_of(
    trace: Trace | RecordTable,
    report: Report,
    *,
    command: Sequence[str] = (),
    stretch: tuple[int, int] | None = None,
    coverage: Coverage | None = None,
    shown: Bar | None = None,
) -> str:
    """The page of a trace or a table of requests, in one pass over it and a look at each finding.

    `stretch` are steps to keep in full, first and last; `coverage` is shown where it was measured.
    `shown` counts the events read.
    """
    if isinstance(trace, RecordTable):
        latencies = Latencies()
        for record in counted(trace.records(), shown):
            latencies.add(_served(record))
        return records_html(report, latencies, Evidence({}, {}), command, coverage)
    claims = Profile.from_dict(report.config)
    wanted = {finding.step for finding in report.findings[:MOST_FINDINGS] if finding.step is not None}
    if stretch is not None:
        first, last = stretch
        wanted.update(range(first, min(last, first + MOST_IN_FULL) + 1))
    overview = Overview(
        claims, columns=trace.columns, recorded=trace.outputs_recorded, wanted=sorted(wanted)
    ).feed(counted(trace.events(), shown))
    return trace_html(report, overview, evidence(trace, report.findings, report.config), command, coverage)


def save(path: str | Path, page: str) -> None:
    """Write a page. Raises `BatchspecError` where it cannot."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Bytes of a name that are no text come from the system as lone surrogates.
        Path(path).write_bytes(page.encode("utf-8", "replace"))
    except OSError as error:
        raise BatchspecError(f"{one_line(path)}: cannot be written ({error.strerror or error})") from None


def _served(record: Record) -> Served:
    end = None if record.finish_ns is None else "finish"
    return Served(
        request=record.request,
        tenant=record.tenant,
        arrival_ns=record.arrival_ns,
        admitted_ns=record.admitted_ns,
        first_token_ns=record.first_token_ns,
        finish_ns=record.finish_ns,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens or 0,
        preemptions=0,
        recomputed=0,
        end=end,
    )
