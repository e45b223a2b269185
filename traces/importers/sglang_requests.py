"""SGLang's request log (`--log-requests`): JSON behind a `[time]` in each line, or text.

| field | meaning | record |
| --- | --- | --- |
| `event` | `request.received` or `request.finished`; lines of other kinds are counted | |
| `rid` | id | `request` |
| `timestamp` | when the line was written, local time | `arrival_ns` of a request without an end |
| `obj.sampling_params.max_new_tokens` | most output tokens | `max_tokens` |
| `out.meta_info` | as in `sglang_meta` | as there |

In text (`--log-requests-format text`, the usual one; see `sglang_text`) the same fields stand in lines that
begin with `Receive: obj=` and `Finish: obj=`. Where `meta_info` has no `request_received_ts` (older servers),
the request arrives when its `Receive` line was written, to the second, which is noted; without that line it
arrived `e2e_latency` before its `Finish` line.

A request that was received and not finished keeps its id and its limit, and arrives when its line was
written, on the scale of the first finished request; it has no lengths, which is noted. Requests are put
in the order of arrival.

Source: https://github.com/sgl-project/sglang (Apache-2.0), the request logger.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers import sglang_meta, sglang_text
from batchspec.traces.importers.fields import Unusable, mapping, maybe_count, word
from batchspec.traces.importers.jsontext import parsed
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, filled_lines, kept
from batchspec.traces.importers.times import date, nanoseconds

NAME: Final = "sglang-requests"
SAYS: Final = "SGLang request log (text, or JSON in log lines)"
MOST_OPEN: Final = 1_000_000
"""Most requests that are received and not finished."""


def detect(head: bytes, path: Path) -> bool:
    """True for a log with a line that says that a request was received or finished."""
    return any(mark in head for mark in _MARKS)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="sglang", clock="wall")


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival."""
    received: dict[str, tuple[int, int | None]] = {}
    # What the clock of the lines is ahead of the clock of the records: the first differs by its zone.
    ahead: int | None = None

    def received_at(identity: str, written: int | None, parameters: Mapping[str, Any]) -> None:
        if written is None:
            raise Unusable("a timestamp that is not a time")
        if len(received) >= MOST_OPEN:
            raise TraceError(f"{log.where}: more than {MOST_OPEN} requests received and not finished")
        received[identity] = (written, maybe_count(parameters.get("max_new_tokens"), "max_new_tokens"))

    def finished(identity: str, meta: Mapping[str, Any], parameters: Mapping[str, Any]) -> Record:
        nonlocal ahead
        begun = received.pop(identity, None)
        record = sglang_meta.record(meta, parameters)
        if ahead is None and begun is not None:
            ahead = round((begun[0] - record.arrival_ns) / _QUARTER) * _QUARTER
        return record

    def of_text(line: sglang_text.Line) -> Record | None:
        identity = word(line.meta.get("id") if line.request is None else line.request, "rid")
        if line.kind == "Receive":
            received_at(identity, line.written, line.sampling)
            return None
        meta = {"id": identity, **line.meta}
        if "request_received_ts" not in meta:
            meta["request_received_ts"] = _to_the_second(line, received.get(identity), log)
        return finished(identity, meta, line.sampling)

    def made(index: int, text: str) -> Record | None:
        line = sglang_text.line_of(text)
        if line is not None:
            return of_text(line)
        at = text.find("{")
        event = text.find('"event": "request.')
        if at < 0 or event < at:
            log.note("lines about something else")
            return None
        row = parsed(text[at:])
        what, identity = row.get("event"), word(row.get("rid"), "rid")
        parameters = mapping(mapping(row.get("obj"), "obj").get("sampling_params"), "sampling_params")
        written = date(row.get("timestamp"))
        if what == "request.received":
            received_at(identity, written, parameters)
            return None
        if what != "request.finished":
            log.note("lines about something else")
            return None
        meta = mapping(mapping(row.get("out"), "out").get("meta_info"), "meta_info")
        return finished(identity, meta, parameters)

    def all_of_them() -> Iterator[Record]:
        yield from kept(filled_lines(path), made, log, path)
        for identity, (written, most) in received.items():
            log.note("requests that were not finished: without lengths")
            log.kept += 1
            yield Record(identity, written - (ahead or 0), max_tokens=most)

    return by_arrival(all_of_them(), log, since_first=True)


def _to_the_second(line: sglang_text.Line, begun: tuple[int, int | None] | None, log: ImportLog) -> Decimal:
    """When a request arrived, in seconds, from the clock of the lines."""
    if begun is not None:
        log.note("arrivals to the second: those of the Receive lines")
        return Decimal(begun[0]).scaleb(-9)
    if line.written is None:
        raise Unusable("neither request_received_ts nor a time at the head of the line")
    log.note("arrivals to the second: e2e_latency before the Finish lines")
    took = nanoseconds(line.meta.get("e2e_latency"), "s", "e2e_latency")
    if took > line.written:
        raise Unusable("e2e_latency is too large for a time")
    return Decimal(line.written - took).scaleb(-9)


_MARKS: Final = (
    b'"event": "request.received"',
    b'"event": "request.finished"',
    b"Receive: obj=",
    b"Finish: obj=",
)
_QUARTER: Final = 900 * 1_000_000_000
"""Zones differ by quarters of an hour."""
