"""Compiled code is kept under a name made of all sources of its package; without numba nothing changes."""

from pathlib import Path

import pytest

from batchspec.replay import compiled as module
from batchspec.replay.compiled import cache_folder, compiled


def folder_of(package: Path) -> Path:
    cache_folder.cache_clear()
    return cache_folder(package)


def test_a_change_in_any_module_of_the_package_gives_another_name(tmp_path: Path) -> None:
    package = tmp_path / "loops"
    package.mkdir()
    (package / "a.py").write_text("one = 1")
    (package / "b.py").write_text("two = 2")
    first = folder_of(package)
    assert folder_of(package) == first
    (package / "b.py").write_text("two = 3")
    second = folder_of(package)
    (package / "c.py").write_text("")
    assert len({first, second, folder_of(package)}) == 3


def test_the_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHSPEC_CACHE", str(tmp_path / "kept"))
    assert folder_of(tmp_path).parent == tmp_path / "kept"
    monkeypatch.delenv("BATCHSPEC_CACHE")
    cache_folder.cache_clear()


def test_without_numba_a_function_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(number: int) -> int:
        return 2 * number

    monkeypatch.setattr(module, "available", lambda: False)
    assert compiled(twice) is twice
