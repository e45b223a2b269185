"""All rules, in the order of the catalogue."""

import re
from typing import Final

from batchspec.spec.errors import SpecError
from batchspec.spec.rule import Rule
from batchspec.spec.rules import (
    admission,
    balance,
    batch,
    blocks,
    fairness,
    lifecycle,
    liveness,
    memory,
    phases,
    plan,
    preempted,
    preemption,
    promises,
    reported,
    slots,
    time,
    tokens,
    waiting,
)

_FAMILIES: Final = (
    lifecycle,
    time,
    batch,
    phases,
    slots,
    tokens,
    memory,
    balance,
    blocks,
    admission,
    waiting,
    preemption,
    preempted,
    fairness,
    promises,
    liveness,
    reported,
    plan,
)

RULES: Final[dict[str, type[Rule]]] = {rule.id: rule for family in _FAMILIES for rule in family.RULES}
"""Rule classes by id."""
_ID: Final = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")


def register_rule(kind: type[Rule]) -> None:
    """Add a rule of your own to the catalogue: it is judged and reported like the others.

    Raises `SpecError` where it lacks its id, sentence or source, or another rule has that id.
    """
    for name in ("id", "sentence", "source"):
        if not isinstance(getattr(kind, name, None), str):
            raise SpecError(f"the rule {kind.__name__} lacks its {name}; set it in the class")
    if not _ID.fullmatch(kind.id):
        raise SpecError(f"the rule id {kind.id[:60]!r} must read family/name, in small letters")
    if RULES.get(kind.id, kind) is not kind:
        raise SpecError(f"the rule {kind.id} exists already; choose another id")
    RULES[kind.id] = kind
