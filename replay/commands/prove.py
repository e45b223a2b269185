"""`batchspec prove`: the invariants of the spec for every size, by induction."""

from enum import StrEnum
from importlib.util import find_spec
from itertools import chain
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.json import to_json
from batchspec.replay.report.proofs import proofs_object, proofs_page
from batchspec.spec.errors import SpecError
from batchspec.spec.lemmas import lemmas


class Format(StrEnum):
    """What to print."""

    text = "text"
    json = "json"


def prove(
    requests: Annotated[
        int, typer.Option(metavar="N", help="For up to so many requests; every other size is open.")
    ] = 16,
    format: Annotated[Format, typer.Option(metavar="text|json", help="What to print.")] = Format.text,
) -> None:
    """Prove the safety rules of memory, slots, batch and tokens, and two bounds of fairness, for every size.

    Each invariant holds at the start, and each action keeps it: so it holds for ever. A step that leads out
    of one is printed as a scenario, with exit status 1. The bounds are those of the virtual token counter and
    of deficit round robin, for up to four tenants. Needs the extra `prove` (the solver z3).

    Example:  batchspec prove --requests 8
    """
    if find_spec("z3") is None:
        raise SpecError("prove needs the solver z3: install batchspec[prove]")
    # Only here: the solver takes a while to load, and nothing else needs it.
    from batchspec.spec.prove import PARTIES, prove_lemma
    from batchspec.spec.prove import prove as proved

    with bar("proving") as shown:
        proofs = list(counted(proved(requests), shown))
        bounds = [(lemma, list(prove_lemma(lemma))) for lemma in lemmas(PARTIES)]
    if format is Format.json:
        console.emit(to_json(proofs_object(proofs, requests, bounds)))
    else:
        console.show(proofs_page(proofs, requests, bounds))
    if not all(proof.kept for proof in chain(proofs, *(parts for _, parts in bounds))):
        raise typer.Exit(console.VIOLATES)
