"""Attention over paged blocks on the CPU, in a grouped form that keeps the batch's benefit.

One query a sequence: the queries of a group are one batched product with the keys that one indexed
read fetched, not a loop over sequences. The query heads that share a key head are the rows of that
product (grouped-query attention), so keys are read once for all of them.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from batchspec.engine.batch import Batch, Chunk, Group
from batchspec.engine.kv_cache import KVCache


class GroupedAttention:
    """Attention of a packed batch with plain tensor operators; runs on any device."""

    def __init__(self, cache: KVCache) -> None:
        """Read and write the given cache."""
        self._cache = cache

    def over(self, batch: Batch) -> Callable[[int, Tensor, Tensor], Tensor]:
        """The attention of one pass: (layer, queries [T, H, D], kv [T, 2, Hkv, D]) -> [T, H * D]."""

        def attend(layer: int, queries: Tensor, kv: Tensor) -> Tensor:
            real = len(batch.places)
            self._cache.write(layer, batch.places, kv[:real])
            out = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
            for group in batch.groups:
                self._decode(layer, group, queries, out)
            for chunk in batch.chunks:
                self._prefill(layer, chunk, queries, kv, out)
            if real < len(out):
                out[real:] = 0
            return out.flatten(1)

        return attend

    def _decode(self, layer: int, group: Group, queries: Tensor, out: Tensor) -> None:
        asked = queries[group.first : group.last]
        count, heads, width = asked.shape
        keys, values = self._cache.gather(layer, group.table, count)
        kv_heads = len(keys) // count
        shared = heads // kv_heads
        rows = asked.view(count, kv_heads, shared, width).transpose(0, 1).reshape(-1, shared, width)
        scores = torch.baddbmm(group.hidden, rows, keys.transpose(1, 2), alpha=width**-0.5)
        mixed = torch.bmm(scores.softmax(-1), values)
        out[group.first : group.last].view(count, kv_heads, shared, width).copy_(
            mixed.view(kv_heads, count, shared, width).transpose(0, 1)
        )

    def _prefill(self, layer: int, chunk: Chunk, queries: Tensor, kv: Tensor, out: Tensor) -> None:
        rows = slice(chunk.first, chunk.last)
        asked = queries[rows].transpose(0, 1).unsqueeze(0)
        if chunk.table is None:
            keys, values = kv[rows].transpose(0, 2).unbind(1)
            mixed = scaled_dot_product_attention(
                asked, keys.unsqueeze(0), values.unsqueeze(0), is_causal=True, enable_gqa=True
            )
        else:
            keys, values = self._cache.gather(layer, chunk.table, 1)
            mixed = scaled_dot_product_attention(
                asked, keys.unsqueeze(0), values.unsqueeze(0), attn_mask=chunk.hidden, enable_gqa=True
            )
        out[rows] = mixed[0].transpose(0, 1)
