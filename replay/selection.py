"""Which rules a user asks for, by id, family or level, and whether a report has judged them."""

from collections.abc import Iterable, Sequence

from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import BatchspecError
from batchspec.spec.verdict import LEVELS, Report
from batchspec.traces.text import nearest


def chosen(words: Iterable[str]) -> tuple[str, ...]:
    """The ids of the rules named by id (`slots/reuse`) or by family (`slots`), in catalogue order.

    Raises `BatchspecError` that names the nearest rule or family.
    """
    wanted: set[str] = set()
    for word in words:
        found = [rule for rule in RULES if word in (rule, family_of(rule))]
        if not found:
            raise BatchspecError(f"unknown rule {word[:60]!r}{_hint(word)}")
        wanted.update(found)
    return tuple(rule for rule in RULES if rule in wanted)


def known(words: Sequence[str]) -> None:
    """Raise `BatchspecError` unless every word of `--require` is a level, a rule or a family."""
    chosen(word for word in words if word not in LEVELS)


def unmet(report: Report, required: Sequence[str]) -> list[str]:
    """One sentence for each required level or rule that this report has not judged."""
    results = {result.id: result for result in report.rules}
    missed = []
    for word in required:
        if word in LEVELS:
            if report.level < word:
                missed.append(f"level {word} is required, and this trace has level {report.level}")
            continue
        for rule in chosen([word]):
            result = results.get(rule)
            if result is None:
                missed.append(f"{rule} is required, and --rule left it out")
            elif result.verdict == "not checkable":
                missed.append(f"{rule} is required and not checkable: needs {', '.join(result.missing)}")
            elif not result.checked:
                missed.append(f"{rule} is required, and nothing in this trace puts it to the test")
    return missed


def family_of(rule: str) -> str:
    """`slots` of `slots/reuse`."""
    return rule.partition("/")[0]


def _hint(word: str) -> str:
    names = [*RULES, *dict.fromkeys(map(family_of, RULES))]
    hint = nearest(word, names)
    return hint if "did you mean" in hint else "; `batchspec rules` lists them"
