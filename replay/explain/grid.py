"""Who sits in which slot in each step of a small run, as a picture in text and as plain data.

Cells of the picture: a prompt in capitals, a decode in small letters, a seat that a finished request's
batch still holds as `/`, an interruption as `x`, and a free slot as `.`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from batchspec.replay.report.page import Page
from batchspec.spec.events import Event, RequestId

PREFILL, DECODE, HELD, FREE = "prefill", "decode", "held", "free"
HATCH: Final = "/"


class Cell(NamedTuple):
    """One slot in one step: whose it is, and what happens in it."""

    request: RequestId | None = None
    kind: str = FREE
    ends: bool = False
    leaves: bool = False


@dataclass
class Grid:
    """Slots by step: `cells[slot][step - 1]`; `queue[step - 1]` requests wait at the end of the step."""

    cells: list[list[Cell]]
    queue: list[int]
    finished: dict[RequestId, int] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Steps until the last end."""
        return len(self.queue)

    @property
    def busy(self) -> int:
        """Slot-steps in which something was computed."""
        return sum(cell.kind in (PREFILL, DECODE) for row in self.cells for cell in row)

    @property
    def utilisation(self) -> float:
        """The share of slot-steps in which something was computed."""
        return self.busy / (len(self.cells) * self.steps) if self.steps else 0.0

    @property
    def mean_finish(self) -> float:
        """The mean step in which requests end; all arrived before the first."""
        return sum(self.finished.values()) / len(self.finished) if self.finished else 0.0


def grid_of(events: Iterable[Event], seats: int, *, static: bool = False) -> Grid:
    """The picture of a run whose rows have slots (L2 and more). `static`: a batch's seats return together."""
    rows = list(events)
    last = max((row.step for row in rows), default=0)
    grid = Grid([[Cell()] * last for _ in range(seats)], [0] * last)
    slot_of: dict[RequestId, int] = {}
    decodes: set[RequestId] = set()
    known: dict[RequestId, int] = {}
    waiting = 0
    for row in rows:
        at = row.step - 1
        name = row.request
        if row.event == "step":
            grid.queue[at] = waiting
        if name is None:
            continue
        if row.event == "arrive":
            known[name] = row.prompt_tokens or 0
            waiting += 1
        elif row.event in ("admit", "resume"):
            slot_of[name] = row.slot or 0
            decodes.discard(name)
            waiting -= 1
        elif row.event == "schedule":
            kind = DECODE if name in decodes else PREFILL
            grid.cells[slot_of[name]][at] = Cell(name, kind)
            if (row.start or 0) + (row.tokens or 0) >= known[name]:
                decodes.add(name)
                known[name] += 1
        elif row.event == "preempt":
            _mark(grid, name, slot_of.pop(name), at, leaves=True)
            waiting += 1
        elif row.event in ("finish", "abort"):
            grid.finished[name] = row.step
            if name in slot_of:
                _mark(grid, name, slot_of.pop(name), at, ends=True)
            else:
                waiting -= 1
    if static:
        _hold(grid)
    return grid


def _mark(
    grid: Grid, name: RequestId, slot: int, at: int, *, ends: bool = False, leaves: bool = False
) -> None:
    cell = grid.cells[slot][at]
    grid.cells[slot][at] = cell._replace(request=name, ends=ends, leaves=leaves)


def _hold(grid: Grid) -> None:
    """A seat whose request has ended stays taken until nobody of its batch runs."""
    for at in range(1, grid.steps):
        running = any(row[at].kind in (PREFILL, DECODE) for row in grid.cells)
        joins = any(
            row[at].request is not None and row[at].request != row[at - 1].request for row in grid.cells
        )
        for row in grid.cells:
            if running and not joins and row[at].kind == FREE and row[at - 1].request is not None:
                row[at] = Cell(row[at - 1].request, HELD)


def draw(page: Page, grid: Grid, letters: Sequence[str] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ") -> None:
    """Add the picture: a line a slot, a column a step."""
    names = sorted({cell.request for row in grid.cells for cell in row if cell.request is not None}, key=str)
    letter = {name: letters[index % len(letters)] for index, name in enumerate(names)}
    width = len(f"slot {len(grid.cells) - 1}")
    page.add(
        "step".ljust(width), "  ", "".join(str(step % 10) for step in range(1, grid.steps + 1)), indent=2
    )
    for slot, row in enumerate(grid.cells):
        line = "".join(_glyph(cell, letter) for cell in row)
        page.add(f"slot {slot}".ljust(width), "  ", line, indent=2)
    if any(grid.queue):
        queue = "".join("." if not number else str(number) if number < 10 else "+" for number in grid.queue)
        page.add("queue".ljust(width), "  ", queue, indent=2)


def _glyph(cell: Cell, letter: dict[RequestId, str]) -> str:
    if cell.kind == HELD:
        return HATCH
    if cell.leaves:
        return "x"
    if cell.request is None:
        return "."
    name = letter[cell.request]
    return name if cell.kind == PREFILL else name.lower()
