"""The runner: carries out a plan. One packed pass a step, then the sampler."""

from dataclasses import dataclass

import torch

from batchspec.engine.attention import GroupedAttention
from batchspec.engine.batch import Packer
from batchspec.engine.kv_cache import KVCache
from batchspec.engine.model import Model
from batchspec.engine.sampler import margins, sample
from batchspec.engine.sequence import Plan, Sequence


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
    """Holds the model and its KV cache; knows nothing of queues and policies."""

    def __init__(
        self,
        model: Model,
        slots: int,
        num_blocks: int,
        block_size: int,
        host_blocks: int = 0,
        keep_margins: bool = False,
    ) -> None:
        """Allocate the cache. `keep_margins` records how close each greedy choice was."""
        config = model.config
        self.model = model
        self.cache = KVCache(config, num_blocks, block_size, host_blocks, model.device, model.dtype)
        self._packer = Packer(
            slots, block_size, config.num_kv_heads, config.head_dim, model.device, model.dtype
        )
        self._attention = GroupedAttention(self.cache)
        self._keep_margins = keep_margins

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
        logits = self.model.forward(batch.tokens, batch.positions, batch.rows, self._attention.over(batch))
        emitters = batch.emitters
        tokens = sample(logits, [(item.request.sampling, item.num_outputs) for item in emitters])
        gaps = margins(logits) if self._keep_margins and emitters else None
        return Pass(emitters, tokens, len(batch.tokens), batch.pairs, batch.needed, batch.gathered, gaps)
