"""Measurements of the device's work: what the glossary's words come to on this engine.

Requests' times come from the trace (`spec.metrics`); here is what only the engine knows: rows computed
and wasted, bytes and operations of each pass, busy time, and the ceiling that MFU is held against.
"""

import time
from dataclasses import dataclass

import torch

from batchspec.engine.config import ModelConfig
from batchspec.engine.engine import Step
from batchspec.engine.model import Model


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run made of its device. Times are seconds of real time, shares lie in 0…1."""

    steps: int
    output_tokens: int
    wall_s: float
    tokens_per_s: float
    busy: float
    """Share of the time in which a pass ran: says nothing of how well it ran."""
    mfu: float | None
    """Operations of the model a second / the measured matmul ceiling, while busy or not."""
    weight_reuse: float
    """Rows a weight read, padding included: each weight is read once a pass."""
    padding_waste: float
    """Rows computed for nothing / all rows."""
    kv_waste: float
    """Cached positions fetched for nothing / all fetched: the gap to the longest of a group."""
    arithmetic_intensity: float
    """Operations a byte moved (weights and KV), counted from the model."""
    scheduling: float
    """Share of the time spent on deciding and accounting."""


class Gauge:
    """Adds up the steps of a run; a few numbers, whatever the run's length."""

    def __init__(self, model: Model, ceiling: float | None = None) -> None:
        """`ceiling` is what `matmul_ceiling` measured, in operations a second; without it no MFU."""
        self._model, self._ceiling = model, ceiling
        self._start = time.perf_counter_ns()
        self._steps = self._passes = self._emitted = self._rows = self._padding = 0
        self._needed = self._gathered = self._flops = self._bytes = 0
        self._busy_ns = self._scheduling_ns = 0

    def add(self, step: Step) -> None:
        """Take in one step."""
        passed = step.passed
        self._steps += 1
        self._emitted += step.emitted
        self._busy_ns += step.running_ns
        self._scheduling_ns += step.deciding_ns + step.committing_ns
        if not passed.rows:
            return
        self._passes += 1
        self._rows += passed.rows
        self._padding += step.plan.padding
        self._needed += passed.kv_needed
        self._gathered += passed.kv_gathered
        config, width = self._model.config, self._model.dtype.itemsize
        self._flops += pass_flops(config, passed.rows, step.emitted, passed.pairs)
        fetched = max(passed.kv_gathered, step.plan.tokens) * config.kv_bytes_per_token * width // 4
        self._bytes += self._model.weight_bytes + fetched

    def usage(self) -> Usage:
        """What it comes to so far."""
        wall = max(1, time.perf_counter_ns() - self._start) / 1e9
        return Usage(
            steps=self._steps,
            output_tokens=self._emitted,
            wall_s=wall,
            tokens_per_s=self._emitted / wall,
            busy=self._busy_ns / 1e9 / wall,
            mfu=self._flops / wall / self._ceiling if self._ceiling else None,
            weight_reuse=self._rows / max(1, self._passes),
            padding_waste=self._padding / max(1, self._rows),
            kv_waste=1 - self._needed / self._gathered if self._gathered else 0.0,
            arithmetic_intensity=self._flops / max(1, self._bytes),
            scheduling=self._scheduling_ns / 1e9 / wall,
        )


def pass_flops(config: ModelConfig, rows: int, emitted: int, pairs: int) -> int:
    """Operations of one pass: two a weight and row, four a head feature and (query, key) pair.

    The head is multiplied with emitting rows only. `pairs` counts pairs of a query and a key.
    """
    head = config.vocab_size * config.hidden_size
    weights = 2 * ((config.matmul_parameters - head) * rows + head * emitted)
    return weights + 4 * config.num_layers * config.num_heads * config.head_dim * pairs


def matmul_ceiling(device: str = "cpu", dtype: torch.dtype = torch.float32, size: int = 1024) -> float:
    """Operations a second of a large square product: the best of five, measured now."""
    left = torch.ones(size, size, device=device, dtype=dtype)
    best = 0.0
    for _ in range(5):
        _settle(device)
        start = time.perf_counter()
        left @ left
        _settle(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def _settle(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
