"""The block pool: KV blocks by id, granted, returned, and shared by content.

A block has as many owners as requests hold it. A block without an owner is free, also while it still
carries the content of its last owner: then a request with the same content may take it over, and
until then it is the next to be overwritten, longest free first.
"""

from collections import OrderedDict
from collections.abc import Iterable

_PRIME = 0x9E3779B97F4A7C15
_MASK = (1 << 63) - 1


def mix(*parts: int) -> int:
    """A 63-bit content key from whole numbers; equal parts give equal keys in every run."""
    key = 0
    for part in parts:
        key = (key ^ (part & _MASK)) * _PRIME & _MASK
        key ^= key >> 29
    return key


class BlockPool:
    """`total` blocks with ids from 0. `free` counts those without an owner."""

    def __init__(self, total: int) -> None:
        """All blocks free, none with content."""
        self.total = total
        self.free = total
        self._owners = [0] * total
        # Insertion order is the order in which blocks became free, with removal by id too. A plain dict
        # would look for its first entry behind the places of all that were taken before.
        self._free_ids: OrderedDict[int, None] = OrderedDict.fromkeys(range(total))
        self._key: dict[int, int] = {}
        self._block: dict[int, int] = {}

    def take(self, count: int) -> list[int]:
        """Grant `count` free blocks, longest free first; their old content is forgotten."""
        ids = []
        free = self._free_ids
        for _ in range(count):
            block = free.popitem(last=False)[0]
            self._owners[block] = 1
            if self._key:
                self.forget(block)
            ids.append(block)
        self.free -= count
        return ids

    def take_over(self, ids: Iterable[int]) -> None:
        """Make one more request an owner of each of these blocks."""
        for block in ids:
            if self._owners[block] == 0:
                del self._free_ids[block]
                self.free -= 1
            self._owners[block] += 1

    def give_back(self, table: list[int]) -> None:
        """One owner returns its blocks. The last ones become reusable first: a prefix is worth more."""
        owners = self._owners
        for block in reversed(table):
            owners[block] -= 1
            if owners[block] == 0:
                self._free_ids[block] = None
                self.free += 1

    def owned(self, block: int) -> int:
        """How many requests hold this block."""
        return self._owners[block]

    def find(self, keys: Iterable[int]) -> list[int]:
        """The blocks that carry the leading keys, up to the first one that nobody computed."""
        found = []
        for key in keys:
            block = self._block.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def publish(self, block: int, key: int) -> bool:
        """Say what a full block holds. False where another block carries that content already."""
        if key in self._block:
            return False
        self._block[key] = block
        self._key[block] = key
        return True

    def forget(self, block: int) -> None:
        """The block's content is gone, or was never computed."""
        key = self._key.pop(block, None)
        if key is not None:
            del self._block[key]
