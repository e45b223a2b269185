"""Proof by induction, with sizes left open: the solver looks for a step that leads out of the invariants.

For each invariant (induction.py) and each action: assume every invariant before the action, and its guard;
ask for values with which the invariant does not hold after it. No such values: the action keeps it. Kept by
all actions, and true at the start, it holds in every state that any number of steps reaches, for every size.
The number of requests alone is fixed. Which request acts makes no difference: the claims and the guards
are the same under every exchange of requests, so request 0 acts for all.

Needs the extra `prove` (z3-solver).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import z3

from batchspec.spec.errors import SpecError
from batchspec.spec.induction import CLAIMS, MOVES, ROWS, Books, Claim, Move, Sizes, Term, empty
from batchspec.spec.lemma import Lemma

START: Final = "start"
PARTIES: Final = 4
"""Tenants and flows of the lemmas (lemmas.py)."""
_LIMIT_MS: Final = 60_000
_MOST_REQUESTS: Final = 64


class Terms:
    """The logic of the solver's terms."""

    def all(self, claims: Sequence[Term]) -> Term:
        """Conjunction."""
        return z3.And(*claims)

    def any(self, claims: Sequence[Term]) -> Term:
        """Disjunction."""
        return z3.Or(*claims)

    def negate(self, claim: Term) -> Term:
        """Negation."""
        return z3.Not(claim)

    def choose(self, claim: Term, yes: Term, no: Term) -> Term:
        """`yes` where the claim holds, else `no`."""
        return z3.If(claim, yes, no)


@dataclass(frozen=True)
class Escape:
    """A step out of the invariant: the state before it, the action of request 0 and its choices."""

    sizes: Sizes
    books: Books
    move: str
    given: Mapping[str, int]


@dataclass(frozen=True)
class Proof:
    """One invariant under one action (or at the start). `kept` is None where the solver gave up.

    `escape` leads out of it; `values` are those of a lemma's state before the step, with the step's choices.
    """

    claim: str
    move: str
    kept: bool | None
    escape: Escape | None = None
    values: Mapping[str, int] | None = None


def prove(
    requests: int,
    *,
    claims: Mapping[str, Claim] = CLAIMS,
    moves: Mapping[str, Move] = MOVES,
    assumed: Mapping[str, Claim] | None = None,
    limit_ms: int = _LIMIT_MS,
) -> Iterator[Proof]:
    """Each claim at the start and under each move, for a number of requests and every size.

    `assumed` are the invariants that hold before a move; None: the claims themselves. `limit_ms` is how long
    the solver may take for one question. Raises `SpecError` for a number of requests that makes no sense.
    """
    if not 1 <= requests <= _MOST_REQUESTS:
        raise SpecError(f"prove for 1 to {_MOST_REQUESTS} requests, not {requests}")
    logic = Terms()
    sizes, sane = _sizes(requests)
    start = empty(sizes)
    for name, claim in claims.items():
        yield _ask(name, START, [sane, z3.Not(claim(logic, sizes, start))], limit_ms)
    before = Books(**{row: tuple(_ints(row, requests)) for row in ROWS}, free=z3.Int("free"))
    holds = [claim(logic, sizes, before) for claim in (assumed or claims).values()]
    for move in moves.values():
        given = tuple(z3.Int(f"given_{choice}") for choice in move.choices)
        guard = move.guard(logic, sizes, before, 0, given)
        after = move.effect(logic, sizes, before, 0, given)
        for name, claim in claims.items():
            question = [sane, *holds, guard, z3.Not(claim(logic, sizes, after))]
            yield _ask(name, move.name, question, limit_ms, (sizes, before, given, move))


def prove_lemma(lemma: Lemma, *, limit_ms: int = _LIMIT_MS) -> Iterator[Proof]:
    """Each claim of a lemma at the start and under each of its steps, for every value of its sizes."""
    logic = Terms()
    sizes = {name: z3.Int(name) for name in lemma.sizes}
    sane = z3.And(*(size >= 1 for size in sizes.values()))
    start = {**sizes, **lemma.start}
    for name, claim in lemma.claims.items():
        yield _ask(name, START, [sane, z3.Not(claim(logic, start))], limit_ms)
    before = {**sizes, **{name: z3.Int(name) for name in lemma.start}}
    holds = [claim(logic, before) for claim in lemma.claims.values()]
    for step in lemma.steps:
        given = {choice: z3.Int(f"given_{choice}") for choice in step.choices}
        guard = step.guard(logic, before, tuple(given.values()))
        after = step.effect(logic, before, tuple(given.values()))
        for name, claim in lemma.claims.items():
            question = [sane, *holds, guard, z3.Not(claim(logic, after))]
            solver = _solver(question, limit_ms)
            answer = solver.check()
            values = None
            if answer == z3.sat:
                model = solver.model()
                values = {word: _value(model, term) for word, term in {**before, **given}.items()}
            kept = None if answer == z3.unknown else answer == z3.unsat
            yield Proof(name, step.name, kept, values=values)


def _solver(question: list[Term], limit_ms: int) -> Term:
    solver = z3.SolverFor("QF_LIA")
    solver.set("timeout", limit_ms)
    solver.add(*question)
    return solver


def _value(model: Term, term: Term) -> int:
    return int(model.eval(term, model_completion=True).as_long())


def _ask(
    claim: str,
    move: str,
    question: list[Term],
    limit_ms: int,
    about: tuple[Sizes, Books, tuple[Term, ...], Move] | None = None,
) -> Proof:
    solver = _solver(question, limit_ms)
    answer = solver.check()
    if answer == z3.unsat:
        return Proof(claim, move, True)
    if answer != z3.sat:
        return Proof(claim, move, None)
    return Proof(claim, move, False, None if about is None else _escape(solver.model(), *about))


def _escape(model: Term, sizes: Sizes, books: Books, given: tuple[Term, ...], move: Move) -> Escape:
    value = partial(_value, model)

    def row(terms: tuple[Term, ...]) -> tuple[int, ...]:
        return tuple(value(term) for term in terms)

    names = ("blocks", "size", "seats", "budget", "host")
    plain = {name: value(getattr(sizes, name)) for name in names}
    return Escape(
        Sizes(**plain, prompt=row(sizes.prompt), most=row(sizes.most)),
        Books(**{name: row(getattr(books, name)) for name in ROWS}, free=value(books.free)),
        move.name,
        {choice: value(term) for choice, term in zip(move.choices, given, strict=True)},
    )


def _sizes(requests: int) -> tuple[Sizes, Term]:
    """Open sizes, and what is asked of them: at least one of each, a host that may be empty."""
    plain = {name: z3.Int(name) for name in ("blocks", "size", "seats", "budget", "host")}
    sizes = Sizes(**plain, prompt=tuple(_ints("prompt", requests)), most=tuple(_ints("most", requests)))
    positive = [sizes.blocks, sizes.size, sizes.seats, sizes.budget, *sizes.prompt, *sizes.most]
    return sizes, z3.And(*(term >= 1 for term in positive), sizes.host >= 0)


def _ints(name: str, requests: int) -> list[Term]:
    return [z3.Int(f"{name}_{at}") for at in range(requests)]
