"""The sampler: from logits to tokens, greedy or drawn from a request's own seeded stream.

A drawn token depends on the request's seed and on how many tokens it has emitted, never on the
batch: a request that is preempted or joins another batch draws the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from batchspec.engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a request's tokens are chosen. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 keep all."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no distribution has. Raises `EngineError`."""
        if self.temperature < 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise EngineError("sampling needs temperature >= 0, top_k >= 0 and 0 < top_p <= 1")


GREEDY = Sampling()


def sample(logits: Tensor, choices: Sequence[tuple[Sampling, int]]) -> list[int]:
    """One token for each row of `logits` [R, vocab]; `choices` gives its sampling and outputs so far."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for row, (sampling, emitted) in enumerate(choices):
        if sampling.temperature > 0:
            tokens[row] = _draw(logits[row], sampling, emitted)
    return tokens


def margins(logits: Tensor) -> list[float]:
    """The distance between the two best logits of each row: how far a greedy choice is from a tie."""
    best = logits.float().topk(min(2, logits.shape[-1]), dim=-1).values
    gaps: list[float] = (best[:, 0] - best[:, -1]).tolist()
    return gaps


def _draw(logits: Tensor, sampling: Sampling, emitted: int) -> int:
    scaled = logits.double() / sampling.temperature
    if sampling.top_k and sampling.top_k < scaled.shape[-1]:
        least = scaled.topk(sampling.top_k).values[-1]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    ordered, order = scaled.softmax(-1).sort(descending=True, stable=True)
    mass = ordered.cumsum(-1).cpu().numpy()
    # Keep the smallest head whose mass reaches top_p, then invert its distribution at one number.
    kept = min(int(np.searchsorted(mass, sampling.top_p)) + 1, len(mass))
    number = np.random.default_rng((sampling.seed, emitted)).random() * mass[kept - 1]
    return int(order[min(int(np.searchsorted(mass, number, side="right")), kept - 1)])
