"""The proofs, that they can fail, and that what is proved covers what is explored."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from batchspec.replay.checker import check
from batchspec.replay.report.proofs import scenario_of
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import SpecError
from batchspec.spec.frame import START, Frame, Job
from batchspec.spec.induction import (
    CLAIMS,
    ENDED,
    MOVES,
    OUT,
    PREEMPTED,
    REASONS,
    RUNNING,
    WAITING,
    Books,
    Numbers,
    Sizes,
    empty,
)
from batchspec.spec.profile import Profile
from batchspec.spec.space import Rows, Space
from batchspec.traces.scenario import parse_scenario

PLAIN = Numbers()
WHERE = {"waiting": WAITING, "running": RUNNING, "preempted": PREEMPTED}


# -- what is proved covers what is explored ----------------------------------------------------------


def space_of(options: dict[str, object], jobs: tuple[Job, ...], **settings: bool) -> Space:
    data: dict[str, dict[str, object]] = {
        "limits": {"max_seqs": 2, "token_budget": 4, "kv_blocks": 3, "block_size": 2},
        "batching": {"chunked_prefill": True},
        "admission": {"order": "fcfs", "misfit": "stop", "test": "step", "reserve": "step"},
        "preemption": {"mode": "recompute", "victim": "latest-admitted", "resume": "front"},
    }
    for option, value in options.items():
        group, name = option.split(".")
        data[group][name] = value
    return Space(Profile.from_dict(data), jobs, **settings)


RESERVED: dict[str, object] = {
    "admission.test": "full",
    "admission.reserve": "full",
    "preemption.mode": "none",
}
SPACES = {
    "recompute": space_of({}, (Job(3, 2), Job(2, 3)), aborts=True),
    "three": space_of({"limits.max_seqs": 3}, (Job(2, 2), Job(1, 3), Job(1, 1))),
    "swap": space_of({"preemption.mode": "swap"}, (Job(3, 2), Job(2, 3))),
    "small host": space_of({"preemption.mode": "swap", "limits.host_blocks": 1}, (Job(3, 2), Job(2, 3))),
    "reserved": space_of({**RESERVED, "limits.kv_blocks": 5}, (Job(2, 2), Job(1, 3), Job(1, 1))),
    "static": space_of({**RESERVED, "batching.mode": "static"}, (Job(2, 1), Job(1, 2))),
    "never fits": space_of({}, (Job(7, 1), Job(1, 1))),
    "outgrows": space_of({}, (Job(4, 4),)),
}


def sizes_of(space: Space) -> Sizes:
    limits = space.profile.limits
    host = 1000 if limits.host_blocks is None else limits.host_blocks
    prompt = tuple(job.prompt for job in space.jobs)
    most = tuple(job.max_tokens for job in space.jobs)
    return Sizes(space.blocks, space.size, limits.max_seqs, space.budget, host, prompt, most)


class Follower:
    """Books of the proof that make the moves of an action of the explorer, each guard asked."""

    def __init__(self, sizes: Sizes, books: Books) -> None:
        self.sizes, self.books = sizes, books

    def make(self, move: str, at: int = 0, *given: int) -> None:
        taken = MOVES[move]
        assert taken.guard(PLAIN, self.sizes, self.books, at, given), (move, at, given, self.books)
        self.books = taken.effect(PLAIN, self.sizes, self.books, at, given)
        broken = [name for name, claim in CLAIMS.items() if not claim(PLAIN, self.sizes, self.books)]
        assert broken == [], (move, at, given, self.books)

    def slot(self) -> int:
        taken = {
            slot for where, slot in zip(self.books.where, self.books.slot, strict=True) if where == RUNNING
        }
        return min(set(range(len(taken) + 1)) - taken)

    def grow(self, at: int, blocks: int) -> None:
        while self.books.held[at] < blocks:
            self.make("grant", at)

    def follow(self, frame: Frame, rows: Rows) -> None:
        size = self.sizes.size
        for event in rows:
            at = -1 if event.request is None else self.entry(frame, int(event.request))
            kind = event.event
            if kind in ("admit", "resume"):
                if event.cached:
                    self.make("return", at, self.slot(), event.blocks or 0, (event.blocks or 0) * size)
                else:
                    self.make("join", at, self.slot())
                    self.grow(at, event.blocks or 0)
            elif kind == "schedule":
                self.grow(at, event.blocks or 0)
                self.make("run", at, event.tokens or 0)
            elif kind == "preempt" and event.reason == "swap":
                resident = self.books.computed[at] - self.books.tokens[at]
                self.make("swap", at, -(-resident // size))
            elif kind == "step":
                self.make("close")
            elif kind not in ("cancel", "skip"):
                self.make(kind, at)

    @staticmethod
    def entry(frame: Frame, place: int) -> int:
        return frame.parts[place].job if place < len(frame.parts) else frame.arrived


def seen_as(space: Space, frame: Frame) -> dict[str, tuple[int, ...]]:
    """A state of the explorer in the terms of the proof, but for slots."""
    count = len(space.jobs)
    rows: dict[str, list[int]] = {
        name: [0] * count for name in ("computed", "held", "room", "tokens", "kept", "outputs")
    }
    where = [ENDED if at < frame.arrived else OUT for at in range(count)]
    for part in frame.parts:
        where[part.job] = WHERE[part.state]
        rows["computed"][part.job] = part.computed
        rows["held"][part.job] = part.blocks
        rows["room"][part.job] = part.blocks * space.size
        rows["tokens"][part.job] = max(part.tokens, 0)
        rows["outputs"][part.job] = part.outputs
        rows["kept"][part.job] = -(-part.computed // space.size) if part.swapped else 0
    return {"where": tuple(where), **{name: tuple(row) for name, row in rows.items()}}


def walks(space: Space) -> Iterator[tuple[Frame, Books, Rows]]:
    """Every transition, with books of the proof that came to its state by the proof's own moves."""
    reached = {START: empty(sizes_of(space))}
    queue = [START]
    for frame in queue:
        for rows in space.enabled(frame):
            yield frame, reached[frame], rows
            after = space.apply(frame, rows)
            if after not in reached:
                follower = Follower(sizes_of(space), reached[frame])
                follower.follow(frame, rows)
                reached[after] = follower.books
                queue.append(after)


@pytest.mark.parametrize("name", SPACES)
def test_every_transition_of_the_explorer_is_made_of_the_proof_s_moves(name):
    space = SPACES[name]
    followed = 0
    for frame, books, rows in walks(space):
        follower = Follower(sizes_of(space), books)
        follower.follow(frame, rows)
        seen = seen_as(space, space.apply(frame, rows))
        ended = [at for at, where in enumerate(seen["where"]) if where == ENDED]
        for row, values in seen.items():
            mine = list(getattr(follower.books, row))
            if row == "outputs":  # the explorer forgets what has ended
                mine = [0 if at in ended else value for at, value in enumerate(mine)]
            assert tuple(mine) == values, (row, rows)
        followed += 1
    assert followed >= 5


# -- the proofs --------------------------------------------------------------------------------------

solver = pytest.mark.skipif(find_spec("z3") is None, reason="needs the extra prove")


@solver
@pytest.mark.parametrize("requests", [1, 2, 3, 16])
def test_every_claim_is_inductive(requests):
    from batchspec.spec.prove import prove

    proofs = list(prove(requests))

    assert len(proofs) == len(CLAIMS) * (len(MOVES) + 1)
    assert [proof for proof in proofs if not proof.kept] == []


@solver
@pytest.mark.parametrize(
    ("move", "weaker", "breaks"),
    [
        ("grant", "free", {"memory/bound", "memory/conservation"}),
        ("run", "budget", {"batch/token-budget"}),
        ("run", "room", {"memory/coverage"}),
        ("run", "known", {"tokens/overrun"}),
        ("join", "seat", {"batch/capacity", "slots/exclusive"}),
        ("join", "slot", {"slots/exclusive"}),
        ("swap", "host", {"memory/host-bound"}),
        ("close", "limit", {"tokens/output-count"}),
    ],
)
def test_a_weaker_guard_lets_a_state_escape(move, weaker, breaks):
    """Each guard is needed: without it exactly the claims that rest on it fail."""
    from batchspec.spec.prove import prove

    moves = {move: replace(MOVES[move], guard=WEAKER[weaker])}
    proofs = [proof for proof in prove(2, moves=moves) if not proof.kept]

    assert {proof.claim for proof in proofs} == breaks
    for proof in proofs:
        assert proof.escape is not None
        assert proof.escape.move == move
        trace = parse_scenario(scenario_of(proof.escape))
        check(trace, Profile.from_dict(trace.header.config))


def _weak(move: str, **sizes: Any):
    """The guard of a move, asked of sizes or books in which one limit is out of the way."""

    def guard(logic, given_sizes, books, at, given):
        changed = replace(given_sizes, **{name: change(given_sizes, books) for name, change in sizes.items()})
        return MOVES[move].guard(logic, changed, books, at, given)

    return guard


def _grant_blindly(logic, sizes, books, at, given):
    return MOVES["grant"].guard(logic, sizes, replace(books, free=1), at, given)


def _run_roomily(logic, sizes, books, at, given):
    return MOVES["run"].guard(logic, sizes, books.put(at, room=books.computed[at] + given[0]), at, given)


def _run_on(logic, sizes, books, at, given):
    more = books.put(at, outputs=books.outputs[at] + given[0])
    return MOVES["run"].guard(logic, sizes, more, at, given)


def _join_anyhow(logic, sizes, books, at, given):
    """Neither seat nor slot is asked for. (Slots that are apart and in range imply that a seat is free.)"""
    return logic.all([books.where[at] == WAITING, given[0] >= 0, given[0] < sizes.seats])


def _join_anywhere(logic, sizes, books, at, given):
    """A seat is free, and the slot in range, but perhaps another's."""
    elsewhere = replace(books, slot=(-1,) * len(books.slot))
    return MOVES["join"].guard(logic, sizes, elsewhere, at, given)


WEAKER = {
    "free": _grant_blindly,
    "budget": _weak("run", budget=lambda sizes, books: sizes.budget + 1),
    "room": _run_roomily,
    "known": _run_on,
    "seat": _join_anyhow,
    "slot": _join_anywhere,
    "host": _weak("swap", host=lambda sizes, books: sizes.host + 1),
    "limit": lambda logic, sizes, books, at, given: books.where[at] == books.where[at],
}


@solver
def test_an_escape_is_a_scenario_that_the_checker_judges():
    """A pool that is granted from though it is empty: the rule of the same name finds it."""
    from batchspec.spec.prove import prove

    moves = {"grant": replace(MOVES["grant"], guard=_grant_blindly)}
    (proof,) = [p for p in prove(1, moves=moves) if p.claim == "memory/bound" and not p.kept]
    text = scenario_of(proof.escape)
    trace = parse_scenario(text)

    report = check(trace, Profile.from_dict(trace.header.config))
    assert "memory/bound" in {finding.rule for finding in report.findings}, text


@solver
def test_without_the_other_claims_a_claim_is_not_inductive():
    """Coverage rests on release: a request that joins must have nothing resident."""
    from batchspec.spec.prove import prove

    alone = {"memory/coverage": CLAIMS["memory/coverage"]}

    assert any(proof.kept is False for proof in prove(1, claims=alone))
    assert all(proof.kept for proof in prove(1, claims=alone, assumed=CLAIMS))


@solver
def test_a_number_of_requests_that_makes_no_sense_is_refused():
    from batchspec.spec.prove import prove

    with pytest.raises(SpecError, match="1 to 64 requests, not 0"):
        next(prove(0))


def test_every_safety_rule_of_sizes_is_proved_or_says_why_not():
    families = ("memory/", "slots/", "batch/", "tokens/")
    rules = {rule for rule in RULES if rule.startswith(families)}
    bounded = {rule for rule in rules if RULES[rule].kind != "always"}

    assert set(CLAIMS) | set(REASONS) | bounded >= rules
    assert set(CLAIMS) & set(REASONS) == set()
    assert set(REASONS) <= rules
