"""The console blocks of the README and of each page of docs/ are run, a page in one shell, in an empty
folder, and must print what it shows; the commands of the CI recipes are run on a trace.

`...` alone on a line stands for any lines.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "```console\n" in page.read_text(encoding="utf-8")
]
MARK = "-- end of a command --\n"


def commands(page: Path) -> list[tuple[str, str]]:
    """Each command of a page and what it shows beneath."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def files(page: Path) -> list[tuple[str, str]]:
    """Blocks of Python that begin with the name of a file: they stand in the folder of the commands."""
    blocks = r"^```python\n# (\w+\.py)\n(.*?)^```"
    return re.findall(blocks, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def pattern(shown: str) -> str:
    """A regular expression for the lines shown, `...` for any number of them."""
    lines = shown.splitlines()
    return "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + "\n" for line in lines)


@pytest.mark.skipif(shutil.which("bash") is None, reason="the commands are written for bash")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page, tmp_path):
    shutil.copytree(ROOT / "replay" / "data", tmp_path / "replay" / "data")
    for name, text in files(page):
        (tmp_path / name).write_text(text, encoding="utf-8")
    search = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    # The mark leaves `$?` as it was, for a command that shows it.
    mark = f"_status=$?; printf '%s' '{MARK}'; (exit $_status)\n"
    script = "exec 2>&1\n" + "".join(f"{command}\n{mark}" for command, _ in commands(page))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": search},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    printed = done.stdout.split(MARK)[:-1]
    assert len(printed) == len(commands(page)) > 0
    for (command, shown), seen in zip(commands(page), printed, strict=True):
        assert re.fullmatch(pattern(shown), seen), f"$ {command}\n{seen}"


RECIPES = re.findall(r"batchspec check traces/\*\.parquet[^>\n]*", (ROOT / "docs" / "ci.md").read_text())


@pytest.mark.skipif(shutil.which("bash") is None, reason="the commands are written for bash")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs(recipe, tmp_path):
    search = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    work = "request,arrival_ns,prompt_tokens,output_tokens\\nA,0,30,20\\n"
    before = f"printf '{work}' > w.csv && batchspec simulate w.csv --out traces/w.parquet >&2"
    done = subprocess.run(
        ["bash", "-c", f"{before} && {recipe}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": search},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.startswith(("{", "<?xml"))


def test_there_are_recipes():
    assert len(RECIPES) >= 2
