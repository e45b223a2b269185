"""The core model for other tools: Promela for spin, and TLA+, written from the moves of induction.py.

Guards and effects are asked once more, this time with words for numbers: what comes out is the text of the
same expressions. Sizes are given, and each free choice of a move is one of a few numbers, so a model
checker can visit every state; `reachable` visits them with plain numbers, and the counts must agree.

Promela: one process, one guarded atomic step a move, request and choice. New values go through hidden
variables, which are no part of the state, so that all of them are made from the old ones. Each step ends
with the invariants as assertions. A state of spin is a state of the model, for the process has one place;
its transitions are one more than the model's, for it counts the first state as found by one.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from batchspec.spec.errors import SpecError
from batchspec.spec.induction import CLAIMS, MOVES, ROWS, Books, Move, Numbers, Row, Sizes, Term, empty

_MOST: Final = 250
"""A byte of Promela, with some room."""


@dataclass(frozen=True)
class Tongue:
    """How a language writes what an expression is made of."""

    both: str
    either: str
    no: str
    equal: str
    differs: str
    choice: str


PROMELA: Final = Tongue(" && ", " || ", "!", "==", "!=", "({0} -> {1} : {2})")
TLA: Final = Tongue(" /\\ ", " \\/ ", "~", "=", "#", "(IF {0} THEN {1} ELSE {2})")


class Words:
    """An expression in words, in one language."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str, tongue: Tongue) -> None:
        """`text` is complete: it stands in brackets where it needs them."""
        self.text = text
        self.tongue = tongue

    def _with(self, sign: str, other: Term) -> "Words":
        return Words(f"({self.text} {sign} {other})", self.tongue)

    def __str__(self) -> str:
        """The text."""
        return self.text

    def __add__(self, other: Term) -> "Words":
        """Sum."""
        return self if isinstance(other, int) and other == 0 else self._with("+", other)

    __radd__ = __add__

    def __sub__(self, other: Term) -> "Words":
        """Difference."""
        return self._with("-", other)

    def __lt__(self, other: Term) -> "Words":
        """Less."""
        return self._with("<", other)

    def __le__(self, other: Term) -> "Words":
        """At most."""
        return self._with("<=", other)

    def __gt__(self, other: Term) -> "Words":
        """More."""
        return self._with(">", other)

    def __ge__(self, other: Term) -> "Words":
        """At least."""
        return self._with(">=", other)

    def __eq__(self, other: object) -> "Words":  # type: ignore[override]
        """Equal."""
        return self._with(self.tongue.equal, other)

    def __ne__(self, other: object) -> "Words":  # type: ignore[override]
        """Different."""
        return self._with(self.tongue.differs, other)


class Phrases:
    """The logic of words. What is already known to be true or false is left out."""

    def __init__(self, tongue: Tongue) -> None:
        """In one language."""
        self.tongue = tongue

    def all(self, claims: Sequence[Term]) -> Term:
        """Conjunction."""
        left = [claim for claim in claims if claim is not True]
        return False if False in map(_plain, left) else self._joined(left, self.tongue.both, True)

    def any(self, claims: Sequence[Term]) -> Term:
        """Disjunction."""
        left = [claim for claim in claims if claim is not False]
        return True if True in map(_plain, left) else self._joined(left, self.tongue.either, False)

    def _joined(self, claims: list[Term], word: str, nothing: bool) -> Term:
        if not claims:
            return nothing
        return Words(f"({word.join(map(str, claims))})" if len(claims) > 1 else str(claims[0]), self.tongue)

    def negate(self, claim: Term) -> Term:
        """Negation."""
        return not claim if isinstance(claim, bool) else Words(f"{self.tongue.no}({claim})", self.tongue)

    def choose(self, claim: Term, yes: Term, no: Term) -> Term:
        """`yes` where the claim holds, else `no`."""
        if isinstance(claim, bool):
            return yes if claim else no
        return Words(self.tongue.choice.format(claim, yes, no), self.tongue)


def _plain(claim: Term) -> bool | None:
    return claim if isinstance(claim, bool) else None


# -- steps -------------------------------------------------------------------------------------------


def steps(sizes: Sizes) -> Iterator[tuple[Move, int, Row]]:
    """Every move of every request, with each of its choices."""
    ranges = {"slot": range(sizes.seats), "tokens": range(1, sizes.budget + 1)}
    for move in MOVES.values():
        for at in range(1 if move.name == "close" else len(sizes.prompt)):
            if move.name == "return":
                for slot, blocks in product(range(sizes.seats), range(1, sizes.blocks + 1)):
                    yield move, at, (slot, blocks, blocks * sizes.size)
            elif move.name == "swap":
                yield from ((move, at, (blocks,)) for blocks in range(sizes.host + 1))
            else:
                yield from ((move, at, given) for given in product(*(ranges[name] for name in move.choices)))


def reachable(sizes: Sizes) -> tuple[int, int, bool]:
    """States, transitions, and whether every claim holds in each state, with plain numbers."""
    logic, taken = Numbers(), list(steps(sizes))
    start = empty(sizes)
    seen, queue, transitions, holds = {start}, deque([start]), 0, True
    while queue:
        books = queue.popleft()
        holds = holds and all(claim(logic, sizes, books) for claim in CLAIMS.values())
        for move, at, given in taken:
            if move.guard(logic, sizes, books, at, given):
                transitions += 1
                after = move.effect(logic, sizes, books, at, given)
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
    return len(seen), transitions, holds


# -- texts -------------------------------------------------------------------------------------------


def promela(sizes: Sizes) -> str:
    """The model for spin. Raises `SpecError` where a size does not fit a byte."""
    largest = [sizes.blocks, sizes.seats, sizes.budget, sizes.host, *sizes.prompt, *sizes.most]
    if max(largest) * max(1, sizes.size) > _MOST:
        raise SpecError(f"sizes beyond {_MOST} are too large for an exhaustive search: make them smaller")
    count, phrases = len(sizes.prompt), Phrases(PROMELA)
    names = [f"{row}[{at}]" for row in ROWS for at in range(count)] + ["free_blocks"]
    books = _spoken(sizes, PROMELA, 0)
    said = [claim(phrases, sizes, books) for claim in CLAIMS.values()]
    claims = [f"assert({claim});" for claim in said if claim is not True]
    lines = [f"byte {row}[{count}];" for row in ROWS] + [f"byte free_blocks = {sizes.blocks};"]
    lines += [f"hidden int new_{place};" for place in range(len(names))]
    lines += ["inline invariants() {", *(f"  {claim}" for claim in claims), "}", "init {"]
    lines.append("  do")
    for move, at, given in steps(sizes):
        guard = move.guard(phrases, sizes, books, at, given)
        if guard is False:
            continue
        after = _flat(move.effect(phrases, sizes, books, at, given))
        changed = [place for place, value in enumerate(after) if str(value) != names[place]]
        words = "true" if guard is True else str(guard)
        about = " ".join(map(str, (move.name, at, *given)))
        lines.append(f"  :: d_step {{ {words} -> /* {about} */")
        lines += [f"       new_{place} = {after[place]};" for place in changed]
        lines += [f"       {names[place]} = new_{place};" for place in changed]
        lines.append("       invariants() }")
    return "\n".join([*lines, "  od", "}", ""])


def tla(sizes: Sizes, module: str = "BatchCore") -> str:
    """The model in TLA+, invariants by the names of their rules."""
    count, phrases = len(sizes.prompt), Phrases(TLA)
    books = _spoken(sizes, TLA, 1)
    rows = (*ROWS, "free_blocks")
    zero = f"[r \\in 1..{count} |-> 0]"
    lines = [f"---- MODULE {module} ----", "EXTENDS Integers", f"VARIABLES {', '.join(rows)}"]
    lines += [f"vars == <<{', '.join(rows)}>>", "Init =="]
    lines += [f"  /\\ {row} = {zero}" for row in ROWS] + [f"  /\\ free_blocks = {sizes.blocks}"]
    names = []
    for number, (move, at, given) in enumerate(steps(sizes)):
        guard = move.guard(phrases, sizes, books, at, given)
        if guard is False:
            continue
        after = move.effect(phrases, sizes, books, at, given)
        names.append(f"{move.name.title()}{number}")
        lines += [f"{names[-1]} ==", f"  /\\ {_tla_claim(guard)}"]
        for row in ROWS:
            values = ", ".join(map(str, getattr(after, row)))
            lines.append(f"  /\\ {row}' = <<{values}>>")
        lines.append(f"  /\\ free_blocks' = {after.free}")
    lines += ["Next ==", *(f"  \\/ {name}" for name in names), "Spec == Init /\\ [][Next]_vars"]
    for name, claim in CLAIMS.items():
        word = "".join(part.title() for part in name.replace("/", "-").split("-"))
        lines.append(f"{word} == {_tla_claim(claim(phrases, sizes, books))}")
    return "\n".join([*lines, "====", ""])


def _tla_claim(claim: Term) -> str:
    return str(claim).upper() if isinstance(claim, bool) else str(claim)


def _spoken(sizes: Sizes, tongue: Tongue, first: int) -> Books:
    """Books in which every entry is its own name; a language counts from `first`."""
    count = len(sizes.prompt)
    rows = {row: tuple(Words(f"{row}[{at + first}]", tongue) for at in range(count)) for row in ROWS}
    return Books(**rows, free=Words("free_blocks", tongue))


def _flat(books: Books) -> list[Term]:
    return [value for row in ROWS for value in getattr(books, row)] + [books.free]
