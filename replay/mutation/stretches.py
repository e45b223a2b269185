"""Faults of a stretch: what one wrong row cannot break takes several rows that are wrong together.

    starve     a request's rows come some steps later, from one of them on
    stall      nothing happens for some steps
    omit       a request is left out of some steps
    late       a row comes some steps later
    exchange   two requests change places, from a row on
    thrash     a victim that has come back is preempted again, and again, before it emits a token
    duel       a victim that has come back preempts the other, and the other it, in turns
    cling      a preemption for a request that waits does not happen, and the two stay as they are
    erase      all rows of one kind about one request are missing

Bounded rules need the first four, rules of order and choice the fifth, rules of progress the next three. A
fault of a stretch is put into a trace without the engine's own counters (`uncounted`): these would give
away a whole stretch at its first row, and none of the rules that it is meant for would be heard.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from batchspec.replay.mutation.faults import Fault, Mutant
from batchspec.spec.events import Event, RequestId

MOST_STEPS: Final = 24
"""The longest stretch: longer than any patience of the runs in replay/generate.py but that of thrash."""

ENDS: Final = frozenset({"finish", "abort", "reject"})
_COUNTERS: Final = ("waiting", "running", "free_blocks", "pinned_blocks", "shared_blocks")


def uncounted(events: Sequence[Event]) -> list[Event]:
    """The trace without what the engine itself reports at the end of a step."""
    nothing: dict[str, Any] = dict.fromkeys(_COUNTERS)
    return [event._replace(**nothing) if event.event == "step" else event for event in events]


def stretched(events: Sequence[Event], kind: str, random: Random) -> Mutant | None:
    """The trace with one fault of a kind of stretch; None where no row can have such a fault."""
    return _MAKERS[kind](events, random)


# -- later -----------------------------------------------------------------------------------------


def _starve(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random, ("admit", "resume", "schedule", "finish", "abort", "reject", "arrive"))
    if row is None:
        return None
    by = random.randint(1, MOST_STEPS)
    who = events[row].request
    mine = [at for at in range(row, len(events)) if events[at].request == who]
    return put_later(
        events, "starve", mine, by, f"from step {events[row].step} on {who} comes {by} steps later"
    )


def _late(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random)
    if row is None:
        return None
    by = random.randint(1, MOST_STEPS)
    return put_later(events, "late", [row], by, f"{_named(events[row])} comes {by} steps later")


def put_later(events: Sequence[Event], kind: str, rows: Sequence[int], by: int, text: str) -> Mutant:
    """These rows, each so many steps later and before the end of that step; steps are added at the end."""
    # When it came then nobody knows; an engine's clock would go back.
    moved = [events[row]._replace(step=events[row].step + by, time_ns=None) for row in rows]
    gone = set(rows)
    kept = [event for row, event in enumerate(events) if row not in gone]
    last = kept[-1].step if kept else 0
    ends = [
        Event(step, "step", time_ns=kept[-1].time_ns if kept else None)
        for step in range(last + 1, last + by + 1)
    ]
    mutated: list[Event] = []
    waiting = moved
    for event in [*kept, *(ends if any(event.step > last for event in moved) else [])]:
        at_end = event.event == "step"
        due = [one for one in waiting if one.step < event.step or (at_end and one.step == event.step)]
        if due:
            waiting = waiting[len(due) :]
            mutated += due
        mutated.append(event)
    mutated += waiting
    fault = Fault(kind, rows[0], None, tuple(events[row] for row in rows), tuple(moved), text)
    return Mutant(fault, mutated)


def _stall(events: Sequence[Event], random: Random) -> Mutant | None:
    ends = [row for row, event in enumerate(events) if event.event == "step"]
    if not ends:
        return None
    row, by = random.choice(ends), random.randint(1, MOST_STEPS)
    end = events[row]
    empty = [end._replace(step=end.step + one) for one in range(1, by + 1)]
    later = [_moved(event, by) for event in events[row + 1 :]]
    text = f"after step {end.step} nothing happens for {by} steps"
    return Mutant(Fault("stall", row + 1, None, (), tuple(empty), text), [*events[: row + 1], *empty, *later])


def _moved(event: Event, by: int) -> Event:
    return event._replace(step=event.step + by, pass_=None if event.pass_ is None else event.pass_ + by)


# -- left out --------------------------------------------------------------------------------------


def _omit(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random, ("schedule",))
    if row is None:
        return None
    who, first = events[row].request, events[row].step
    by = random.randint(1, MOST_STEPS)
    gone = [
        at
        for at in range(row, len(events))
        if events[at].request == who
        and events[at].event in ("schedule", "output")
        and events[at].step < first + by
    ]
    return _without(events, "omit", gone, f"{who} is left out of {by} steps from step {first} on")


def _erase(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random)
    if row is None or events[row].request is None:
        return None
    who, what = events[row].request, events[row].event
    gone = [at for at in range(row, len(events)) if events[at].request == who and events[at].event == what]
    return _without(events, "erase", gone, f"no {what} of {who} from step {events[row].step} on")


def _without(events: Sequence[Event], kind: str, rows: Sequence[int], text: str) -> Mutant | None:
    gone = set(rows)
    if len(gone) == len(events):
        return None
    mutated = [event for row, event in enumerate(events) if row not in gone]
    return Mutant(Fault(kind, rows[0], None, tuple(events[row] for row in rows), (), text), mutated)


# -- who and what ----------------------------------------------------------------------------------


def _exchange(events: Sequence[Event], random: Random) -> Mutant | None:
    row = _row(events, random, ("admit", "resume", "preempt", "schedule", "finish", "deliver"))
    if row is None:
        return None
    one = events[row].request
    others = [
        name
        for name in dict.fromkeys(event.request for event in events[:row] if event.request is not None)
        if name != one and any(event.request == name for event in events[row:])
    ]
    if one is None or not others:
        return None
    other = random.choice(others)
    names: dict[RequestId, RequestId] = {one: other, other: one}
    after = [_renamed(event, names) if event.event != "arrive" else event for event in events[row:]]
    text = f"from step {events[row].step} on {one} and {other} change places"
    fault = Fault("exchange", row, "request", (events[row],), (after[0],), text)
    return Mutant(fault, [*events[:row], *after])


def _renamed(event: Event, names: dict[RequestId, RequestId]) -> Event:
    request, cause = event.request, event.cause
    if request in names:
        event = event._replace(request=names[request])
    return event._replace(cause=names[cause]) if cause in names else event


def _thrash(events: Sequence[Event], random: Random) -> Mutant | None:
    found = [(row, end) for row, end in _returns(events) if events[row].reason != "swap"]
    if not found:
        return None
    row, end = random.choice(found)
    who = events[row].request
    times = random.randint(3, 9)
    step = events[end].step
    added: list[Event] = []
    for turn in range(times):
        at = step + 1 + 2 * turn
        added += [
            Event(at, "preempt", who, reason="recompute", cause=who),
            Event(at, "step"),
            *_rejoined(at + 1, who),
            Event(at + 1, "step"),
        ]
    text = f"after step {step} {who} is preempted {times} times more, and computes one position between"
    return _inserted(events, "thrash", step, added, 2 * times, text)


def _duel(events: Sequence[Event], random: Random) -> Mutant | None:
    found = []
    for row, end in _returns(events):
        one, other = events[row].request, events[row].cause
        ended = any(event.request == other and event.event in ENDS for event in events[row:end])
        if events[row].reason != "swap" and other is not None and other != one and not ended:
            found.append((end, one, other))
    if not found:
        return None
    end, one, other = random.choice(found)
    step = events[end].step
    times = random.randint(3, 9)
    added: list[Event] = []
    for turn in range(times):
        winner, loser = (one, other) if turn % 2 == 0 else (other, one)
        at = step + 1 + 2 * turn
        start = 1 if turn else None
        added += [
            Event(at, "preempt", loser, reason="recompute", cause=winner),
            Event(at, "schedule", winner, start=start, tokens=1 if turn else None),
            Event(at, "step"),
            *_rejoined(at + 1, loser),
            Event(at + 1, "step"),
        ]
    text = f"after step {step} {one} and {other} preempt each other in turns, {times} times"
    return _inserted(events, "duel", step, added, 2 * times, text)


def _returns(events: Sequence[Event]) -> list[tuple[int, int]]:
    """Each preemption and the row of its victim's return."""
    out: dict[RequestId | None, int] = {}
    found = []
    for row, event in enumerate(events):
        if event.event == "preempt":
            out[event.request] = row
        elif event.event == "resume" and event.request in out:
            found.append((out.pop(event.request), row))
    return found


def _rejoined(step: int, who: RequestId | None) -> tuple[Event, Event]:
    return Event(step, "resume", who, cached=0), Event(step, "schedule", who, start=0, tokens=1)


def _inserted(
    events: Sequence[Event], kind: str, step: int, added: Sequence[Event], by: int, text: str
) -> Mutant:
    """The trace with steps behind one of its own; the later ones come so many steps later."""
    before = [event for event in events if event.step <= step]
    later = [_moved(event, by) for event in events if event.step > step]
    return Mutant(Fault(kind, len(before), None, (), tuple(added), text), [*before, *added, *later])


def _cling(events: Sequence[Event], random: Random) -> Mutant | None:
    came = {event.request: row for row, event in enumerate(events) if event.event == "arrive"}
    rows = []
    joined: dict[RequestId | None, int] = {}
    for row, event in enumerate(events):
        if event.event in ("admit", "resume"):
            joined[event.request] = row
        elif event.event == "preempt":
            joined.pop(event.request, None)
            if event.cause is not None and event.cause in came and event.cause not in joined:
                rows.append(row)
    if not rows:
        return None
    row = random.choice(rows)
    victim, cause = events[row].request, events[row].cause
    gone = [at for at in range(row, len(events)) if events[at].request in (victim, cause)]
    gone += [at for at in range(row) if events[at].request == victim and events[at].step == events[row].step]
    text = f"step {events[row].step}: {victim} is not preempted for {cause}, and both stay where they are"
    kept = _without(events, "cling", sorted(gone), text)
    if kept is None:
        return None
    end = events[-1]
    ends = [Event(end.step + one, "step", time_ns=end.time_ns) for one in range(1, MOST_STEPS)]
    return kept._replace(events=[*kept.events, *ends])


def _row(events: Sequence[Event], random: Random, kinds: Sequence[str] | None = None) -> int | None:
    by_kind: dict[str, list[int]] = {}
    for row, event in enumerate(events):
        if event.request is not None and (kinds is None or event.event in kinds):
            by_kind.setdefault(event.event, []).append(row)
    if not by_kind:
        return None
    return random.choice(by_kind[random.choice(sorted(by_kind))])


def _named(event: Event) -> str:
    return f"step {event.step}, {event.event} of {event.request}"


_MAKERS: Final[dict[str, Callable[[Sequence[Event], Random], Mutant | None]]] = {
    "starve": _starve,
    "stall": _stall,
    "omit": _omit,
    "late": _late,
    "exchange": _exchange,
    "thrash": _thrash,
    "duel": _duel,
    "cling": _cling,
    "erase": _erase,
}

STRETCHES: Final = tuple(_MAKERS)
"""The kinds of faults of a stretch."""
