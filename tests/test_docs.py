"""The page on proofs against the code: it names every move and every claim, and no other."""

import re
from pathlib import Path

from batchspec.spec.induction import CLAIMS, MOVES

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "proof.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_move_has_its_row():
    rows = re.findall(
        r"^\| `(\w+)`(?: \((.*?)\))? \|", section("The core as a transition system"), re.MULTILINE
    )

    assert [name for name, _ in rows] == list(MOVES)
    choices = {name: len(given.split(",")) if given else 0 for name, given in rows}
    assert choices == {name: len(move.choices) for name, move in MOVES.items()}


def test_every_claim_is_named_as_proved():
    first = section("What is proved").split("\n\n")[0]

    assert re.findall(r"`([\w/-]+)`", first) == list(CLAIMS)
