"""The books in arrays, made, grown, copied, and turned into those of the readable checker and back.

`pour` fills a `Walk` with what the arrays hold, at a boundary between two steps, so that the readable
checker can go on from there; `draw` takes over from it, where what it holds has a place in the arrays.
Both are tested by changing over at every boundary: the reports must not differ.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from batchspec.replay.checker import Walk, fit_text
from batchspec.replay.fast import layout
from batchspec.replay.fast.kernel import Books
from batchspec.replay.fast.table import insert
from batchspec.spec.events import RequestId
from batchspec.spec.line import never_fits
from batchspec.spec.model import PREEMPTED, RUNNING, WAITING, End, Request

_STATES: Final = {
    layout.AT_WAITING: WAITING,
    layout.AT_RUNNING: RUNNING,
    layout.AT_PREEMPTED: PREEMPTED,
}
_CODES: Final = {word: code for code, word in _STATES.items()}
MAX_SLOT: Final = 4096
"""Slots from this number on are left to the readable checker."""

_Put = Callable[[RequestId], int]


def blank(capacity: int = 1024) -> Books:
    """Empty books with room for so many live requests, a power of two."""
    facts = np.zeros(layout.S_WIDTH, np.int64)
    for place in (layout.STEP, layout.LAST_CLOCK, layout.WAIT_NUMBER):
        facts[place] = layout.NIL
    facts[layout.WAIT_NEXT] = facts[layout.NEXT] = -1
    slots = np.full((MAX_SLOT, 4), layout.NIL, np.int64)
    slots[:, 0] = -1
    return _room(capacity, facts, slots)


def _room(capacity: int, facts: Any, slots: Any) -> Books:
    records = np.full((capacity, layout.R_WIDTH), layout.NIL, np.int64)
    records[:, layout.NUMBER] = -1
    facts[layout.FREE] = capacity
    lists = np.zeros((layout.L_WIDTH, capacity), np.int64)
    lists[layout.FREE_LIST] = np.arange(capacity - 1, -1, -1)
    table = np.zeros((2, 4 * capacity), np.int64)
    table[1] = -1
    return Books(records, facts, np.zeros(2 * layout.A_WIDTH, np.int64), lists, table, slots)


def copied(books: Books) -> Books:
    """The same books, apart."""
    return Books(*(array.copy() for array in books))


def grown(books: Books) -> Books:
    """The same books with room for twice as many live requests."""
    old = books.R.shape[0]
    facts = books.S.copy()
    new = _room(2 * old, facts, books.slots)
    facts[layout.FREE] = books.S[layout.FREE] + old
    new.R[:old] = books.R
    new.C[:] = books.C
    new.L[:, :old] = books.L
    free = books.S[layout.FREE]
    new.L[layout.FREE_LIST, free : facts[layout.FREE]] = np.arange(2 * old - 1, old - 1, -1)
    head, tail = int(facts[layout.W_HEAD]), int(facts[layout.W_TAIL])
    places = np.arange(head, tail) % old
    for line in (layout.WAIT_LIST, layout.WAIT_NUMBERS):
        new.L[line, : tail - head] = books.L[line, places]
    facts[layout.W_HEAD], facts[layout.W_TAIL] = 0, tail - head
    for place in np.flatnonzero(books.T[1] >= 0):
        insert(new.T, books.T[0, place], books.T[1, place])
    return new


def rows_of(books: Books) -> Iterator[int]:
    """The places in R of live requests."""
    yield from np.flatnonzero(
        (books.R[:, layout.NUMBER] >= 0) & (books.R[:, layout.STATE] != layout.AT_ENDED)
    ).tolist()


def _some(value: Any) -> int | None:
    return None if value == layout.NIL else int(value)


class Ended(dict[RequestId, End]):
    """Ends of requests: those since the readable checker took over, and earlier ones looked up on demand.

    Nothing is kept of a request that ended under the kernel: asked for one, `find` reads the trace again.
    """

    def __init__(self, find: Callable[[RequestId], End | None]) -> None:
        """No end is known yet."""
        super().__init__()
        self._find = find
        self._asked: set[RequestId] = set()
        self.aside = False
        """While set, nothing is looked up: the answer makes no difference."""

    def _ask(self, request: RequestId) -> None:
        if self.aside or request in self._asked:
            return
        self._asked.add(request)
        if not dict.__contains__(self, request) and (end := self._find(request)) is not None:
            self[request] = end

    def __contains__(self, request: object) -> bool:
        """Whether the request has ended."""
        self._ask(request)  # type: ignore[arg-type]
        return super().__contains__(request)

    def __getitem__(self, request: RequestId) -> End:
        """Its end."""
        self._ask(request)
        return super().__getitem__(request)

    def get(self, request: RequestId, default: Any = None) -> Any:
        """Its end, or the default."""
        self._ask(request)
        return super().get(request, default)

    def pop(self, request: RequestId, *default: Any) -> Any:
        """Its end, forgotten."""
        self._ask(request)
        return super().pop(request, *default)


# -- into the readable checker -------------------------------------------------------------------------


def pour(books: Books, walk: Walk, name: Callable[[int], RequestId], row: int, ended: Ended) -> None:
    """Let a walk go on from these books. `row` is the next row; a step has just been closed.

    What the kernel has counted is added to the rules, and taken out of the books.
    """
    facts, state, line = books.S, walk.state, walk.line
    places = sorted(rows_of(books), key=lambda place: books.R[place, layout.NUMBER])
    records = [_record(books.R[place].tolist(), name) for place in places]
    state.step, state.steps, state.row = _some(facts[layout.STEP]), int(facts[layout.STEPS]), row - 1
    state.arrivals = state.places = int(facts[layout.ARRIVALS])
    state.joins = int(facts[layout.JOINS])
    state.live = {record.id: record for record in records}
    state.ended = ended
    state.waiting = {record.id: None for record in records if record.state == WAITING}
    runs = [record for record in records if record.state == RUNNING]
    state.running = {record.id: None for record in sorted(runs, key=lambda record: record.joined or 0)}
    pres = books.L[layout.PRE_LIST, : facts[layout.PRES]].tolist()
    state.preempted = {name(int(books.R[place, layout.ID])): None for place in pres}
    state.members, state.step_tokens = {}, 0
    state.next_in_line, state.next_fits, state.fit_text = None, None, ""
    state.retiring.clear()
    state.held = int(facts[layout.HELD])
    state.unknown_blocks = sum(record.blocks is None for record in records)
    state.positions = int(facts[layout.POSITIONS])
    state.unknown_positions = int(facts[layout.UNKNOWN_POSITIONS])
    state.pinned = int(facts[layout.PINNED])
    state.slots = {
        slot: name(int(books.R[books.slots[slot, 0], layout.ID]))
        for slot in np.flatnonzero(books.slots[:, 0] >= 0).tolist()
    }
    line.unordered, line.heap = {}, []
    if line.order is not None:
        line.heap = [
            ((record.place,), record.number, record.place, record.id)
            for record in records
            if record.state == WAITING
        ]
    walk._open, walk._decided_at, walk._snapped_at = False, -1, -1
    walk._events += int(facts[layout.EVENTS])
    walk._subjects += int(facts[layout.SUBJECTS])
    facts[layout.EVENTS] = facts[layout.SUBJECTS] = 0
    for rule, place in layout.RULES.items():
        if rule in walk.rules:
            walk.rules[rule].checked += int(books.C[place])
            walk.rules[rule].skipped += int(books.C[layout.SKIPS + place])
    books.C[:] = 0
    _pour_rules(
        books, walk, name, [(record, books.R[place]) for place, record in zip(places, records, strict=True)]
    )


def _record(row: list[int], name: Callable[[int], RequestId]) -> Request:
    number = row[layout.NUMBER]
    return Request(
        id=name(row[layout.ID]),
        number=number,
        prompt=row[layout.PROMPT],
        max_tokens=_some(row[layout.MAX_TOKENS]),
        arrived=row[layout.ARRIVED],
        arrived_ns=_some(row[layout.ARRIVED_NS]),
        state=_STATES[row[layout.STATE]],
        slot=_some(row[layout.SLOT]),
        place=number,
        first_admit=_some(row[layout.FIRST_ADMIT]),
        joined=_some(row[layout.JOINED]),
        preemptions=row[layout.PREEMPTIONS],
        adopts=bool(row[layout.ADOPTS]),
        late=bool(row[layout.LATE]),
        computed=_some(row[layout.COMPUTED]),
        outputs=row[layout.OUTPUTS],
        blocks=_some(row[layout.BLOCKS]),
    )


def _pour_rules(
    books: Books, walk: Walk, name: Callable[[int], RequestId], pairs: list[tuple[Request, Any]]
) -> None:
    facts = books.S
    rules: dict[str, Any] = dict(walk.rules)

    def kept(column: int) -> list[tuple[Request, Any]]:
        return [(record, row) for record, row in pairs if row[column] != layout.NIL]

    if rule := rules.get("time/backwards"):
        rule._last, rule._step = _some(facts[layout.LAST_CLOCK]), _some(facts[layout.STEP])
    if rule := rules.get("time/causality"):
        rule._times = {
            record.id: (layout.WHATS[row[layout.LAST_WHAT]], int(row[layout.LAST_NS]))
            for record, row in kept(layout.LAST_NS)
        }
    if rule := rules.get("batch/no-stall"):
        rule._decoding = {record.id for record, row in pairs if row[layout.DECODES] == 1}
    if rule := rules.get("slots/early-reuse"):
        rule._free_from = {
            slot: (
                int(books.slots[slot, 1]),
                name(int(books.slots[slot, 2])),
                int(books.slots[slot, 3]),
            )
            for slot in np.flatnonzero(books.slots[:, 1] != layout.NIL).tolist()
        }
    if rule := rules.get("slots/reuse"):
        rule._ends = {}
        for step, key in books.L[layout.END_STEP : layout.END_ID + 1, : facts[layout.ENDS]].T.tolist():
            rule._ends.setdefault(step, []).append(name(key))
    if rule := rules.get("tokens/lost"):
        rule._least = {record.id: int(row[layout.LEAST]) for record, row in kept(layout.LEAST)}
    if rule := rules.get("memory/waste"):
        rule._before = {record.id: int(row[layout.BEFORE]) for record, row in kept(layout.BEFORE)}
    if rule := rules.get("memory/leak"):
        rule._told = bool(facts[layout.LEAK_TOLD])
    if rule := rules.get("preemption/thrash"):
        rule._last = {
            record.id: (record.number, int(row[layout.THRASH_KNOWN]), int(row[layout.THRASH_TIMES]))
            for record, row in kept(layout.THRASH_KNOWN)
        }
    if rule := rules.get("preemption/swap"):
        rule._kept = {record.id: (0, False) for record, row in pairs if row[layout.KEPT] == 1}
    if rule := rules.get("preemption/useful"):
        rule._due = []
    if rule := rules.get("liveness/idle-stall"):
        rule._empty = int(facts[layout.EMPTY])
    if rule := rules.get("liveness/starved-member"):
        last = facts[layout.STEPS]
        rule._missed = {
            record.id: int(row[layout.MISSED]) for record, row in pairs if row[layout.MISSED_AT] == last
        }
        if not facts[layout.MISSES]:
            rule._missed = {}
    if rule := rules.get("liveness/livelock"):
        rule._edges, rule._since = {}, int(facts[layout.EDGES_SINCE])
        for cause, victim in books.L[layout.EDGE_CAUSE :, : facts[layout.EDGES]].T.tolist():
            rule._edges.setdefault(name(cause), {})[name(victim)] = None
    if rule := rules.get("admission/needless-wait"):
        rule._next, rule._count, rule._behind = None, int(facts[layout.WAIT_COUNT]), None
        if facts[layout.WAIT_NEXT] >= 0:
            waits = books.R[facts[layout.WAIT_NEXT]]
            rule._next = (name(int(waits[layout.ID])), int(facts[layout.WAIT_NUMBER]))
            if facts[layout.WAIT_SEATS] != layout.NIL:
                figures = facts[layout.WAIT_SEATS : layout.WAIT_FREE + 1].tolist()
                rule._fit_text = fit_text(*(_some(figure) for figure in figures))


# -- out of the readable checker -----------------------------------------------------------------------


def draw(walk: Walk, put: _Put, capacity: int) -> Books | None:
    """The books of a walk that stands between two steps; None where they have no place in the arrays."""
    state = walk.state
    if walk._open or walk._tainted or walk._repaired or state.step is None:
        return None
    nothing = (
        state.parked,
        state.held_by_ended,
        state.lagged,
        state.passes,
        state.in_flight,
        state.untold,
        state.transfers,
        state.tables,
        state.owners,
        state.swapped_blocks,
        state.pinned is None,
        walk.line.unordered,
        any(state.resources.values()),
        len(state.live) * 2 > capacity,
    )
    if any(nothing) or not all(_has_place(walk, record) for record in state.live.values()):
        return None
    if not _in_order(walk) or not _rules_allow(walk):
        return None
    books = blank(capacity)
    facts = books.S
    facts[layout.STEP], facts[layout.STEPS] = state.step, state.steps
    facts[layout.BOUNDARY] = state.row + 1
    facts[layout.ARRIVALS], facts[layout.JOINS] = state.arrivals, state.joins
    facts[layout.HELD], facts[layout.PINNED] = state.held, state.pinned
    facts[layout.POSITIONS] = state.positions
    facts[layout.UNKNOWN_POSITIONS] = state.unknown_positions
    places: dict[RequestId, int] = {}
    for record in state.live.values():
        places[record.id] = _enter(books, record, put(record.id))
    for request in state.running:
        place = places[request]
        books.R[place, layout.PLACE_IN_RUN] = facts[layout.RUNS]
        books.L[layout.RUN_LIST, facts[layout.RUNS]] = place
        facts[layout.RUNS] += 1
    for request in state.preempted:
        books.L[layout.PRE_LIST, facts[layout.PRES]] = places[request]
        facts[layout.PRES] += 1
    for slot, request in state.slots.items():
        books.slots[slot, 0] = places[request]
    _draw_rules(books, walk, places, put)
    return books


def _in_order(walk: Walk) -> bool:
    """Arrival, admission and place order as the kernel takes them for granted."""
    state = walk.state
    waiting = [state.live[request].number for request in state.waiting]
    running = [state.live[request].joined or 0 for request in state.running]
    slots = all(
        0 <= slot < MAX_SLOT and request in state.live and state.live[request].slot == slot
        for slot, request in state.slots.items()
    )
    ordered = waiting == sorted(waiting) and running == sorted(running)
    return ordered and slots and state.arrivals == state.places


def _has_place(walk: Walk, record: Request) -> bool:
    return (
        record.prompt is not None
        and record.outputs is not None
        and record.state in _CODES
        and record.place == record.number
        and record.pending == 0
        and record.cancelled is None
        and not record.swapped
        and (record.computed is None) == record.adopts
        and (record.blocks is not None or not walk.state.has_blocks)
        and (record.slot is None or (0 <= record.slot < MAX_SLOT and record.state == RUNNING))
        and (record.slot is None or walk.state.slots.get(record.slot) == record.id)
        and (record.first_admit is not None or record.state == WAITING)
        and (record.first_admit is None or record.state != WAITING)
    )


def _rules_allow(walk: Walk) -> bool:
    """Whether what the rules remember is about live requests only, and of a kind that has a place."""
    live = walk.state.live
    rules: dict[str, Any] = dict(walk.rules)

    def about(rule: str, memory: str) -> bool:
        return rule not in rules or all(name in live for name in getattr(rules[rule], memory))

    if not (
        about("time/causality", "_times")
        and about("batch/no-stall", "_decoding")
        and about("tokens/lost", "_least")
        and about("memory/waste", "_before")
        and about("preemption/swap", "_kept")
    ):
        return False
    empty = (
        ("admission/never-fit", "_next"),
        ("admission/needless-wait", "_behind"),
        ("lifecycle/abort-target", "_failed"),
        ("admission/parked", "_since"),
        ("preemption/useful", "_due"),
        ("liveness/livelock", "_told"),
        ("liveness/idle-stall", "_lingering"),
        ("memory/coverage", "_short"),
        ("batch/empty-member", "_empty"),
    )
    if any(rule in rules and getattr(rules[rule], memory) for rule, memory in empty):
        return False
    slots = rules["slots/early-reuse"]._free_from if "slots/early-reuse" in rules else {}
    if any(not 0 <= slot < MAX_SLOT for slot in slots):
        return False
    waits = rules["admission/needless-wait"]._next if "admission/needless-wait" in rules else None
    if waits is not None and (waits[0] not in live or live[waits[0]].number != waits[1]):
        return False
    edges = rules["liveness/livelock"]._edges if "liveness/livelock" in rules else {}
    if edges:
        return False
    kept = rules["preemption/swap"]._kept.values() if "preemption/swap" in rules else ()
    before = rules["memory/waste"]._before.values() if "memory/waste" in rules else ()
    ends = rules["slots/reuse"]._ends if "slots/reuse" in rules else {}
    return (
        all(value == (0, False) for value in kept)
        and None not in before
        and all(step <= (walk.state.step or 0) for step in ends)
        and sum(map(len, ends.values())) < 256
    )


def _enter(books: Books, record: Request, key: int) -> int:
    facts = books.S
    facts[layout.FREE] -= 1
    place = int(books.L[layout.FREE_LIST, facts[layout.FREE]])
    row = books.R[place]
    row[:] = layout.NIL
    for column, value in (
        (layout.ID, key),
        (layout.NUMBER, record.number),
        (layout.STATE, _CODES[record.state]),
        (layout.ADOPTS, record.adopts),
        (layout.COMPUTED, record.computed),
        (layout.OUTPUTS, record.outputs),
        (layout.BLOCKS, record.blocks),
        (layout.PROMPT, record.prompt),
        (layout.DECODES, 0),
        (layout.MAX_TOKENS, record.max_tokens),
        (layout.ARRIVED, record.arrived),
        (layout.ARRIVED_NS, record.arrived_ns),
        (layout.SLOT, record.slot),
        (layout.FIRST_ADMIT, record.first_admit),
        (layout.JOINED, record.joined),
        (layout.PREEMPTIONS, record.preemptions),
        (layout.LATE, record.late),
        (layout.KEPT, 0),
        (layout.LAST_WHAT, 0),
    ):
        row[column] = layout.NIL if value is None else value
    insert(books.T, key, place)
    facts[layout.LIVE] += 1
    if record.state == WAITING:
        at = facts[layout.W_TAIL]
        books.L[layout.WAIT_LIST, at], books.L[layout.WAIT_NUMBERS, at] = place, record.number
        facts[layout.W_TAIL] += 1
        facts[layout.WAITS] += 1
    return place


def _draw_rules(books: Books, walk: Walk, places: dict[RequestId, int], put: _Put) -> None:
    facts, table = books.S, books.R
    rules: dict[str, Any] = dict(walk.rules)
    never = {True: layout.NEVER_YES, False: layout.NEVER_NO, None: layout.NEVER_UNSAID}
    for request, place in places.items():
        table[place, layout.NEVER] = never[never_fits(walk.state, walk.state.live[request])]
    if "time/backwards" in rules and (last := rules["time/backwards"]._last) is not None:
        facts[layout.LAST_CLOCK] = last
    if rule := rules.get("time/causality"):
        for request, (what, time) in rule._times.items():
            table[places[request], layout.LAST_NS] = time
            table[places[request], layout.LAST_WHAT] = layout.WHATS.index(what)
    if rule := rules.get("batch/no-stall"):
        for request in rule._decoding:
            table[places[request], layout.DECODES] = 1
    if rule := rules.get("slots/early-reuse"):
        for slot, (free_from, request, step) in rule._free_from.items():
            books.slots[slot, 1:] = (free_from, put(request), step)
    if rule := rules.get("slots/reuse"):
        for step, requests in sorted(rule._ends.items()):
            for request in requests:
                at = facts[layout.ENDS]
                books.L[layout.END_STEP, at], books.L[layout.END_ID, at] = step, put(request)
                facts[layout.ENDS] += 1
    if rule := rules.get("tokens/lost"):
        for request, least in rule._least.items():
            table[places[request], layout.LEAST] = least
    if rule := rules.get("memory/waste"):
        for request, before in rule._before.items():
            table[places[request], layout.BEFORE] = before
    if rule := rules.get("memory/leak"):
        facts[layout.LEAK_TOLD] = rule._told
    if rule := rules.get("preemption/thrash"):
        for request, (number, known, times) in rule._last.items():
            if request in places and table[places[request], layout.NUMBER] == number:
                table[places[request], layout.THRASH_KNOWN] = known
                table[places[request], layout.THRASH_TIMES] = times
    if rule := rules.get("preemption/swap"):
        for request in rule._kept:
            table[places[request], layout.KEPT] = 1
    if rule := rules.get("liveness/idle-stall"):
        facts[layout.EMPTY] = rule._empty
    if rule := rules.get("liveness/starved-member"):
        for request, missed in rule._missed.items():
            facts[layout.MISSES] += 1
            if request in places:
                table[places[request], layout.MISSED] = missed
                table[places[request], layout.MISSED_AT] = facts[layout.STEPS]
    if (rule := rules.get("admission/needless-wait")) and rule._next is not None:
        facts[layout.WAIT_NEXT] = places[rule._next[0]]
        facts[layout.WAIT_NUMBER] = rule._next[1]
        facts[layout.WAIT_COUNT] = rule._count
        # The words for why it fits are already there; a new count brings new ones.
        facts[layout.WAIT_SEATS] = layout.NIL
