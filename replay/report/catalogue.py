"""The catalogue of rules: a list, and one rule explained with a passing and a failing trace."""

import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from batchspec.replay.report.claims import sentence
from batchspec.replay.report.page import Page, count
from batchspec.spec.profile import option_says
from batchspec.spec.rule import Rule

_KINDS: Final = {
    "always": "holds at every event",
    "bounded": "must happen within the profile's patience, or the bound that the rule names",
    "end": "judged at the end of a complete trace",
    "sometimes": "must be reachable: a spec that allows nothing is wrong too",
}
_LEVELS: Final = {
    "L0": "a table of requests is enough",
    "L1": "life-cycle events, and the members of each step with their token counts",
    "L2": "block counts as well",
    "L3": "block ids as well",
    "L4": "dispatch and completion of overlapping steps as well",
}


def catalogue_page(rules: Iterable[type[Rule]]) -> Page:
    """What `batchspec rules` prints: every rule by family, with its statement."""
    page = Page()
    ordered = list(rules)
    for family, members in groupby(ordered, key=lambda rule: rule.id.partition("/")[0]):
        page.gap()
        page.add((family, "bold"))
        for rule in members:
            page.add(
                rule.id,
                (f"  {rule.level}, {rule.kind}{', on request' if rule.opt_in else ''}", "dim"),
                indent=2,
            )
            page.wrap(rule.sentence, indent=6)
    page.gap()
    page.add(f"{count(len(ordered), 'rule')}; `batchspec rules ID` explains one, with examples")
    return page


def rule_page(rule: type[Rule]) -> Page:
    """What `batchspec rules ID` prints."""
    page = Page()
    page.add((rule.id, "bold"))
    page.wrap(rule.sentence, indent=2)
    page.gap()
    page.wrap(f"{rule.kind}: {_KINDS[rule.kind]}", indent=2, first="kind:     ")
    page.wrap(f"{rule.level}: {_LEVELS[rule.level]}", indent=2, first="level:    ")
    if rule.opt_in:
        page.wrap(f"only on request (--rule {rule.id})", indent=2, first="judged:   ")
    claims = [_premise(item) for item in rule.premise] or ["none: judged under every profile"]
    for number, claim in enumerate(claims):
        page.wrap(claim, indent=2, first="claims:   " if not number else " " * 10)
    page.wrap(", ".join(rule.columns) or "step and event", indent=2, first="columns:  ")
    page.wrap(rule.source, indent=2, first="source:   ")
    for title, text in (("a trace that passes", rule.passing), ("a trace that fails", rule.failing)):
        if text:
            page.gap()
            page.add((f"{title}:", "bold"))
            for line in textwrap.dedent(text).strip().splitlines():
                page.add(line, indent=4)
    if rule.failing:
        page.gap()
        page.add("Save one as scenario.txt and see:  batchspec check scenario.txt")
    return page


def _premise(item: str) -> str:
    path, _, values = item.partition("=")
    if values:
        says = " or ".join(sentence(path, _value(word)) for word in values.split("|"))
        return f"{path} = {values.replace('|', ' or ')} ({says})"
    group, _, name = path.partition(".")
    says = option_says(group, name)
    return f"{path} ({says.format('…')})" if "{}" in says else f"{path} = true ({says})"


def _value(word: str) -> object:
    """The value that a word of a premise stands for."""
    if word in ("true", "false"):
        return word == "true"
    return int(word) if word.isdigit() else word
