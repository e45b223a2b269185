"""A lemma: a small transition system with open amounts, and claims about it that are inductive together.

As in induction.py the same few lines run on numbers and on terms of the solver: a claim that holds at the
start and is kept by each step holds for ever. prove.py asks that of the solver.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchspec.spec.induction import Logic, Row, Term

Values = Mapping[str, Term]
Claim = Callable[[Logic, Values], Term]
NOBODY: Final = -1


@dataclass(frozen=True)
class Step:
    """What one tenant or flow may do. `given` are its free choices."""

    name: str
    guard: Callable[[Logic, Values, Row], Term]
    effect: Callable[[Logic, Values, Row], Values]
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lemma:
    """A bound: open sizes, the state at the start, steps, and claims that are inductive together.

    `parties` says how many tenants or flows there are.
    """

    id: str
    parties: str
    sentence: str
    sizes: tuple[str, ...]
    start: Values
    steps: Sequence[Step]
    claims: Mapping[str, Claim]


def with_values(values: Values, **changes: Term) -> dict[str, Term]:
    """The same values, some of them new."""
    return {**values, **changes}


def within(logic: Logic, gap: Term, bound: Term) -> Term:
    """|gap| ≤ bound."""
    return logic.all([gap <= bound, -gap <= bound])
