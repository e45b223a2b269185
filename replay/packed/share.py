"""A share of the state space: the states whose hash falls to one worker, and how the worker goes on.

Each worker owns the states of its share: a table of numbers by hash, the words of each state, and how it was
first reached. It opens its own states a batch at a time, keeps successors of its own share and lays the
others in an outbox, which their owner empties when all have done their batch. Nothing is locked, and the
numbers of the states do not depend on which worker is faster.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from batchspec.replay.compiled import compiled
from batchspec.replay.packed.claims import broken
from batchspec.replay.packed.layout import unpack
from batchspec.replay.packed.memory import ARRIVED, JOBS, LIVE, NEXT, SHOWN, WORDS, Memory
from batchspec.replay.packed.steps import actions_of

# What a worker counts.
STATES: Final = 0
TRANSITIONS: Final = 1
ENDS: Final = 2
SEEN: Final = 3
BROKEN: Final = 4
STUCK: Final = 5
EDGES: Final = 6
MAIL: Final = 7
COUNTS: Final = 8
NEVER: Final = -1
_SMALLEST: Final = 1 << 12


class Box(NamedTuple):
    """What a worker writes to. `slots`: state + 1 by hash, 0 is free; `words` and `parent` by state.

    `parent` and `edges` (from, to, from, to …) name states of all shares: number x workers + worker. `mail`
    are states that others own, each its words, its hash and where it was found; `bad` is the first state
    that breaks each invariant.
    """

    slots: Memory
    words: Memory
    parent: Memory
    edges: Memory
    mail: Memory
    counts: Memory
    bad: Memory


@dataclass(slots=True)
class Share:
    """One worker's part, with a memory of its own; its states below `level` have been opened."""

    memory: Memory
    box: Box
    edged: bool
    level: int = 0


def share_for(memory: Memory, claims: int, edged: bool) -> Share:
    """An empty share. `edged`: transitions are kept."""
    box = Box(
        np.zeros(2 * _SMALLEST, np.int64),
        np.zeros(_SMALLEST * int(memory[WORDS]), np.int64),
        np.zeros(_SMALLEST, np.int64),
        np.zeros(2 * _SMALLEST if edged else 0, np.int64),
        np.zeros(0, np.int64),
        np.zeros(COUNTS, np.int64),
        np.full(claims, NEVER, np.int64),
    )
    box.counts[STUCK] = NEVER
    return Share(memory.copy(), box, edged)


def make_room(share: Share, more: int) -> None:
    """Room for so many more states and transitions, at most half of the slots taken."""
    box, width = share.box, int(share.memory[WORDS])
    states, edges = int(box.counts[STATES]) + more, int(box.counts[EDGES]) + more
    if states > len(box.parent):
        size = max(states, 2 * len(box.parent))
        box = box._replace(words=_grown(box.words, size * width), parent=_grown(box.parent, size))
    if share.edged and 2 * edges > len(box.edges):
        box = box._replace(edges=_grown(box.edges, max(2 * edges, 2 * len(box.edges))))
    if 2 * states > len(box.slots):
        slots = np.zeros(1 << (4 * states - 1).bit_length(), np.int64)
        _fill(slots, box.words, int(box.counts[STATES]), width)
        box = box._replace(slots=slots)
    share.box = box


def mail_room(share: Share, most: int) -> None:
    """Room in the outbox for so many states."""
    size = most * (int(share.memory[WORDS]) + 2)
    if size > len(share.box.mail):
        share.box = share.box._replace(mail=np.zeros(size, np.int64))


def _grown(old: Memory, size: int) -> Memory:
    new = np.zeros(size, np.int64)
    new[: len(old)] = old
    return new


@compiled
def mixed_of(words: Memory, first: int, count: int) -> int:
    """A hash of a state: the finaliser of splitmix64 (Steele, Lea, Flood 2014), word by word."""
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for at in range(first, first + count):
        mixed = mixed ^ np.uint64(words[at])
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return np.int64(mixed >> np.uint64(2))  # type: ignore[return-value]


@compiled
def owner_of(mixed: int, workers: int) -> int:
    """Which worker a state with this hash falls to: the slot comes from other bits."""
    return (mixed >> 40) % workers


@compiled
def _fill(slots: Memory, states: Memory, count: int, width: int) -> None:
    mask = len(slots) - 1
    for state in range(count):
        slot = mixed_of(states, state * width, width) & mask
        while slots[slot]:
            slot = (slot + 1) & mask
        slots[slot] = state + 1


@compiled
def enter(box: Box, words: Memory, first: int, width: int, mixed: int, parent: int) -> int:
    """The number of a state in its owner's share; a new one is entered with how it was reached."""
    mask = len(box.slots) - 1
    slot = mixed & mask
    while box.slots[slot]:
        state = box.slots[slot] - 1
        same = True
        for at in range(width):
            if box.words[state * width + at] != words[first + at]:
                same = False
                break
        if same:
            return state
        slot = (slot + 1) & mask
    state = box.counts[STATES]
    box.slots[slot] = state + 1
    for at in range(width):
        box.words[state * width + at] = words[first + at]
    box.parent[state] = parent
    box.counts[STATES] = state + 1
    return state


@compiled
def open_states(m: Memory, box: Box, first: int, last: int, worker: int, workers: int) -> None:
    """Judge the states from `first` up to `last`, and go one action further from each."""
    counts, width, edged = box.counts, m[WORDS], len(box.edges) > 0
    counts[MAIL] = 0
    for state in range(first, last):
        unpack(m, box.words, state * width)
        found = broken(m) & ~counts[BROKEN]
        if found:
            for bit in range(len(box.bad)):
                if found & (1 << bit):
                    box.bad[bit] = state
            counts[BROKEN] |= found
        here = state * workers + worker
        actions = actions_of(m)
        counts[TRANSITIONS] += actions
        if not actions:
            if m[LIVE] == 0 and m[ARRIVED] == m[JOBS]:
                counts[ENDS] += 1
            elif counts[STUCK] == NEVER:
                counts[STUCK] = state
        for action in range(actions):
            counts[SEEN] |= m[m[SHOWN] + action]
            words = m[NEXT] + action * width
            mixed = mixed_of(m, words, width)
            if owner_of(mixed, workers) != worker:
                letter = counts[MAIL] * (width + 2)
                for at in range(width):
                    box.mail[letter + at] = m[words + at]
                box.mail[letter + width] = mixed
                box.mail[letter + width + 1] = here
                counts[MAIL] += 1
                continue
            there = enter(box, m, words, width, mixed, here)
            if edged:
                box.edges[2 * counts[EDGES]] = here
                box.edges[2 * counts[EDGES] + 1] = there * workers + worker
                counts[EDGES] += 1


@compiled
def take_mail(m: Memory, box: Box, mail: Memory, count: int, worker: int, workers: int) -> None:
    """Enter what another worker has found of this share."""
    counts, width, edged = box.counts, m[WORDS], len(box.edges) > 0
    for letter in range(0, count * (width + 2), width + 2):
        mixed, here = mail[letter + width], mail[letter + width + 1]
        if owner_of(mixed, workers) != worker:
            continue
        there = enter(box, mail, letter, width, mixed, here)
        if edged:
            box.edges[2 * counts[EDGES]] = here
            box.edges[2 * counts[EDGES] + 1] = there * workers + worker
            counts[EDGES] += 1


@compiled
def goes_round(edges: Memory, states: int) -> bool:
    """Whether a graph (from, to, …) has a cycle: what is left when states without a way in go."""
    count = len(edges) // 2
    ways_in = np.zeros(states, np.int64)
    begins = np.zeros(states + 1, np.int64)
    for edge in range(count):
        ways_in[edges[2 * edge + 1]] += 1
        begins[edges[2 * edge] + 1] += 1
    for state in range(states):
        begins[state + 1] += begins[state]
    leads, used = np.zeros(count, np.int64), begins.copy()
    for edge in range(count):
        here = edges[2 * edge]
        leads[used[here]] = edges[2 * edge + 1]
        used[here] += 1
    queue, tail = np.zeros(states, np.int64), 0
    for state in range(states):
        if not ways_in[state]:
            queue[tail] = state
            tail += 1
    head = 0
    while head < tail:
        state = queue[head]
        head += 1
        for edge in range(begins[state], begins[state + 1]):
            there = leads[edge]
            ways_in[there] -= 1
            if not ways_in[there]:
                queue[tail] = there
                tail += 1
    return tail < states
