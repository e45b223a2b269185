"""Compiled loops, by numba (extra `fast`). Without it the modules load, and the search says what to do."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

AVAILABLE: Final = find_spec("numba") is not None

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function as machine code that runs beside other threads; kept on disk where that is possible."""
    if not AVAILABLE:
        return function
    numba: Any = import_module("numba")
    try:
        made = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep it in
        made = numba.njit(nogil=True)(function)
    return cast(F, made)
