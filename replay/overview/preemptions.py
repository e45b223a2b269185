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

    def add(self, event: Event) -> None:
        """One `preempt` row."""
        self.total += 1
        self.reasons[event.reason or "recompute"] += 1
        pair = (event.cause, event.subject)
        if pair in self.pairs or len(self.pairs) < MOST_PAIRS:
            self.pairs[pair] += 1
        else:
            self.left_out += 1

    def victims(self) -> "Counter[RequestId]":
        """Times by victim."""
        return self._by(1)

    def causes(self) -> "Counter[RequestId]":
        """Times by cause, those that the trace does not name left out."""
        return self._by(0)

    def _by(self, place: int) -> "Counter[RequestId]":
        counted: Counter[RequestId] = Counter()
        for pair, times in self.pairs.items():
            name = pair[place]
            if name is not None:
                counted[name] += times
        return counted
