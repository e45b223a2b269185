"""The section on coverage: which rules, actions and premises the trace put to the test, and which not."""

from batchspec.replay.coverage import ACTIONS, PREMISES, Coverage
from batchspec.replay.report.html.markup import Html, section, table, tag


def coverage_section(coverage: Coverage | None) -> Html:
    """What was exercised, as shares, and by name what was not; nothing where nobody asked."""
    if coverage is None:
        return Html("")
    rules = coverage.rules_missed()
    actions = coverage.actions_missed()
    premises = coverage.premises_missed()
    shares = [
        (name, f"{len(clauses) - len(missed)} of {len(clauses)}", says)
        for name, missed, clauses, says in (
            ("rules", rules, coverage.checked, "judged at least one instance"),
            ("actions", actions, ACTIONS, "an event from a state that it is legal from"),
            ("premises", premises, PREMISES, "claims on which a rule that judged something rests"),
        )
    ]
    parts = [
        _missed("Rules that were not put to the test", list(rules.items())),
        _missed("Actions that did not happen", [(kind, _from(state)) for kind, state in actions]),
        _missed("Premises that were not at work", [(option, value or "") for option, value in premises]),
    ]
    return section("coverage", "Coverage", table(("", "exercised", ""), shares, " n"), *parts)


def _from(state: str | None) -> str:
    return "" if state is None else f"from {state}"


def _missed(says: str, rows: list[tuple[str, str]]) -> Html:
    if not rows:
        return Html("")
    return tag("details", tag("summary", f"{says}: {len(rows)}"), table(("", ""), rows))
