"""What the suite itself may find, beside the rules, and which rules a scheduler must or should keep.

MUST are the rules of safety and of what each request is owed: a broken one makes a wrong answer, a leak,
a crash or a request without an end. SHOULD are the rules of degree: those with a bound that the profile's
patience sets (kind *bounded*), and those about shares and pace (families *fairness* and *liveness*). A
bounded rule of the family *lifecycle* is a MUST: an abort that is never heard is no matter of degree.
A scheduler that stops for good is caught by `conform/stall`, a MUST, whatever the patience.
"""

from collections import ChainMap
from collections.abc import Mapping
from typing import Final, Literal

from batchspec.spec.catalogue import RULES
from batchspec.spec.rule import Rule

Obligation = Literal["MUST", "SHOULD"]

_OF_DEGREE: Final = ("fairness", "liveness")


class SuiteRule(Rule):
    """Base of what the suite finds by driving a scheduler; no trace can show it."""

    level = "L1"
    kind = "always"
    source = "the protocol of a scheduler under test (batchspec.replay.harness)"


class Crash(SuiteRule):
    """The scheduler raised an exception."""

    id = "conform/crash"
    sentence = "The scheduler under test raises no exception, whatever the profile permits to be asked of it."


class Stall(SuiteRule):
    """The scheduler stopped for good."""

    id = "conform/stall"
    sentence = "While a request is live something happens: a token, an admission, an end."


class Hang(SuiteRule):
    """A call did not come back."""

    id = "conform/hang"
    sentence = "Each call of the scheduler under test returns within its time limit."


class Protocol(SuiteRule):
    """An answer was none."""

    id = "conform/protocol"
    sentence = "Each answer of the scheduler under test is one that the protocol knows."


class Outputs(SuiteRule):
    """A request ended too early or too late."""

    id = "conform/outputs"
    sentence = "A request ends with its stop token or with max_tokens outputs, whichever comes first."


class Served(SuiteRule):
    """A request that the profile permits was not served."""

    id = "conform/served"
    sentence = "A request that could run to its end alone is neither refused nor ended with an error."


class Refusal(SuiteRule):
    """Input outside the contract was neither served nor refused."""

    id = "conform/refusal"
    sentence = "A request that can never be served is refused or ended, and nobody else is the worse for it."


class Repeatable(SuiteRule):
    """The same calls gave other decisions."""

    id = "conform/repeatable"
    sentence = "The same calls lead to the same decisions."


SUITE_RULES: Final[dict[str, type[Rule]]] = {
    rule.id: rule for rule in (Crash, Stall, Hang, Protocol, Outputs, Served, Refusal, Repeatable)
}
"""What the suite finds by driving a scheduler, by id."""

# A view, so that rules of the user's own are in it once they are registered. Its order: the suite's first.
ALL_RULES: Final[Mapping[str, type[Rule]]] = ChainMap(RULES, SUITE_RULES)
"""Everything that a finding of the suite may name."""


def obligation(rule_id: str) -> Obligation:
    """Whether a scheduler must or should keep a rule."""
    family, _, _ = rule_id.partition("/")
    if rule_id == Repeatable.id or family in _OF_DEGREE:
        return "SHOULD"
    return "SHOULD" if ALL_RULES[rule_id].kind == "bounded" and family != "lifecycle" else "MUST"
