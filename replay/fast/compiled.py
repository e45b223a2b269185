"""Compiled functions: numba where it is installed (extra `fast`), plain Python where it is not.

What was compiled is kept on disk, so only the first run on a machine pays for it: in the user's cache
folder, under a name that is made of this package's sources. numba by itself looks only at the file of the
function it is asked for, and would go on with old callees and constants after a change.
"""

import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

_numba: Any = None
try:
    import numba

    _numba = numba
except ImportError:  # the extra is not installed
    pass

AVAILABLE: Final = _numba is not None
"""Whether functions are compiled here."""

whole: Any = np.int64
"""A whole number of the kernel's width, in compiled code."""

F = TypeVar("F", bound=Callable[..., Any])


_COMPILED: Final = ("compiled", "layout", "table", "questions", "steps", "moves", "preempts", "kernel")
"""The modules that compiled code is made of, this one included."""


def cache_folder() -> Path:
    """Where compiled code is kept: below $BATCHSPEC_CACHE, else in the user's cache folder."""
    own = os.environ.get("BATCHSPEC_CACHE")
    if own:
        root = Path(own)
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "batchspec"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchspec"
    return root / f"compiled-{_sources()}"


def _sources() -> str:
    digest = sha256()
    for name in _COMPILED:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


_FOLDER: Final = str(cache_folder()) if AVAILABLE else ""


def compiled(function: F) -> F:
    """The same function, compiled where that is possible; it does not hold the interpreter's lock."""
    if _numba is None:
        return function
    before, _numba.config.CACHE_DIR = _numba.config.CACHE_DIR, _FOLDER
    made: F
    try:
        made = _numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that could be written to
        made = _numba.njit(nogil=True)(function)
    finally:
        _numba.config.CACHE_DIR = before
    return made
