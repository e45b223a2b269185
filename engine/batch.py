"""The packed batch: one step's tokens end to end, and who owns which part of the axis.

Members with one token come first, sorted by the length of their context and cut into groups of
similar length; longer chunks follow. A group is a slice of the axis, so attention needs no gather
of queries, and within a group only the gap to its longest member is padding.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from batchspec.engine.sequence import Plan, Sequence

GROUP_COST = 160_000
"""Cached numbers (float32) whose reading costs as much as one more group: measured on CPUs."""


@dataclass(frozen=True, slots=True)
class Group:
    """Decodes of similar context: rows [first, last), their blocks, their lengths."""

    first: int
    last: int
    table: Tensor  # [B * blocks] block ids, sequence by sequence
    hidden: Tensor  # [Hkv * B, 1, L] 0 where a key may be seen, -inf elsewhere


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive positions of one sequence: rows [first, last); `start` positions were there before."""

    first: int
    last: int
    start: int
    table: Tensor | None  # block ids of the context; None where the chunk is its own context
    hidden: Tensor | None  # [t, L] 0 or -inf


@dataclass(slots=True)
class Batch:
    """Everything a forward pass needs, on the model's device."""

    tokens: Tensor  # [T]
    positions: Tensor  # [T]
    places: Tensor  # [T without padding] flat positions in the KV cache
    rows: Tensor  # [R] rows whose logits are wanted
    emitters: list[Sequence]  # their sequences, in the order of `rows`
    starts: np.ndarray  # [members] first position, in packed order
    counts: np.ndarray  # [members] positions
    tables: np.ndarray  # [members, blocks] block ids
    groups: list[Group] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    pairs: int = 0  # pairs of a query and a key that it may see
    needed: int = 0  # KV positions that attention has to fetch
    gathered: int = 0  # KV positions that it fetches, padding of the groups included


class Packer:
    """Builds the batch of each step; keeps block tables by slot so that a step costs little Python."""

    def __init__(
        self,
        slots: int,
        block_size: int,
        kv_heads: int,
        width: int,
        device: torch.device,
        dtype: torch.dtype,
        grouped: bool = True,
    ) -> None:
        """`slots` is the most sequences that run at once; a paged kernel needs no groups."""
        self._grouped = grouped
        self._size = block_size
        self._kv_heads = kv_heads
        self._device, self._dtype = device, dtype
        self._spare = max(1, GROUP_COST // (2 * kv_heads * width * block_size))
        self._tables = np.zeros((slots, 16), dtype=np.int64)

    def pack(self, plan: Plan) -> Batch:
        """The batch of `plan`. Every member's blocks must cover its positions."""
        for sequence in plan.grants:
            if sequence.slot >= 0:  # else it was granted blocks and then made room for another
                self._note(sequence)
        count = len(plan.sequences)
        starts = np.fromiter(plan.starts, np.int64, count)
        counts = np.fromiter(plan.counts, np.int64, count)
        single = np.flatnonzero(counts == 1)
        # Longest first; a stable sort keeps the batch the same from run to run.
        single = single[np.argsort(-starts[single], kind="stable")]
        order = np.concatenate([single, np.flatnonzero(counts != 1)])
        starts, counts = starts[order], counts[order]
        sequences = [plan.sequences[index] for index in order.tolist()]
        slots = np.fromiter((sequence.slot for sequence in sequences), np.int64, count)
        ends = np.cumsum(counts)
        positions = _ranges(starts, counts, ends)
        owners = np.repeat(slots, counts)
        places = self._tables[owners, positions // self._size] * self._size + positions % self._size
        emits = [len(sequence.tokens) for sequence in sequences] == starts + counts
        batch = Batch(
            tokens=self._send(_tokens(sequences, starts, counts, len(single), plan.padding)),
            positions=self._send(np.concatenate([positions, np.zeros(plan.padding, np.int64)])),
            places=self._send(places),
            rows=self._send(ends[emits] - 1),
            emitters=[sequence for sequence, emit in zip(sequences, emits.tolist(), strict=True) if emit],
            starts=starts,
            counts=counts,
            tables=self._tables[slots, : -(-int((starts + counts).max()) // self._size)],
        )
        if not self._grouped:
            ends_of = starts + counts
            batch.needed = batch.gathered = int(ends_of.sum())
            batch.pairs = int((counts * starts + counts * (counts + 1) // 2).sum())
            return batch
        self._group(batch, slots[: len(single)], starts[: len(single)])
        for index in range(len(single), count):
            self._chunk(batch, int(slots[index]), int(starts[index]), int(ends[index]), int(counts[index]))
        return batch

    def _note(self, sequence: Sequence) -> None:
        held = len(sequence.blocks)
        if held > self._tables.shape[1]:
            wider = np.zeros((len(self._tables), max(held, 2 * self._tables.shape[1])), dtype=np.int64)
            wider[:, : self._tables.shape[1]] = self._tables
            self._tables = wider
        self._tables[sequence.slot, :held] = sequence.blocks

    def _group(self, batch: Batch, slots: np.ndarray, starts: np.ndarray) -> None:
        need = (starts // self._size + 1).tolist()
        first = wasted = 0
        for at, blocks in enumerate(need):
            wasted += need[first] - blocks
            if wasted > self._spare:
                batch.groups.append(self._cut(slots, starts, first, at, need[first]))
                batch.gathered += (at - first) * need[first] * self._size
                first, wasted = at, 0
        if need:
            batch.groups.append(self._cut(slots, starts, first, len(need), need[first]))
            batch.gathered += (len(need) - first) * need[first] * self._size
            batch.needed += int(starts.sum()) + len(need)
            batch.pairs += int(starts.sum()) + len(need)

    def _cut(self, slots: np.ndarray, starts: np.ndarray, first: int, last: int, blocks: int) -> Group:
        table = self._send(self._tables[slots[first:last], :blocks].reshape(-1))
        length = blocks * self._size
        unseen = torch.from_numpy(np.arange(length) > starts[first:last, None])
        hidden = torch.zeros(last - first, 1, length, dtype=self._dtype)
        hidden = hidden.masked_fill_(unseen.unsqueeze(1), -torch.inf).repeat(self._kv_heads, 1, 1)
        return Group(first, last, table, hidden.to(self._device))

    def _chunk(self, batch: Batch, slot: int, start: int, end: int, count: int) -> None:
        table = hidden = None
        length = start + count
        if start:
            blocks = -(-length // self._size)
            table = self._send(self._tables[slot, :blocks])
            seen = np.arange(blocks * self._size) > np.arange(start, length)[:, None]
            hidden = torch.zeros(seen.shape, dtype=self._dtype)
            hidden = hidden.masked_fill_(torch.from_numpy(seen), -torch.inf).to(self._device)
            batch.gathered += blocks * self._size
            batch.needed += length
        batch.pairs += count * start + count * (count + 1) // 2
        batch.chunks.append(Chunk(end - count, end, start, table, hidden))

    def _send(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device, non_blocking=True)


def _ranges(starts: np.ndarray, counts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The numbers start .. start + count of every member, end to end."""
    positions: np.ndarray = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
    return positions


def _tokens(
    sequences: list[Sequence], starts: np.ndarray, counts: np.ndarray, singles: int, padding: int
) -> np.ndarray:
    flat = [
        sequence.tokens[start] for sequence, start in zip(sequences, starts[:singles].tolist(), strict=False)
    ]
    for sequence, start, count in zip(
        sequences[singles:], starts[singles:].tolist(), counts[singles:].tolist(), strict=True
    ):
        flat += sequence.tokens[start : start + count]
    return np.array(flat + [0] * padding, dtype=np.int64)
