"""The suite under pytest: a class in a test file, the options, and what the plugin leaves alone."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BASE = ROOT / "tests" / "replay" / "broken" / "base.py"
LEAKS = f"{ROOT / 'tests' / 'replay' / 'broken' / 'memory.py'}:LosesTheRaggedTail"
PLUGIN = "batchspec.replay.pytest_plugin"

MINE = f"""
from pathlib import Path
from batchspec.replay.conformance import SchedulerConformance
from batchspec.replay.loading import load_file

module = load_file(Path({str(BASE)!r}))

class TestMine(SchedulerConformance):
    profile = "orca"
    examples = 3

    def scheduler(self, profile):
        return module.make(profile)
"""


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, with the plugin and no other."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "300"},
        capture_output=True,
        text=True,
    )


def test_the_plugin_is_announced():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {"batchspec": PLUGIN}


def test_a_class_in_a_test_file_is_a_test_for_each_rule(tmp_path):
    (tmp_path / "test_mine.py").write_text(MINE)
    done = pytest_in(tmp_path, "-rs", "-v", "--batchspec-seed", "3")

    assert done.returncode == 0, done.stdout
    assert "test_mine.py::TestMine::test_rule[slots/reuse] PASSED" in done.stdout
    assert "test_mine.py::TestMine::test_rule[admission/parked] SKIPPED (not exercised" in done.stdout
    assert "preemption/victim" not in done.stdout


def test_a_broken_rule_is_a_failed_test_with_its_files(tmp_path):
    text = MINE.replace("module.make(profile)", "Leaks(profile)").replace(
        "class TestMine",
        f"from batchspec.replay.loading import load_factory\n\nLeaks = load_factory({LEAKS!r})\n\n\n"
        "class TestMine",
    )
    (tmp_path / "test_mine.py").write_text(text)
    done = pytest_in(tmp_path, "-q", "--batchspec-trace-dir", "found", "--batchspec-examples", "2")

    assert done.returncode == 1
    assert (
        "FAILED test_mine.py::TestMine::test_rule[memory/conservation] - Failed: free, held and"
        in done.stdout
    )
    assert "MUST found by" in done.stdout
    assert "Traceback" not in done.stdout
    script = tmp_path / "found" / "TestMine" / "memory-conservation" / "reproduce.py"
    again = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (1, "")


def test_a_scheduler_named_on_the_command_line_needs_no_file(tmp_path):
    words = ("--scheduler", LEAKS, "--profile", "orca", "--batchspec-examples", "2")
    done = pytest_in(tmp_path, "-q", *words)

    assert done.returncode == 1
    assert f"FAILED {LEAKS}::memory/conservation - " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scheduler", "no_such:make"), "ERROR: no_such cannot be imported (ModuleNotFoundError"),
        (("--scheduler", LEAKS, "--profile", "vlm-v1"), "ERROR: unknown profile 'vlm-v1'"),
    ],
)
def test_a_mistake_is_a_usage_error(tmp_path, words, said):
    done = pytest_in(tmp_path, *words)

    assert done.returncode == 4
    assert said in done.stdout + done.stderr


def test_options_that_somebody_else_has_stay_theirs(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--scheduler', action='store_true')\n"
        "    parser.addoption('--profile', default='theirs')\n"
    )
    (tmp_path / "test_theirs.py").write_text(
        "def test_options(request):\n"
        "    assert request.config.getoption('--scheduler') is True\n"
        "    assert request.config.getoption('--profile') == 'theirs'\n"
    )
    done = pytest_in(tmp_path, "-q", "--scheduler")

    assert done.returncode == 0, done.stdout + done.stderr


def test_an_ordinary_run_loads_nothing_of_batchspec(tmp_path):
    (tmp_path / "test_theirs.py").write_text(
        "import sys\n\n"
        "def test_modules():\n"
        "    heavy = ('batchspec', 'pyarrow', 'pandas', 'numpy')\n"
        "    loaded = sorted(name for name in sys.modules if name.startswith(heavy))\n"
        "    assert loaded == ['batchspec', 'batchspec.replay', 'batchspec.replay.pytest_plugin']\n"
    )
    done = pytest_in(tmp_path, "-q")

    assert done.returncode == 0, done.stdout
