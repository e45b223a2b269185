"""What must be possible: for each mode, policy and option something that a trace of it must sometimes show.

A spec that allows nothing breaks no rule. Each property here names something that a scheduler under
these claims is for, and says whether a trace has come to it. No single trace need show any of them;
traces of the reference scheduler, taken together, must show each.

Source of the kind: `sometimes` properties of model checkers (stateright), as a guard against vacuity.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.spec.rule import claimed

Reached = Callable[[Sequence[Event], Profile], bool]


@dataclass(frozen=True, slots=True)
class Sometimes:
    """A named thing that must be reachable under a premise (as of a rule: `group.option=a|b`)."""

    id: str
    sentence: str
    premise: tuple[str, ...]
    reached: Reached

    def applies(self, profile: Profile) -> bool:
        """Whether a profile claims the premise."""
        return all(claimed(profile, item) for item in self.premise)


# -- what happened, in the terms of the properties -------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Admission:
    """One admission, and who waited (and was not parked) at that moment, arrivals first."""

    event: Event
    arrival: Event
    waiting: tuple[Event, ...]


def _admissions(events: Sequence[Event]) -> Iterator[_Admission]:
    waiting: dict[RequestId, Event] = {}
    parked: dict[RequestId, Event] = {}
    arrivals: dict[RequestId, int] = {}
    for number, event in enumerate(events):
        who = event.subject
        if event.event == "arrive":
            waiting[who] = event
            arrivals[who] = number
        elif event.event == "park" and who in waiting:
            parked[who] = waiting.pop(who)
        elif event.event == "ready" and who in parked:
            waiting[who] = parked.pop(who)
        elif event.event in ("abort", "reject"):
            waiting.pop(who, None)
            parked.pop(who, None)
        elif event.event == "admit" and who in waiting:
            arrival = waiting.pop(who)
            others = sorted(waiting.values(), key=lambda other: arrivals[other.subject])
            yield _Admission(event, arrival, tuple(others))


def _overtaken(admission: _Admission, events: Sequence[Event]) -> tuple[Event, ...]:
    """Who arrived earlier and waits on."""
    place = {id_: number for number, id_ in enumerate(e.subject for e in events if e.event == "arrive")}
    mine = place[admission.arrival.subject]
    return tuple(other for other in admission.waiting if place[other.subject] < mine)


def _work(arrival: Event) -> int:
    return (arrival.prompt_tokens or 0) + (arrival.max_tokens or 0)


def _urgency(priority: int | None, profile: Profile) -> int:
    return -(priority or 0) if profile.admission.urgent == "high" else priority or 0


# -- orders ----------------------------------------------------------------------------------------


def _first_come_first(events: Sequence[Event], profile: Profile) -> bool:
    return any(admission.waiting and not _overtaken(admission, events) for admission in _admissions(events))


def _shorter_first(events: Sequence[Event], profile: Profile) -> bool:
    return any(
        _work(admission.arrival) < _work(other)
        for admission in _admissions(events)
        for other in _overtaken(admission, events)
    )


def _urgent_first(events: Sequence[Event], profile: Profile) -> bool:
    return any(
        _urgency(admission.arrival.priority, profile) < _urgency(other.priority, profile)
        for admission in _admissions(events)
        for other in _overtaken(admission, events)
    )


def _other_tenant_first(events: Sequence[Event], profile: Profile) -> bool:
    return any(
        admission.arrival.tenant != other.tenant
        for admission in _admissions(events)
        for other in _overtaken(admission, events)
    )


def _past_a_misfit(events: Sequence[Event], profile: Profile) -> bool:
    skipped = {(e.step, e.request) for e in events if e.event == "skip" and e.reason == "memory"}
    return any(
        (admission.event.step, other.subject) in skipped
        for admission in _admissions(events)
        for other in _overtaken(admission, events)
    )


def _waits_at_a_misfit(events: Sequence[Event], profile: Profile) -> bool:
    seats = profile.limits.max_seqs or 1
    rows = (event for event in events if event.event == "step")
    return any((row.waiting or 0) > 0 and 0 < (row.running or 0) < seats for row in rows)


# -- modes -----------------------------------------------------------------------------------------


def _batches(events: Sequence[Event]) -> list[list[Event]]:
    """Admissions by step."""
    steps: dict[int, list[Event]] = {}
    for event in events:
        if event.event == "admit":
            steps.setdefault(event.step, []).append(event)
    return list(steps.values())


def _second_batch(events: Sequence[Event], profile: Profile) -> bool:
    return len(_batches(events)) > 1


def _seat_idles(events: Sequence[Event], profile: Profile) -> bool:
    """Somebody ends, others of the batch go on, and somebody waits."""
    ended = {event.step for event in events if event.event == "finish"}
    rows = (event for event in events if event.event == "step" and event.step in ended)
    return any((row.waiting or 0) > 0 and (row.running or 0) > 0 for row in rows)


def _full_batch(events: Sequence[Event], profile: Profile) -> bool:
    return any(len(batch) == profile.limits.max_seqs for batch in _batches(events))


def _late_batch(events: Sequence[Event], profile: Profile) -> bool:
    arrived = {event.request: event.time_ns or 0 for event in events if event.event == "arrive"}
    window = profile.batching.window_ns or 0
    return any(
        len(batch) < (profile.limits.max_seqs or 1)
        and max((event.time_ns or 0) - arrived[event.request] for event in batch) >= window
        for batch in _batches(events)
    )


def _seat_refilled(events: Sequence[Event], profile: Profile) -> bool:
    """In the step after an end somebody joins while somebody else runs on."""
    ended = {event.step for event in events if event.event == "finish"}
    joined = {event.step for event in events if event.event in ("admit", "resume")}
    members: dict[int, set[RequestId]] = {}
    for event in events:
        if event.event == "schedule":
            members.setdefault(event.step, set()).add(event.subject)
    return any(
        step + 1 in joined and members.get(step, set()) & members.get(step + 1, set()) for step in ended
    )


# -- the shape of a step ---------------------------------------------------------------------------


def _parts(events: Sequence[Event]) -> Iterator[tuple[Event, bool]]:
    """Each membership, and whether it computes the last of a prompt that began in an earlier step."""
    begun: dict[RequestId, int] = {}
    for event in events:
        if event.event in ("arrive", "preempt"):
            begun.pop(event.subject, None)
        elif event.event == "schedule":
            yield event, event.subject in begun
            begun[event.subject] = event.step


def _prompt_in_parts(events: Sequence[Event], profile: Profile) -> bool:
    prompts = {event.request: event.prompt_tokens or 0 for event in events if event.event == "arrive"}
    return any(later and (part.start or 0) < prompts[part.request] - 1 for part, later in _parts(events))


def _phases(events: Sequence[Event]) -> list[list[int]]:
    """Prefills and decodes of each step: a part that begins behind the prompt is a decode."""
    prompts = {event.request: event.prompt_tokens or 0 for event in events if event.event == "arrive"}
    steps: dict[int, list[int]] = {}
    for event in events:
        if event.event == "schedule":
            steps.setdefault(event.step, [0, 0])[(event.start or 0) >= prompts[event.request]] += 1
    return list(steps.values())


def _mixes(events: Sequence[Event], profile: Profile) -> bool:
    return any(prefills and decodes for prefills, decodes in _phases(events))


def _drafts(events: Sequence[Event], accepted: bool) -> bool:
    drafts: dict[RequestId, int] = {}
    for event in events:
        if event.event == "schedule":
            drafts[event.subject] = event.drafts or 0
        most = drafts.get(event.subject, 0)
        emitted = event.tokens or 0
        if event.event == "output" and most and (emitted > 1 if accepted else emitted <= most):
            return True
    return False


# -- preemption ------------------------------------------------------------------------------------


def _comes_back(events: Sequence[Event], how: str) -> bool:
    """Preempted that way, resumed, and finished."""
    stage: dict[RequestId, int] = {}
    for event in events:
        who = event.subject
        if event.event == "preempt" and event.reason == how:
            stage[who] = 1
        elif event.event == "resume" and stage.get(who) == 1 and (how == "recompute" or event.cached):
            stage[who] = 2
        elif event.event == "finish" and stage.get(who) == 2:
            return True
    return False


def _pool_runs_full(events: Sequence[Event], profile: Profile) -> bool:
    """A step that leaves nobody preempted although somebody wants memory."""
    return any(event.event == "skip" and event.reason == "memory" for event in events) or any(
        event.free_blocks == 0 for event in events if event.event == "step"
    )


def _evicts_for_waiting(events: Sequence[Event], profile: Profile) -> bool:
    waiting: set[RequestId] = set()
    for event in events:
        if event.event == "arrive":
            waiting.add(event.subject)
        elif event.event in ("admit", "resume", "abort", "reject"):
            waiting.discard(event.subject)
        elif event.event == "preempt" and event.cause in waiting:
            return True
    return False


def _of_kinds(*kinds: str) -> Reached:
    """Some request lives through these kinds of events, in this order."""

    def reached(events: Sequence[Event], profile: Profile) -> bool:
        stage: dict[RequestId, int] = {}
        for event in events:
            at = stage.get(event.subject, 0)
            if event.event == kinds[at]:
                if at + 1 == len(kinds):
                    return True
                stage[event.subject] = at + 1
        return False

    return reached


def _any(kind: str, **columns: object) -> Reached:
    """Some event of this kind has these values."""

    def reached(events: Sequence[Event], profile: Profile) -> bool:
        return any(
            event.event == kind and all(getattr(event, name) == value for name, value in columns.items())
            for event in events
        )

    return reached


def _hits(events: Sequence[Event], profile: Profile) -> bool:
    return any(event.event == "admit" and event.cached for event in events)


def _wasted_pass(events: Sequence[Event], profile: Profile) -> bool:
    """A pass whose member ends in the same step, from the pass before."""
    members = {(event.step, event.request) for event in events if event.event == "schedule"}
    ends = (event for event in events if event.event == "finish" and event.pass_step < event.step)
    return any((event.step, event.request) in members for event in ends)


_ALL: Final = (
    Sometimes(
        "fcfs/order",
        "A request is admitted while later arrivals wait on.",
        ("admission.order=fcfs",),
        _first_come_first,
    ),
    Sometimes(
        "sjf/shorter-first",
        "A later request with less work is admitted before an earlier one with more.",
        ("admission.order=sjf",),
        _shorter_first,
    ),
    Sometimes(
        "priority/urgent-first",
        "A later, more urgent request is admitted before an earlier, less urgent one.",
        ("admission.order=priority",),
        _urgent_first,
    ),
    Sometimes(
        "fair/other-tenant-first",
        "A later request of a tenant served less is admitted before an earlier one of another.",
        ("admission.order=fair",),
        _other_tenant_first,
    ),
    Sometimes(
        "skip/past-a-misfit",
        "A later request is admitted past one that does not fit.",
        ("admission.misfit=skip", "admission.skip_ahead"),
        _past_a_misfit,
    ),
    Sometimes(
        "stop/waits",
        "Somebody waits although seats are free and others run.",
        ("admission.misfit=stop",),
        _waits_at_a_misfit,
    ),
    Sometimes(
        "static/second-batch",
        "A second batch starts, when the first has ended.",
        ("batching.mode=static",),
        _second_batch,
    ),
    Sometimes(
        "static/seat-idles",
        "A member ends, and its seat stays empty while others of its batch go on and somebody waits.",
        ("batching.mode=static",),
        _seat_idles,
    ),
    Sometimes("dynamic/full", "A batch leaves full.", ("batching.mode=dynamic",), _full_batch),
    Sometimes(
        "dynamic/late",
        "A batch that is not full leaves, because its window is over.",
        ("batching.mode=dynamic",),
        _late_batch,
    ),
    Sometimes(
        "continuous/refill",
        "In the step after an end somebody joins while others go on.",
        ("batching.mode=continuous",),
        _seat_refilled,
    ),
    Sometimes(
        "chunked/parts", "A prompt is computed in parts.", ("batching.chunked_prefill",), _prompt_in_parts
    ),
    Sometimes(
        "mixed/both",
        "One step has prefills and decodes.",
        ("batching.mixed", "batching.mode=continuous"),
        _mixes,
    ),
    Sometimes(
        "speculation/accepted",
        "A draft is accepted.",
        ("batching.lookahead",),
        lambda events, profile: _drafts(events, True),
    ),
    Sometimes(
        "speculation/rejected",
        "A draft is rejected.",
        ("batching.lookahead",),
        lambda events, profile: _drafts(events, False),
    ),
    Sometimes(
        "none/full-pool",
        "The pool is full, and nobody is preempted.",
        ("preemption.mode=none", "limits.kv_blocks"),
        _pool_runs_full,
    ),
    Sometimes(
        "recompute/returns",
        "A request whose KV was dropped comes back and finishes.",
        ("preemption.mode=recompute",),
        lambda events, profile: _comes_back(events, "recompute"),
    ),
    Sometimes(
        "swap/returns",
        "A request whose KV went to the host comes back with it and finishes.",
        ("preemption.mode=swap",),
        lambda events, profile: _comes_back(events, "swap"),
    ),
    Sometimes(
        "for-waiting/evicts",
        "A request is preempted for a more urgent one that waits.",
        ("preemption.for_waiting",),
        _evicts_for_waiting,
    ),
    Sometimes("prefix/hit", "A request takes over a cached prefix.", ("reuse.prefix",), _hits),
    Sometimes(
        "overlap/wasted-pass",
        "A request is a member of one more pass than it needed.",
        ("reuse.overlap_member",),
        _wasted_pass,
    ),
    Sometimes(
        "any/parked", "A request is parked, ready, and admitted.", (), _of_kinds("park", "ready", "admit")
    ),
    Sometimes("any/cancelled", "A client's cancel takes effect.", (), _of_kinds("arrive", "cancel", "abort")),
    Sometimes("any/stop", "A request ends before its limit.", (), _any("finish", reason="stop")),
    Sometimes("any/length", "A request ends at its limit.", (), _any("finish", reason="length")),
    Sometimes(
        "any/refused", "A request that can never run is refused.", (), _any("reject", reason="too_long")
    ),
    Sometimes(
        "any/queue-full",
        "A request is refused because too many wait.",
        ("limits.max_waiting",),
        _any("reject", reason="queue_full"),
    ),
)

SOMETIMES: Final[dict[str, Sometimes]] = {item.id: item for item in _ALL}
"""The properties by id: the claim they belong to, and what must be reachable under it."""
