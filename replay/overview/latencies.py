"""Latencies: of each request that ended, as quantiles."""

from array import array
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from batchspec.spec.served import Served

NAMES: Final = ("queueing_ns", "ttft_ns", "tpot_ns", "end_to_end_ns")
SHARES: Final = tuple(sorted({*(number / 100 for number in range(0, 100)), 0.995, 0.999, 1.0}))
"""The quantiles that are drawn; a tail needs more than its last per cent."""


def _arrays() -> dict[str, "array[float]"]:
    return {name: array("d") for name in NAMES}


@dataclass(slots=True)
class Latencies:
    """Collects what each request waited. Memory: 32 bytes a request."""

    values: dict[str, "array[float]"] = field(default_factory=_arrays)

    def add(self, served: Served) -> None:
        """One request that ended; what it did not live to see is left out."""
        if served.end is None:
            return
        for name in NAMES:
            value = getattr(served, name)
            if value is not None and (served.end == "finish" or name in ("queueing_ns", "ttft_ns")):
                self.values[name].append(value)

    def quantiles(self, name: str) -> list[float]:
        """The nearest rank at each of `SHARES`; empty where no request has this latency."""
        ordered = sorted(self.values[name])
        return [ordered[max(0, ceil(share * len(ordered)) - 1)] for share in SHARES] if ordered else []
