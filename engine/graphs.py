"""CUDA graphs for decoding: the pass of a batch of single tokens, captured once a batch size.

A small batch's decode is bound by the launches of its many small kernels. A captured graph launches
them as one. Its inputs live in fixed buffers; a batch is padded up to the next captured size with
rows that own no query and write to the cache's scratch block.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from batchspec.engine.batch import Batch
from batchspec.engine.model import Model
from batchspec.engine.paging import Work

Over = Callable[[Work, Tensor], Callable[[int, Tensor, Tensor], Tensor]]


class DecodeGraphs:
    """Graphs for batch sizes 1, 2, 4, 8, then every 8 up to the most sequences that run."""

    def __init__(self, model: Model, over: Over, slots: int, blocks: int, scratch: int) -> None:
        """`blocks` is the widest block table, `scratch` a flat cache position that nobody reads."""
        self._model, self._over = model, over
        self._most = -(-slots // 8) * 8
        self._scratch = scratch

        def buffer(*shape: int, kind: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=model.device)

        self._tokens, self._positions = buffer(self._most), buffer(self._most)
        self._places = buffer(self._most).fill_(scratch)
        self._counts = buffer(self._most, kind=torch.int32)
        self._starts = buffer(self._most, kind=torch.int32)
        self._tables = buffer(self._most, blocks, kind=torch.int32)
        self._order = torch.arange(self._most, dtype=torch.int32, device=model.device)
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._pool: Any = None

    def logits(self, batch: Batch, work: Work) -> Tensor:
        """The logits [R, vocab] of the batch's wanted rows; every member has one token."""
        count = len(batch.tokens)
        size = next(size for size in (1, 2, 4, 8, -(-count // 8) * 8) if size >= count)
        # Nothing of an earlier batch may stay in the padding: it would write into blocks now in use.
        self._places[count:size] = self._scratch
        self._counts[count:size] = 0
        self._tokens[:count] = batch.tokens
        self._positions[:count] = batch.positions
        self._places[:count] = batch.places
        self._counts[:count] = work.counts
        self._starts[:count] = work.starts
        self._tables[:count, : work.tables.shape[1]] = work.tables
        if size not in self._captured:
            self._captured[size] = self._capture(size, work.tile)
        graph, logits = self._captured[size]
        graph.replay()
        return logits[batch.rows]

    def _capture(self, size: int, tile: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        order = self._order[:size]
        work = Work(order, self._counts[:size], self._starts[:size], order, self._tables[:size], tile)
        attend = self._over(work, self._places[:size])

        def run() -> Tensor:
            return self._model.forward(self._tokens[:size], self._positions[:size], None, attend)

        # Kernels are compiled and libraries warmed up outside of the capture.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = run()
        self._pool = graph.pool()
        return graph, logits
