"""The opening: what the books hold when a trace begins in the middle, beyond what its `live` rows say.

A stretch cut out of a trace begins with `live` rows. They say what each request has and holds, but not in
which order requests once joined, which passes they are in, who has ended and still holds blocks, or how the
counters of a fair order stand. `opening_of` puts that into plain values (JSON), which stand in the header
under the key `opening`; `begin` puts them into the books behind the last `live` row. Without it nothing
of the kind is assumed. Only what differs from what the rows alone come to is written.

An opening is input from strangers: `begin` raises `TraceError` for one that does not fit its trace.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from batchspec.spec import holdings
from batchspec.spec.errors import TraceError
from batchspec.spec.events import COLUMNS, KINDS, Event, RequestId
from batchspec.spec.line import Line
from batchspec.spec.model import PREEMPTED, WAITING, End, Member, Request, State

KEY: Final = "opening"
"""The key of the header under which the opening stands."""

_OF_A_REQUEST: Final = ("place", "first_admit", "joined", "preemptions", "cancelled", "prediction")


def live_row(state: State, record: Request, step: int) -> Event:
    """The `live` row of a request as it stands in the books before `step`."""
    ids = None
    if state.has_ids and record.id not in state.untold:
        ids = tuple(block for block in state.tables.get(record.id, ()) if block is not None)
    return Event(
        step,
        "live",
        record.id,
        time_ns=record.arrived_ns,
        prompt_tokens=record.prompt,
        max_tokens=record.max_tokens,
        priority=record.priority,
        tenant=record.tenant,
        slot=record.slot,
        start=record.computed,
        tokens=record.pending or None,
        blocks=record.blocks if state.has_blocks else None,
        block_ids=ids,
        output_tokens=record.outputs,
        reason=record.state,
    )


def live_rows(state: State, step: int) -> list[Event]:
    """The `live` rows of everyone who lives, in the order of arrival."""
    return [live_row(state, record, step) for record in _by_arrival(state)]


def opening_of(state: State, line: Line, named: Iterable[RequestId] = ()) -> dict[str, Any]:
    """The opening of a trace whose `live` rows are those of `live_rows`, from the books between two steps.

    `named` are the ids that the rows to come speak of: of those that have ended, no other is remembered
    unless it still holds something.
    """
    records = _by_arrival(state)
    out: dict[str, Any] = {
        "live": len(records),
        "columns": [name for name in COLUMNS if name in state.columns],
        "kinds": [kind for kind in KINDS if kind in state.kinds],
        "requests": _requests(state, records),
        "holes": {
            str(place): list(state.tables[record.id])
            for place, record in enumerate(records)
            if None in state.tables.get(record.id, ())
        },
        "passes": [
            [number, request, *part[:5]]
            for number, parts in state.passes.items()
            for request, part in parts.items()
        ],
        "ended": _ended(state, named),
        "lagged": [list(entry) for entry in state.lagged],
        "retiring": list(state.retiring),
        "in_flight": list(state.in_flight),
        "pinned": state.pinned,
        "units": [
            [resource, request, units]
            for resource, ledger in state.resources.items()
            for request, units in ledger.items()
        ],
        "transfers": [
            [request, reason, None if ids is None else list(ids)]
            for request, under_way in state.transfers.items()
            for reason, ids in under_way.items()
        ],
        "untold_units": not state.ledgers_told,
        "uncharged": not line.charged,
    }
    if line.shares is not None:
        out["counters"] = dict(line.shares.counters)
        out["last_left"] = line.shares.last_left
    return {key: value for key, value in out.items() if value or key == "live" or value is None}


def told_columns(opening: Any) -> frozenset[str]:
    """The columns that the whole trace had, of which this is a stretch. Raises `TraceError`."""
    return _words(_object(opening), "columns", COLUMNS)


def told_kinds(opening: Any) -> frozenset[str]:
    """The kinds of events that the whole trace had. Raises `TraceError`."""
    return _words(_object(opening), "kinds", KINDS)


def live_told(opening: Any) -> int:
    """How many `live` rows the opening goes with. Raises `TraceError`."""
    return _count(_object(opening).get("live"), "live")


def begin(state: State, line: Line, opening: Any) -> None:
    """Put an opening into books that hold its `live` rows and nothing else. Raises `TraceError`."""
    try:
        _begin(state, line, _object(opening))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
        raise TraceError("header: opening: does not fit the live rows of this trace; cut it anew") from None


def renamed(
    told: Mapping[str, Any], request: Callable[[RequestId], RequestId], tenant: Callable[[str], str]
) -> dict[str, Any]:
    """An opening under other names of requests and tenants. Raises `TraceError` for one that is none."""
    try:
        return _renamed(told, request, tenant)
    except (TypeError, ValueError, IndexError, AttributeError):
        raise TraceError("header: opening: is not what `batchspec cut` writes; cut it anew") from None


def without(told: Mapping[str, Any], live: Sequence[RequestId], gone: Container[RequestId]) -> dict[str, Any]:
    """An opening from which some requests are left out; `live` are those of the live rows, in their order."""
    places = [place for place, name in enumerate(live) if name not in gone]
    out = {**told, "live": len(places)}
    for key in ("requests", "holes"):
        if key in told:
            old = _object(told[key])
            out[key] = {str(new): old[str(at)] for new, at in enumerate(places) if str(at) in old}
    for key, at in _NAMED.items():
        if key in told:
            out[key] = [entry for entry in told[key] if entry[at] not in gone]
    return {key: value for key, value in out.items() if value or key == "live" or value is None}


# -- out -------------------------------------------------------------------------------------------


def _by_arrival(state: State) -> list[Request]:
    return sorted(state.live.values(), key=lambda record: record.number)


def _requests(state: State, records: list[Request]) -> dict[str, dict[str, int]]:
    """By place among the live rows: what a request has beyond its row, ordinals as ranks."""
    ranks = {
        name: _ranks([getattr(record, name) for record in records])
        for name in ("place", "first_admit", "joined")
    }
    # What live rows alone come to: places in their order, joins in the order of those who have joined.
    plain = {"place": ranks["place"] == list(range(len(records)))}
    joined = _ranks([place if rank is not None else None for place, rank in enumerate(ranks["joined"])])
    plain["joined"] = ranks["joined"] == joined
    plain["first_admit"] = plain["joined"] and ranks["first_admit"] == joined
    out = {}
    for place, record in enumerate(records):
        said = {
            name: ranks[name][place] if name in ranks else getattr(record, name)
            for name in _OF_A_REQUEST
            if not plain.get(name)
        }
        if kept := {name: value for name, value in said.items() if value or (name in ranks and value == 0)}:
            out[str(place)] = kept
    return out


def _ranks(values: list[int | None]) -> list[int | None]:
    order = {
        value: rank for rank, value in enumerate(sorted({value for value in values if value is not None}))
    }
    return [None if value is None else order[value] for value in values]


def _ended(state: State, named: Iterable[RequestId]) -> list[list[Any]]:
    """Those who have ended and count: id, how, step, pass, ids told, reason, blocks, table, untold."""
    wanted = dict.fromkeys(name for name in named if name in state.ended and name not in state.live)
    holders = {**state.held_by_ended, **state.transfers}
    for ledger in state.resources.values():
        holders.update(ledger)
    wanted.update(dict.fromkeys(name for name in holders if name not in state.live))
    blank = End("finish", -1, -1, -1, False, None)
    out = []
    for name in sorted(wanted, key=lambda name: (state.ended.get(name, blank).number, str(name))):
        end = state.ended.get(name)
        held = [state.held_by_ended[name]] if name in state.held_by_ended else []
        how = None if end is None else [end.kind, end.step, end.pass_step, end.returned, end.reason]
        out.append([name, how, held, list(state.tables.get(name, ())), name in state.untold])
    return out


# -- in --------------------------------------------------------------------------------------------


def _begin(state: State, line: Line, opening: Mapping[str, Any]) -> None:
    records = list(state.live.values())
    for key, said in _object(opening.get("requests", {})).items():
        record = records[int(key)]
        values: dict[str, Any] = {name: _count(said[name], name) for name in _OF_A_REQUEST if name in said}
        state.live[record.id] = record._replace(**values)
    for key, table in _object(opening.get("holes", {})).items():
        held = iter(state.tables[records[int(key)].id])
        state.tables[records[int(key)].id] = [None if block is None else next(held) for block in table]
    state.places = 1 + max((record.place for record in state.live.values()), default=-1)
    state.joins = 1 + max(
        (max(record.joined or 0, record.first_admit or 0) for record in state.live.values()), default=-1
    )
    _order(state)
    _line(state, line, opening)
    for number, request, *part in opening.get("passes", ()):
        start, tokens, drafts, reaches, before = part
        member = Member(start, tokens, _count(drafts, "passes"), reaches, before, -1)
        state.passes.setdefault(_count(number, "passes"), {})[_id(request)] = member
    _begin_ended(state, opening)
    state.retiring.extend(_count(step, "retiring") for step in opening.get("retiring", ()))
    state.in_flight.update((_count(number, "in_flight"), None) for number in opening.get("in_flight", ()))
    pinned = opening.get("pinned", 0)
    state.pinned = None if pinned is None else _count(pinned, "pinned")
    for resource, request, units in opening.get("units", ()):
        state.resources.setdefault(str(resource), {})[_id(request)] = int(units)
    for request, reason, ids in opening.get("transfers", ()):
        blocks = None if ids is None else tuple(_count(block, "transfers") for block in ids)
        state.transfers.setdefault(_id(request), {})[str(reason)] = blocks
    state.ledgers_told = state.ledgers_told and not opening.get("untold_units")


def _order(state: State) -> None:
    """The queues in the order in which the books keep them: by place, and by joining."""

    def place(request: RequestId) -> int:
        return state.live[request].place

    state.waiting = dict.fromkeys(sorted(state.waiting, key=place))
    state.running = dict.fromkeys(sorted(state.running, key=lambda name: state.live[name].joined or 0))


def _line(state: State, line: Line, opening: Mapping[str, Any]) -> None:
    """Everyone who stands in the line, each at its own place, and the counters of a fair order."""
    line.heap.clear()
    line.tenants.clear()
    line.unordered.clear()
    for record in state.live.values():
        if record.state == WAITING or (record.state == PREEMPTED and line.returns in ("back", "arrival")):
            line.enter(record, anew=False)
    line.charged = line.charged and not opening.get("uncharged")
    if line.shares is not None and "counters" in opening:
        counters = _object(opening["counters"])
        line.shares.counters = {str(name): float(value) for name, value in counters.items()}
        left = opening.get("last_left")
        line.shares.last_left = None if left is None else str(left)
        for name in [*line.shares.queued, *([] if left is None else [str(left)])]:
            line.shares.counters.setdefault(name, 0)


def _begin_ended(state: State, opening: Mapping[str, Any]) -> None:
    ended = opening.get("ended", ())
    for place, (name, how, held, table, untold) in enumerate(ended):
        request = _id(name)
        if request in state.live:
            raise ValueError
        if how is not None:
            kind, step, pass_step, returned, reason = how
            # They arrived before, or it does not matter when: live rows are numbered from 0.
            number = place - len(ended)
            state.ended[request] = End(
                str(kind), _count(step, "ended"), _count(pass_step, "ended"), number, bool(returned), reason
            )
        if not held:
            continue
        blocks = None if held[0] is None else _count(held[0], "ended")
        state.held_by_ended[request] = blocks
        holdings.account(state, 0, blocks)
        if table:
            state.tables[request] = [None if block is None else _count(block, "ended") for block in table]
            for block in table:
                if block is not None:
                    state.owners[block] = (*state.owners.get(block, ()), request)
        if untold:
            state.untold[request] = None
    for free_from, request in opening.get("lagged", ()):
        if request in state.held_by_ended:
            state.lagged.append((_count(free_from, "lagged"), _id(request)))


# Where a request's id stands in the entries of each list.
_NAMED: Final = {"passes": 1, "ended": 0, "lagged": 1, "units": 1, "transfers": 0}


def _renamed(
    told: Mapping[str, Any], request: Callable[[RequestId], RequestId], tenant: Callable[[str], str]
) -> dict[str, Any]:
    out = dict(told)

    def anew(name: Any) -> RequestId:
        # A former incarnation that still holds blocks goes by the id and its ordinal.
        former, mark, number = name.partition("\0") if isinstance(name, str) else (name, "", "")
        return f"{request(former)}{mark}{number}" if mark else request(_id(name))

    for key, at in _NAMED.items():
        if key in told:
            out[key] = [[*entry[:at], anew(entry[at]), *entry[at + 1 :]] for entry in told[key]]
    if "counters" in told:
        out["counters"] = {name and tenant(name): value for name, value in _object(told["counters"]).items()}
    if told.get("last_left"):
        out["last_left"] = tenant(told["last_left"])
    return out


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TraceError("header: opening: must be an object, as `batchspec cut` writes it")
    return value


def _words(opening: Mapping[str, Any], key: str, known: tuple[str, ...]) -> frozenset[str]:
    words = opening.get(key, ())
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise TraceError(f"header: opening.{key}: must be a list of words")
    return frozenset(words) & frozenset(known)


def _count(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise TraceError(f"header: opening.{key}: must be whole numbers of at least 0")
    return value


def _id(value: Any) -> RequestId:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TraceError("header: opening: a request id is a text or a whole number")
    return value
