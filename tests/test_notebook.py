"""The notebook of the documentation: its cells run in order and print what is stored in it.

`pytest tests/test_notebook.py --rewrite` stores what they print.
"""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "tour.ipynb"


def outputs(cells: list[dict[str, Any]]) -> list[str]:
    """What each code cell prints."""
    names: dict[str, Any] = {}
    found = []
    for cell in cells:
        if cell["cell_type"] == "code":
            out = io.StringIO()
            with redirect_stdout(out):
                exec("".join(cell["source"]), names)
            found.append(out.getvalue())
    return found


def test_the_notebook_prints_what_it_shows(request: pytest.FixtureRequest) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    printed = outputs(notebook["cells"])
    if request.config.getoption("--rewrite", default=False):
        for number, (cell, text) in enumerate(zip(cells, printed, strict=True), 1):
            cell["execution_count"] = number
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text.splitlines(True)}]
        NOTEBOOK.write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")
    stored = ["".join(output["text"] for output in map(_joined, cell["outputs"])) for cell in cells]
    assert stored == printed
    assert all(printed)


def _joined(output: dict[str, Any]) -> dict[str, str]:
    return {"text": "".join(output["text"])}
