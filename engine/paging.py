"""Work items of the paged kernel: a packed batch cut into tiles of queries, as arrays for the device."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from batchspec.engine.batch import Batch

TILE_ROWS = 64
"""Rows (query, head of its group) of a prefill tile; decodes take the kernel's least, 16."""


@dataclass(frozen=True, slots=True)
class Work:
    """Items [W]: first packed row, queries, position of the first query, row of `tables`.

    `tables` [members, blocks] holds block ids. An item without queries (count 0) does nothing.
    """

    rows: Tensor
    counts: Tensor
    starts: Tensor
    owners: Tensor
    tables: Tensor
    tile: int


def cut(batch: Batch, shared: int, device: torch.device) -> Work:
    """The work items of `batch`, every member in turn. `shared` query heads read one key head."""
    longest = int(batch.counts.max())
    tile = 16 if longest * shared <= 16 else max(TILE_ROWS, _power(shared))
    queries = max(1, tile // shared)
    pieces = -(-batch.counts // queries)
    owners = np.repeat(np.arange(len(batch.counts)), pieces)
    offsets = (np.arange(len(owners)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * queries
    firsts = np.cumsum(batch.counts) - batch.counts

    def send(values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int32)).to(device, non_blocking=True)

    return Work(
        rows=send(firsts[owners] + offsets),
        counts=send(np.minimum(queries, batch.counts[owners] - offsets)),
        starts=send(batch.starts[owners] + offsets),
        owners=send(owners),
        tables=send(batch.tables),
        tile=tile,
    )


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
