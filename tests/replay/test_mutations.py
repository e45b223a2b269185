"""A single fault put into a good trace is caught, or there is a reason why it is no fault."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from batchspec.replay.checker import check_events
from batchspec.replay.simulate import simulate
from batchspec.spec.events import Event
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record

LIMITS = {"max_seqs": 4, "token_budget": 24, "kv_blocks": 14, "block_size": 4}
PROFILE = load_profile("batchspec").merged(Profile.from_dict({"limits": LIMITS}))

Fault = Callable[[random.Random, list[Event]], tuple[list[Event], str | None] | None]
"""A trace with one fault, and the reason why the result is legal all the same (None: it is not)."""


def good(seed: int) -> list[Event]:
    rng = random.Random(seed)
    records = [
        Record(number, number * 3_000_000, rng.randint(2, 20), rng.randint(2, 16)) for number in range(14)
    ]
    return list(simulate(records, PROFILE, seed=seed))


def _pick(rng: random.Random, events: list[Event], *kinds: str) -> int | None:
    rows = [row for row, event in enumerate(events) if event.event in kinds]
    return rng.choice(rows) if rows else None


def _with(events: list[Event], row: int, **fields: object) -> list[Event]:
    return [*events[:row], events[row]._replace(**fields), *events[row + 1 :]]


def dropped(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    row = _pick(rng, events, "arrive", "admit", "resume", "schedule", "preempt", "finish")
    return None if row is None else ([*events[:row], *events[row + 1 :]], None)


def duplicated(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    row = _pick(rng, events, "arrive", "admit", "resume", "schedule", "preempt", "finish")
    return None if row is None else ([*events[: row + 1], *events[row:]], None)


def miscounted(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    column, kinds = rng.choice(
        [
            ("free_blocks", ("step",)),
            ("running", ("step",)),
            ("waiting", ("step",)),
            ("start", ("schedule",)),
            ("tokens", ("schedule",)),
            ("blocks", ("schedule",)),
            ("output_tokens", ("finish",)),
        ]
    )
    rows = [
        row for row, event in enumerate(events) if event.event in kinds and getattr(event, column) is not None
    ]
    if not rows:
        return None
    row = rng.choice(rows)
    value = getattr(events[row], column) + rng.choice([-1, 1])
    return None if value < 0 else (_with(events, row, **{column: value}), None)


def another_request(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    row = _pick(rng, events, "admit", "resume", "schedule", "preempt", "finish")
    if row is None:
        return None
    others = {event.request for event in events if event.request not in (None, events[row].request)}
    return _with(events, row, request=rng.choice(sorted(others, key=str))), None


def another_kind(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    row = _pick(rng, events, "admit", "resume", "preempt", "finish")
    if row is None:
        return None
    kinds = {"admit", "resume", "preempt", "finish"} - {events[row].event}
    kind = rng.choice(sorted(kinds))
    return _with(events, row, event=kind, reason="recompute" if kind == "preempt" else None), None


def slot_of_another(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    row = _pick(rng, events, "admit", "resume")
    if row is None:
        return None
    slot = rng.randrange(4)
    taken: dict[int, object] = {}
    for event in events[:row]:
        if event.event in ("admit", "resume") and event.slot is not None:
            taken[event.slot] = event.request
        if event.event in ("finish", "abort", "preempt"):
            taken = {place: who for place, who in taken.items() if who != event.request}
    if slot == events[row].slot:
        return None
    later = any(event.slot == slot and event.event in ("admit", "resume") for event in events[row + 1 :])
    if slot not in taken and later:
        return None  # free now, claimed later: depends on when this one leaves it
    return _with(events, row, slot=slot), None if slot in taken else "another free seat is as good"


def block_of_another(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    rows = [row for row, event in enumerate(events) if event.event == "schedule" and event.block_ids]
    if not rows:
        return None
    row = rng.choice(rows)
    held: dict[object, list[int]] = {}
    for event in events[:row]:
        if event.event in ("admit", "resume", "schedule"):
            held.setdefault(event.request, []).extend(event.block_ids or ())
        if event.event in ("finish", "abort", "preempt"):
            held.pop(event.request, None)
    theirs = [block for who, blocks in held.items() if who != events[row].request for block in blocks]
    if not theirs:
        return None
    return _with(events, row, block_ids=(rng.choice(theirs), *(events[row].block_ids or ())[1:])), None


def out_of_order(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    """Two rows of one request change places."""
    row = _pick(rng, events, "admit", "resume", "schedule", "preempt", "finish")
    if row is None:
        return None
    mine = [
        later
        for later in range(row + 1, len(events))
        if events[later].request == events[row].request and events[later].event != events[row].event
    ]
    if not mine:
        return None
    swapped = list(events)
    swapped[row], swapped[mine[0]] = swapped[mine[0]], swapped[row]
    return swapped, None


def shifted(rng: random.Random, events: list[Event]) -> tuple[list[Event], str | None] | None:
    """A row is written in the step before."""
    row = _pick(rng, events, "admit", "resume", "schedule", "finish")
    if row is None or events[row].step == 0:
        return None
    if events[row - 1].event == "step":
        return (
            None  # behind the step row of its new step it begins an iteration of its own, which may be legal
        )
    return _with(events, row, step=events[row].step - 1), None


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        dropped,
        duplicated,
        miscounted,
        another_request,
        another_kind,
        slot_of_another,
        block_of_another,
        out_of_order,
        shifted,
    )
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_single_fault_is_caught_or_explained(name: str) -> None:
    rng = random.Random(7)
    caught: Counter[str] = Counter()
    tried = 0
    for seed in range(16):
        events = good(seed)
        assert check_events(events, PROFILE).verdict == "conforms"
        for _ in range(6):
            mutant = FAULTS[name](rng, events)
            if mutant is None:
                continue
            tried += 1
            report = check_events(mutant[0], PROFILE)
            if mutant[1] is not None:
                assert report.verdict == "conforms", (mutant[1], report.findings[:2])
                continue
            changed = next(
                (row, after) for row, after in enumerate(mutant[0]) if events[row : row + 1] != [after]
            )
            assert report.verdict == "violates", (seed, changed)
            caught[report.findings[0].rule] += 1
    assert tried >= 40
    assert caught
