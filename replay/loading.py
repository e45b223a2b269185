"""A user's object by name: `module:factory`, or `path/to/file.py:factory`."""

import importlib
import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from batchspec.replay.harness import HarnessError
from batchspec.traces.text import nearest, one_line


def load_factory(name: str) -> Any:
    """What a scheduler factory's name stands for; modules are found as by `python -m`.

    The name behind the colon may have dots (`Class.method`). A class with a method `scheduler` (the base
    class of the suite) stands for that method of an instance. Raises `HarnessError` with what to mend.
    """
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise HarnessError(f"name the scheduler as module:factory, not {one_line(name, 60)!r}")
    found: Any = _module(where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            hint = nearest(part, [word for word in vars(found) if not word.startswith("_")])
            raise HarnessError(f"{one_line(where, 60)} has no {part!r}{hint}")
        found = getattr(found, part)
    if isinstance(found, type) and callable(getattr(found, "scheduler", None)):
        found = found().scheduler
    if not callable(found):
        raise HarnessError(f"{one_line(name, 60)} is no factory: it cannot be called with a profile")
    return found


def _module(where: str) -> ModuleType:
    if where.endswith(".py"):
        return load_file(Path(where))
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(where)
    except HarnessError:
        raise
    except Exception as error:  # a module of the user's may fail in any way
        raise HarnessError(f"{one_line(where, 60)} cannot be imported ({_said(error)})") from error


def load_file(path: Path) -> ModuleType:
    """The module in a Python file, once a process. Raises `HarnessError` where it cannot be imported."""
    given, path = path, path.resolve()
    name = f"_batchspec_{path.stem}_{zlib.crc32(str(path).encode()):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise HarnessError(f"{one_line(given, 60)}: no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except HarnessError:
        raise
    except Exception as error:
        del sys.modules[spec.name]
        raise HarnessError(f"{path}: cannot be imported ({_said(error)})") from error
    return module


def _said(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", 200)
