"""The KV cache: blocks of keys and values on the device, and their copies on the host.

Layout [layers, 2 Hkv, blocks, block_size, D]: keys of all heads, then values. A head's blocks are
gathered with one indexed read whose rows are whole blocks, and come out contiguous for a batched
product. Block ids are those of the scheduler's pool, 0 based.
"""

import torch
from torch import Tensor

from batchspec.engine.config import ModelConfig


class KVCache:
    """Storage for `num_blocks` blocks, and `host_blocks` blocks to which they can be swapped."""

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        host_blocks: int = 0,
        scratch: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Allocate everything once: the bound on memory is known from the start.

        `scratch` blocks lie behind the others: nobody is granted them, padding may write there.
        """
        self.num_blocks, self.block_size = num_blocks, block_size
        self.held_blocks = num_blocks + scratch
        self._rows = 2 * config.num_kv_heads
        self._width = config.head_dim
        shape = (config.num_layers, self._rows, self.held_blocks, block_size * config.head_dim)
        self.blocks = torch.zeros(shape, device=device, dtype=dtype)
        on_gpu = torch.device(device).type == "cuda"
        host = (shape[0], shape[1], host_blocks, shape[3])
        self._host = torch.zeros(host, dtype=dtype, pin_memory=on_gpu)
        self._flat: list[Tensor] = [layer.view(self._rows, -1, config.head_dim) for layer in self.blocks]

    @property
    def nbytes(self) -> int:
        """Bytes held, host copies included."""
        return self.blocks.nbytes + self._host.nbytes

    def write(self, layer: int, places: Tensor, kv: Tensor) -> None:
        """Store keys and values [T, 2, Hkv, D] at flat positions [T]: block * block_size + offset."""
        self._flat[layer].index_copy_(1, places, kv.flatten(1, 2).transpose(0, 1))

    def gather(self, layer: int, table: Tensor, sequences: int) -> tuple[Tensor, Tensor]:
        """Keys and values, each [Hkv * B, L, D], of the blocks [B * L / size] of B sequences."""
        found = self.blocks[layer].index_select(1, table)
        half = self._rows // 2
        length = found.shape[1] // sequences * self.block_size
        both = found.view(2, half * sequences, length, self._width)
        return both[0], both[1]

    def flat(self, layer: int) -> Tensor:
        """One layer as [2 Hkv, held_blocks * block_size, D]."""
        return self._flat[layer]

    def swap_out(self, blocks: list[int], host: list[int]) -> None:
        """Copy device blocks to host blocks, in order."""
        at = torch.tensor(blocks, device=self.blocks.device)
        self._host[:, :, torch.tensor(host)] = self.blocks.index_select(2, at).to(self._host.device)

    def swap_in(self, host: list[int], blocks: list[int]) -> None:
        """Copy host blocks back to (other) device blocks, in order."""
        at = torch.tensor(blocks, device=self.blocks.device)
        self.blocks[:, :, at] = self._host.index_select(2, torch.tensor(host)).to(self.blocks.device)
