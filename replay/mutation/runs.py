"""Other runs: arguments that a trace with a fault tells of a run that the spec allows all the same.

Each rests on the reference scheduler, the spec's actions, or a ledger of its own, and on no rule but those
of the policy's order where the order is what is open.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from batchspec.replay.mutation import ledgers
from batchspec.replay.mutation.books import after_step
from batchspec.replay.mutation.faults import Mutant
from batchspec.replay.mutation.goods import Good, good_of
from batchspec.replay.mutation.reason import LEGAL, UNOBSERVABLE, Reason
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import Event, RequestId

ARRIVES: Final = ("prompt_tokens", "max_tokens", "priority", "tenant", "time_ns")
"""Columns of an arrival that a record has as well."""

_CLIENTS: Final = frozenset({"arrive", "ready", "cancel"})
_PASSES: Final = frozenset({"dispatch", "complete"})
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
    ("transfer_end", "failed"): "a transfer may fail; what it was to bring is judged where it is used",
    ("park", ""): "the condition that a request waits for is not the scheduler's",
}

_REFUSALS: Final = {
    "rate": "fairness.rate_limits",
    "queue_full": "limits.max_waiting",
    "too_long": "limits.max_model_len",
}
"""The claim that a refusal for this reason is held against."""


def workload(good: Good, mutant: Mutant) -> Reason | None:
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
    elif fault.column in ARRIVES and fault.kind in ("count", "shift"):
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
    words = "fed these arrivals, the reference scheduler writes the same rows"
    theirs, ours = _blanked(good, again.events), mutant.events
    if fault.kind == "order" and {fault.before[0].event, fault.before[-1].event} & _PASSES:
        # When a pass begins and ends in its step is the device's doing.
        theirs, ours = ([event for event in rows if event.event not in _PASSES] for rows in (theirs, ours))
        words += ", and the device begins or ends at another moment of the step"
    return Reason(LEGAL, "workload", words) if _decided(theirs) == _decided(ours) else None


def _decided(events: Sequence[Event]) -> list[Event]:
    """What the scheduler did: without its notes (`skip`) and content keys, refusals in a row in one order."""
    rows: list[Event] = []
    for event in events:
        if event.event in ("arrive", "skip"):
            continue
        rows.append(event._replace(block_hashes=None))
        place = len(rows) - 1
        while place and _refusals(rows[place - 1], rows[place]):
            rows[place - 1], rows[place] = rows[place], rows[place - 1]
            place -= 1
    return rows


def _refusals(one: Event, other: Event) -> bool:
    return one.event == other.event == "reject" and str(one.request) > str(other.request)


def renamed(good: Good, mutant: Mutant) -> Reason | None:
    """Another name for a seat, a block or content, and nobody else's at that time?"""
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


def books(good: Good, mutant: Mutant) -> Reason | None:
    """Do the spec's actions come to the same books?"""
    fault = mutant.fault
    events = (*fault.before, *fault.after)
    if fault.column in _REPORTED or fault.column == "time_ns":
        return None  # no book is kept of these
    steps = [event.step for event in events]
    step = max(steps)
    if any(event.event == "step" for event in events) and fault.kind != "order":
        return None
    if after_step(good, good.events, step) != after_step(good, mutant.events, step):
        return None
    return Reason(LEGAL, "books", f"the books are the same when the step after {step} begins")


_REPORTED: Final = frozenset(
    {"free_blocks", "waiting", "running", "shared_blocks", "output_tokens", "reason"}
)


def clock(good: Good, mutant: Mutant) -> Reason | None:
    """Does the clock still run forward, and does nothing hang on this time?"""
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


def outside(good: Good, mutant: Mutant) -> Reason | None:
    """Is the reason a word of the model's, the client's or the operator's?"""
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


def moment(good: Good, mutant: Mutant) -> Reason | None:
    """Is it the client's doing when the row comes, or does the policy leave the order open?"""
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
    books_of = [after_step(good, events, step, ordinals=False) for events in (good.events, mutant.events)]
    if books_of[0] != books_of[1]:
        return None
    for row in (first, last):
        if row.event in _CLIENTS:
            words = f"the {row.event} of {row.request} comes at another moment of its step"
            return Reason(LEGAL, "moment", words)
    return Reason(LEGAL, "tie", "the policy leaves open which of these comes first")


def _is_open(good: Good, one: Event, other: Event) -> bool:
    """Whether the policy leaves the order of two rows of one step open."""
    kinds = {one.event, other.event}
    if one.request == other.request:
        return "skip" in kinds  # a note, which claims nothing about when
    if kinds == {"arrive"}:
        now = [
            event for event in good.events if event.step == one.step and event.event in ("reject", "abort")
        ]
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


def _blanked(good: Good, events: Sequence[Event]) -> list[Event]:
    """Rows that say no more than the good trace does, where columns of it were left out."""
    told = {name for name in Event._fields if any(getattr(event, name) is not None for event in good.events)}
    nothing: dict[str, Any] = {name: None for name in Event._fields if name not in told}
    return [event._replace(**nothing) for event in events] if nothing else list(events)
