"""All rules, in the order of the catalogue."""

from typing import Final

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
