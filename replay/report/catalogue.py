"""The catalogue of rules: a list, and one rule explained with a passing and a failing trace."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from batchspec.replay.report.claims import sentence
from batchspec.replay.report.context import Stretch
from batchspec.replay.report.page import Page, count
from batchspec.replay.report.text import finding_lines
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import COLUMNS, KINDS
from batchspec.spec.examples import Example
from batchspec.spec.profile import Profile, option_says
from batchspec.spec.rule import Rule
from batchspec.spec.rules.requests import RECORD_RULES
from batchspec.spec.sometimes import Sometimes
from batchspec.spec.verdict import Finding

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


def catalogue_page(rules: Iterable[type[Rule]], possible: Sequence[Sometimes] = ()) -> Page:
    """What `batchspec rules` prints: every rule by family, with its statement, and what must be possible."""
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
    if possible:
        page.gap()
        page.add(("sometimes", "bold"), ": what a scheduler with the claim must be able to come to")
        for item in possible:
            page.add(item.id, (f"  {', '.join(item.premise) or 'any profile'}", "dim"), indent=2)
            page.wrap(item.sentence, indent=6)
    page.gap()
    page.add(f"{count(len(ordered), 'rule')}; `batchspec rules ID` explains one, with examples")
    return page


def rule_page(rule: type[Rule], example: Example | None = None) -> Page:
    """What `batchspec rules ID` prints; `add_finding` says how its failing trace is reported."""
    page = Page()
    page.add((rule.id, "bold"))
    page.wrap(rule.sentence, indent=2)
    page.gap()
    page.wrap(f"{rule.kind}: {_KINDS[rule.kind]}", indent=2, first="kind:     ")
    page.wrap(f"{rule.level}: {_LEVELS[rule.level]}", indent=2, first="level:    ")
    if rule.id in RECORD_RULES:
        page.wrap(f"L0: {_LEVELS['L0']}, as far as its times tell", indent=2, first=" " * 10)
    if rule.opt_in:
        page.wrap(f"only on request (--rule {rule.id})", indent=2, first="judged:   ")
    # Without any claim and any column `missing` says whatever else the rule asks for.
    own = not rule.__module__.startswith("batchspec.")
    needs = rule.missing(Profile(), frozenset(), frozenset()) if example or own else ()
    options = [item for item in needs if "." in item and item not in rule.premise]
    columns = [item for item in needs if "." not in item]
    claims = [_premise(item) for item in (*rule.premise, *options)] or ["none: judged under every profile"]
    for number, claim in enumerate(claims):
        page.wrap(claim, indent=2, first="claims:   " if not number else " " * 10)
    page.wrap(", ".join(columns) or "step and event", indent=2, first="columns:  ")
    page.wrap(rule.source, indent=2, first="source:   ")
    if own:
        return page
    if example is None:
        lacking = ", ".join(rule.missing(Profile(), frozenset(COLUMNS), frozenset(KINDS)))
        page.wrap(f"none: no trace can show it; needs {lacking}", indent=2, first="example:  ")
        return page
    for title, text in (("a trace that passes", example.passing), ("a trace that fails", example.failing)):
        page.gap()
        page.add((f"{title}:", "bold"))
        for line in text.splitlines():
            page.add(line, indent=4)
    return page


def add_finding(page: Page, finding: Finding, stretch: Stretch | None) -> None:
    """Add what a check says of the failing trace."""
    command = f"batchspec check scenario.txt{_on_request(finding.rule)}"
    page.gap()
    page.add(("what a check says of it", "bold"), f" (save it as scenario.txt: {command}):")
    page.gap()
    finding_lines(page, finding, None, stretch, command)


def _on_request(rule_id: str) -> str:
    return f" --rule {rule_id}" if RULES[rule_id].opt_in else ""


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
