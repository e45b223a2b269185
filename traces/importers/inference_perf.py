"""inference-perf's OpenTelemetry traces: one JSON object with the spans of agents' model calls.

| field of a span | meaning | record |
| --- | --- | --- |
| `start_time`, `end_time` | dates | `arrival_ns` since the first, `finish_ns` |
| `span_id`, else `gen_ai.request.id` | id | `request` |
| `attributes` | as in `otel`, as plain values | as there |
| `status.code` 2 | the span failed | `status` error |
| all others | | not carried |

Calls depend on the answers of earlier ones; the times are those that were recorded. A span without token
counts (the project's own examples have the texts alone) keeps its times and has no lengths. Spans are
put in the order of arrival. The CSV traces of inference-perf are Azure's: importer `azure`.

Source: https://github.com/kubernetes-sigs/inference-perf (Apache-2.0), the trace replay examples.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers import otel
from batchspec.traces.importers.fields import Unusable, mapping
from batchspec.traces.importers.jsontext import document, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, kept
from batchspec.traces.importers.times import date
from batchspec.traces.text import one_line

NAME: Final = "inference-perf"
SAYS: Final = "inference-perf's OpenTelemetry traces (JSON)"


def detect(head: bytes, path: Path) -> bool:
    """True for an object with spans whose times are dates."""
    return {"spans", "span_id", "start_time", "end_time", "attributes"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="inference-perf", clock="wall", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The calls in the order of arrival. Raises `TraceError` for a file that is not of this format."""
    spans = document(path).get("spans")
    if not isinstance(spans, list):
        raise TraceError(f"{one_line(path)}: no list of spans; not a trace of inference-perf")

    def made(index: int, item: object) -> Record | None:
        span = mapping(item, "spans")
        attributes = mapping(span.get("attributes"), "attributes")
        if not otel.ABOUT & attributes.keys():
            log.note("spans about something else")
            return None
        start, end = date(span.get("start_time")), date(span.get("end_time"))
        if start is None or end is None:
            raise Unusable("a start_time or end_time that is not a time")
        failed = mapping(span.get("status"), "status").get("code") in (2, "ERROR")
        record = otel.request(attributes, start, end, span.get("span_id"), failed)
        if record.prompt_tokens is None or record.output_tokens is None:
            log.note("spans without token counts: their requests have no lengths")
        return record

    return by_arrival(kept(((0, span) for span in spans), made, log, path), log, since_first=True)
