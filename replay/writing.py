"""Writing a trace that a command has made: Parquet or scenario text, whole or not at all."""

from collections.abc import Iterable
from pathlib import Path

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.traces.header import Header
from batchspec.traces.recorder import Recorder
from batchspec.traces.scenario import MAX_BYTES, format_scenario
from batchspec.traces.schema import IdType
from batchspec.traces.text import one_line
from batchspec.traces.trace import Trace
from batchspec.traces.writer import cannot_write

_TEXT_ROWS = 100_000


def write_trace(
    out: str | Path, events: Iterable[Event], header: Header, id_type: IdType | None = None
) -> int:
    """Write the events to `out`, a file named `*.parquet`, or `*.txt` for scenario text. Returns the rows.

    What stands there already is replaced once the new one is whole. Raises `TraceError`.
    """
    target = Path(out)
    if target.suffix == ".txt":
        return _write_text(target, events, header)
    if target.suffix != ".parquet":
        raise TraceError(f"{one_line(out)}: name the file *.parquet, or *.txt for scenario text")
    partial = target.with_name(f"{target.stem}.writing.parquet")
    try:
        with Recorder(partial, header, id_type=id_type) as recorder:
            recorder.write_all(events)
            recorder.close(complete=header.complete)
        partial.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return recorder.rows


def _write_text(target: Path, events: Iterable[Event], header: Header) -> int:
    rows = []
    for event in events:
        rows.append(event)
        if len(rows) > _TEXT_ROWS:
            raise TraceError(f"{one_line(target)}: too long for scenario text; name the file *.parquet")
    text = format_scenario(Trace.from_events(rows, header))
    if len(text) > MAX_BYTES:
        raise TraceError(f"{one_line(target)}: too long for scenario text; name the file *.parquet")
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(target, error) from None
    return len(rows)
