"""The bounds of fairness that are proved: the virtual token counter's, and that of deficit round robin."""

from batchspec.spec.counters import token_counter
from batchspec.spec.deficits import deficits
from batchspec.spec.lemma import Lemma


def lemmas(parties: int) -> list[Lemma]:
    """Both bounds: of so many tenants (others of them may never come), and of two up to so many flows."""
    return [token_counter(parties), *(deficits(flows) for flows in range(2, parties + 1))]
