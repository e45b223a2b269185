"""The examples: for each rule a short trace that passes and one that fails, as scenario text.

One file a family, `FAMILY.txt`, in the order of the catalogue:

    == memory/coverage
    cfg block_size=4
    1 arrive A prompt=6
    -- passes
    1 schedule A start=0 tokens=6 blocks=2
    -- fails
    1 schedule A start=0 tokens=6 blocks=1

What stands before `-- passes` begins both traces. A blank line has no meaning.
"""

from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from batchspec.spec.errors import SpecError

_RULE: Final = "== "
_PASSES: Final = "-- passes"
_FAILS: Final = "-- fails"


class Example(NamedTuple):
    """Two traces as scenario text. The failing one breaks the rule, the passing one none."""

    passing: str
    failing: str


def example(rule_id: str) -> Example | None:
    """The examples of a rule; None where a trace cannot show what the rule says."""
    return examples_of(rule_id.partition("/")[0]).get(rule_id)


@cache
def examples_of(family: str) -> dict[str, Example]:
    """All examples of a family of rules, by rule id. Raises `SpecError` for a file out of form."""
    file = resources.files("batchspec.spec.examples").joinpath(f"{family}.txt")
    if not file.is_file():
        return {}
    first, *sections = f"\n{file.read_text('utf-8')}".split(f"\n{_RULE}")
    if first.strip():
        raise SpecError(f"examples of {family}: {first.split()[0]!r} stands before the first `{_RULE}ID`")
    return dict(_read(section) for section in sections)


def _read(section: str) -> tuple[str, Example]:
    rule_id, _, body = section.partition("\n")
    parts: dict[str, list[str]] = {"": [], _PASSES: [], _FAILS: []}
    lines = parts[""]
    for line in body.splitlines():
        if line.startswith("-- "):
            if line not in parts or parts[line]:
                raise SpecError(f"example of {rule_id}: {line!r} is not one `{_PASSES}` and one `{_FAILS}`")
            lines = parts[line]
        elif line:
            lines.append(line)
    if not (parts[_PASSES] and parts[_FAILS]):
        raise SpecError(f"example of {rule_id}: needs a trace that passes and one that fails")
    head, passing, failing = ("".join(f"{line}\n" for line in part) for part in parts.values())
    return rule_id, Example(head + passing, head + failing)
