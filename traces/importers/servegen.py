"""ServeGen's clients: CSV of arrival rates in windows of time, and beside it JSON of lengths.

| column of `NAME-trace.csv`, which has no header | meaning |
| --- | --- |
| 1 | seconds at which the window begins |
| 2 | requests a second |
| 3 | coefficient of variation of the gaps; not needed, the next three say it all |
| 4 | family of the gaps: Gamma, Weibull, or nothing where none arrive |
| 5, 6 | shape and scale of the family |

| field of `NAME-dataset.json` | meaning |
| --- | --- |
| seconds | begin of a window of lengths; it holds until the next |
| `input_tokens`, `output_tokens` | a Python dict in a text, of lengths and their shares |
| `reason_ratio` | not read |

The files describe a client, they hold no requests. The requests that this importer gives are *drawn*:
in each window as many as rate times length says, rounded up, with gaps of the family scaled so that
they fill the window, and lengths from the window of lengths that holds then, one uniform draw for both
of a request, all of which is how ServeGen itself does it. The generator's seed is `SEED`, so the same
file gives the same requests on every machine. That they are drawn is counted, and `--strict` refuses. A
window in which requests arrive but no lengths hold is dropped.

Source: https://github.com/alibaba/ServeGen (Apache-2.0); Xiang et al., "ServeGen", arXiv 2505.09999.
"""

import math
import random
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, mapping, number
from batchspec.traces.importers.jsontext import document
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.text import one_line
from batchspec.traces.textfile import csv_rows

NAME: Final = "servegen"
SAYS: Final = "ServeGen clients: arrival rates and lengths, from which requests are drawn (CSV and JSON)"
SEED: Final = 0
MOST: Final = 2_000_000
"""Most requests drawn in one window: a rate is a number that anyone can write."""

MOST_WINDOWS: Final = 1_000_000

_RATES: Final = re.compile(
    rb"\d{1,9},[0-9.eE+-]{1,40},[0-9.eE+-]{1,40},(?:Gamma|Weibull)?,[^,\n]{1,40},[^,\n]{1,40}"
)
_BINS: Final = re.compile(r"\s*(\d{1,9})\s*:\s*([0-9.eE+-]{1,40})\s*(?:,|$)")


class _Window(NamedTuple):
    begin: int
    rate: float
    family: str
    shape: float
    scale: float


class _Lengths(NamedTuple):
    """One histogram: the lengths in order, and the share of all that are not longer."""

    lengths: list[int]
    shares: list[float]

    def draw(self, uniform: float) -> int:
        """The length at this quantile."""
        return self.lengths[min(bisect_left(self.shares, uniform * self.shares[-1]), len(self.lengths) - 1)]


def detect(head: bytes, path: Path) -> bool:
    """True for a table of six columns without a header whose first is a time and whose fourth a family."""
    return _RATES.fullmatch(head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].strip()) is not None


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="servegen", clock="virtual", complete=True, extra={"drawn_with_seed": SEED})


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests drawn, in order. Raises `TraceError` if the lengths are not beside the rates."""
    name = one_line(path)
    if not path.name.endswith("-trace.csv"):
        raise TraceError(f"{name}: must be named *-trace.csv, with *-dataset.json beside it")
    lengths = _datasets(path.with_name(path.name.removesuffix("-trace.csv") + "-dataset.json"))
    starts = sorted(lengths)
    draw = random.Random(SEED)
    log.place, log.line = name, 0
    log.lose("requests: the file holds rates and lengths, from which they are drawn")
    windows = list(_windows(path, log))
    if not windows:
        raise log.nothing()
    if len(windows) < 2:
        raise TraceError(f"{name}: one window alone does not say how long it lasts")
    # The last window is as long as the one before it.
    ends = [window.begin for _, window in windows[1:]]
    ends.append(2 * windows[-1][1].begin - windows[-2][1].begin)
    index = 0
    for (line, window), end in zip(windows, ends, strict=True):
        log.line = line
        if not window.family or window.rate <= 0:
            continue
        place = bisect_right(starts, window.begin) - 1
        pair = lengths[starts[place]] if place >= 0 else None
        if pair is None:
            log.drop("a window in which requests arrive, but no lengths hold")
            continue
        for time in _arrivals(window, end - window.begin, draw, log):
            uniform = draw.random()
            log.kept += 1
            yield Record(index, time, pair[0].draw(uniform), pair[1].draw(uniform))
            index += 1
    log.line = 0
    if not log.kept:
        raise log.nothing()


def _arrivals(window: _Window, length: int, draw: random.Random, log: ImportLog) -> Iterator[int]:
    expected = math.ceil(window.rate * length)
    if expected > MOST:
        raise TraceError(f"{log.where}: more than {MOST} requests in one window")
    try:
        if window.family == "Gamma":
            gaps = [draw.gammavariate(window.shape, window.scale) for _ in range(expected)]
        else:
            gaps = [draw.weibullvariate(window.scale, window.shape) for _ in range(expected)]
    except (OverflowError, ValueError, ZeroDivisionError):
        gaps = []
    total = sum(gaps)
    if not total or not math.isfinite(total):
        log.drop("a window whose parameters give no gaps")
        return
    at = 0.0
    for gap in gaps:
        at += gap
        yield window.begin * 1_000_000_000 + int(at / total * length * 1_000_000_000)


def _windows(path: Path, log: ImportLog) -> Iterator[tuple[int, _Window]]:
    before = -1
    for row_number, (line, row) in enumerate(csv_rows(path)):
        log.line = line
        if row_number >= MOST_WINDOWS:
            raise TraceError(f"{log.where}: more than {MOST_WINDOWS} windows; split the file")
        try:
            if len(row) != 6:
                raise Unusable("not 6 fields")
            if row[3] not in ("", "Gamma", "Weibull"):
                raise Unusable("a family of gaps that is neither Gamma nor Weibull")
            begin = count(row[0], "the window's begin")
            rate, shape, scale = (float(number(row[at], "a rate or a parameter")) for at in (1, 4, 5))
            if row[3] and not (shape > 0 and scale > 0 and rate >= 0):
                raise Unusable("a rate or a parameter that is not positive")
        except Unusable as problem:
            log.drop(str(problem))
            continue
        if begin <= before:
            raise TraceError(f"{log.where}: a window that begins before the one above ends; sort the file")
        before = begin
        yield line, _Window(begin, rate, row[3], shape, scale)


def _datasets(path: Path) -> dict[int, tuple[_Lengths, _Lengths] | None]:
    """The two histograms from each second on; None where there are none."""
    name = one_line(path)
    out: dict[int, tuple[_Lengths, _Lengths] | None] = {}
    try:
        for start, fields in document(path).items():
            row = mapping(fields, "a window of lengths")
            pair = (_lengths(row, "input_tokens"), _lengths(row, "output_tokens"))
            both = pair if pair[0].lengths and pair[1].lengths else None
            out[count(start, "begin of a window of lengths")] = both
    except Unusable as problem:
        raise TraceError(f"{name}: {problem}") from None
    return out


def _lengths(row: Any, name: str) -> _Lengths:
    text = row.get(name)
    if not isinstance(text, str) or not (text.startswith("{") and text.endswith("}")):
        raise Unusable(f"{name} is no dict in a text")
    at, pairs, end = 1, [], len(text) - 1
    while at < end:
        found = _BINS.match(text, at, end)
        if found is None:
            raise Unusable(f"{name} is no dict of lengths and shares")
        # A request of no tokens cannot be run: the shortest has one.
        pairs.append((max(1, int(found[1])), float(number(found[2], name))))
        at = found.end()
    pairs.sort()
    if any(share < 0 for _, share in pairs):
        raise Unusable(f"{name} has a share below zero")
    return _Lengths([length for length, _ in pairs], list(accumulate(share for _, share in pairs)))
