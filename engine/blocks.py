"""The block pool: which KV block belongs to whom. Ids only, no tensors.

A block is free, held by one sequence, or shared by several whose tokens begin alike. A full block
keeps its content key after its last holder leaves: it counts as free, but a later request with the
same prefix may take it over until it is handed out again, the least recently used first.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from batchspec.engine.errors import EngineError


class BlockPool:
    """`num_blocks` blocks with reference counts, and content keys where prefixes are shared."""

    def __init__(self, num_blocks: int) -> None:
        """All blocks free and without content."""
        self.num_blocks = num_blocks
        self.shared = 0
        """Blocks held, counted once a holder, minus distinct blocks held."""
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._holders = [0] * num_blocks
        self._key_of: dict[int, int] = {}
        self._block_of: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, cached content included."""
        return len(self._free) + len(self._cached)

    def grant(self, count: int) -> list[int]:
        """Hand out `count` free blocks. Raises `EngineError` if there are fewer: ask `num_free` first."""
        if count > self.num_free:
            raise EngineError(f"{count} KV blocks were asked for, {self.num_free} are free")
        granted = []
        for _ in range(count):
            if self._free:
                block = self._free.pop()
            else:
                block, _ = self._cached.popitem(last=False)
                del self._block_of[self._key_of.pop(block)]
            self._holders[block] = 1
            granted.append(block)
        return granted

    def find(self, keys: Sequence[int]) -> list[int]:
        """The blocks that hold the longest known prefix of `keys`."""
        found: list[int] = []
        for key in keys:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def unheld(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` are free: taking them over uses up free blocks."""
        return sum(not self._holders[block] for block in blocks)

    def take_over(self, blocks: Sequence[int]) -> None:
        """One more holder for each of `blocks`, which `find` has named."""
        for block in blocks:
            if self._holders[block]:
                self.shared += 1
            else:
                del self._cached[block]
            self._holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One holder leaves each of `blocks`. The tail goes first, so that prefixes stay longest."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                self.shared -= 1
            elif block in self._key_of:
                self._cached[block] = None
            else:
                self._free.append(block)

    def keep(self, block: int, key: int) -> None:
        """Remember that `block` holds the content of `key`, once a pass has written all of it."""
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key


def content_keys(tokens: Sequence[int], block_size: int, known: list[int], blocks: int) -> None:
    """Extend `known` to the keys of the first `blocks` full blocks of `tokens`.

    A key covers all tokens up to the block's end, so equal keys mean equal prefixes. It is a
    cryptographic digest: nobody can craft a prompt that is taken for another one's.
    """
    while len(known) < blocks:
        at = len(known) * block_size
        digest = hashlib.blake2b(digest_size=8)
        digest.update((known[-1] if known else 0).to_bytes(8, "little", signed=True))
        digest.update(array("q", tokens[at : at + block_size]).tobytes())
        known.append(int.from_bytes(digest.digest(), "little", signed=True))
