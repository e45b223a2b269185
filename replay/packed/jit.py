"""Compiled loops, by numba (extra `fast`). Without it the modules load, and the search says what to do."""

from collections.abc import Callable
from typing import Any, TypeVar

try:
    import numba
except ImportError:
    numba = None

AVAILABLE = numba is not None

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code that runs beside other threads; kept on disk where that is possible."""
    if numba is None:
        return function
    try:
        made: F = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep it in
        made = numba.njit(nogil=True)(function)
    return made
