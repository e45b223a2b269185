"""What a full block holds, as a key: of all tokens up to its end, whatever key the engine itself uses.

An engine whose own keys collide, or whose cache hands out a block of other content, is caught by these.
"""

from collections.abc import Sequence
from hashlib import blake2b


def keys(tokens: Sequence[int], block_size: int, first: int, last: int) -> tuple[int, ...]:
    """Keys of the full blocks [first, last) of a sequence; those that `tokens` do not fill have none.

    A key is a non-negative integer of 63 bits.
    """
    found = []
    seen = blake2b(digest_size=8)
    for index in range(min(last, len(tokens) // block_size)):
        block = tokens[index * block_size : (index + 1) * block_size]
        seen.update(b"".join(int(token).to_bytes(8, "little", signed=True) for token in block))
        if index >= first:
            found.append(int.from_bytes(seen.digest(), "little") >> 1)
    return tuple(found)


def filled(
    tokens: Sequence[int], block_size: int, start: int, end: int, *, known: int | None = None
) -> tuple[int, ...]:
    """Keys of the blocks that a pass over positions [start, end) makes full.

    `known` positions have a token that is known by now; the rest (drafts) fill nothing for good.
    """
    end = min(end, len(tokens) if known is None else known)
    return keys(tokens, block_size, start // block_size, end // block_size)
