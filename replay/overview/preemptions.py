"""Preemptions: who made room for whom, and how often."""

from collections import Counter
from typing import Final

from batchspec.spec.events import Event, RequestId

MOST_PAIRS: Final = 20_000
"""Pairs that are told apart; of longer traces the later ones are only counted."""


class Preemptions:
    """Counts preemptions by cause and victim, and by their reason."""

    def __init__(self) -> None:
        """Nobody was interrupted."""
        self.total = 0
        self.reasons: Counter[str] = Counter()
        self.pairs: Counter[tuple[RequestId | None, RequestId]] = Counter()
        """Times by (cause, victim); the cause is None where the trace does not say it."""
        self.left_out = 0
        self.tenants: Counter[tuple[str, str]] = Counter()
        """Times by the tenants of cause and victim, where both are known."""

    def add(self, event: Event, cause: str | None = None, victim: str | None = None) -> None:
        """One `preempt` row, with the tenants of its cause and of its victim where they are known."""
        if cause is not None and victim is not None:
            self.tenants[cause, victim] += 1
        self.total += 1
        self.reasons[event.reason or "recompute"] += 1
        pair = (event.cause, event.subject)
        if pair in self.pairs or len(self.pairs) < MOST_PAIRS:
            self.pairs[pair] += 1
        else:
            self.left_out += 1

    def busiest(self, most: int) -> tuple[list[RequestId], list[RequestId]]:
        """Up to `most` requests that were preempted most often, and as many that they made room for most."""
        victims = [name for name, _ in self.victims().most_common(most)]
        chosen = set(victims)
        counted: Counter[RequestId] = Counter()
        for (cause, victim), times in self.pairs.items():
            if cause is not None and victim in chosen:
                counted[cause] += times
        return [name for name, _ in counted.most_common(most)], victims

    def victims(self) -> "Counter[RequestId]":
        """Times by victim."""
        counted: Counter[RequestId] = Counter()
        for (_, victim), times in self.pairs.items():
            counted[victim] += times
        return counted
