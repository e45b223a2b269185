"""A stretch of a trace as a picture in text: a row a request, a column a step, then the events.

The picture shows what the trace says, not what a rule makes of it: it must also draw traces that
break every rule.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from batchspec.replay.report.context import event_rows, short
from batchspec.replay.report.page import WIDTH, Page, count
from batchspec.spec.events import Event, RequestId
from batchspec.spec.verdict import Finding

MOST_STEPS: Final = 200
MOST_REQUESTS: Final = 60
MOST_EVENTS: Final = 300
"""A picture longer than this helps nobody; the page says what it leaves out."""

LEGEND: Final = (
    ". waits   + joins   pN computes N positions of a prompt   d decodes (dN: N positions)",
    "- runs, not in this step   x preempted   z parked   c cancel",
    "f finished   a aborted   r rejected   ! finding",
)

_AFTER: Final[Mapping[str, str]] = {
    "arrive": ".",
    "park": "z",
    "ready": ".",
    "admit": "-",
    "resume": "-",
    "schedule": "-",
    "preempt": ".",
    "finish": "",
    "abort": "",
    "reject": "",
}
"""What a request shows in later steps in which nothing happens to it; `` where it is gone."""

_MARKS: Final[Mapping[str, str]] = {
    "admit": "+",
    "resume": "+",
    "preempt": "x",
    "park": "z",
    "cancel": "c",
    "finish": "f",
    "abort": "a",
    "reject": "r",
}
_STYLES: Final = (
    ("!", "bold red"), ("x", "red"), ("a", "red"), ("r", "red"), ("f", "green"), ("p", "yellow"),
    ("d", "cyan"), (".", "dim"), ("-", "dim"), ("~", "dim"), ("/", "dim"),
)  # fmt: skip

_LIVE: Final = {"waiting": ".", "parked": "z", "running": "-", "preempted": "."}


@dataclass(slots=True)
class _Row:
    """One request: its marks in each step, and what it shows where it has none."""

    prompt: int = 0
    idle: str = ""
    before: str = ""
    marks: dict[int, str] = field(default_factory=dict)
    changes: dict[int, str] = field(default_factory=dict)

    def cells(self, steps: Sequence[int]) -> list[str]:
        idle, cells = self.before, []
        for step in steps:
            idle = self.changes.get(step, idle)
            cells.append(self.marks.get(step) or idle)
        return cells


class Timeline:
    """Collects the steps `first` to `last` of a trace, fed event by event from its beginning.

    Memory: the live requests, and what happens in the stretch up to the limits above.
    """

    def __init__(self, first: int, last: int | None) -> None:
        """A picture of the steps from `first` to `last`, both included; None: as many as are drawn."""
        most = first + MOST_STEPS - 1
        self.first, self.asked = first, last
        self.last = most if last is None else min(last, most)
        self.cut = False
        self.rows: dict[RequestId, _Row] = {}
        self.tokens: dict[int, int] = {}
        self.free: dict[int, int] = {}
        self.events: list[tuple[int, Event]] = []
        self.left_out = 0

    @property
    def steps(self) -> list[int]:
        """The steps of the stretch that the trace has."""
        return sorted(self.tokens)

    def add(self, index: int, event: Event) -> bool:
        """Take in the next event, `index` its row. False once the stretch is over."""
        if event.step > self.last:
            self.cut = self.asked is None or event.step <= self.asked
            return False
        if event.step >= self.first:
            self.tokens.setdefault(event.step, 0)
            if len(self.events) < MOST_EVENTS:
                self.events.append((index, event))
            else:
                self.left_out += 1
            if event.event == "step" and event.free_blocks is not None:
                self.free[event.step] = event.free_blocks
        if event.request is not None:
            self._take(event, event.request)
        return True

    def _take(self, event: Event, request: RequestId) -> None:
        row = self.rows.setdefault(request, _Row())
        if event.event in ("arrive", "live"):
            row.prompt = event.prompt_tokens or 0
        state = _LIVE.get(event.reason or "", ".") if event.event == "live" else _AFTER.get(event.event)
        row.idle = row.idle if state is None else state
        if event.step >= self.first:
            row.changes[event.step] = row.idle
            if mark := self._mark(event, row):
                row.marks[event.step] = row.marks.get(event.step, "") + mark
        elif row.idle:
            row.before = row.idle
        else:
            del self.rows[request]

    def _mark(self, event: Event, row: _Row) -> str:
        if event.event != "schedule":
            return _MARKS.get(event.event, "")
        tokens = event.tokens or 0
        self.tokens[event.step] += tokens
        prefill = tokens - (event.drafts or 0) > 1 or (event.start is not None and event.start < row.prompt)
        return f"p{tokens}" if prefill else "d" if tokens == 1 else f"d{tokens}"


def collect(events: Iterable[Event], first: int, last: int | None = None) -> Timeline:
    """Read a trace up to the end of the stretch."""
    timeline = Timeline(first, last)
    for index, event in enumerate(events):
        if not timeline.add(index, event):
            break
    return timeline


def timeline_page(
    timeline: Timeline, findings: Iterable[Finding] | None = (), title: str | None = None
) -> Page:
    """The picture, the events, and the findings of the stretch (None: nothing was judged, and nothing is
    said of it). `title` is the first line."""
    page = Page()
    if title:
        page.add((title, "bold"))
        page.gap()
    steps = timeline.steps
    here = [
        finding for finding in findings or () if finding.step is not None and finding.step in timeline.tokens
    ]
    if not steps:
        page.add(f"steps {timeline.first} to {timeline.last}: the trace has no event in them")
        return page
    _picture(page, timeline, steps, here)
    if timeline.cut:
        page.add(f"the picture ends at step {timeline.last}: at most {MOST_STEPS} steps are drawn")
    page.gap()
    page.table(("row", "step", "event", "request", ""), _event_table(timeline), "rr", indent=2)
    if timeline.left_out:
        page.add(f"and {count(timeline.left_out, 'more event')} in these steps", indent=2)
    page.gap()
    for finding in here:
        mark = "  (consequence)" if finding.consequence else ""
        page.wrap(f"step {finding.step}: {finding.message}  [{finding.rule}]{mark}", "red", hang=2)
    if not here and findings is not None:
        page.add("no finding in these steps")
    return page


def _picture(page: Page, timeline: Timeline, steps: list[int], findings: list[Finding]) -> None:
    marked = {(request, finding.step) for finding in findings for request in finding.requests}
    named = {request for request, _ in marked}
    shown = {
        name: row
        for name, row in timeline.rows.items()
        if row.marks or name in named or "-" in row.cells(steps)
    }
    names = list(shown)[:MOST_REQUESTS]
    lines = [[short(name), *shown[name].cells(steps)] for name in names]
    for name, line in zip(names, lines, strict=True):
        line[1:] = [cell + "!" * ((name, step) in marked) for cell, step in zip(line[1:], steps, strict=True)]
    lines.append(["tokens", *(str(timeline.tokens[step]) for step in steps)])
    if timeline.free:
        lines.append(["free blocks", *(str(timeline.free.get(step, "")) for step in steps)])
    whole = (f" {finding.rule} at step {finding.step}" for finding in findings if not finding.requests)
    head = ["step", *map(str, steps)]
    draw(page, head, lines)
    quiet = len(timeline.rows) - len(names)
    if quiet:
        page.add(f"and {count(quiet, 'more request')}, most of them waiting throughout")
    for words in LEGEND:
        page.add((words, "dim"))
    for each in whole:
        page.add("!" + each)


def draw(page: Page, head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Add a table of cells over steps, in as many pieces as the page is wide, each cell in its colour."""
    for columns in _chunks([head, *lines]):
        page.table(
            [head[0], *(head[at] for at in columns)],
            [[line[0], *((line[at], _style(line[at])) for at in columns)] for line in lines],
            indent=0,
        )
        page.gap()


def _style(cell: str) -> str:
    """The colour of a cell, by what weighs most in it."""
    mark = cell.rpartition(" ")[2]
    for sign, style in _STYLES:
        if sign in mark:
            return style
    return ""


def _chunks(table: Sequence[Sequence[str]]) -> Iterable[list[int]]:
    """The columns of each picture that fits the page's width."""
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    columns: list[int] = []
    used = widths[0]
    for at, width in enumerate(widths[1:], start=1):
        if columns and used + width + 2 > WIDTH:
            yield columns
            columns, used = [], widths[0]
        columns.append(at)
        used += width + 2
    yield columns


def _event_table(timeline: Timeline) -> list[tuple[object, ...]]:
    return [row[1:] for row in event_rows(tuple(timeline.events), None)]
