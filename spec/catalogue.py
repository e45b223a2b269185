"""All rules, in the order of the catalogue."""

from typing import Final

from batchspec.spec.rule import Rule
from batchspec.spec.rules import (
    admission,
    batch,
    blocks,
    fairness,
    lifecycle,
    liveness,
    memory,
    plan,
    preemption,
    reported,
    slots,
    time,
    tokens,
)

_FAMILIES: Final = (
    lifecycle,
    time,
    batch,
    slots,
    tokens,
    memory,
    blocks,
    admission,
    preemption,
    fairness,
    liveness,
    reported,
    plan,
)

RULES: Final[dict[str, type[Rule]]] = {rule.id: rule for family in _FAMILIES for rule in family.RULES}
"""Rule classes by id."""
