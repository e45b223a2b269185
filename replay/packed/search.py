"""Exploration in packed form: the same counts and verdicts as spec/explore.py, from two workers.

Breadth first, level by level: so the depth is that of the readable search, and the way to the first state
that breaks something is as short. Ways are told by the readable space: for each packed state on the way
the action is found that leads to the next one. Livelocks are found here and told by the readable search.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from batchspec.replay.compiled import available
from batchspec.replay.packed.claims import CLAIM_IDS
from batchspec.replay.packed.layout import frame_of, lay_out, unpack, words_of
from batchspec.replay.packed.memory import NEXT, ROOM, WORDS, Memory
from batchspec.replay.packed.moves import SIGHT_IDS
from batchspec.replay.packed.share import (
    EDGES,
    ENDS,
    MAIL,
    NEVER,
    SEEN,
    STATES,
    STUCK,
    TRANSITIONS,
    Share,
    enter,
    goes_round,
    mail_room,
    make_room,
    mixed_of,
    open_states,
    owner_of,
    share_for,
    take_mail,
)
from batchspec.replay.packed.steps import actions_of
from batchspec.replay.packed.tables import memory_of, outside
from batchspec.spec.errors import SpecError
from batchspec.spec.events import Event
from batchspec.spec.explore import MOST_STATES, Broken, Exploration, Progress, explore
from batchspec.spec.frame import START, Frame
from batchspec.spec.invariants import INVARIANTS
from batchspec.spec.naming import Rows, named
from batchspec.spec.space import Space

Path = list[Rows]

WORKERS: Final = 2
_BATCH: Final = 1 << 13
_ACTIONS: Final = 1 << 20


class Packed:
    """The packed form of one space."""

    def __init__(self, space: Space) -> None:
        """Raises `SpecError` where there is none, or numba is not installed."""
        why = outside(space)
        if not available():
            raise SpecError(
                "the packed engine needs numba: install batchspec[fast], or use the readable engine"
            )
        if why is not None:
            raise SpecError(f"no packed form: {why}; use the readable engine")
        self.space = space
        self.memory: Memory = lay_out(space, memory_of(space))

    def after(self, frame: Frame) -> list[Frame]:
        """The states that the packed actions of a state lead to, one an action."""
        m = self.memory
        unpack(m, words_of(self.space, m, frame), 0)
        count, width = actions_of(m), int(m[WORDS])
        found = m[m[NEXT] : m[NEXT] + count * width].copy()
        return [frame_of(self.space, m, found[at : at + width]) for at in range(0, len(found), width)]


@dataclass(slots=True)
class _Search:
    packed: Packed
    shares: list[Share]

    def count(self, what: int) -> int:
        return sum(int(share.box.counts[what]) for share in self.shares)

    def way(self, state: int) -> Path:
        """The actions of the way to a state, by its number over all shares."""
        space, workers, frames = self.packed.space, len(self.shares), []
        width = int(self.packed.memory[WORDS])
        while True:
            number, worker = divmod(state, workers)
            box = self.shares[worker].box
            frames.append(
                frame_of(space, self.packed.memory, box.words[number * width : (number + 1) * width])
            )
            if box.parent[number] < 0:
                break
            state = int(box.parent[number])
        frames.reverse()
        return [_action(space, here, there) for here, there in pairwise(frames)]


def _action(space: Space, here: Frame, there: Frame) -> Rows:
    for rows in space.enabled(here):
        if space.apply(here, rows) == there:
            return rows
    raise SpecError(
        "the packed form went where the spec has no way; use the readable engine, and report this"
    )


def explore_packed(
    packed: Packed,
    *,
    most: int = MOST_STATES,
    cycles: bool | None = None,
    workers: int = WORKERS,
    progress: Progress | None = None,
) -> Exploration:
    """Visit every reachable state once; a search that comes to more than `most` is cut soon after.

    Arguments and answer are those of `explore`, which also tells the livelocks once there are any.
    """
    space = packed.space
    if most < 1:
        raise SpecError(f"the limit of states must be at least 1, not {most}")
    edged = space.eager if cycles is None else cycles
    shares = [share_for(packed.memory, len(CLAIM_IDS), edged) for _ in range(workers)]
    search, found = _Search(packed, shares), Exploration()
    words = words_of(space, packed.memory, START)
    mixed = mixed_of(words, 0, len(words))
    enter(shares[owner_of(mixed, workers)].box, words, 0, len(words), mixed, NEVER)
    with ThreadPoolExecutor(workers) as pool:
        while found.whole and any(share.level < share.box.counts[STATES] for share in shares):
            found.depth += 1
            found.whole = _level(search, pool.map, most, progress)
    found.depth -= 1
    found.states, found.transitions = search.count(STATES), search.count(TRANSITIONS)
    found.ends = search.count(ENDS)
    seen = 0
    for share in shares:
        seen |= int(share.box.counts[SEEN])
    found.reached = {sight.id: bool(seen >> SIGHT_IDS.index(sight.id) & 1) for sight in space.sights}
    _judge(search, found)
    if edged and found.whole:
        edges = np.concatenate([share.box.edges[: 2 * share.box.counts[EDGES]] for share in shares])
        span = workers * max(int(share.box.counts[STATES]) for share in shares)
        if goes_round(edges, span):
            found.livelocks = explore(space, most=most, cycles=True).livelocks
    return found


def _level(
    search: _Search, both: Callable[..., Iterator[None]], most: int, progress: Progress | None
) -> bool:
    """Open all states of one depth; False where the search is cut."""
    shares, room = search.shares, int(search.packed.memory[ROOM])
    workers, ends = len(shares), [int(share.box.counts[STATES]) for share in shares]
    batch = max(1, min(_BATCH, _ACTIONS // room))

    def work(worker: int) -> None:
        share = shares[worker]
        last = min(share.level + batch, ends[worker])
        more = (last - share.level) * room
        make_room(share, more)
        mail_room(share, more if workers > 1 else 0)
        open_states(share.memory, share.box, share.level, last, worker, workers)
        share.level = last

    def receive(worker: int) -> None:
        mine = shares[worker]
        make_room(mine, sum(int(other.box.counts[MAIL]) for other in shares))
        for other in shares:
            if other is not mine:
                count = int(other.box.counts[MAIL])
                take_mail(mine.memory, mine.box, other.box.mail, count, worker, workers)

    while any(share.level < end for share, end in zip(shares, ends, strict=True)):
        list(both(work, range(workers)))
        list(both(receive, range(workers)))
        if progress is not None:
            progress(sum(share.level for share in shares))
        if search.count(STATES) > most:
            return False
    return True


def _judge(search: _Search, found: Exploration) -> None:
    """The first state that breaks each invariant, and the first that is stuck, with the way there."""
    workers, ways = len(search.shares), {}
    for bit, invariant in enumerate(INVARIANTS):
        firsts = [
            int(share.box.bad[bit]) * workers + worker
            for worker, share in enumerate(search.shares)
            if share.box.bad[bit] != NEVER
        ]
        if firsts:
            ways[invariant.id] = Broken(invariant, _shortest(search, firsts))
    found.broken = tuple(ways.values())
    stuck = [
        int(share.box.counts[STUCK]) * workers + worker
        for worker, share in enumerate(search.shares)
        if share.box.counts[STUCK] != NEVER
    ]
    if stuck and found.whole:
        found.stuck = (_shortest(search, stuck),)


def _shortest(search: _Search, states: list[int]) -> tuple[Event, ...]:
    shortest: Path = min((search.way(state) for state in states), key=len)
    return tuple(named(shortest))
