"""Two runs held against each other: the first decision in which they differ.

Requests are aligned by id, or, where the runs share no id, by the order of their arrival. Steps are aligned
by count, those without a decision left out, so that idle steps make no difference. What one of the traces
does not say (a null, a kind of row that it never writes) is no difference. Block ids are places, and are not
compared, nor are the counters of `step` rows; block counts are. Inputs come first: under different inputs
different decisions say nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from batchspec.spec.events import Event, RequestId
from batchspec.traces.trace import Trace

Key = tuple[RequestId, int]
"""A request of both runs: its id in A (or the ordinal of its arrival) and its incarnation."""

MOST_INPUTS: Final = 20
"""How many differences of the inputs are listed; all are counted."""

_ALWAYS: Final = frozenset({"admit", "resume", "preempt", "schedule", "finish", "abort", "reject"})
_WHERE_BOTH: Final = frozenset({"park", "skip", "output", "cancel", "ready"})
_COMPARED: Final[Mapping[str, tuple[str, ...]]] = {
    "admit": ("slot", "cached", "blocks"),
    "resume": ("slot", "cached", "blocks"),
    "schedule": ("tokens", "start", "drafts", "blocks"),
    "preempt": ("reason", "cause", "blocks"),
    "finish": ("reason", "output_tokens"),
    "abort": ("reason", "output_tokens"),
    "reject": ("reason",),
    "park": ("reason",),
    "skip": ("reason",),
    "output": ("tokens",),
    "cancel": (),
    "ready": (),
}
_PLACES: Final = {
    kind: tuple((column, Event._fields.index(column)) for column in columns)
    for kind, columns in _COMPARED.items()
}
_COUNTERS: Final = ("free_blocks", "running", "waiting")
_INPUTS: Final = ("prompt_tokens", "max_tokens", "priority", "tenant", "prediction")
_ASPECTS: Final = {
    "tokens": "chunk size",
    "start": "position",
    "drafts": "drafts",
    "slot": "slot",
    "cached": "cache hit",
    "blocks": "block count",
    "reason": "reason",
    "cause": "cause of a preemption",
    "output_tokens": "output",
}
_KINDS: Final = {
    "admit": "admission",
    "resume": "admission",
    "schedule": "membership",
    "preempt": "preemption victim",
    "output": "output",
    "cancel": "cancel",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """One row that decides something, as it is compared: `values` by column, null ones left out."""

    key: Key
    kind: str
    values: Mapping[str, Any]
    row: int
    event: Event


@dataclass(slots=True)
class Step:
    """The decisions of one step of one run, and what had arrived by its end."""

    number: int
    decisions: list[Decision] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    arrived: dict[Key, int] = field(default_factory=dict)

    def told(self) -> list[tuple[Key, str, Mapping[str, Any]]]:
        """What is compared of each decision, in order."""
        return [(one.key, one.kind, one.values) for one in self.decisions]

    def by_key(self) -> dict[Key, list[tuple[str, Mapping[str, Any]]]]:
        """What was decided about each request."""
        found: dict[Key, list[tuple[str, Mapping[str, Any]]]] = {}
        for one in self.decisions:
            found.setdefault(one.key, []).append((one.kind, one.values))
        return found

    def ids(self, *kinds: str) -> list[RequestId]:
        """The requests of the rows of these kinds, in order, by their names in this run."""
        return [one.event.subject for one in self.decisions if one.kind in kinds]


@dataclass(frozen=True, slots=True)
class InputDifference:
    """Something that the runs were given differently. `request` is None where it is a header's claim."""

    request: RequestId | None
    what: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first decision in which the runs differ. A step is None where that run is over.

    `ahead_a` are requests that have arrived by then in A and not yet in B: an input, not a decision.
    """

    aspect: str
    request: RequestId | None
    step_a: int | None
    step_b: int | None
    row_a: int | None
    row_b: int | None
    a: str
    b: str
    rows_a: tuple[tuple[int, Event], ...] = ()
    rows_b: tuple[tuple[int, Event], ...] = ()
    ahead_a: tuple[RequestId, ...] = ()
    ahead_b: tuple[RequestId, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out. `before` are the counters of A and of B at the end of the last step that is alike."""

    aligned_by: str
    inputs: tuple[InputDifference, ...]
    input_count: int
    claims: tuple[InputDifference, ...]
    divergence: Divergence | None
    steps: int
    before: Mapping[str, tuple[int, int]]

    @property
    def same(self) -> bool:
        """The same decisions under the same inputs."""
        return self.divergence is None and not self.input_count


def compare(a: Trace, b: Trace) -> Comparison:
    """Hold two runs against each other. Memory: the requests, and one step of each run."""
    first, second = _arrivals(a), _arrivals(b)
    by_id = not first or not second or bool(first.keys() & second.keys())
    names = (_Names(by_id), _Names(by_id))
    inputs = _inputs(first, second, by_id)
    kinds = _ALWAYS | (_WHERE_BOTH & a.kinds.keys() & b.kinds.keys())
    divergence, steps, before = _first(_steps(a, kinds, names[0]), _steps(b, kinds, names[1]))
    return Comparison(
        "id" if by_id else "order of arrival",
        tuple(inputs[:MOST_INPUTS]),
        len(inputs),
        tuple(_claims(a, b)),
        divergence,
        steps,
        before,
    )


# -- inputs ----------------------------------------------------------------------------------------


def _arrivals(trace: Trace) -> dict[RequestId, list[Event]]:
    found: dict[RequestId, list[Event]] = {}
    if trace.kinds.keys() & {"arrive", "live"}:
        for event in trace.events():
            if event.event in ("arrive", "live"):
                found.setdefault(event.subject, []).append(event)
    return found


def _inputs(
    a: Mapping[RequestId, list[Event]], b: Mapping[RequestId, list[Event]], by_id: bool
) -> list[InputDifference]:
    found: list[InputDifference] = []
    if by_id:
        pairs = [(name, a.get(name, []), b.get(name, [])) for name in dict.fromkeys([*a, *b])]
    else:
        names = list(a)
        theirs = list(b.values())
        longest = max(len(names), len(theirs))
        pairs = [
            (
                names[at] if at < len(names) else list(b)[at],
                a[names[at]] if at < len(names) else [],
                theirs[at] if at < len(theirs) else [],
            )
            for at in range(longest)
        ]
    for name, mine, other in pairs:
        for one, two in zip(mine, other, strict=False):
            for column in _INPUTS:
                left, right = getattr(one, column), getattr(two, column)
                if left is not None and right is not None and left != right:
                    found.append(InputDifference(name, column, left, right))
        if len(mine) != len(other):
            found.append(InputDifference(name, "arrivals", len(mine), len(other)))
    if by_id:
        both = [name for name in a if name in b]
        theirs_in_order = [name for name in b if name in a]
        for left, right in zip(both, theirs_in_order, strict=True):
            if left != right:
                found.append(InputDifference(left, "order of arrival", f"{left} next", f"{right} next"))
                break
    return found


def _claims(a: Trace, b: Trace) -> Iterator[InputDifference]:
    """Claims of the headers that differ: often the very reason."""
    mine, theirs = (_flat(trace) for trace in (a, b))
    for name in dict.fromkeys([*mine, *theirs]):
        if mine.get(name) != theirs.get(name):
            yield InputDifference(None, name, mine.get(name), theirs.get(name))


def _flat(trace: Trace) -> dict[str, Any]:
    header = trace.header
    if header is None:
        return {}
    out: dict[str, Any] = {} if header.profile is None else {"profile": header.profile}
    for group, table in header.config.items():
        if isinstance(table, Mapping):
            out.update({f"{group}.{name}": value for name, value in table.items()})
    return out


# -- decisions -------------------------------------------------------------------------------------


class _Names:
    """Turns the ids of one run into keys that both runs share."""

    def __init__(self, by_id: bool) -> None:
        self._by_id = by_id
        self._incarnations: dict[RequestId, int] = {}
        self._ordinals: dict[RequestId, int] = {}

    def arrived(self, name: RequestId) -> Key:
        self._incarnations[name] = self._incarnations.get(name, -1) + 1
        self._ordinals.setdefault(name, len(self._ordinals))
        return self.key(name)

    def key(self, name: RequestId) -> Key:
        known = name if self._by_id else self._ordinals.get(name, -1)
        return known, self._incarnations.get(name, 0)


def _steps(trace: Trace, kinds: frozenset[str], names: _Names) -> Iterator[Step]:
    """The steps with a decision, in order. What arrives in a step without one counts to the next."""
    step: Step | None = None
    for row, event in enumerate(trace.events()):
        if step is None or event.step != step.number:
            if step is not None and step.decisions:
                yield step
                step = Step(event.step)
            else:
                step = Step(event.step, arrived={} if step is None else step.arrived)
        kind = event.event
        if kind in ("arrive", "live"):
            step.arrived[names.arrived(event.subject)] = row
        elif kind in kinds:
            values: dict[str, Any] = {
                column: value for column, at in _PLACES[kind] if (value := event[at]) is not None
            }
            if "cause" in values:
                values["cause"] = names.key(values["cause"])[0]
            step.decisions.append(Decision(names.key(event.subject), kind, values, row, event))
        elif kind == "step":
            for column in _COUNTERS:
                if (value := getattr(event, column)) is not None:
                    step.counters[column] = value
    if step is not None and step.decisions:
        yield step


def _first(
    mine: Iterator[Step], theirs: Iterator[Step]
) -> tuple[Divergence | None, int, Mapping[str, tuple[int, int]]]:
    steps: int = 0
    before: Mapping[str, tuple[int, int]] = {}
    # Who has arrived in one of the runs only, so far.
    ahead: tuple[dict[Key, None], dict[Key, None]] = ({}, {})
    while True:
        a, b = next(mine, None), next(theirs, None)
        if a is None and b is None:
            return None, steps, before
        for own, other, step in ((*ahead, a), (*ahead[::-1], b)):
            for key in () if step is None else step.arrived:
                if key in other:
                    del other[key]
                else:
                    own[key] = None
        found = _over(a, b) if a is None or b is None else _differ(a, b)
        if found is not None or a is None or b is None:
            early = tuple(tuple(name for name, _ in side)[:MOST_INPUTS] for side in ahead)
            return found and replace(found, ahead_a=early[0], ahead_b=early[1]), steps, before
        both = a.counters.keys() & b.counters.keys()
        before = {name: (a.counters[name], b.counters[name]) for name in _COUNTERS if name in both}
        steps += 1


def _over(a: Step | None, b: Step | None) -> Divergence:
    left = next(step for step in (a, b) if step is not None)
    one = left.decisions[0]
    text = f"goes on in step {left.number}: {_said(one)}"
    return Divergence(
        "end",
        one.event.subject,
        None if a is None else a.number,
        None if b is None else b.number,
        one.row if a else None,
        one.row if b else None,
        text if a else "is over",
        text if b else "is over",
        _rows(a, {one.key}),
        _rows(b, {one.key}),
    )


def _differ(a: Step, b: Step) -> Divergence | None:
    if a.told() == b.told():
        return None
    mine, theirs = a.by_key(), b.by_key()
    keys = {key for key in [*mine, *theirs] if _unlike(mine.get(key, []), theirs.get(key, []))}
    unlike = [
        (place, side, one)
        for side, step in enumerate((a, b))
        for place, one in enumerate(step.decisions)
        if one.key in keys
    ]
    if unlike:
        place, _, one = min(unlike, key=lambda found: found[:2])
        left, right = (step.decisions[place : place + 1] for step in (a, b))
        if left and right and left[0].key != right[0].key:
            for kinds in (("admit", "resume"), ("preempt",)):
                if left[0].kind in kinds and right[0].kind in kinds:
                    # Both take somebody here, each somebody else.
                    said = _said(left[0]), _said(right[0])
                    return _made(_kind(left[0].kind), left[0], right[0], a, b, *said)
        return _about(one, a, b)
    for aspect, kinds in (("order of admission", ("admit", "resume")), ("order of preemption", ("preempt",))):
        orders = [[one for one in step.decisions if one.kind in kinds] for step in (a, b)]
        for one, two in zip(*orders, strict=True):
            if one.key != two.key:
                return _made(aspect, one, two, a, b, f"{one.kind}s {one.event.subject} first",
                             f"{two.kind}s {two.event.subject} first")  # fmt: skip
    return None


def _unlike(one: list[tuple[str, Mapping[str, Any]]], two: list[tuple[str, Mapping[str, Any]]]) -> bool:
    if [kind for kind, _ in one] != [kind for kind, _ in two]:
        return True
    return any(_columns(left, right) for (_, left), (_, right) in zip(one, two, strict=True))


def _columns(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """The columns that both rows have and that differ."""
    return [name for name in left if name in right and left[name] != right[name]]


def _about(one: Decision, a: Step, b: Step) -> Divergence:
    """What differs about the request of a decision that the runs do not share."""
    mine = [other for other in a.decisions if other.key == one.key]
    theirs = [other for other in b.decisions if other.key == one.key]
    for left, right in zip(mine, theirs, strict=False):
        if left.kind != right.kind:
            aspect = "preemption victim" if "preempt" in (left.kind, right.kind) else _kind(left.kind)
            return _made(aspect, left, right, a, b, _said(left), _said(right))
        if columns := _columns(left.values, right.values):
            name = columns[0]
            aspect = "output" if left.kind == "output" else _ASPECTS[name]
            return _made(aspect, left, right, a, b, _said(left), _said(right))
    at = min(len(mine), len(theirs))
    next_one, next_other = (mine[at] if at < len(mine) else None), (theirs[at] if at < len(theirs) else None)
    there = next(decision for decision in (next_one, next_other) if decision is not None)
    said = _instead(next_one, there, a), _instead(next_other, there, b)
    return _made(_kind(there.kind), next_one, next_other, a, b, *said)


def _instead(mine: Decision | None, there: Decision, step: Step) -> str:
    """What a run does where the other one decides `there`."""
    if mine is not None:
        return _said(mine)
    verbs = {"admit": "admits", "resume": "resumes", "preempt": "preempts", "schedule": "schedules"}
    same = ("admit", "resume") if there.kind in ("admit", "resume") else (there.kind,)
    others = ", ".join(map(str, step.ids(*same)[:8]))
    verb = verbs.get(there.kind, f"has {there.kind} rows of")
    return f"{verb} {others or 'nobody'} in this step" + (f", not {there.event.subject}" if others else "")


def _made(
    aspect: str, left: Decision | None, right: Decision | None, a: Step, b: Step, text_a: str, text_b: str
) -> Divergence:
    there = next(one for one in (left, right) if one is not None)
    keys = {one.key for one in (left, right) if one is not None}
    return Divergence(
        aspect,
        there.event.subject,
        a.number,
        b.number,
        None if left is None else left.row,
        None if right is None else right.row,
        text_a,
        text_b,
        _rows(a, keys, there.kind),
        _rows(b, keys, there.kind),
    )


def _rows(step: Step | None, keys: set[Key], kind: str | None = None) -> tuple[tuple[int, Event], ...]:
    """The rows that show it: those of its requests, and those of the same kind."""
    if step is None:
        return ()
    found = [one for one in step.decisions if one.key in keys or (one.kind == kind != "schedule")]
    return tuple((one.row, one.event) for one in found[:12])


def _kind(kind: str) -> str:
    return _KINDS.get(kind, "end" if kind in ("finish", "abort", "reject") else kind)


def _said(one: Decision) -> str:
    """A decision in a few words."""
    pairs = " ".join(f"{name}={value}" for name, value in one.values.items())
    return f"{one.kind} {one.event.subject}" + (f" {pairs}" if pairs else "")
