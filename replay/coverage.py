"""Clause coverage: which rules, actions and premises some traces really put to the test.

A rule is exercised where it judged at least one instance; one that judged none has not passed. An action
is a kind of event from one of the states that it is legal from. A premise is an option of the profile,
with its value, that a rule rests on: it is exercised where a trace claims it and such a rule judged
something. All three lists are those of the spec, so what is missing shows as well.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from batchspec.spec.actions import LEGAL_FROM, legal_from
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import KINDS, WITHOUT_REQUEST, Event
from batchspec.spec.model import ENDED, State
from batchspec.spec.profile import GROUPS, Profile
from batchspec.spec.verdict import Report

Action = tuple[str, str | None]
"""An event kind and the state of its request before it; None for rows about no request."""

Premise = tuple[str, str | None]
"""An option as `group.option` and its value; None stands for any value of one with free values."""


def _actions() -> tuple[Action, ...]:
    found: dict[Action, None] = {}
    overlapping = Profile.from_dict({"reuse": {"depth": 2}})
    books = [State(profile, frozenset(), frozenset()) for profile in (Profile(), overlapping)]
    for kind in KINDS:
        if kind in WITHOUT_REQUEST:
            found[kind, None] = None
            continue
        states = [*LEGAL_FROM[kind], *(name for state in books for name in legal_from(state, Event(0, kind)))]
        found.update(((kind, name), None) for name in states)
        if kind == "schedule":
            found[kind, ENDED] = None  # within overlap_member
    return tuple(found)


def premises_of(rule_id: str) -> tuple[Premise, ...]:
    """The premises of one rule, each allowed value of an option a premise of its own."""
    found: list[Premise] = []
    for item in RULES[rule_id].premise:
        path, _, values = item.partition("=")
        group, _, name = path.partition(".")
        meta = GROUPS[group].__dataclass_fields__[name].metadata
        if values:
            found += [(path, value) for value in values.split("|")]
        elif meta["choices"]:
            found += [(path, value) for value in meta["choices"]]
        else:
            found.append((path, "true" if meta["kind"] == "bool" else None))
    return tuple(found)


ACTIONS: Final = _actions()
"""Every action that the spec allows under some profile, in the order of the trace format."""

PREMISES: Final = tuple(dict.fromkeys(premise for rule_id in RULES for premise in premises_of(rule_id)))
"""Every premise of some rule, in the order of the catalogue."""

_KNOWN: Final = frozenset(ACTIONS)


@dataclass
class Coverage:
    """Counts over any number of traces. Give `observe` to the check of each, then `add` its report."""

    traces: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    """Instances judged, by rule. A rule that some report has, with 0, was not put to the test."""
    exercised_in: Counter[str] = field(default_factory=Counter)
    """Traces in which a rule judged something."""
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What a rule lacked in every trace so far."""
    actions: Counter[Action] = field(default_factory=Counter)
    """Rows, by action."""
    premises: Counter[Premise] = field(default_factory=Counter)
    """Traces in which a premise was at work."""

    def observe(self, state: State, event: Event) -> None:
        """Count one row, with the books as they stand before it. Rows that are not legal do not count."""
        kind = event.event
        if event.request is None:
            self.actions[kind, None] += 1
            return
        where = state.state_of(event.request)
        if kind == "schedule" and where == ENDED:
            if event.step > state.ended[event.request].pass_step + state.overlap_member:
                return
        elif where not in legal_from(state, event):
            return
        self.actions[kind, where] += 1

    def add(self, report: Report, profile: Profile | None) -> None:
        """Count the verdicts on one trace under the claims that it was judged by."""
        self.traces += 1
        at_work: set[Premise] = set()
        for result in report.rules:
            first = result.id not in self.checked
            self.checked[result.id] += result.checked
            if result.missing and (first or result.id in self.missing):
                self.missing.setdefault(result.id, result.missing)
            elif not result.missing:
                self.missing.pop(result.id, None)
            if result.checked:
                self.exercised_in[result.id] += 1
                at_work.update(premise for premise in premises_of(result.id) if _holds(profile, premise))
        self.premises.update(at_work)

    def merge(self, others: Iterable["Coverage"]) -> None:
        """Take the counts of other coverages in."""
        for other in others:
            for rule, count in other.checked.items():
                lacks = other.missing.get(rule)
                if lacks is None:
                    self.missing.pop(rule, None)
                elif rule not in self.checked:
                    self.missing[rule] = lacks
                self.checked[rule] += count
            self.traces += other.traces
            self.exercised_in.update(other.exercised_in)
            self.actions.update(other.actions)
            self.premises.update(other.premises)

    def rules_missed(self) -> dict[str, str]:
        """Rules that judged nothing in any trace, and why."""
        return {
            rule: "needs " + ", ".join(self.missing[rule])
            if rule in self.missing
            else "nothing puts it to the test"
            for rule, count in self.checked.items()
            if not count
        }

    def actions_missed(self) -> list[Action]:
        """Actions that no row was."""
        return [action for action in ACTIONS if not self.actions[action]]

    def premises_missed(self) -> list[Premise]:
        """Premises that were nowhere at work."""
        return [premise for premise in PREMISES if not self.premises[premise]]


def _holds(profile: Profile | None, premise: Premise) -> bool:
    claimed = None if profile is None else profile.claim(premise[0])
    if claimed is None:
        return False
    return premise[1] is None or str(claimed).lower() == premise[1]
