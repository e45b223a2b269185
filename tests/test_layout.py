"""Guards of the house: where modules may live, what they may import, and what no file may say."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("spec", "engine", "traces", "replay")
ARROWS = {
    "spec": {"spec"},
    "traces": {"spec", "traces"},
    "replay": {"spec", "traces", "replay"},
    "engine": {"spec", "traces", "engine"},
}
# What the pure room may use: nothing here reads a file, a clock or a random number, except package data.
# fmt: off
SPEC_STDLIB = {
    "abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "decimal", "difflib",
    "enum", "fractions", "functools", "graphlib", "hashlib", "heapq", "itertools", "json", "math", "numbers",
    "operator", "re", "statistics", "string", "textwrap", "tomllib", "types", "typing",
}
# fmt: on
SPEC_THIRD_PARTY = {
    "spec/explore.py": {"networkx"},
    "spec/prove.py": {"z3"},
    "spec/rules/liveness.py": {"networkx"},  # cycles in the graph of who preempts whom
}
MODULES = sorted(path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Every module that a file names in an import, wherever in the file it stands."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module, node
            # `from batchspec import spec` and `from importlib import resources` name modules too.
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)


def top_level_imports(path: Path) -> set[str]:
    """The first parts of what a file imports as it is loaded, `if TYPE_CHECKING` and `try` left out."""
    body = ast.parse((ROOT / path).read_text()).body
    names = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in body if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names}


def dotted(path: Path) -> str:
    """`spec/rules/batch.py` is imported as `batchspec.spec.rules.batch`."""
    parts = path.with_suffix("").parts
    return ".".join(("batchspec", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def core_dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split(r"[^\w-]", text)[0] for text in project["dependencies"]}


def tracked_files() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def loaded_by(code: str) -> set[str]:
    """The names in `sys.modules` of a fresh interpreter, outside the checkout, after it ran `code`."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-P", "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_there_is_something_to_guard():
    assert {path.parts[0] for path in MODULES} == set(ROOMS)


def test_every_folder_with_modules_is_a_package():
    # setuptools drops a folder without __init__.py silently, though an editable install still imports it.
    folders = {path.parent for path in MODULES}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_every_room_is_typed():
    assert [room for room in ROOMS if not (ROOT / room / "py.typed").is_file()] == []


def test_only_setup_py_stands_at_the_top():
    assert [path.name for path in ROOT.glob("*.py")] == ["setup.py"]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_are_absolute_and_follow_the_arrows(path):
    allowed = ARROWS[path.parts[0]]
    for name, node in imports(path):
        first, *rest = name.split(".")
        assert first, f"{path}:{node.lineno} has a relative import; write batchspec.{path.parts[0]}..."
        assert first not in (*ROOMS, "tests"), f"{path}:{node.lineno} imports {name}; write batchspec.{name}"
        if first == "batchspec" and rest:
            assert rest[0] in allowed, f"{path}:{node.lineno} imports {name}, against the arrows"
            is_cli = rest[:2] == ["replay", "cli"]
            assert not is_cli or path.parts[:2] in (
                ("replay", "cli"),
                ("replay", "cli.py"),
                ("replay", "__main__.py"),
            ), f"{path}:{node.lineno} imports the command line, which nobody may"


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "spec"], ids=str)
def test_the_spec_is_pure(path):
    extra = SPEC_THIRD_PARTY.get(path.as_posix(), set())
    for name, node in imports(path):
        first = name.partition(".")[0]
        listed = first in SPEC_STDLIB or first in extra or first == "batchspec"
        if first == "importlib":
            listed = name == "importlib" or name.startswith("importlib.resources")
        assert listed, f"{path}:{node.lineno} imports {name}, which the pure room may not use"
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {
                "open",
                "print",
                "input",
                "eval",
                "exec",
                "__import__",
                "hash",
                "id",
            }, f"{path}:{node.lineno} calls {node.func.id}()"


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] != "engine"], ids=str)
def test_what_is_imported_on_loading_is_a_core_dependency(path):
    known = set(sys.stdlib_module_names) | core_dependencies() | {"batchspec"}
    known |= SPEC_THIRD_PARTY.get(path.as_posix(), set())
    if path.as_posix() == "replay/pytest_plugin.py":
        known.add("pytest")  # which alone loads it
    assert top_level_imports(path) - known == set()


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_library_code_neither_asserts_nor_unpickles(path):
    tree = ast.parse((ROOT / path).read_text())
    if path.as_posix() != "replay/assertions.py":
        lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        assert lines == [], f"{path}: raise an error or return a finding instead of asserting"
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert {name.partition(".")[0] for name, _ in imports(path)} & forbidden == set()


def test_no_generic_name_is_loaded_with_everything_imported():
    names = [dotted(path) for path in MODULES if path.name != "__main__.py"]
    if find_spec("torch") is None:
        names = [name for name in names if not name.startswith("batchspec.engine.")]
    if find_spec("z3") is None:
        names = [name for name in names if name != "batchspec.spec.prove"]
    if find_spec("triton") is None:  # comes with CUDA builds of torch
        names = [name for name in names if name != "batchspec.engine.attention_cuda"]
    loaded = loaded_by("\n".join(f"import {name}" for name in names))
    assert set(names) <= loaded
    assert {name for name in loaded if name.partition(".")[0] in (*ROOMS, "tests")} == set()


def test_no_generic_name_is_loaded_by_the_suite():
    assert {name for name in sys.modules if name.partition(".")[0] in ROOMS} == set()


def test_the_command_line_loads_without_the_heavy_libraries():
    heavy = {"torch", "ray", "matplotlib", "plotly", "numba", "z3", "pytest", "hypothesis"}
    assert loaded_by("import batchspec.replay.cli") & heavy == set()


def test_no_file_names_a_machine_or_a_package_index():
    # Written in pieces, so that this file passes its own test.
    said = re.compile(
        "|".join([r"(?<![\w.])/(?:work|root|opt)" + "/", r"pypi\." + "org", "python" + "hosted"])
    )
    found = []
    for name in tracked_files():
        text = (ROOT / name).read_bytes()
        if b"\0" in text:
            continue
        for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
            if said.search(line):
                found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert found == []


def test_constraints_pin_all_that_is_installed_for_us():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    waiting, seen = [Requirement("batchspec[test]")], {"batchspec"}
    while waiting:
        wanted = waiting.pop()
        for text in requires(wanted.name) or ():
            needed = Requirement(text)
            applies = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in (wanted.extras or {""})
            )
            if applies and (name := canonicalize_name(needed.name)) not in seen:
                seen.add(name)
                waiting.append(needed)
    assert seen - pinned == {"batchspec"}


def test_the_readme_begins_with_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    first_block = readme.split("```")[1]
    assert re.findall(r"make (\w+)", first_block) == ["demo", "test"]
    targets = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", readme, re.MULTILINE)) <= targets
