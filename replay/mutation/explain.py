"""Why a fault went unseen: each survivor is explained by an argument that is worked out, rule by rule apart.

A survivor is *legal* where the trace with the fault tells of a run that the spec allows:

    workload   the reference scheduler, fed the changed arrival, writes exactly this trace
    renamed    another free seat, free block or content key that nobody asks for (ledgers.py)
    books      the spec's actions bring both traces to the same books when the next step begins (books.py)
    clock      the clock still runs forward, and no claim is measured by this time
    outside    the word is the model's, the client's or the operator's: any other is as good
    moment     what the client does comes at another moment of the step, or does not come
    tie        rows of one step in another order, which neither the policy nor what they do gives a meaning
    unclaimed  a member may be left out of a step where nothing claims that it runs in every one
    unsaid     the row is one that a trace may leave out: without all of its kind the good trace is good too
    bounded    a rule judges this value, or how late the row comes, and lets it pass; it speaks at another

*unobservable* where nothing that could contradict it is told or claimed here:

    level      told more fully (L4), the same fault in the same run breaks a rule that lacks a column here
    unread     no rule speaks whatever stands in this cell; the one that judges it in other runs is named

and otherwise a *gap*: either one that the spec leaves on purpose (`KNOWN`, with the reason), or a new one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from batchspec.replay.mutation import books, ledgers
from batchspec.replay.mutation.faults import Fault, Mutant
from batchspec.replay.mutation.goods import Good, GoodTable, good_of
from batchspec.replay.mutation.judges import judge_of, others
from batchspec.replay.mutation.stretches import ENDS, MOST_STEPS, put_later
from batchspec.replay.mutation.tables import TableMutant, changed
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.rules.requests import refused
from batchspec.spec.verdict import RuleResult

LEGAL: Final = "legal"
UNOBSERVABLE: Final = "unobservable"
GAP: Final = "gap"

_ARRIVES: Final = ("prompt_tokens", "max_tokens", "priority", "tenant", "time_ns")
_CLIENTS: Final = frozenset({"arrive", "ready", "cancel"})
_DEVICE: Final = frozenset({"dispatch", "complete", "transfer_begin", "transfer_end"})
_OUTSIDE: Final = {
    ("finish", "stop"): "a model may stop at any token",
    ("finish", "error"): "a request may fail at any token",
    ("finish", "migrated"): "a request may move away at any token",
    ("abort", "timeout"): "no time limit is claimed that it could miss",
    ("abort", "operator"): "the operator may end any request",
    ("abort", "error"): "a single request may fail; that several fail together is judged",
    ("abort", "memory"): "a single request may be given up for memory; that several are is judged",
    ("preempt", "operator"): "the operator may interrupt any request",
    ("reject", "error"): "a request may be refused for an error of its own",
    ("park", ""): "the condition that a request waits for is not the scheduler's",
}
_FAR: Final = (1, 2, 3, 5, 10, 50, 1_000, 1_000_000, 1_000_000_000_000)
_NUMBERS: Final = frozenset(
    {"prompt_tokens", "max_tokens", "priority", "tokens", "drafts", "blocks", "output_tokens", "units"}
    | {"time_ns", "pass_", "prediction", "cached", "start", "pinned_blocks"}
)
"""Columns that are compared with bounds; names and reported counts are right or wrong."""

KNOWN: Final[dict[tuple[str, str], str]] = {
    ("complete", "drop"): (
        "how long a pass takes is the device's doing; only a profile with a bound of its own for "
        "liveness/idle-stall says that one ends"
    ),
    ("skip", "reason"): "a note of the scheduler's own: it may excuse, and claims nothing",
}
"""Gaps that are left on purpose: (kind of event or `record`, column or kind of fault) to the reason."""

_REFUSALS: Final = {
    "rate": "fairness.rate_limits",
    "queue_full": "limits.max_waiting",
    "too_long": "limits.max_model_len",
}
"""The claim that a refusal for this reason is held against."""


class Reason(NamedTuple):
    """Why a fault went unseen: `legal`, `unobservable` or `gap`; by which argument; in words."""

    verdict: str
    argument: str
    words: str


def explained(good: Good, mutant: Mutant) -> Reason:
    """The first argument that holds for a survivor of an event trace."""
    for argue in _ARGUMENTS:
        reason = argue(good, mutant)
        if reason is not None:
            return reason
    fault = mutant.fault
    event = (fault.before or fault.after)[0].event
    known = KNOWN.get((event, fault.column or fault.kind))
    return Reason(GAP, "known" if known else "new", known or "no argument says why no rule speaks")


# -- legal -----------------------------------------------------------------------------------------


def _workload(good: Good, mutant: Mutant) -> Reason | None:
    """Would the reference scheduler write these rows, had it been fed what the arrive rows now say?"""
    fault = mutant.fault
    records = {record.request: record for record in good.run.records}
    if not any(event.event == "arrive" and event.request in records for event in fault.before):
        return None
    delays: dict[RequestId, int] = {}
    if fault.kind == "order":
        # Rows say who came first, never their clocks.
        names = [event.subject for event in mutant.events if event.event == "arrive"]
        times = sorted(record.arrival_ns for record in records.values())
        if sorted(map(str, names)) != sorted(map(str, records)):
            return None
        order = [records[name]._replace(arrival_ns=time) for name, time in zip(names, times, strict=True)]
        delays = {record.request: records[record.request].arrival_ns - record.arrival_ns for record in order}
    elif fault.column in _ARRIVES and fault.kind in ("count", "shift"):
        record = records[fault.before[0].subject]
        name = "arrival_ns" if fault.column == "time_ns" else fault.column
        value = getattr(fault.after[0], fault.column)
        order = [record._replace(**{name: value}) if one is record else one for one in good.run.records]
        if name == "arrival_ns":
            # Clients cancel, and conditions hold, when they did before.
            delays = {record.request: record.arrival_ns - value}
    else:
        return None
    aborts = {name: delay + delays.get(name, 0) for name, delay in good.run.aborts.items()}
    parks = {name: (why, delay + delays.get(name, 0)) for name, (why, delay) in good.run.parks.items()}
    try:
        again = good_of(replace(good.run, records=tuple(order), aborts=aborts, parks=parks), good.level)
    except BatchspecError:
        return None
    if _decided(_blanked(good, again.events)) != _decided(mutant.events):
        return None
    return Reason(LEGAL, "workload", "fed these arrivals, the reference scheduler writes the same rows")


def _decided(events: Sequence[Event]) -> list[Event]:
    """The rows that the scheduler writes, without content keys, refusals in a row in one order."""
    rows: list[Event] = []
    for event in events:
        if event.event == "arrive":
            continue
        rows.append(event._replace(block_hashes=None))
        place = len(rows) - 1
        while place and _refusals(rows[place - 1], rows[place]):
            rows[place - 1], rows[place] = rows[place], rows[place - 1]
            place -= 1
    return rows


def _refusals(one: Event, other: Event) -> bool:
    return one.event == other.event == "reject" and str(one.request) > str(other.request)


def _renamed(good: Good, mutant: Mutant) -> Reason | None:
    fault = mutant.fault
    if fault.column == "slot" and ledgers.seats_hold(good, mutant.events):
        return Reason(LEGAL, "renamed", "another seat that is free until this request leaves it")
    if fault.column == "block_ids" and ledgers.blocks_hold(good, mutant.events):
        return Reason(LEGAL, "renamed", "another block that is free until this request gives it back")
    if fault.column == "block_hashes":
        before, after = fault.before[0].block_hashes or (), fault.after[0].block_hashes or ()
        changed_keys = {*before} ^ {*after}
        asked = ledgers.asked_for(good, mutant.events, fault.row)
        if not changed_keys & asked:
            return Reason(LEGAL, "renamed", "a content key that nobody takes over from the cache later")
    return None


def _books(good: Good, mutant: Mutant) -> Reason | None:
    fault = mutant.fault
    events = (*fault.before, *fault.after)
    if fault.column in _REPORTED or fault.column == "time_ns":
        return None  # no book is kept of these
    steps = [event.step for event in events]
    step = max(steps)
    if any(event.event == "step" for event in events) and fault.kind != "order":
        return None
    if books.after_step(good, good.events, step) != books.after_step(good, mutant.events, step):
        return None
    return Reason(LEGAL, "books", f"the books are the same when the step after {step} begins")


_REPORTED: Final = frozenset(
    {"free_blocks", "waiting", "running", "shared_blocks", "output_tokens", "reason"}
)


def _clock(good: Good, mutant: Mutant) -> Reason | None:
    fault = mutant.fault
    if fault.column != "time_ns":
        return None
    event = fault.before[0].event
    if event in ("arrive", "cancel"):
        words = "the client's clock: nothing that is claimed here is measured by it"
        return None if event == "arrive" and _measured(good) else Reason(LEGAL, "clock", words)
    times = [
        one.time_ns
        for one in mutant.events
        if one.time_ns is not None and one.event not in ("arrive", "cancel")
    ]
    if times != sorted(times) or (_measured(good) and _starts(good.events) != _starts(mutant.events)):
        return None
    return Reason(LEGAL, "clock", "the clock still runs forward, and no claim is measured by this time")


def _measured(good: Good) -> bool:
    profile = good.profile
    return bool(
        good.mode == "dynamic"
        or profile.limits.queue_timeout_ns
        or profile.patience.wall_ns
        or profile.fairness.rate_limits
    )


def _starts(events: Sequence[Event]) -> dict[int, int]:
    starts: dict[int, int] = {}
    for event in events:
        if event.time_ns is not None and event.event not in ("arrive", "cancel"):
            starts.setdefault(event.step, event.time_ns)
    return starts


def _outside(good: Good, mutant: Mutant) -> Reason | None:
    fault = mutant.fault
    if fault.column != "reason":
        return None
    event = fault.after[0]
    if event.event == "abort" and event.reason == "timeout" and good.profile.limits.queue_timeout_ns:
        return None
    claim = _REFUSALS.get(event.reason or "")
    if event.event == "reject" and claim is not None:
        if good.profile.claim(claim) is None:
            return Reason(
                UNOBSERVABLE, "unread", f"a refusal for {event.reason} is judged where {claim} is claimed"
            )
        return Reason(LEGAL, "bounded", f"{claim} does not rule a refusal for {event.reason} out here")
    word = _OUTSIDE.get((event.event, event.reason or "")) or _OUTSIDE.get((event.event, ""))
    return Reason(LEGAL, "outside", word) if word else None


def _moment(good: Good, mutant: Mutant) -> Reason | None:
    fault = mutant.fault
    if fault.kind == "drop" and fault.before[0].event in ("park", "ready", "cancel"):
        return Reason(
            LEGAL, "moment", f"the {fault.before[0].event} is not the scheduler's: it need not come"
        )
    if fault.kind == "shift" and fault.column == "step" and fault.before[0].event in _CLIENTS:
        return Reason(
            LEGAL, "moment", f"the {fault.before[0].event} comes in another step, and all is in time"
        )
    return open_order(good, mutant) if fault.kind == "order" else None


def open_order(good: Good, mutant: Mutant) -> Reason | None:
    """Rows of one step in another order that neither the policy nor what the rows do leaves any meaning."""
    fault = mutant.fault
    first, last, between = fault.before[0], fault.before[-1], fault.before[1:-1]
    # Each pair whose order has changed.
    pairs = [(first, last), *((first, row) for row in between), *((row, last) for row in between)]
    if not all(_is_open(good, one, other) for one, other in pairs):
        return None
    step = first.step
    books_of = [
        books.after_step(good, events, step, ordinals=False) for events in (good.events, mutant.events)
    ]
    if books_of[0] != books_of[1]:
        return None
    for row in (first, last):
        if row.event in _CLIENTS:
            words = f"the {row.event} of {row.request} comes at another moment of its step"
            return Reason(LEGAL, "moment", words)
    return Reason(LEGAL, "tie", "the policy leaves open which of these comes first")


def _is_open(good: Good, one: Event, other: Event) -> bool:
    """Whether the policy leaves the order of two rows of one step open."""
    if one.request == other.request:
        return False
    kinds = {one.event, other.event}
    if kinds == {"arrive"}:
        now = [event for event in good.events if event.step == one.step and event.event == "reject"]
        return _is_unordered(good, one, other) or bool(
            {one.request, other.request} & {e.request for e in now}
        )
    if kinds & _CLIENTS:
        return True
    if kinds <= {"admit", "resume"}:
        came = {event.request: event for event in good.events if event.event == "arrive"}
        order = good.profile.admission.order
        return order in (None, "fair") and _is_unordered(good, came[one.request], came[other.request])
    return "preempt" not in kinds


def _is_unordered(good: Good, one: Event, other: Event) -> bool:
    """Whether the policy ranks two requests by something else than who came first."""
    order = good.profile.admission.order
    if order == "fair":
        return one.tenant != other.tenant
    if order == "priority":
        return one.priority != other.priority
    if order == "sjf":
        works = [(row.prompt_tokens or 0) + (row.max_tokens or 0) for row in (one, other)]
        return works[0] != works[1]
    return order is None


def _later(good: Good, mutant: Mutant) -> Reason | None:
    """A row that comes a step later: how late is too late?"""
    fault = mutant.fault
    if fault.column != "step" or fault.after[0].step <= fault.before[0].step:
        return None
    for by in range(2, MOST_STEPS + 1):
        findings = _findings(good, put_later(good.events, "late", [fault.row], by, "").events)
        if findings:
            says = f"{findings[0]} lets it come a step later; it speaks where it comes {by} steps later"
            return Reason(LEGAL, "bounded", says)
    return Reason(UNOBSERVABLE, "unread", "no rule that is checkable here speaks however late this row comes")


def _unsaid(good: Good, mutant: Mutant) -> Reason | None:
    fault = mutant.fault
    if fault.kind == "kind" and fault.column == "event":
        return _instead(good, mutant)
    if fault.kind != "drop":
        return None
    event = fault.before[0]
    if event.event == "schedule":
        return _left_out(good, mutant)
    rest = [one for one in good.events if one.event != event.event]
    if not rest or _findings(good, rest):
        return None
    words = f"a trace may leave {event.event} rows out: without any this one conforms as well"
    return Reason(LEGAL, "unsaid", words)


def _instead(good: Good, mutant: Mutant) -> Reason | None:
    """Another row in its place: the row may be missing, and the check says that the new one is not wrong."""
    fault = mutant.fault
    before, after = fault.before[0], fault.after[0]
    if before.event in ENDS and after.event in ENDS:
        return Reason(LEGAL, "outside", "an end of another kind, from a state in which that is legal too")
    events = [*good.events[: fault.row], *good.events[fault.row + 1 :]]
    dropped = Mutant(Fault("drop", fault.row, None, fault.before, (), ""), events)
    if _findings(good, events):
        return None
    reason = explained(good, dropped)
    if reason.verdict == GAP:
        return None
    return reason._replace(
        words=f"{reason.words}; and the {after.event} row contradicts nothing that is told"
    )


def _left_out(good: Good, mutant: Mutant) -> Reason | None:
    """A member less: who claims that it runs in every step?"""
    results = {one.id: one for one in good.judge(mutant.events).rules}
    rules = ("batch/no-stall", "liveness/starved-member")
    if any(results[rule].verdict == "violates" for rule in rules):
        return None
    return Reason(
        LEGAL, "unclaimed", f"a member may be left out of a step within what {' and '.join(rules)} claim"
    )


# -- unobservable ----------------------------------------------------------------------------------


def _level(good: Good, mutant: Mutant) -> Reason | None:
    full = _retold(good, mutant)
    if full is None:
        return None
    report = full[0].judge(full[1])
    if not report.findings:
        return None
    rule = report.findings[0].rule
    here = next(one for one in good.judge(mutant.events).rules if one.id == rule)
    lacks = f", which lacks {', '.join(here.missing)} here" if here.missing else ""
    return Reason(UNOBSERVABLE, "level", f"at L4 the same fault breaks {rule}{lacks}")


def _retold(good: Good, mutant: Mutant) -> tuple[Good, list[Event]] | None:
    """The run and the fault at level L4; None where it is at that level, or the rows do not correspond."""
    fault = mutant.fault
    if good.level == "L4":
        return None
    full = good_of(good.run, "L4")
    places = [row for row, event in enumerate(full.events) if event.event not in _DEVICE]
    mine = [row for row, event in enumerate(good.events) if event.event not in _DEVICE]
    if len(places) != len(mine) or fault.row not in mine or fault.column == "step":
        return None
    row = places[mine.index(fault.row)]
    told = full.events[row]
    if fault.kind == "drop":
        return full, [*full.events[:row], *full.events[row + 1 :]]
    if fault.kind == "duplicate":
        return full, [*full.events[: row + 1], *full.events[row:]]
    if fault.kind == "order":
        last = fault.row + len(fault.before) - 1
        if last not in mine:
            return None
        other = places[mine.index(last)]
        swapped = list(full.events)
        swapped[row], swapped[other] = swapped[other], swapped[row]
        return full, swapped
    before, after = fault.before[0], fault.after[0]
    new = {name: value for name, value in after._asdict().items() if value != getattr(before, name)}
    return full, [*full.events[:row], told._replace(**new), *full.events[row + 1 :]]


def _cell(good: Good, mutant: Mutant) -> Reason | None:
    """A number on the way to a bound, or a cell that no rule reads here."""
    fault = mutant.fault
    if fault.column is None or fault.column in ("event", "step"):
        return None
    field = "pass_" if fault.column == "pass" else fault.column
    if field in _NUMBERS:
        before, after = getattr(fault.before[0], field), getattr(fault.after[0], field)
        for side, values in (("", _beyond(before, after)), (" from the other side", _beyond(after, before))):
            for value in values:
                findings = _findings(good, _with(good, fault, field, value))
                if findings:
                    says = (
                        f"{findings[0]} bounds {fault.column}{side} and lets this pass; it speaks at {value}"
                    )
                    return Reason(LEGAL, "bounded", says)
    if any(_findings(good, _with(good, fault, field, value)) for value in others(good, fault.row, field)):
        return None  # some rule reads it here, and does not mind this value: no argument says why
    judge = judge_of(fault.before[0].event, field)
    if judge is None:
        return None
    results = {one.id: one for one in good.judge(mutant.events).rules}
    return Reason(UNOBSERVABLE, "unread", _unread(judge, results[judge]))


def _unread(judge: str, here: RuleResult) -> str:
    if here.missing:
        return f"{judge}, which judges it elsewhere, lacks {', '.join(here.missing)} here"
    return f"{judge}, which judges it elsewhere, has nothing here to hold it against"


def _with(good: Good, fault: Fault, field: str, value: Any) -> list[Event]:
    event = fault.before[0]._replace(**{field: value})
    return [*good.events[: fault.row], event, *good.events[fault.row + 1 :]]


def _beyond(before: Any, after: Any) -> Iterator[int]:
    """Values further away than `after`, in the same direction."""
    sign = 1 if after > before else -1
    yield from (value for by in _FAR if (value := after + sign * by) >= 0)


def _findings(good: Good, events: Sequence[Event]) -> list[str]:
    return [finding.rule for finding in good.judge(events).findings]


def _blanked(good: Good, events: Sequence[Event]) -> list[Event]:
    """Rows that say no more than the good trace does, where columns of it were left out."""
    told = {name for name in Event._fields if any(getattr(event, name) is not None for event in good.events)}
    nothing: dict[str, Any] = {name: None for name in Event._fields if name not in told}
    return [event._replace(**nothing) for event in events] if nothing else list(events)


_ARGUMENTS: Final[tuple[Callable[[Good, Mutant], Reason | None], ...]] = (
    _workload,
    _renamed,
    _clock,
    _outside,
    _books,
    _moment,
    _unsaid,
    _later,
    _level,
    _cell,
)


# -- request tables --------------------------------------------------------------------------------


def explained_table(good: GoodTable, mutant: TableMutant) -> Reason:
    """The first argument that holds for a survivor of a request table."""
    fault = mutant.fault
    if fault.kind == "order":
        times = [record.arrival_ns for record in good.records]
        if times[fault.row] == times[fault.row + 1]:
            return Reason(LEGAL, "unordered", "requests of one instant have no order between them")
        return Reason(LEGAL, "unordered", "the order of a table's rows is no claim: arrival_ns is")
    if fault.kind == "duplicate" and refused(good.records[fault.row]):
        return Reason(LEGAL, "again", "the id of a refused request may come again, and be refused again")
    if fault.kind == "drop":
        return Reason(LEGAL, "unsaid", "a table of fewer requests: nothing says that all are told")
    if fault.column is None:
        return Reason(GAP, "new", "no argument says why no rule speaks")
    numbers = isinstance(fault.before, int) and isinstance(fault.after, int) and fault.column != "request"
    for value in _beyond(fault.before, fault.after) if numbers else ():
        report = good.judge(changed(good.records, fault.row, fault.kind, fault.column, value).records)
        if report.findings:
            rule = report.findings[0].rule
            says = f"{rule} bounds {fault.column} and lets this value pass; it speaks at {value}"
            return Reason(LEGAL, "bounded", says)
    if fault.column == "request" and refused(good.records[fault.row]):
        return Reason(LEGAL, "again", "a refused request may have any id that is not live")
    judge = judge_of("record", fault.column)
    if judge is not None:
        results = {one.id: one for one in good.judge(mutant.records).rules}
        return Reason(UNOBSERVABLE, "unread", _unread(judge, results[judge]))
    judge = judge_of("arrive", fault.column) if fault.column in _ARRIVES else None
    if judge is not None:
        return Reason(UNOBSERVABLE, "level", f"{judge} judges it from events (level L1)")
    known = KNOWN.get(("record", fault.column))
    return Reason(GAP, "known" if known else "new", known or "no argument says why no rule speaks")
