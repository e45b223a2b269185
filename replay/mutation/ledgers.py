"""Ledgers of seats, blocks and content, kept apart from the spec: whether another name was as good.

A fault that gives a request another free seat, another free block or a content key that nobody asks for
is none: names of seats and blocks are the engine's own choice.
"""

from collections.abc import Iterator, Sequence

from batchspec.replay.mutation.goods import Good
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

_LEAVES = ("finish", "abort", "preempt")


def seats_hold(good: Good, events: Sequence[Event]) -> bool:
    """Whether each slot has one occupant, is within bounds, and is not taken before its lag is over."""
    profile = good.profile
    most, lag = profile.limits.max_seqs, profile.value("reuse.slot_lag")
    barrier = good.mode != "continuous"
    seat: dict[RequestId | None, int] = {}
    taken: dict[int, int] = {}  # slot -> the step from which it is free; -1 while it is occupied
    for event in events:
        if event.event in ("admit", "resume") and event.slot is not None:
            free_from = taken.get(event.slot, 0)
            outside = event.slot < 0 or (most is not None and event.slot >= most)
            if outside or free_from < 0 or free_from > event.step:
                return False
            taken[event.slot] = -1
            seat[event.request] = event.slot
        elif event.event in _LEAVES and event.request in seat:
            slot = seat.pop(event.request)
            passed = event.pass_step + 1 if event.event == "finish" else event.step
            taken[slot] = passed + lag
            if barrier and seat:
                taken[slot] = -2  # comes back with the batch
            elif barrier:
                taken = {one: passed if free == -2 else free for one, free in taken.items()}
    return True


def blocks_hold(good: Good, events: Sequence[Event]) -> bool:
    """Whether each block has one owner (or owners who share its prefix) and comes back from who holds it."""
    profile = good.profile
    size, lag = profile.limits.block_size, profile.value("reuse.block_lag")
    if size is None:
        return False
    owners: dict[int, set[RequestId | None]] = {}
    held: dict[RequestId | None, list[int]] = {}
    lagging: list[tuple[int, RequestId | None]] = []
    for event in events:
        for free_from, request in [one for one in lagging if one[0] <= event.step]:
            lagging.remove((free_from, request))
            for block in held.pop(request, []):
                owners[block].discard(request)
        mine = held.get(event.request, [])
        if event.event in ("admit", "resume", "schedule", "park"):
            over = (event.cached or 0) // size if profile.reuse.prefix else 0
            for block in event.block_ids or ():
                taken = owners.setdefault(block, set())
                if event.request in taken or (taken and not len(mine) < over):
                    return False
                taken.add(event.request)
                mine.append(block)
            held[event.request] = mine
        elif event.event in _LEAVES and lag and event.block_ids is None and not _drops(event, profile):
            if lag != "release":
                passed = event.pass_step + 1 if event.event == "finish" else event.step
                lagging.append((passed + lag, event.request))
        elif event.event in _LEAVES or (event.event == "release" and event.block_ids is not None):
            back = mine if event.block_ids is None else list(event.block_ids)
            rest = [block for block in mine if block not in back]
            if len(set(back)) != len(back) or not set(back) <= set(mine):
                return False
            if rest and event.event != "release" and not lag:
                return False
            for block in back:
                owners[block].discard(event.request)
            held[event.request] = rest
    return True


def _drops(event: Event, profile: Profile) -> bool:
    """A preemption gives its blocks back at once, unless it keeps them."""
    return event.event == "preempt" and not profile.value("preemption.keeps_blocks")


def asked_for(good: Good, events: Sequence[Event], row: int) -> frozenset[int]:
    """The content keys that rows from this one on take over from the cache."""
    size = good.profile.limits.block_size or 1
    return frozenset(_taken_over(events[row:], size))


def _taken_over(events: Sequence[Event], size: int) -> Iterator[int]:
    for event in events:
        if event.block_hashes and event.cached:
            yield from event.block_hashes[: -(-event.cached // size)]
