"""Why a fault went unseen: each survivor is explained by an argument that is worked out, rule by rule apart.

A survivor is *legal* where the trace with the fault tells of a run that the spec allows (runs.py):

    workload   the reference scheduler, fed the changed arrival, writes exactly this trace
    renamed    another free seat, free block or content key that nobody asks for (ledgers.py)
    books      the spec's actions bring both traces to the same books when the next step begins (books.py)
    clock      the clock still runs forward, and no claim is measured by this time
    outside    the word is the model's, the client's or the operator's: any other is as good
    moment     what the client does comes at another moment of the step, or does not come
    tie        rows of one step in another order, which neither the policy nor what they do gives a meaning
    unclaimed  a member may be left out of a step where nothing claims that it runs in every one
    unsaid     the row is one that a trace may leave out: without all of its kind the good trace is good too
    bounded    a rule judges this value, or how late the row comes, and lets it pass; it speaks at another

*unobservable* where nothing that could contradict it is told or claimed here:

    level      told more fully (L4), the same fault in the same run breaks a rule that lacks a column here
    unread     no rule speaks whatever stands in this cell; the one that judges it in other runs is named

and otherwise a *gap*: either one that the spec leaves on purpose (`KNOWN`, with the reason), or a new one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from batchspec.replay.mutation import runs
from batchspec.replay.mutation.faults import Fault, Mutant
from batchspec.replay.mutation.goods import Good, GoodTable, good_of
from batchspec.replay.mutation.judges import judge_of, others
from batchspec.replay.mutation.reason import GAP, LEGAL, UNOBSERVABLE, Reason
from batchspec.replay.mutation.stretches import ENDS, MOST_STEPS, put_later
from batchspec.replay.mutation.tables import TableMutant, changed
from batchspec.spec.events import Event
from batchspec.spec.rules.requests import refused
from batchspec.spec.verdict import RuleResult

_DEVICE: Final = frozenset({"dispatch", "complete", "transfer_begin", "transfer_end"})
_FAR: Final = (1, 2, 3, 5, 10, 50, 1_000, 1_000_000, 1_000_000_000_000)
_NUMBERS: Final = frozenset(
    {"prompt_tokens", "max_tokens", "priority", "tokens", "drafts", "blocks", "output_tokens", "units"}
    | {"time_ns", "pass_", "prediction", "cached", "start", "pinned_blocks"}
)
"""Columns that are compared with bounds; names and reported counts are right or wrong."""

KNOWN: Final[dict[tuple[str, str], str]] = {
    ("complete", "drop"): (
        "how long a pass takes is the device's doing; only a profile with a bound of its own for "
        "liveness/idle-stall says that one ends"
    ),
    ("skip", "reason"): "a note of the scheduler's own: it may excuse, and claims nothing",
}
"""Gaps that are left on purpose: (kind of event or `record`, column or kind of fault) to the reason."""


def explained(good: Good, mutant: Mutant) -> Reason:
    """The first argument that holds for a survivor of an event trace."""
    for argue in _ARGUMENTS:
        reason = argue(good, mutant)
        if reason is not None:
            return reason
    fault = mutant.fault
    event = (fault.before or fault.after)[0].event
    known = KNOWN.get((event, fault.column or fault.kind))
    return Reason(GAP, "known" if known else "new", known or "no argument says why no rule speaks")


# -- less is said, or later -------------------------------------------------------------------------


def _unsaid(good: Good, mutant: Mutant) -> Reason | None:
    fault = mutant.fault
    if fault.kind == "kind" and fault.column == "event":
        return _instead(good, mutant)
    if fault.kind != "drop":
        return None
    event = fault.before[0]
    if event.event == "schedule":
        return _left_out(good, mutant)
    rest = [one for one in good.events if one.event != event.event]
    if not rest or _findings(good, rest):
        return None
    words = f"a trace may leave {event.event} rows out: without any this one conforms as well"
    return Reason(LEGAL, "unsaid", words)


def _instead(good: Good, mutant: Mutant) -> Reason | None:
    """Another row in its place: the row may be missing, and the check says that the new one is not wrong."""
    fault = mutant.fault
    before, after = fault.before[0], fault.after[0]
    if before.event in ENDS and after.event in ENDS:
        return Reason(LEGAL, "outside", "an end of another kind, from a state in which that is legal too")
    events = [*good.events[: fault.row], *good.events[fault.row + 1 :]]
    dropped = Mutant(Fault("drop", fault.row, None, fault.before, (), ""), events)
    if _findings(good, events):
        return None
    reason = explained(good, dropped)
    if reason.verdict == GAP:
        return None
    return reason._replace(
        words=f"{reason.words}; and the {after.event} row contradicts nothing that is told"
    )


def _left_out(good: Good, mutant: Mutant) -> Reason | None:
    """A member less: who claims that it runs in every step?"""
    results = {one.id: one for one in good.judge(mutant.events).rules}
    rules = ("batch/no-stall", "liveness/starved-member")
    if any(results[rule].verdict == "violates" for rule in rules):
        return None
    return Reason(
        LEGAL, "unclaimed", f"a member may be left out of a step within what {' and '.join(rules)} claim"
    )


def _later(good: Good, mutant: Mutant) -> Reason | None:
    """A row that comes a step later: how late is too late?"""
    fault = mutant.fault
    if fault.column != "step" or fault.after[0].step <= fault.before[0].step:
        return None
    for by in range(2, MOST_STEPS + 1):
        findings = _findings(good, put_later(good.events, "late", [fault.row], by, "").events)
        if findings:
            says = f"{findings[0]} lets it come a step later; it speaks where it comes {by} steps later"
            return Reason(LEGAL, "bounded", says)
    return Reason(UNOBSERVABLE, "unread", "no rule that is checkable here speaks however late this row comes")


# -- unobservable ----------------------------------------------------------------------------------


def _level(good: Good, mutant: Mutant) -> Reason | None:
    full = _retold(good, mutant)
    if full is None:
        return None
    report = full[0].judge(full[1])
    if not report.findings:
        return None
    rule = report.findings[0].rule
    here = next(one for one in good.judge(mutant.events).rules if one.id == rule)
    lacks = f", which lacks {', '.join(here.missing)} here" if here.missing else ""
    return Reason(UNOBSERVABLE, "level", f"at L4 the same fault breaks {rule}{lacks}")


def _retold(good: Good, mutant: Mutant) -> tuple[Good, list[Event]] | None:
    """The run and the fault at level L4; None where it is at that level, or the rows do not correspond."""
    fault = mutant.fault
    if good.level == "L4":
        return None
    full = good_of(good.run, "L4")
    places = [row for row, event in enumerate(full.events) if event.event not in _DEVICE]
    mine = [row for row, event in enumerate(good.events) if event.event not in _DEVICE]
    if len(places) != len(mine) or fault.row not in mine or fault.column == "step":
        return None
    row = places[mine.index(fault.row)]
    told = full.events[row]
    if fault.kind == "drop":
        return full, [*full.events[:row], *full.events[row + 1 :]]
    if fault.kind == "duplicate":
        return full, [*full.events[: row + 1], *full.events[row:]]
    if fault.kind == "order":
        last = fault.row + len(fault.before) - 1
        if last not in mine:
            return None
        other = places[mine.index(last)]
        swapped = list(full.events)
        swapped[row], swapped[other] = swapped[other], swapped[row]
        return full, swapped
    before, after = fault.before[0], fault.after[0]
    new = {name: value for name, value in after._asdict().items() if value != getattr(before, name)}
    return full, [*full.events[:row], told._replace(**new), *full.events[row + 1 :]]


def _cell(good: Good, mutant: Mutant) -> Reason | None:
    """A number on the way to a bound, or a cell that no rule reads here."""
    fault = mutant.fault
    if fault.column is None or fault.column in ("event", "step"):
        return None
    field = "pass_" if fault.column == "pass" else fault.column
    if field in _NUMBERS:
        before, after = getattr(fault.before[0], field), getattr(fault.after[0], field)
        for side, values in (("", _beyond(before, after)), (" from the other side", _beyond(after, before))):
            for value in values:
                findings = _findings(good, _with(good, fault, field, value))
                if findings:
                    says = (
                        f"{findings[0]} bounds {fault.column}{side} and lets this pass; it speaks at {value}"
                    )
                    return Reason(LEGAL, "bounded", says)
    if any(_findings(good, _with(good, fault, field, value)) for value in others(good, fault.row, field)):
        return None  # some rule reads it here, and does not mind this value: no argument says why
    judge = judge_of(fault.before[0].event, field)
    if judge is None:
        return None
    results = {one.id: one for one in good.judge(mutant.events).rules}
    return Reason(UNOBSERVABLE, "unread", _unread(judge, results[judge]))


def _unread(judge: str, here: RuleResult) -> str:
    if here.missing:
        return f"{judge}, which judges it elsewhere, lacks {', '.join(here.missing)} here"
    return f"{judge}, which judges it elsewhere, has nothing here to hold it against"


def _with(good: Good, fault: Fault, field: str, value: Any) -> list[Event]:
    event = fault.before[0]._replace(**{field: value})
    return [*good.events[: fault.row], event, *good.events[fault.row + 1 :]]


def _beyond(before: Any, after: Any) -> Iterator[int]:
    """Values further away than `after`, in the same direction."""
    sign = 1 if after > before else -1
    yield from (value for by in _FAR if (value := after + sign * by) >= 0)


def _findings(good: Good, events: Sequence[Event]) -> list[str]:
    return [finding.rule for finding in good.judge(events).findings]


_ARGUMENTS: Final[tuple[Callable[[Good, Mutant], Reason | None], ...]] = (
    runs.workload,
    runs.renamed,
    runs.clock,
    runs.outside,
    runs.books,
    runs.moment,
    _unsaid,
    _later,
    _level,
    _cell,
)


# -- request tables --------------------------------------------------------------------------------


def explained_table(good: GoodTable, mutant: TableMutant) -> Reason:
    """The first argument that holds for a survivor of a request table."""
    fault = mutant.fault
    if fault.kind == "order":
        times = [record.arrival_ns for record in good.records]
        if times[fault.row] == times[fault.row + 1]:
            return Reason(LEGAL, "unordered", "requests of one instant have no order between them")
        return Reason(LEGAL, "unordered", "the order of a table's rows is no claim: arrival_ns is")
    if fault.kind == "duplicate" and refused(good.records[fault.row]):
        return Reason(LEGAL, "again", "the id of a refused request may come again, and be refused again")
    if fault.kind == "drop":
        return Reason(LEGAL, "unsaid", "a table of fewer requests: nothing says that all are told")
    if fault.column is None:
        return Reason(GAP, "new", "no argument says why no rule speaks")
    numbers = isinstance(fault.before, int) and isinstance(fault.after, int) and fault.column != "request"
    for value in _beyond(fault.before, fault.after) if numbers else ():
        report = good.judge(changed(good.records, fault.row, fault.kind, fault.column, value).records)
        if report.findings:
            rule = report.findings[0].rule
            says = f"{rule} bounds {fault.column} and lets this value pass; it speaks at {value}"
            return Reason(LEGAL, "bounded", says)
    if fault.column == "request" and refused(good.records[fault.row]):
        return Reason(LEGAL, "again", "a refused request may have any id that is not live")
    judge = judge_of("record", fault.column)
    if judge is not None:
        results = {one.id: one for one in good.judge(mutant.records).rules}
        return Reason(UNOBSERVABLE, "unread", _unread(judge, results[judge]))
    judge = judge_of("arrive", fault.column) if fault.column in runs.ARRIVES else None
    if judge is not None:
        return Reason(UNOBSERVABLE, "level", f"{judge} judges it from events (level L1)")
    known = KNOWN.get(("record", fault.column))
    return Reason(GAP, "known" if known else "new", known or "no argument says why no rule speaks")
