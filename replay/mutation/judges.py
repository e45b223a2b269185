"""Judges: which rule reads a cell at all, found by trying values in good traces of other runs.

A cell that no rule reads in one trace may still be judged in another, whose level or claims say more. Where
no rule is found to speak of any value of it anywhere, the spec states nothing about that column.
"""

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, Final

from batchspec.replay.mutation.faults import COUNTS, GHOST
from batchspec.replay.mutation.goods import EVENT_LEVELS, Good, GoodTable, random_good
from batchspec.replay.mutation.tables import changed
from batchspec.spec.events import REASONS

RUNS: Final = 80
"""Good traces in which a judge is looked for."""

_VALUES: Final = 3
_STEPS: Final = (1, -1, 2, -2, 3, 10, 50, 1_000, 1_000_000, 1_000_000_000_000)


@cache
def judge_of(event: str, field: str) -> str | None:
    """A rule that speaks of some value in this field of an event of this kind (`record`: of a table)."""
    for seed in range(RUNS):
        random = Random(seed)
        if event == "record":
            good = random_good(random, "L0")
        else:
            good = random_good(random, EVENT_LEVELS[-1 - seed % len(EVENT_LEVELS)])
        found = (
            _in_table(good, field, random) if isinstance(good, GoodTable) else _in(good, event, field, random)
        )
        if found is not None:
            return found
    return None


def _in(good: Good, event: str, field: str, random: Random) -> str | None:
    rows = [
        row for row, one in enumerate(good.events) if one.event == event and getattr(one, field) is not None
    ]
    for row in random.sample(rows, min(len(rows), _VALUES)):
        values = list(others(good, row, field))
        for value in random.sample(values, min(len(values), _VALUES)):
            cell: dict[str, Any] = {field: value}
            changed_row = good.events[row]._replace(**cell)
            report = good.judge([*good.events[:row], changed_row, *good.events[row + 1 :]])
            if report.findings:
                return report.findings[0].rule
    return None


def _in_table(good: GoodTable, field: str, random: Random) -> str | None:
    for row in random.sample(range(len(good.records)), min(len(good.records), _VALUES)):
        values = list(other_values(good, row, field))
        for value in random.sample(values, min(len(values), _VALUES)):
            report = good.judge(changed(good.records, row, "count", field, value).records)
            if report.findings:
                return report.findings[0].rule
    return None


def others(good: Good, row: int, field: str) -> Iterator[object]:
    """Other values for a cell of an event, near ones first."""
    event = good.events[row]
    now = getattr(event, field)
    if field == "reason":
        yield from (word for word in REASONS.get(event.event, ()) if word != now)
    elif field in ("request", "cause"):
        names = dict.fromkeys(one.request for one in good.events if one.request is not None)
        yield from (name for name in (GHOST, *names) if name != now)
    elif field in (*COUNTS, "slot", "time_ns", "pass_") and isinstance(now, int):
        yield from (now + by for by in _STEPS if now + by >= 0)
    elif isinstance(now, tuple) and now:
        yield from ((*now[:-1], now[-1] + by) for by in (1, 1 << 30))
        yield from ((one, *now[1:]) for one in now[1:2])
        yield now[:-1]


def other_values(good: GoodTable, row: int, field: str) -> Iterator[object]:
    """Other values for a cell of a record, near ones first."""
    now = getattr(good.records[row], field)
    if field == "status":
        yield from (word for word in ("rejected", "aborted", None) if word != now)
    elif field == "request":
        yield from (record.request for record in good.records if record.request != now)
    elif isinstance(now, int):
        yield from (now + by for by in (*_STEPS, -now) if now + by >= 0 and by)
