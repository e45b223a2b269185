"""Proofs as a page, and a step that leads out of an invariant as a scenario."""

from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from batchspec.replay.report.json import SCHEMA_VERSION
from batchspec.replay.report.page import Page, count
from batchspec.spec.events import Event
from batchspec.spec.induction import OUT, PREEMPTED, REASONS, RUNNING, WAITING
from batchspec.spec.lemma import Lemma
from batchspec.spec.naming import name_of
from batchspec.traces.header import Header
from batchspec.traces.scenario import format_scenario

if TYPE_CHECKING:
    from batchspec.spec.prove import Escape, Proof

_STATES: Final = {WAITING: "waiting", RUNNING: "running", PREEMPTED: "preempted"}


Bounds = Sequence[tuple[Lemma, Sequence["Proof"]]]


def proofs_page(proofs: Iterable["Proof"], requests: int, bounds: Bounds = ()) -> Page:
    """A line a claim; a claim that fails brings the first step that leads out of it. Then the lemmas."""
    page = Page()
    by_claim: dict[str, list[Proof]] = {}
    for proof in proofs:
        by_claim.setdefault(proof.claim, []).append(proof)
    failed = [name for name, parts in by_claim.items() if not all(part.kept for part in parts)]
    kept_all = not failed and all(part.kept for _, parts in bounds for part in parts)
    verdict = ("proved", "green") if kept_all else ("not proved", "red")
    page.add(verdict, f": up to {count(requests, 'request')}, every size, any number of steps")
    page.gap()
    width = max(map(len, by_claim), default=0)
    for name, parts in by_claim.items():
        kept = sum(bool(part.kept) for part in parts)
        word = "inductive " if name not in failed else "FAILS     "
        page.add(f"{word}  {name:<{width}}  {kept} of {len(parts)} steps")
    for name in failed:
        part = next(part for part in by_claim[name] if not part.kept)
        page.gap()
        if part.escape is None:
            page.add(f"{name} under {part.move}: the solver found no answer in time")
            continue
        page.add(f"{name} holds before {part.move} and not after it:")
        page.lines += [[(line, "")] for line in scenario_of(part.escape).splitlines()]
    for lemma, steps in bounds:
        page.gap()
        _bound(page, lemma, steps)
    page.gap()
    page.add("not proved here:")
    for name, reason in REASONS.items():
        page.wrap(reason, first=f"  {name:<27} ", hang=30)
    return page


def _bound(page: Page, lemma: Lemma, parts: Sequence["Proof"]) -> None:
    kept = sum(bool(part.kept) for part in parts)
    word = "lemma     " if kept == len(parts) else "FAILS     "
    page.add(f"{word}  {lemma.id}, {lemma.parties}, every amount  {kept} of {len(parts)} steps")
    page.wrap(lemma.sentence, first="    ", hang=4)
    for part in parts:
        if not part.kept:
            state = ", ".join(f"{name} {value}" for name, value in (part.values or {}).items())
            page.wrap(
                f"{part.claim} holds before {part.move} and not after it: {state}", first="    ", hang=4
            )
            return


def proofs_object(proofs: Iterable["Proof"], requests: int, bounds: Bounds = ()) -> dict[str, Any]:
    """The same as plain data; `kept` is null where the solver found no answer in time."""
    given = list(proofs)
    kept = all(proof.kept for proof in chain(given, *(parts for _, parts in bounds)))
    return {
        "schema": SCHEMA_VERSION,
        "version": version("batchspec"),
        "verdict": "proved" if kept else "not proved",
        "requests": requests,
        "proofs": [
            {
                "claim": proof.claim,
                "step": proof.move,
                "kept": proof.kept,
                "scenario": None if proof.escape is None else scenario_of(proof.escape),
            }
            for proof in given
        ],
        "lemmas": [
            {
                "id": lemma.id,
                "parties": lemma.parties,
                "sentence": lemma.sentence,
                "proofs": [
                    {
                        "claim": part.claim,
                        "step": part.move,
                        "kept": part.kept,
                        "values": None if part.values is None else dict(part.values),
                    }
                    for part in parts
                ],
            }
            for lemma, parts in bounds
        ],
        "reasons": dict(REASONS),
    }


def scenario_of(escape: "Escape") -> str:
    """The state before the step as `live` rows, what its step has done so far, and the step itself."""
    sizes = escape.sizes
    limits = {
        "max_seqs": sizes.seats,
        "token_budget": sizes.budget,
        "kv_blocks": sizes.blocks,
        "block_size": sizes.size,
        "host_blocks": sizes.host,
    }
    header = Header(config={"limits": limits}, begins="running", complete=False)
    return format_scenario(list(_rows(escape)), header)


def _rows(escape: "Escape") -> Iterator[Event]:
    sizes, books = escape.sizes, escape.books
    for at, where in enumerate(books.where):
        if where in _STATES:
            yield Event(
                1,
                "live",
                name_of(at),
                prompt_tokens=sizes.prompt[at],
                max_tokens=sizes.most[at],
                slot=books.slot[at] if where == RUNNING else None,
                start=books.computed[at] - books.tokens[at],
                blocks=books.held[at],
                output_tokens=books.outputs[at],
                reason=_STATES[where],
            )
    for at, tokens in enumerate(books.tokens):
        if tokens and books.where[at] == RUNNING:
            start = books.computed[at] - tokens
            yield Event(1, "schedule", name_of(at), start=start, tokens=tokens, blocks=books.held[at])
    yield from _step(escape)


def _step(escape: "Escape") -> Iterator[Event]:
    """The rows of the action; a grant of a block shows in the part of the step that it is granted for."""
    books, given, name = escape.books, escape.given, name_of(0)
    computed, held, outputs = books.computed[0], books.held[0], books.outputs[0]
    move = escape.move
    if move == "close":
        yield Event(1, "step")
    elif move == "arrive" or books.where[0] == OUT:
        sizes = escape.sizes
        yield Event(1, "arrive", name, prompt_tokens=sizes.prompt[0], max_tokens=sizes.most[0])
    elif move in ("join", "return"):
        kind = "admit" if books.where[0] == WAITING else "resume"
        cached = computed if move == "return" else 0
        yield Event(1, kind, name, slot=given["slot"], cached=cached, blocks=given.get("blocks", 0))
    elif move == "grant":
        yield Event(1, "schedule", name, start=computed, tokens=1, blocks=held + 1)
    elif move == "run":
        yield Event(1, "schedule", name, start=computed, tokens=given["tokens"], blocks=held)
    elif move in ("preempt", "swap"):
        yield Event(1, "preempt", name, blocks=0, reason="swap" if move == "swap" else "recompute")
    elif move == "finish":
        yield Event(1, "finish", name, blocks=0, output_tokens=outputs + 1)
    else:
        yield Event(1, move, name)
