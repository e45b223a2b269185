"""The runner: carries out a plan. One packed pass a step, then the sampler."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from batchspec.engine.attention import GroupedAttention
from batchspec.engine.batch import Batch, Packer
from batchspec.engine.config import ModelConfig
from batchspec.engine.graphs import DecodeGraphs
from batchspec.engine.kv_cache import KVCache
from batchspec.engine.model import Model
from batchspec.engine.paging import TILE_ROWS, cut
from batchspec.engine.sampler import margins, sample
from batchspec.engine.sequence import Plan, Sequence

if TYPE_CHECKING:
    from batchspec.engine.attention_cuda import PagedAttention


@dataclass(frozen=True, slots=True)
class Pass:
    """What one forward pass gave: the next token of each emitting member, and what it cost.

    `rows` counts packed rows, padding included; `pairs` the pairs of a query and a key; `kv_needed` the
    cached positions that attention has to fetch, `kv_gathered` those it fetched.
    `margins` are distances between the two best logits.
    """

    emitters: list[Sequence]
    tokens: list[int]
    rows: int
    pairs: int
    kv_needed: int
    kv_gathered: int
    margins: list[float] | None = None


class Runner:
    """Holds the model and its KV cache; knows nothing of queues and policies.

    On CUDA attention is a paged kernel (Triton), and decodes run as CUDA graphs; where Triton is
    missing, and on the CPU, attention is the grouped form of plain operators.
    """

    def __init__(
        self,
        model: Model,
        slots: int,
        num_blocks: int,
        block_size: int,
        host_blocks: int = 0,
        keep_margins: bool = False,
        *,
        paged: bool | None = None,
        graphs: bool | None = None,
    ) -> None:
        """Allocate the cache. `keep_margins` records how close each greedy choice was.

        `paged` and `graphs` None: where the device has them.
        """
        config, device = model.config, model.device
        on_gpu = device.type == "cuda"
        self.model = model
        self.cache = KVCache(config, num_blocks, block_size, host_blocks, 1, device, model.dtype)
        self._shared = config.num_heads // config.num_kv_heads
        self._paged = _paged_attention(self.cache, config) if (on_gpu if paged is None else paged) else None
        self._packer = Packer(
            slots,
            block_size,
            config.num_kv_heads,
            config.head_dim,
            device,
            model.dtype,
            grouped=self._paged is None,
        )
        self._attention = GroupedAttention(self.cache)
        self._keep_margins = keep_margins
        self._graphs: DecodeGraphs | None = None
        if self._paged is not None and (on_gpu if graphs is None else graphs):
            widest = -(-min(config.max_positions, num_blocks * block_size) // block_size)
            scratch = num_blocks * block_size
            self._graphs = DecodeGraphs(model, self._paged.over, slots, widest, scratch)

    @torch.inference_mode()
    def execute(self, plan: Plan) -> Pass:
        """Perform the swaps of `plan`, then its pass."""
        for out, blocks, host in plan.copies:
            if out:
                self.cache.swap_out(blocks, host)
            else:
                self.cache.swap_in(host, blocks)
        if not plan.sequences:
            return Pass([], [], 0, 0, 0, 0)
        batch = self._packer.pack(plan)
        logits = self._logits(batch)
        emitters = batch.emitters
        tokens = sample(logits, [(item.request.sampling, item.num_outputs) for item in emitters])
        gaps = margins(logits) if self._keep_margins and emitters else None
        return Pass(emitters, tokens, len(batch.tokens), batch.pairs, batch.needed, batch.gathered, gaps)

    def _logits(self, batch: Batch) -> Tensor:
        if self._paged is None:
            attend = self._attention.over(batch)
        else:
            work = cut(batch, self._shared, self.model.device)
            # One token a member and no padding: the shape that graphs are captured for.
            if self._graphs is not None and len(batch.counts) == len(batch.tokens):
                return self._graphs.logits(batch, work)
            attend = self._paged.over(work, batch.places)
        return self.model.forward(batch.tokens, batch.positions, batch.rows, attend)


def _paged_attention(cache: KVCache, config: ModelConfig) -> "PagedAttention | None":
    """The paged kernel, or None where Triton is missing or the head's width does not suit it."""
    width, shared = config.head_dim, config.num_heads // config.num_kv_heads
    if width < 16 or width & (width - 1) or shared > TILE_ROWS:
        return None
    try:
        from batchspec.engine.attention_cuda import PagedAttention
    except ModuleNotFoundError:
        return None
    return PagedAttention(cache, config.num_kv_heads, shared, width)
