"""The layout: which bits of a state's machine words hold what, and the way between words and frames.

A state is kept as words of 64 bits, each number in as few bits as its greatest value takes, none across
two words, and all of a request in one word.
"""

from typing import Final

import numpy as np

from batchspec.replay.compiled import compiled
from batchspec.replay.packed.memory import (
    ABORTED,
    ADMITTED,
    ARRIVED,
    BEGUN,
    COMMON,
    COMPUTED,
    COUNTERS,
    DECIDED,
    ENDED,
    EVICTED,
    FIELD_MASK,
    FIELD_SHIFT,
    FINISHED,
    FIRST,
    HEAD_MASK,
    HEAD_SHIFT,
    HEAD_WORD,
    HELD,
    HOLD,
    JOB,
    JOINED,
    LEFT,
    LIVE,
    MADE,
    NEED,
    NEXT,
    OLD,
    OUT,
    OUTPUTS,
    OWED,
    PART_SHIFT,
    PART_WORD,
    PARTS,
    PLACE,
    REJECTED,
    ROOM,
    RUNS,
    SHOWN,
    SWAPPED,
    TOKENS,
    W_P,
    W_Q,
    WAITS,
    WHERE,
    WIDTH,
    WORDS,
    Memory,
)
from batchspec.replay.packed.tables import tenants_of
from batchspec.spec.errors import SpecError
from batchspec.spec.frame import Frame, Part
from batchspec.spec.model import PREEMPTED, RUNNING, WAITING
from batchspec.spec.space import Space

_STATES: Final = {WAITS: WAITING, RUNS: RUNNING, OUT: PREEMPTED}
_KINDS: Final = {FINISHED: "finish", ABORTED: "abort", REJECTED: "reject"}
_BITS: Final = 63


def lay_out(space: Space, memory: Memory) -> Memory:
    """The same memory with the layout, and room for every successor that a state can have.

    Raises `SpecError` where one request takes more than a word.
    """
    count, tenants, m = len(space.jobs), tenants_of(space), memory
    fair = space.fresh_shares is not None
    prompts = [job.prompt for job in space.jobs]
    limits = [job.max_tokens for job in space.jobs]
    served = int(m[W_P]) * sum(prompts) + int(m[W_Q]) * sum(limits)
    kinds = 0 if space.symmetry else 4**count - 1
    common = [count, 1, 1, count, 1, count, kinds, len(tenants) if fair else 0]
    common += [served] * len(tenants) if fair else []
    longest = max(job.prompt + job.max_tokens for job in space.jobs)
    most = int(m[m[HOLD] : m[NEED]].max())
    one = [count - 1, 3, longest, max(limits), most, 1, count, count, count, longest + 1, 1]
    used: list[int] = []
    for at, greatest in enumerate(common):
        m[HEAD_WORD + at], m[HEAD_SHIFT + at] = _place(used, greatest.bit_length())
        m[HEAD_MASK + at] = (1 << greatest.bit_length()) - 1
    width = 0
    for field, greatest in enumerate(one):
        m[FIELD_SHIFT + field] = width
        m[FIELD_MASK + field] = (1 << greatest.bit_length()) - 1
        width += greatest.bit_length()
    if width > _BITS or max(m[HEAD_SHIFT : HEAD_SHIFT + len(common)]) > _BITS:
        raise SpecError("no packed form: requests too long for a word; use the readable engine")
    for part in range(count):
        m[PART_WORD + part], m[PART_SHIFT + part] = _place(used, width)
    chunks = min(space.budget, longest + 1)
    room = 1 + 2 * count + 3 * count * (chunks + count) + 2**count
    m[WORDS], m[COMMON], m[ROOM] = len(used), len(common), room
    m[NEXT] = len(m)
    m[SHOWN] = len(m) + room * len(used)
    return np.concatenate([m, np.zeros(room * (len(used) + 1), np.int64)])


def _place(used: list[int], bits: int) -> tuple[int, int]:
    """The first word with so many bits left, and where they begin."""
    for word, taken in enumerate(used):
        if taken + bits <= _BITS:
            used[word] += bits
            return word, taken
    used.append(bits)
    return len(used) - 1, 0


@compiled
def unpack(m: Memory, words: Memory, first: int) -> None:
    """Lay the packed state at `words[first]` on the desk; parts beyond those that live keep what they had."""
    for at in range(m[COMMON]):
        m[OLD + at] = (words[first + m[HEAD_WORD + at]] >> m[HEAD_SHIFT + at]) & m[HEAD_MASK + at]
    for one in range(m[LIVE]):
        bits = words[first + m[PART_WORD + one]] >> m[PART_SHIFT + one]
        for field in range(WIDTH):
            m[PARTS + one * WIDTH + field] = (bits >> m[FIELD_SHIFT + field]) & m[FIELD_MASK + field]


@compiled
def pack(m: Memory, to: int) -> None:
    """The state that was made as words, to the address `to`."""
    for word in range(m[WORDS]):
        m[to + word] = 0
    for at in range(m[COMMON]):
        m[to + m[HEAD_WORD + at]] |= m[MADE + OLD + at] << m[HEAD_SHIFT + at]
    part = MADE + PARTS
    for one in range(m[MADE + LIVE]):
        bits = 0
        for field in range(WIDTH):
            bits |= m[part + field] << m[FIELD_SHIFT + field]
        m[to + m[PART_WORD + one]] |= bits << m[PART_SHIFT + one]
        part += WIDTH


def frame_of(space: Space, m: Memory, words: Memory) -> Frame:
    """The frame of a packed state."""
    unpack(m, words, 0)
    row = [int(value) for value in m[: OLD + MADE]]
    parts, arrived = [], row[ARRIVED]
    for at in range(row[LIVE]):
        one = row[PARTS + at * WIDTH : PARTS + (at + 1) * WIDTH]
        parts.append(
            Part(
                one[JOB],
                _STATES[one[WHERE]],
                one[COMPUTED],
                one[OUTPUTS],
                one[HELD],
                bool(one[SWAPPED]),
                one[JOINED] - 1,
                one[FIRST] - 1,
                one[PLACE],
                one[TOKENS] - 1,
                bool(one[ADMITTED]),
                0,
                0,
            )
        )
    ended = [(job, _KINDS[kind]) for job in range(arrived) if (kind := row[ENDED] >> (2 * job) & 3)]
    if space.symmetry:
        gone = [space.press.entry(number) for number in range(arrived)]
        for part in parts:
            gone.remove(part.job)
        ended = [(job, "") for job in sorted(gone)]
    shares = None
    if space.fresh_shares is not None and arrived:
        names = tenants_of(space)
        met = sorted({space.jobs[number].tenant or "" for number in range(arrived)})
        counters = tuple((name, float(row[COUNTERS + names.index(name)])) for name in met)
        waits = [space.jobs[part.job].tenant or "" for part in parts if part.state == WAITING]
        queued = tuple((name, waits.count(name)) for name in sorted(set(waits)))
        shares = (counters, queued, names[row[LEFT] - 1] if row[LEFT] else None)
    return Frame(
        tuple(parts),
        arrived,
        tuple(ended),
        bool(row[DECIDED]),
        bool(row[EVICTED]),
        row[OWED] - 1,
        bool(row[BEGUN]),
        shares,
    )


def words_of(space: Space, m: Memory, frame: Frame) -> Memory:
    """A frame packed."""
    vector, names = m[MADE : MADE + OLD + MADE], tenants_of(space)
    vector[OLD:] = 0
    vector[ARRIVED], vector[LIVE] = frame.arrived, len(frame.parts)
    vector[DECIDED], vector[EVICTED] = frame.decided, frame.evicted
    vector[OWED], vector[BEGUN] = frame.owed + 1, frame.begun
    states = {name: number for number, name in _STATES.items()}
    kinds = {name: number for number, name in _KINDS.items()}
    if not space.symmetry:
        vector[ENDED] = sum(kinds[kind] << (2 * job) for job, kind in frame.ended)
    if frame.shares is not None:
        counters, _, left = frame.shares
        vector[LEFT] = 0 if left is None else names.index(left) + 1
        for name, served in counters:
            vector[COUNTERS + names.index(name)] = int(served)
    for at, part in enumerate(frame.parts):
        start = PARTS + at * WIDTH
        vector[start : start + WIDTH] = (
            part.job,
            states[part.state],
            part.computed,
            part.outputs,
            part.blocks,
            part.swapped,
            part.joined + 1,
            part.first + 1,
            part.place,
            part.tokens + 1,
            part.admitted,
        )
    pack(m, int(m[NEXT]))
    return m[m[NEXT] : m[NEXT] + m[WORDS]].copy()
