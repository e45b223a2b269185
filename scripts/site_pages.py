"""Pages of the documentation site that are made from code: rules, profiles, concepts, commands, the notebook.

A hook of mkdocs. What `batchspec rules ID` and the other commands print is shown as it is printed, so the
site says nothing that the program does not.
"""

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from batchspec.replay.cli import app, main
from batchspec.replay.explain.page import topic_page
from batchspec.replay.explain.topics import TOPICS
from batchspec.spec.catalogue import RULES
from batchspec.spec.glossary import GLOSSARY
from batchspec.spec.library import profile_names

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)[^)]+\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of docs/."""
    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """Every page made from code: its name and its markdown."""
    return {
        "rules.md": "\n".join(rules()),
        "profiles.md": "\n".join(profiles()),
        "concepts.md": "\n".join(concepts()),
        "commands.md": "\n".join(commands()),
        "notebook.md": "\n".join(notebook()),
        "contributing.md": contributing(),
    }


def rules() -> Iterator[str]:
    """The catalogue: each rule as `batchspec rules ID` prints it, with its two traces."""
    yield "# Rules\n\nEach rule, its premise and source, a trace that passes and one that fails.\n"
    family = ""
    for name in RULES:
        if name.partition("/")[0] != family:
            family = name.partition("/")[0]
            yield f"## {family}\n"
        yield f"### {name}\n\n{printed('rules', name)}\n"


def profiles() -> Iterator[str]:
    """Each shipped profile in sentences."""
    yield "# Profiles\n\nWhat each engine family promises, and where that is said.\n"
    for name in profile_names():
        yield f"## {name}\n\n{printed('profiles', name)}\n"


def concepts() -> Iterator[str]:
    """The field's words, and the worked pictures."""
    yield "# Concepts\n\nThe field's words, and where each lives in the code.\n"
    yield "| term | what it is here | home |\n| --- | --- | --- |"
    for term in GLOSSARY:
        homes = ", ".join(f"`{home}`" for home in term.homes)
        yield f"| {term.word} | {term.says} | {homes} |"
    for make in TOPICS.values():
        topic = make()
        yield f"\n## {topic.title}\n\n```text\n{topic_page(topic).text()}```\n"
        yield f"As a page that moves: `batchspec explain {topic.name} --html {topic.name}.html`.\n"


def commands() -> Iterator[str]:
    """Each command's help."""
    yield "# Commands\n"
    for command in app.registered_commands:
        yield f"## {command.name}\n\n{printed(command.name or '', '--help')}\n"


def notebook() -> Iterator[str]:
    """The notebook of docs/ with the outputs that are stored in it."""
    yield "# Notebook\n\nThis page is a notebook: `docs/tour.ipynb` in the repository. The tests run it.\n"
    for cell in json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source + "\n"
            continue
        yield f"```python\n{source}\n```\n"
        for output in cell["outputs"]:
            yield f"```text\n{''.join(output['text']).rstrip()}\n```\n"


def contributing() -> str:
    """CONTRIBUTING.md, its links to files of the repository as plain names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return REPOSITORY_LINK.sub(r"\1", text)


def printed(*words: str) -> str:
    """What a command prints, as a block."""
    out = io.StringIO()
    with redirect_stdout(out):
        status = main(words)
    if status != 0:
        raise SystemExit(f"batchspec {' '.join(words)} ended with {status}")
    return f"```text\n{out.getvalue().rstrip()}\n```"
