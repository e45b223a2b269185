"""Compiled functions: numba where it is installed (extra `fast`), plain Python where it is not.

What was compiled is kept on disk, so only the first run on a machine pays for it: in the user's cache
folder, under a name that is made of the sources of the function's package. numba by itself looks only at
the file of the function it is asked for, and would go on with old callees and constants after a change.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

whole: Any = np.int64
"""A whole number of the width that compiled code uses."""

F = TypeVar("F", bound=Callable[..., Any])


@cache
def available() -> bool:
    """Whether functions are compiled here: numba is there, and loads."""
    if find_spec("numba") is None:
        return False
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


def compiled(function: F) -> F:
    """The same function, compiled where that is possible; it does not hold the interpreter's lock."""
    if not available():
        return function
    numba: Any = import_module("numba")
    folder = cache_folder(Path(function.__code__.co_filename).parent)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    made: F
    try:
        made = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that could be written to
        made = numba.njit(nogil=True)(function)
    finally:
        numba.config.CACHE_DIR = before
    return made


@cache
def cache_folder(package: Path) -> Path:
    """Where a package's compiled code is kept: below $BATCHSPEC_CACHE, else in the user's cache folder."""
    own = os.environ.get("BATCHSPEC_CACHE")
    if own:
        root = Path(own)
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "batchspec"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchspec"
    digest = sha256(Path(__file__).read_bytes())
    for source in sorted(package.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return root / f"compiled-{package.name}-{digest.hexdigest()[:16]}"
