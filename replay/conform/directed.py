"""Directed cases: for each family of rules the few runs in which it is put to the test for certain.

They are made for the limits that they are given, from lengths that stand at the edges of blocks, budget,
seats and pool. A case that the profile does not permit, or that needs what the scheduler cannot show, is
left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from batchspec.replay.conform.case import Case, longest, prompt_of, request_of
from batchspec.replay.drive import STEP_NS, Script
from batchspec.replay.harness import Capabilities
from batchspec.spec.profile import Profile

LATER = 60 * STEP_NS
"""By then a small case is over."""


@dataclass(frozen=True, slots=True)
class Directed:
    """A case with a name. `family` is the rules' family that it is about."""

    name: str
    family: str
    case: Case


@dataclass(frozen=True, slots=True)
class _Edges:
    """The sizes that lengths are taken from: block, budget, seats, and the most tokens of a request."""

    block: int
    budget: int
    seats: int
    most: int

    @classmethod
    def of(cls, profile: Profile) -> "_Edges":
        limits = profile.limits
        most = min(longest(profile), 256)
        return cls(limits.block_size or 4, min(limits.token_budget or 8, 64), limits.max_seqs or 4, most)


def directed(profile: Profile, shows: Capabilities) -> Iterator[Directed]:
    """All directed cases under a profile with its limits."""
    edges = _Edges.of(profile)
    makers = [_lifecycle, _tokens, _slots, _memory, _admission, _preemption, _liveness]
    if shows.abort:
        makers.append(_aborts)
    if shows.prefix and profile.reuse.prefix is not False:
        makers.append(_prefix)
    if shows.drafts:
        makers.append(_drafts)
    for make in makers:
        for name, scripts in make(edges):
            family = make.__name__.strip("_")
            shown = tuple(_shown(script, shows) for script in scripts)
            yield Directed(f"{family}: {name}", family, Case(profile, shown))


def ask(
    name: str,
    prompt: int,
    outputs: int,
    edges: _Edges,
    *,
    at: int = 0,
    stop: bool = False,
    priority: int = 0,
    tenant: str = "a",
    tokens: tuple[int, ...] | None = None,
) -> Script:
    """A request cut to what the limits permit. `at` is its arrival in steps, `stop` ends it by its token."""
    prompt = max(1, min(prompt, edges.most - 1))
    spare = 2 if stop else 0
    outputs = max(1, min(outputs, edges.most - prompt - spare))
    limit = min(outputs + spare, edges.most - prompt)
    text = prompt_of(ord(name[0]), prompt) if tokens is None else tokens[:prompt]
    request = request_of(name, text, limit, priority=priority, tenant=tenant, arrival_ns=at * STEP_NS)
    return Script(request, min(outputs, limit))


def _shown(script: Script, shows: Capabilities) -> Script:
    """Without what the scheduler takes no notice of."""
    request = script.request
    return replace(
        script,
        request=replace(
            request,
            priority=request.priority if shows.priority else 0,
            tenant=request.tenant if shows.tenants else None,
        ),
    )


_Cases = Iterator[tuple[str, list[Script]]]


def _lifecycle(e: _Edges) -> _Cases:
    yield "one token in, one out", [ask("A", 1, 1, e)]
    yield "one request alone", [ask("A", e.block + 1, 4, e)]
    yield "the second comes when the first is long gone", [ask("A", 2, 2, e), ask("B", 2, 2, e, at=60)]
    yield (
        "everybody at once",
        [ask(name, 1 + place % 5, 2 + place % 3, e) for place, name in enumerate("ABCDEFGH")],
    )


def _tokens(e: _Edges) -> _Cases:
    lengths = (1, e.block - 1, e.block, e.block + 1, 2 * e.block, e.budget - 1, e.budget, e.budget + 1)
    for length in sorted({*lengths, 2 * e.budget + 1}):
        if 1 <= length < e.most:
            yield f"a prompt of {length}, to its limit", [ask("A", length, 3, e)]
            yield f"a prompt of {length}, stopped", [ask("A", length, 2, e, stop=True)]
    for outputs in range(1, 5):
        yield (
            f"stopped at output {outputs} beside another",
            [ask("A", 2, outputs, e, stop=True), ask("B", 3, 6, e)],
        )


def _slots(e: _Edges) -> _Cases:
    many = [chr(65 + place) for place in range(min(e.seats + 3, 20))]
    yield "more requests than seats, all of one length", [ask(name, 2, 3, e) for name in many]
    yield (
        "more requests than seats, of all lengths",
        [ask(name, 1, 1 + place % 5, e) for place, name in enumerate(many)],
    )
    lengths = (6, 2, 8, 3, 5, 2, 7, 3)
    yield "eight lengths", [ask(name, 1, n, e) for name, n in zip("ABCDEFGH", lengths, strict=True)]
    yield "stops that leave seats", [ask(name, 2, 2, e, stop=True) for name in many]


def _memory(e: _Edges) -> _Cases:
    yield "a request that fills the pool", [ask("A", e.most // 2, e.most, e)]
    yield "two that fill it together", [ask(name, e.block, e.most // 2, e) for name in "AB"]
    yield "one after the other through all blocks", [ask(name, e.most - 2, 2, e) for name in "ABC"]
    yield "growth across a block's edge", [ask(name, e.block, 2, e) for name in "ABC"]


def _admission(e: _Edges) -> _Cases:
    yield (
        "a long one before short ones",
        [ask("A", e.block + 1, 8, e), ask("B", e.most - 2, 2, e), ask("C", 1, 2, e), ask("D", 1, 2, e)],
    )
    yield (
        "a short one arrives behind a long one that waits",
        [ask("A", e.most // 2, 8, e), ask("B", e.most - 2, 2, e, at=1), ask("C", 1, 2, e, at=2)],
    )
    yield (
        "urgent ones come last",
        [ask(name, 3, 4, e, priority=place % 3) for place, name in enumerate("ABCDEFG")],
    )
    yield "equals", [ask(name, 3, 4, e, priority=1) for name in "ABCDEFG"]
    yield (
        "one tenant floods, another asks once",
        [*(ask(name, 3, 4, e) for name in "ABCDEF"), ask("G", 3, 4, e, at=1, tenant="b")],
    )


def _preemption(e: _Edges) -> _Cases:
    grow = e.most - e.block - 1
    yield "two grow until one must go", [ask(name, e.block, grow, e) for name in "AB"]
    yield "many grow", [ask(name, 1 + place, grow, e) for place, name in enumerate("ABCDE")]
    yield (
        "the newest has emitted most",
        [ask("A", e.most // 2, grow, e), ask("B", 1, grow, e), ask("C", e.block, grow, e, at=2)],
    )
    yield (
        "others arrive while one is out",
        [
            ask("A", e.block, grow, e),
            ask("B", e.block, grow, e),
            ask("C", 1, 2, e, at=6),
            ask("D", 2, 3, e, at=9),
        ],
    )
    yield (
        "the urgent one grows",
        [ask(name, e.block, grow, e, priority=2 - place) for place, name in enumerate("ABC")],
    )
    yield (
        "a long prompt meets decodes",
        [ask("A", 1, grow, e), ask("B", 1, grow, e), ask("C", e.most // 2, 4, e, at=3)],
    )


def _liveness(e: _Edges) -> _Cases:
    stream = [ask(chr(66 + place), 1 + place % 4, 2, e, at=place) for place in range(14)]
    yield "a long one beside a stream of short ones", [ask("A", e.block, e.most // 2, e), *stream]
    yield "a long prompt beside a stream of short ones", [ask("A", e.most - 2, 2, e), *stream]


def _aborts(e: _Edges) -> _Cases:
    for moment in range(8):
        for in_flight in (False, True):
            victim = replace(
                ask("A", e.budget + 1, 4, e), abort_ns=moment * STEP_NS, abort_in_flight=in_flight
            )
            where = "while pass" if in_flight else "before step"
            yield f"one {where} {moment + 1}", [victim, ask("B", e.block, 4, e), ask("C", 2, 6, e)]
    crowd = [ask(name, e.block, 6, e) for name in "ABCDEFGH"]
    for moment in (0, 1, 3):
        waits = replace(crowd[-1], abort_ns=moment * STEP_NS)
        yield f"one that waits, before step {moment + 1}", [*crowd[:-1], waits]
        yield (
            f"all at once, before step {moment + 1}",
            [replace(one, abort_ns=moment * STEP_NS) for one in crowd],
        )
    grow = [ask(name, e.block, e.most - e.block - 1, e) for name in "ABC"]
    for moment in range(2, 24, 3):
        gone = replace(grow[-1], abort_ns=moment * STEP_NS, abort_in_flight=moment % 2 == 0)
        yield f"the newest while all grow, step {moment + 1}", [*grow[:-1], gone]
    for in_flight in (False, True):
        last = replace(ask("A", 2, 3, e), abort_ns=2 * STEP_NS, abort_in_flight=in_flight)
        yield f"in its last step{' while the pass runs' if in_flight else ''}", [last, ask("B", 2, 5, e)]


def _prefix(e: _Edges) -> _Cases:
    text = prompt_of(0, e.most, e.most)
    two, odd = 2 * e.block, 2 * e.block + 1
    for length in (two, odd, e.block):
        same = [ask(name, length, 3, e, tokens=text) for name in "ABC"]
        yield f"three prompts of {length}, the same, at once", same
        yield (
            f"three prompts of {length}, the same, one after the other",
            [ask(name, length, 2, e, tokens=text, at=place * 60) for place, name in enumerate("ABC")],
        )
    other = (9, *text[1:])
    yield (
        "the same but for the first token",
        [ask("A", odd, 2, e, tokens=text), ask("B", odd, 2, e, tokens=other, at=60)],
    )
    repeats = (7,) * e.most
    yield (
        "one token over and over",
        [ask("A", two, 2, e, tokens=repeats), ask("B", odd, 2, e, tokens=repeats, at=60)],
    )
    yield (
        "shared while all grow",
        [ask(name, odd, e.most // 2, e, tokens=text, at=place) for place, name in enumerate("ABCD")],
    )
    split = (*text[: e.block], *prompt_of(77, e.most))
    yield (
        "the same for one block",
        [
            ask("A", two, 4, e, tokens=text),
            ask("B", two, 4, e, tokens=split, at=3),
            ask("C", odd, 2, e, tokens=text, at=60),
        ],
    )


def _drafts(e: _Edges) -> _Cases:
    for accept in range(4):
        yield (
            f"{accept} drafts hold",
            [replace(ask(name, e.block, 6, e), accept=accept) for name in "ABC"],
        )
