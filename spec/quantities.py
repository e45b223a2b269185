"""Quantities: what a metric is made of, as pure functions over plain values.

A percentile is the nearest rank: the smallest value that at least that share of all values do not exceed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Distribution:
    """Many values in short: how many, their mean, and the nearest ranks p50, p95, p99 and the largest."""

    count: int
    mean: float
    p50: int
    p95: int
    p99: int
    largest: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a pass of a model costs. The defaults are those of an 8-billion-parameter model in 16 bits
    with 32 layers of 8 KV heads and 32 query heads of 128."""

    parameters: int = 8_000_000_000
    bytes_per_parameter: float = 2.0
    kv_bytes_per_position: int = 131_072
    attention_flops_per_pair: int = 524_288
    """FLOPs of attention for one query position over one resident position, all layers."""

    def work(self, tokens: int, kv_positions: int, pairs: int) -> tuple[float, float]:
        """FLOPs and bytes of one pass: each token through every weight, the weights read once, each of
        `kv_positions` resident positions read once, `pairs` of query and key."""
        flops = 2.0 * self.parameters * tokens + self.attention_flops_per_pair * pairs
        moved = self.parameters * self.bytes_per_parameter + self.kv_bytes_per_position * kv_positions
        return flops, moved


def percentile(values: Sequence[int], share: float) -> int:
    """The nearest rank: the smallest value not exceeded by `share` of all. `values` must be sorted."""
    return values[max(0, ceil(share * len(values)) - 1)]


def distribution(values: Iterable[int]) -> Distribution | None:
    """The distribution of whole numbers; None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        count=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=percentile(ordered, 0.50),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        largest=ordered[-1],
    )


def padding_waste(tokens: Sequence[int]) -> float:
    """Share of a padded batch that is padding, for one pass with these tokens a member."""
    padded = len(tokens) * max(tokens, default=0)
    return 1 - sum(tokens) / padded if padded else 0.0


def arithmetic_intensity(tokens: int, kv_positions: int, model: ModelShape | None = None) -> float:
    """FLOPs per byte of one pass, counted from the model: a decode at batch 1 has about 1.

    `tokens` run through every weight (2 FLOPs each; the weights are read once), and attention reads
    `kv_positions` resident positions, one query position a member being the case of a decode.
    """
    flops, moved = (model or ModelShape()).work(tokens, kv_positions, kv_positions)
    return flops / moved


def jain_index(service: Iterable[float]) -> float | None:
    """Jain's fairness index of what each tenant was served: 1 is equal, 1/n is all for one."""
    values = list(service)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None
