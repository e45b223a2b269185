"""The core of the spec with open sizes: state, actions and invariants in linear arithmetic.

The explorer knows every size and visits every state. Here nothing is known but the number of requests:
blocks, block size, seats, budget, host, prompts and output limits are variables, and an invariant is shown to
be inductive: it holds where nobody has arrived, and each action that starts where all of them hold ends
where it holds. prove.py asks that of a solver; the tests also run every transition of the explorer through
these actions with numbers, so that nothing which the explorer does is missing here.

The same few lines serve both: arithmetic on ints and on terms reads alike, and `Logic` has the rest.

Linear: blocks are granted one at a time, and the positions that they hold, B·b, are kept as a sum of their
own (`room`), to which each grant adds b. A swapped request comes back with any number of blocks and any room
that holds its positions. Wider than the spec on purpose: any request may join, run or be preempted at any
moment. What is proved here thus does not rest on the order of admission, on the victim or on the reserve.

Notation, per request: prompt p, limit m, outputs o, resident positions c, tokens in this step t.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

OUT, WAITING, RUNNING, PREEMPTED, ENDED = range(5)

Term = Any
"""An int or a bool, or a term of the solver."""


class Logic(Protocol):
    """What numbers and terms do not have in common."""

    def all(self, claims: Sequence[Term]) -> Term:
        """Conjunction."""

    def any(self, claims: Sequence[Term]) -> Term:
        """Disjunction."""

    def negate(self, claim: Term) -> Term:
        """Negation."""

    def choose(self, claim: Term, yes: Term, no: Term) -> Term:
        """`yes` where the claim holds, else `no`."""


class Numbers:
    """The logic of plain values."""

    def all(self, claims: Sequence[Term]) -> Term:
        """Conjunction."""
        return all(claims)

    def any(self, claims: Sequence[Term]) -> Term:
        """Disjunction."""
        return any(claims)

    def negate(self, claim: Term) -> Term:
        """Negation."""
        return not claim

    def choose(self, claim: Term, yes: Term, no: Term) -> Term:
        """`yes` where the claim holds, else `no`."""
        return yes if claim else no


Row = tuple[Term, ...]


@dataclass(frozen=True)
class Sizes:
    """What never changes. `prompt` and `most` have one entry a request."""

    blocks: Term
    size: Term
    seats: Term
    budget: Term
    host: Term
    prompt: Row
    most: Row


@dataclass(frozen=True)
class Books:
    """The state: one entry a request, and the free blocks. `kept`: blocks on the host."""

    where: Row
    computed: Row
    outputs: Row
    held: Row
    room: Row
    tokens: Row
    slot: Row
    kept: Row
    free: Term

    def put(self, at: int, **values: Term) -> "Books":
        """These books with new values for one request; `free` is meant for all."""
        free = values.pop("free", self.free)
        rows = {name: _put(getattr(self, name), at, value) for name, value in values.items()}
        return replace(self, free=free, **rows)


def _put(row: Row, at: int, value: Term) -> Row:
    return (*row[:at], value, *row[at + 1 :])


ROWS: Final = ("where", "computed", "outputs", "held", "room", "tokens", "slot", "kept")


def empty(sizes: Sizes) -> Books:
    """Nobody has arrived."""
    nothing = (0,) * len(sizes.prompt)
    return Books(nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, sizes.blocks)


def known(sizes: Sizes, books: Books, at: int) -> Term:
    """n = p + o."""
    return sizes.prompt[at] + books.outputs[at]


# -- actions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    """One action of request `at`. `given` are its free choices: a seat, tokens, blocks, positions."""

    name: str
    guard: Callable[[Logic, Sizes, Books, int, Row], Term]
    effect: Callable[[Logic, Sizes, Books, int, Row], Books]
    choices: tuple[str, ...] = ()


def _arrives(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    return books.where[at] == OUT


def _arrive(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    return books.put(at, where=WAITING)


def _waits(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    return books.where[at] == WAITING


def _end(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    free = books.free + books.held[at]
    return books.put(at, where=ENDED, computed=0, held=0, room=0, tokens=0, kept=0, free=free)


def _seat(logic: Logic, sizes: Sizes, books: Books, slot: Term) -> Term:
    """A free seat, and a slot in its range that nobody occupies."""
    taken = [
        logic.any([where != RUNNING, other != slot])
        for where, other in zip(books.where, books.slot, strict=True)
    ]
    return logic.all([running(logic, books) < sizes.seats, slot >= 0, slot < sizes.seats, *taken])


def _joins(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    again = logic.all([books.where[at] == PREEMPTED, books.computed[at] == 0])
    return logic.all([logic.any([books.where[at] == WAITING, again]), _seat(logic, sizes, books, given[0])])


def _join(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    return books.put(at, where=RUNNING, slot=given[0], kept=0)


def _returns(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    slot, blocks, room = given
    return logic.all(
        [
            books.where[at] == PREEMPTED,
            _seat(logic, sizes, books, slot),
            blocks >= 1,
            blocks <= books.free,
            books.computed[at] <= room,
            room < sizes.prompt[at] + sizes.most[at] + sizes.size,
        ]
    )


def _return(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    slot, blocks, room = given
    return books.put(at, where=RUNNING, slot=slot, held=blocks, room=room, kept=0, free=books.free - blocks)


def _grants(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    needs = books.room[at] < sizes.prompt[at] + sizes.most[at]
    return logic.all([books.where[at] == RUNNING, books.tokens[at] == 0, books.free >= 1, needs])


def _grant(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    return books.put(at, held=books.held[at] + 1, room=books.room[at] + sizes.size, free=books.free - 1)


def _runs(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    (tokens,) = given
    end = books.computed[at] + tokens
    return logic.all(
        [
            books.where[at] == RUNNING,
            books.tokens[at] == 0,
            tokens >= 1,
            end <= books.room[at],
            end <= known(sizes, books, at),
            sum(books.tokens) + tokens <= sizes.budget,
        ]
    )


def _run(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    return books.put(at, computed=books.computed[at] + given[0], tokens=given[0])


def _is_running(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    return books.where[at] == RUNNING


def _preempt(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    free = books.free + books.held[at]
    return books.put(at, where=PREEMPTED, computed=0, held=0, room=0, tokens=0, kept=0, free=free)


def _swaps(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    (blocks,) = given
    return logic.all([books.where[at] == RUNNING, blocks >= 0, sum(books.kept) + blocks <= sizes.host])


def _swap(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    """The positions of this step are not yet computed: only those before it go to the host."""
    computed = books.computed[at] - books.tokens[at]
    free = books.free + books.held[at]
    return books.put(
        at, where=PREEMPTED, computed=computed, held=0, room=0, tokens=0, kept=given[0], free=free
    )


def _lives(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    return logic.all([books.where[at] >= WAITING, books.where[at] <= PREEMPTED])


def emits(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    """Its part of this step computes the last known token."""
    return logic.all([books.tokens[at] >= 1, books.computed[at] == known(sizes, books, at)])


def _finishes(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    return logic.all([books.where[at] == RUNNING, emits(logic, sizes, books, at)])


def _finish(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    return _end(logic, sizes, books.put(at, outputs=books.outputs[at] + 1), at, given)


def _closes(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Term:
    """Whoever emits and runs on may emit once more: one that reached its limit has finished before."""
    return logic.all(
        [
            logic.any([logic.negate(emits(logic, sizes, books, i)), books.outputs[i] + 1 < sizes.most[i]])
            for i in range(len(sizes.prompt))
        ]
    )


def _close(logic: Logic, sizes: Sizes, books: Books, at: int, given: Row) -> Books:
    """The end of a step: those whose part reached n have one output more, and nobody is a member."""
    outputs = tuple(
        logic.choose(emits(logic, sizes, books, i), books.outputs[i] + 1, books.outputs[i])
        for i in range(len(sizes.prompt))
    )
    return replace(books, outputs=outputs, tokens=(0,) * len(outputs))


MOVES: Final = {
    move.name: move
    for move in (
        Move("arrive", _arrives, _arrive),
        Move("reject", _waits, _end),
        Move("join", _joins, _join, ("slot",)),
        Move("return", _returns, _return, ("slot", "blocks", "room")),
        Move("grant", _grants, _grant),
        Move("run", _runs, _run, ("tokens",)),
        Move("preempt", _is_running, _preempt),
        Move("swap", _swaps, _swap, ("blocks",)),
        Move("abort", _lives, _end),
        Move("finish", _finishes, _finish),
        Move("close", _closes, _close),
    )
}
"""All that can happen. `close` is the end of a step and of no request's own."""


# -- invariants --------------------------------------------------------------------------------------


def running(logic: Logic, books: Books) -> Term:
    """How many run."""
    return sum(logic.choose(where == RUNNING, 1, 0) for where in books.where)


Claim = Callable[[Logic, Sizes, Books], Term]


def _each(claim: Callable[[Logic, Sizes, Books, int], Term]) -> Claim:
    return lambda logic, sizes, books: logic.all(
        [claim(logic, sizes, books, at) for at in range(len(sizes.prompt))]
    )


def _holds_nothing(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    """Who does not run holds no block of the device, and has positions only where they were swapped out."""
    nothing = logic.all([books.held[at] == 0, books.room[at] == 0, books.tokens[at] == 0])
    resident = logic.any([books.where[at] == PREEMPTED, books.computed[at] == 0])
    return logic.any([books.where[at] == RUNNING, logic.all([nothing, resident])])


def _covered(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    return logic.any([books.where[at] != RUNNING, books.computed[at] <= books.room[at]])


def _no_waste(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    return books.room[at] < sizes.prompt[at] + sizes.most[at] + sizes.size


def _in_bounds(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    counts = (books.held, books.tokens, books.kept, books.outputs)
    whole = [row[at] >= 0 for row in counts]
    return logic.all([*whole, books.where[at] >= OUT, books.where[at] <= ENDED])


def _positions(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    return logic.all([books.tokens[at] <= books.computed[at], books.computed[at] <= known(sizes, books, at)])


def _to_come(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    return logic.any([books.tokens[at] >= 1, books.computed[at] < known(sizes, books, at)])


def _counted(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    over = logic.all([books.where[at] == ENDED, books.outputs[at] <= sizes.most[at]])
    return logic.any([over, books.outputs[at] < sizes.most[at]])


def _slot_range(logic: Logic, sizes: Sizes, books: Books, at: int) -> Term:
    in_range = logic.all([books.slot[at] >= 0, books.slot[at] < sizes.seats])
    return logic.any([books.where[at] != RUNNING, in_range])


def _slots_apart(logic: Logic, sizes: Sizes, books: Books) -> Term:
    count = len(sizes.prompt)
    pairs = [(one, other) for one in range(count) for other in range(one)]
    return logic.all(
        [
            logic.any(
                [
                    books.where[one] != RUNNING,
                    books.where[other] != RUNNING,
                    books.slot[one] != books.slot[other],
                ]
            )
            for one, other in pairs
        ]
    )


CLAIMS: Final[dict[str, Claim]] = {
    "well-formed": _each(_in_bounds),
    "memory/bound": lambda logic, sizes, books: sum(books.held) <= sizes.blocks,
    "memory/conservation": lambda logic, sizes, books: logic.all(
        [books.free + sum(books.held) == sizes.blocks, books.free >= 0]
    ),
    "memory/coverage": _each(_covered),
    "memory/release": _each(_holds_nothing),
    "memory/waste": _each(_no_waste),
    "memory/host-bound": lambda logic, sizes, books: sum(books.kept) <= sizes.host,
    "batch/capacity": lambda logic, sizes, books: running(logic, books) <= sizes.seats,
    "batch/token-budget": lambda logic, sizes, books: sum(books.tokens) <= sizes.budget,
    "slots/range": _each(_slot_range),
    "slots/exclusive": _slots_apart,
    "tokens/overrun": _each(_positions),
    "tokens/position": _each(_to_come),
    "tokens/output-count": _each(_counted),
}
"""Rule -> the invariant that says the same of a state. Inductive together; `REASONS` has the rest."""

REASONS: Final[dict[str, str]] = {
    "batch/membership": "the guard of `run`; that nobody else has t > 0 is part of memory/release",
    "batch/empty-member": "the guard of `run`: at least one token",
    "batch/static-barrier": "an order of actions, not of sizes: explored",
    "batch/dynamic-window": "speaks of time, which the model does not have",
    "batch/no-stall": "a duty: explored",
    "batch/mixed": "a choice of members: no model, tested on traces",
    "slots/early-reuse": "speaks of lag: no model, tested on traces",
    "slots/reuse": "a duty: explored as work conservation",
    "tokens/early-output": "the guard of `finish` and `close`: an output only where c = n",
    "tokens/lost": "o never falls in any action, and n = p + o is what is rebuilt",
    "tokens/chunking": "a choice of tokens: explored",
    "tokens/in-flight": "passes in flight: no model, tested on traces",
    "memory/exclusive": "block ids: the model counts blocks",
    "memory/release-once": "block ids: the model counts blocks",
    "memory/use-after-release": "block ids: the model counts blocks",
    "memory/unwritten": "block ids: the model counts blocks",
    "memory/leak": "follows from conservation and release: with nobody running free = N",
}
"""Safety rules of memory, slots, batch and tokens that are not proved here, and why."""
