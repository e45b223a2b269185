"""The guide to adapters: its test file passes, its options exist. Its commands: test_readme.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = (Path(__file__).resolve().parent.parent / "docs" / "adapter.md").read_text()


@pytest.fixture
def folder(tmp_path):
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    assert [name for name, _ in blocks] == ["fifo.py", "test_fifo.py"]
    return tmp_path


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    off = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env={**os.environ, **off}, capture_output=True, text=True
    )


def test_the_test_file_passes(folder):
    done = python(folder, "pytest", "-q", "-p", "batchspec.replay.pytest_plugin", "-p", "no:cacheprovider")

    assert done.returncode == 0, done.stdout
    assert " failed" not in done.stdout


def test_every_option_that_is_named_exists(folder):
    shown = python(folder, "batchspec.replay", "conform", "--help").stdout
    table = GUIDE.split("| option | does |")[1].split("\n\n")[0]

    named = re.findall(r"`(--[a-z-]+)", table)
    assert len(named) >= 8
    assert [option for option in named if option not in shown] == []
