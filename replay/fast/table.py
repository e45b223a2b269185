"""The table of live ids: whole numbers to places in R, by linear probing, in place.

T has the ids in its first row and the places in its second, -1 where nobody stands.
"""

from typing import Any

import numpy as np

from batchspec.replay.compiled import compiled, whole

Array = Any
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(20)


@compiled
def _home(key: int, size: int) -> int:
    return whole((np.uint64(key) * _MIX) >> _SHIFT) & (size - 1)


@compiled
def find(T: Array, key: int) -> int:
    """The place of a live request in R, or -1. T has ids and places, linear probing."""
    size = T.shape[1]
    at = _home(key, size)
    while T[1, at] >= 0:
        if T[0, at] == key:
            return whole(T[1, at])
        at = (at + 1) & (size - 1)
    return -1


@compiled
def insert(T: Array, key: int, value: int) -> None:
    """Enter a request under its id, which must not be there."""
    size = T.shape[1]
    at = _home(key, size)
    while T[1, at] >= 0:
        at = (at + 1) & (size - 1)
    T[0, at] = key
    T[1, at] = value


@compiled
def remove(T: Array, key: int) -> None:
    """Take a request out; those that stood behind it because of it move up."""
    size = T.shape[1]
    at = _home(key, size)
    while T[1, at] >= 0 and T[0, at] != key:
        at = (at + 1) & (size - 1)
    if T[1, at] < 0:
        return
    hole = at
    at = (at + 1) & (size - 1)
    while T[1, at] >= 0:
        home = _home(T[0, at], size)
        if ((at - home) & (size - 1)) >= ((at - hole) & (size - 1)):
            T[0, hole] = T[0, at]
            T[1, hole] = T[1, at]
            hole = at
        at = (at + 1) & (size - 1)
    T[1, hole] = -1
