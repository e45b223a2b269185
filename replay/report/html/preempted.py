"""The section on preemptions: who made room for whom, by request and by tenant."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from batchspec.replay.overview.overview import Overview
from batchspec.replay.report.context import short
from batchspec.replay.report.html.markup import Html, join, section, table, tag
from batchspec.replay.report.page import count

MOST_IN_A_MATRIX: Final = 10
MOST_IN_A_TABLE: Final = 15


def preemptions_section(overview: Overview) -> Html:
    """Who preempted whom."""
    found = overview.preemptions
    if not found.total:
        return section("preemptions", "Preemptions", tag("p", "Nobody was preempted."))
    reasons = ", ".join(f"{times:,} {reason}" for reason, times in found.reasons.most_common())
    told = [(pair, times) for pair, times in found.pairs.most_common() if pair[0] is not None]
    says = f"{count(found.total, 'preemption')} ({reasons}) of {count(len(found.victims()), 'request')}."
    unknown = sum(times for (cause, _), times in found.pairs.items() if cause is None)
    if unknown:
        says += f" Of {unknown:,} the trace does not say for whom."
    if found.left_out:
        says += f" {found.left_out:,} later ones are counted and not told apart."
    victims = [(short(name), times) for name, times in found.victims().most_common(MOST_IN_A_TABLE)]
    pairs = [(short(cause), short(victim), times) for (cause, victim), times in told[:MOST_IN_A_TABLE]]
    parts = [tag("div", tag("h3", "Most often preempted"), table(("request", "times"), victims, " n"))]
    if pairs:
        made = table(("made room for", "preempted", "times"), pairs, "  n")
        parts.append(tag("div", tag("h3", "Who made room for whom"), made))
    by_request = _matrix(found.pairs, *found.busiest(MOST_IN_A_MATRIX), "As a matrix, the busiest requests")
    names = list(overview.tenants.names)
    by_tenant = _matrix(found.tenants, names, names, "By tenant")
    tables = tag("div", *parts, class_="two")
    return section("preemptions", "Preemptions", tag("p", says), tables, by_tenant, by_request)


def _matrix(
    times: Mapping[tuple[Any, Any], int], causes: Sequence[Any], victims: Sequence[Any], says: str
) -> Html:
    """Causes against victims, shaded by how often."""
    most = max((times.get((cause, victim), 0) for cause in causes for victim in victims), default=0)
    if len(causes) * len(victims) < 2 or not most:
        return Html("")
    head = join(tag("th", short(victim), scope="col", title=victim) for victim in victims)
    rows = []
    for cause in causes:
        cells = []
        for victim in victims:
            many = times.get((cause, victim), 0)
            shade = f"background:color-mix(in srgb, var(--preempt) {round(55 * many / most)}%, transparent)"
            cells.append(tag("td", many or "", style=shade if many else None))
        rows.append(tag("tr", tag("th", short(cause), scope="row", title=cause), join(cells)))
    top = tag("thead", tag("tr", tag("th", "for ↓  out →"), head))
    made = tag("table", top, tag("tbody", join(rows)), class_="matrix")
    return tag("details", tag("summary", says), tag("div", made, class_="scroll"), open=True)
