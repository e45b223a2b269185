"""Attention over paged blocks on CUDA: one Triton kernel for decodes and prefill chunks alike.

A work item is up to a tile of consecutive queries of one sequence and one key head. It walks the
sequence's block table, so nothing is gathered or padded, and keeps a running softmax (as in
FlashAttention). The query heads that share the key head are rows of the same tile: keys and values
are read once for all of them.
"""

from collections.abc import Callable

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

from batchspec.engine.kv_cache import KVCache
from batchspec.engine.paging import Work


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _paged_attention(  # type: ignore[no-untyped-def]
    out,
    queries,
    cache,
    tables,
    rows,
    counts,
    starts,
    owners,
    scale,
    query_stride,
    head_stride,
    out_stride,
    table_stride,
    num_blocks,
    KV_HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    item, head = tl.program_id(0), tl.program_id(1)
    row, count = tl.load(rows + item), tl.load(counts + item)
    start, owner = tl.load(starts + item), tl.load(owners + item)
    m = tl.arange(0, TILE_M)
    d = tl.arange(0, WIDTH)
    query, group = m // SHARED, m % SHARED
    real = query < count
    at = queries + (row + query)[:, None] * query_stride + (head * SHARED + group)[:, None] * head_stride
    asked = tl.load(at + d[None, :], mask=real[:, None], other=0.0)
    best = tl.full([TILE_M], float("-inf"), tl.float32)
    mass = tl.zeros([TILE_M], tl.float32)
    mixed = tl.zeros([TILE_M, WIDTH], tl.float32)
    end = tl.where(count > 0, start + count, 0)
    for first in range(0, end, TILE_N):
        n = first + tl.arange(0, TILE_N)
        held = n < end
        block = tl.load(tables + owner * table_stride + n // SIZE, mask=held, other=0).to(tl.int64)
        place = (block * SIZE + n % SIZE) * WIDTH
        base = num_blocks.to(tl.int64) * SIZE * WIDTH
        keys = tl.load(cache + head * base + place[:, None] + d[None, :], mask=held[:, None], other=0.0)
        scores = tl.dot(asked, tl.trans(keys), input_precision="ieee") * scale
        seen = held[None, :] & (n[None, :] <= (start + query)[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        # Rows without a query see nothing: keep their arithmetic finite.
        higher = tl.maximum(best, tl.max(scores, 1))
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - safe[:, None])
        shrink = tl.exp(tl.where(best == float("-inf"), float("-inf"), best - safe))
        mass = mass * shrink + tl.sum(weights, 1)
        values = tl.load(
            cache + (KV_HEADS + head) * base + place[:, None] + d[None, :], mask=held[:, None], other=0.0
        )
        mixed = mixed * shrink[:, None]
        mixed += tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        best = higher
    mixed = mixed / tl.where(mass == 0.0, 1.0, mass)[:, None]
    to = out + (row + query)[:, None] * out_stride + ((head * SHARED + group) * WIDTH)[:, None]
    tl.store(to + d[None, :], mixed.to(out.dtype.element_ty), mask=real[:, None])


class PagedAttention:
    """Attention of a packed batch by the kernel above."""

    def __init__(self, cache: KVCache, kv_heads: int, shared: int, width: int) -> None:
        """`shared` query heads read one key head; `width` is a power of two of at least 16."""
        self._cache, self._kv_heads, self._shared, self._width = cache, kv_heads, shared, width

    def over(self, work: Work, places: Tensor) -> Callable[[int, Tensor, Tensor], Tensor]:
        """The attention of one pass: (layer, queries [T, H, D], kv [T, 2, Hkv, D]) -> [T, H * D]."""

        def attend(layer: int, queries: Tensor, kv: Tensor) -> Tensor:
            self._cache.write(layer, places, kv[: len(places)])
            out = torch.zeros(queries.shape, dtype=queries.dtype, device=queries.device)
            _paged_attention[(len(work.rows), self._kv_heads)](
                out,
                queries,
                self._cache.flat(layer),
                work.tables,
                work.rows,
                work.counts,
                work.starts,
                work.owners,
                self._width**-0.5,
                queries.stride(0),
                queries.stride(1),
                out.stride(0),
                work.tables.stride(0),
                self._cache.held_blocks,
                KV_HEADS=self._kv_heads,
                SHARED=self._shared,
                WIDTH=self._width,
                SIZE=self._cache.block_size,
                TILE_M=work.tile,
                TILE_N=32,
            )
            return out.flatten(1)

        return attend
