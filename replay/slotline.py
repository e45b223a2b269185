"""A stretch of a trace as a picture in text: a row a slot, a column a step, in each cell who sits there."""

from collections.abc import Iterable
from typing import Final

from batchspec.replay.report.context import short
from batchspec.replay.report.page import Page
from batchspec.replay.timeline import MOST_REQUESTS, Timeline, draw
from batchspec.spec.events import Event
from batchspec.traces.seats import IDLE, Run, Seats

LEGEND: Final = (
    "pN computes N positions of a prompt   d decodes (dN: N positions)   + joins   x preempted",
    "~ in the batch, not in this step   // held: its request has ended, its batch has not   f finished",
)


class Slotline:
    """Who sits where in the steps of a stretch, beside what the timeline of the same stretch says."""

    def __init__(self, first: int, last: int | None = None, *, barrier: bool = False) -> None:
        """For the steps from `first` to `last`. `barrier`: batches end as a whole (static, dynamic)."""
        self.timeline = Timeline(first, last)
        self.seats = Seats(self._run, barrier=barrier)
        self.cells: dict[int, dict[int, str]] = {}
        """What each slot shows, by slot and step number."""
        self._first = first
        self._steps: dict[int, int] = {}
        self._over: set[int] = set()

    def feed(self, events: Iterable[Event]) -> "Slotline":
        """Read a trace up to the end of the stretch."""
        for index, event in enumerate(events):
            if not self.timeline.add(index, event):
                break
            self.seats.add(event)
            if event.step >= self._first:
                self._steps[self.seats.ordinal] = event.step
        self.seats.over()
        return self

    def page(self, title: str) -> Page:
        """The picture."""
        page = Page()
        page.add((title, "bold"))
        page.gap()
        steps = self.timeline.steps
        if not steps:
            page.add(f"steps {self.timeline.first} to {self.timeline.last}: the trace has no event in them")
            return page
        slots = sorted(self.cells)
        lines = [
            [f"slot {slot}", *(self.cells[slot].get(step, "") for step in steps)]
            for slot in slots[:MOST_REQUESTS]
        ]
        lines.append(["tokens", *(str(self.timeline.tokens[step]) for step in steps)])
        draw(page, ["step", *map(str, steps)], lines)
        if len(slots) > MOST_REQUESTS:
            page.add(f"and {len(slots) - MOST_REQUESTS:,} more slots")
        if not self.seats.named:
            page.add(("the trace names no slots: each request is drawn in the lowest free one", "dim"))
        for words in LEGEND:
            page.add((words, "dim"))
        return page

    def _run(self, run: Run) -> None:
        name = short(run.request)
        row = self.timeline.rows.get(run.request)
        held = run.kind == IDLE and run.stay in self._over
        if run.end == "finish":
            self._over.add(run.stay)
        cells = self.cells.setdefault(run.seat, {}) if run.last >= min(self._steps, default=0) else {}
        for ordinal in range(max(run.first, min(self._steps, default=run.first)), run.last + 1):
            step = self._steps.get(ordinal)
            if step is None:
                continue
            mark = "//" if held else "~"
            if run.kind != IDLE and row is not None:
                mark = row.marks.get(step, "~")
            here = f"{name} {mark}"
            cells[step] = f"{cells[step]}, {here}" if step in cells else here
        ended = self._steps.get(run.end_at) if run.end == "preempt" else None
        if ended is not None:
            cells = self.cells.setdefault(run.seat, {})
            cells.setdefault(ended, f"{name} x")
