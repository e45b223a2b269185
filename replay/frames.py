"""Frames: traces and outcomes as pandas data frames, for notebooks.

    from batchspec.replay import frames
    from batchspec.traces.reader import open_trace

    trace = open_trace("run.parquet")
    frames.requests_frame(trace).groupby("tenant").ttft_ns.describe()
    frames.passes_frame(trace).plot(x="began_ns", y=["members", "waiting"])

Times are nanoseconds in columns that end in `_ns`, and nullable integers, so that no digit is lost.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pandas as pd

from batchspec.replay.outcome import FIGURES, SETTINGS, Outcome
from batchspec.spec.events import COLUMNS
from batchspec.spec.metrics import measure
from batchspec.spec.passes import Pass, passes
from batchspec.spec.served import Served
from batchspec.traces.trace import Trace

_LATENCIES: Final = ("queueing_ns", "ttft_ns", "tpot_ns", "end_to_end_ns")


def events_frame(trace: Trace, first: int = 0, last: int | None = None) -> pd.DataFrame:
    """The rows [first, last) of a trace, one column a column of the format, all-null ones left out."""
    frame = _frame(list(trace.events(first, last)), COLUMNS)
    return frame.dropna(axis=1, how="all")


def requests_frame(trace: Trace) -> pd.DataFrame:
    """One row a request, in the order of their ends: times, lengths, preemptions, how it ended, and the
    latencies `queueing_ns`, `ttft_ns`, `tpot_ns` and `end_to_end_ns`."""
    served: list[Served] = []
    measure(trace.events(), recorded=trace.outputs_recorded, served=served.append)
    return served_frame(served)


def served_frame(served: Iterable[Served]) -> pd.DataFrame:
    """The same of served requests at hand."""
    rows = [(*one, *(getattr(one, name) for name in _LATENCIES)) for one in served]
    return _frame(rows, (*Served._fields, *_LATENCIES))


def passes_frame(trace: Trace) -> pd.DataFrame:
    """One row a forward pass: members, tokens, decodes, KV positions, what waits, and `duration_ns`."""
    rows = [(*one, one.duration_ns) for one in passes(trace.events())]
    return _frame(rows, (*Pass._fields, "duration_ns"))


def outcomes_frame(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """One row a run, with every setting and every figure; what `compare --out` writes."""
    names = [*SETTINGS, *(figure.name for figure in FIGURES)]
    rows = [{**outcome.row(), "run": outcome.label} for outcome in outcomes]
    return _frame([tuple(row[name] for name in names) for row in rows], names)


def _frame(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pd.DataFrame:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return pd.DataFrame({name: _series(list(values)) for name, values in zip(names, columns, strict=True)})


def _series(values: list[Any]) -> "pd.Series[Any]":
    """Whole numbers with gaps as nullable integers: a float holds no more than 53 bits of a clock."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {int}:
        return pd.Series(values, dtype="Int64")
    if kinds and kinds <= {int, float}:
        return pd.Series(values, dtype="Float64")
    if kinds == {str}:
        return pd.Series(values, dtype="string")
    return pd.Series(values, dtype=object)
