"""The space against the rules: what it allows the checker accepts, what it does not the checker refuses."""

from collections.abc import Iterator

import pytest

from batchspec.replay.checker import check_events
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import ProfileError
from batchspec.spec.events import Event
from batchspec.spec.frame import START, Frame, Job
from batchspec.spec.naming import named
from batchspec.spec.profile import Profile
from batchspec.spec.space import Rows, Space

Path = tuple[Rows, ...]

LIMITS = {"max_seqs": 2, "token_budget": 3, "kv_blocks": 3, "block_size": 2}
FULL = {"admission.test": "full", "admission.reserve": "full", "preemption.mode": "none"}
TWO = (Job(3, 2), Job(2, 2))
THREE = (Job(1, 2, 0, "x"), Job(1, 1, 0, "x"), Job(1, 2, 0, "y"))


def profile_of(**options: object) -> Profile:
    """A chunked first-come profile with preemption by recompute, and what is laid over it."""
    data: dict[str, dict[str, object]] = {
        "limits": dict(LIMITS),
        "batching": {"mode": "continuous", "chunked_prefill": True},
        "admission": {"order": "fcfs", "misfit": "stop", "test": "step", "reserve": "step"},
        "preemption": {
            "mode": "recompute",
            "victim": "latest-admitted",
            "resume": "front",
            "admit_in_same_step": False,
            "for_waiting": False,
        },
    }
    for option, value in options.items():
        group, name = option.split(".")
        data.setdefault(group, {})[name] = value
    return Profile.from_dict(data)


CASES: dict[str, tuple[dict[str, object], tuple[Job, ...], dict[str, bool]]] = {
    "recompute": ({}, TWO, {}),
    "aborts": ({}, (Job(3, 1), Job(2, 2)), {"aborts": True}),
    "same step": ({"preemption.admit_in_same_step": True}, TWO, {}),
    "known": ({"admission.test": "known"}, TWO, {}),
    "reserved": (FULL, (Job(3, 1), Job(2, 1), Job(1, 1)), {}),
    "swap": ({"preemption.mode": "swap"}, TWO, {}),
    "small host": ({"preemption.mode": "swap", "limits.host_blocks": 1}, TWO, {}),
    "static": ({**FULL, "batching.mode": "static", "batching.chunked_prefill": False}, THREE, {}),
    "shortest first": ({"admission.order": "sjf"}, TWO, {}),
    "priority": (
        {
            "admission.order": "priority",
            "admission.urgent": "low",
            "preemption.victim": "least-urgent",
            "preemption.for_waiting": True,
            "preemption.admit_in_same_step": True,
        },
        (Job(3, 2, 1), Job(2, 2, 0)),
        {},
    ),
    "self": ({"preemption.victim": "self"}, TWO, {}),
    "back": ({"preemption.resume": "back"}, TWO, {}),
    "arrival": ({"preemption.resume": "arrival", "preemption.victim": "latest-arrived"}, TWO, {}),
    "fewest outputs": ({"preemption.victim": "fewest-outputs"}, TWO, {}),
    "no stall": ({"batching.stall_free": True}, TWO, {}),
    "watermark": ({"admission.work_conserving": True, "admission.watermark_blocks": 1}, TWO, {}),
    "fair": ({**FULL, "admission.order": "fair", "batching.chunked_prefill": False}, THREE, {}),
    "never fits": ({}, (Job(7, 1), Job(1, 1)), {}),
    "outgrows": ({}, (Job(4, 4),), {}),
    "eager": ({}, TWO, {"eager": True}),
}


# An eager scheduler, and one that claims to be work-conserving, takes fewer actions than the rules allow at
# once; the others differ from a case that is there in what `test_every_action_conforms` covers.
NOT_ALL_ALLOWED = ("eager", "watermark", "arrival", "small host", "back")


def states(space: Space) -> Iterator[tuple[Frame, Path]]:
    """Every reachable state, with the shortest way there."""
    ways: dict[Frame, Path] = {START: ()}
    queue = [START]
    for frame in queue:
        yield frame, ways[frame]
        for rows in space.enabled(frame):
            after = space.apply(frame, rows)
            if after not in ways:
                ways[after] = (*ways[frame], rows)
                queue.append(after)


def findings(space: Space, path: Path) -> list[str]:
    """The rules that a path breaks, those that always hold; patience is not a matter of one action."""
    report = check_events(named(path), space.profile, complete=False)
    return [finding.rule for finding in report.findings if RULES[finding.rule].kind == "always"]


def candidates(space: Space, frame: Frame) -> Iterator[Rows]:
    """Decisions and ends that anybody might take, whether the spec allows them or not."""
    state = space.press.thaw(frame)
    reason = "recompute" if space.preempts == "none" else space.preempts
    for record in state.live.values():
        start = record.computed or 0 if record.state == "running" or record.swapped else 0
        outputs = record.outputs or 0
        for tokens in (1, 2, space.budget + 1):
            blocks = space.hold(record, start + tokens)
            part = Event(1, "schedule", record.id, start=start, tokens=tokens, blocks=blocks)
            # Budget and members are judged when a step's results begin.
            if record.state == "running":
                yield (part, Event(1, "step"))
            for kind in ("admit", "resume"):
                yield (Event(1, kind, record.id, cached=start, blocks=blocks), part, Event(1, "step"))
        for cause in state.live.values():
            yield (Event(1, "preempt", record.id, blocks=0, reason=reason, cause=cause.id),)
        end = "length" if outputs + 1 == record.max_tokens else "stop"
        finish = Event(1, "finish", record.id, blocks=0, output_tokens=outputs + 1, reason=end)
        yield (finish, Event(1, "step"))


def allowed(space: Space, frame: Frame, rows: Rows) -> bool:
    """Whether the space has this candidate: an end of a step has it among other rows."""
    wanted = [event for event in rows if event.event != "step"]
    return any(all(event in action for event in wanted) for action in space.enabled(frame))


@pytest.mark.parametrize("case", CASES)
def test_every_action_conforms_to_the_rules(case):
    options, jobs, settings = CASES[case]
    space = Space(profile_of(**options), jobs, **settings)
    for frame, path in states(space):
        for rows in space.enabled(frame):
            assert findings(space, (*path, rows)) == [], list(named((*path, rows)))


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_ALL_ALLOWED])
def test_what_the_space_leaves_out_breaks_a_rule(case):
    options, jobs, settings = CASES[case]
    space = Space(profile_of(**options), jobs, **settings)
    refused = 0
    for frame, path in states(space):
        if len(path) > 5:
            continue
        for rows in candidates(space, frame):
            if allowed(space, frame, rows):
                continue
            refused += 1
            broken = findings(space, (*path, rows))
            assert broken or _stricter(space, frame, rows), list(named((*path, rows)))
    assert refused > 10


def _stricter(space: Space, frame: Frame, rows: Rows) -> bool:
    """Where the space is narrower than the rules on purpose; each is an assumption of its docstring."""
    state = space.press.thaw(frame)
    if rows[0].event == "preempt":
        # For one that waits room is made only where it does not fit; one that runs alone makes none.
        return state.state_of(rows[0].cause or 0) != "running" or len(state.running) == 1
    # Room that was made is used first, and what never fits is not begun.
    return frame.owed >= 0 or space.rejects(state, state.live[rows[0].subject])


def test_a_claim_without_a_model_is_refused():
    with pytest.raises(ProfileError, match=r"no model of reuse\.depth = 2"):
        Space(profile_of(**{"reuse.depth": 2}), TWO)
    with pytest.raises(ProfileError, match=r"explore needs limits\.kv_blocks"):
        Space(Profile.from_dict({"limits": {"max_seqs": 1, "token_budget": 1}}), TWO)
