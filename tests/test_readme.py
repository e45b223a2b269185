"""The README's console blocks are run in one shell, in an empty folder, and must print what it shows.

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
BLOCKS = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
MARK = "-- end of a command --\n"


def commands() -> list[tuple[str, str]]:
    """Each command of the README and what it shows beneath."""
    parts = [part for block in BLOCKS for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def pattern(shown: str) -> str:
    """A regular expression for the lines shown, `...` for any number of them."""
    lines = shown.splitlines()
    return "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + "\n" for line in lines)


@pytest.mark.skipif(shutil.which("bash") is None, reason="the commands are written for bash")
def test_the_readme_shows_what_the_commands_print(tmp_path):
    shutil.copytree(ROOT / "replay" / "data", tmp_path / "replay" / "data")
    search = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    # The mark leaves `$?` as it was, for a command that shows it.
    mark = f"_status=$?; printf '%s' '{MARK}'; (exit $_status)\n"
    script = "exec 2>&1\n" + "".join(f"{command}\n{mark}" for command, _ in commands())
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
    assert len(printed) == len(commands()) > 0
    for (command, shown), seen in zip(commands(), printed, strict=True):
        assert re.fullmatch(pattern(shown), seen), f"$ {command}\n{seen}"
