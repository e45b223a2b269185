"""Passes read from rows: members, tokens, positions, and how long each took."""

from batchspec.spec.events import Event
from batchspec.spec.passes import passes


def test_what_a_pass_computes() -> None:
    events = [
        Event(1, "arrive", "A", time_ns=0, prompt_tokens=4),
        Event(1, "arrive", "B", time_ns=1, prompt_tokens=2),
        Event(1, "schedule", "A", time_ns=10, start=0, tokens=4),
        Event(1, "step", time_ns=25, waiting=1, running=1, free_blocks=7),
        Event(2, "schedule", "A", time_ns=25, start=4, tokens=1),
        Event(2, "schedule", "B", time_ns=25, start=0, tokens=2),
        Event(2, "step", time_ns=40),
        Event(3, "step", time_ns=41),
    ]
    first, second = passes(events)
    assert first == (1, 10, 25, 1, 4, 0, 4, 1 + 2 + 3 + 4, 1, 1, 7)
    assert first.duration_ns == 15
    assert second[3:8] == (2, 3, 1, 5 + 2, 5 + 1 + 2)


def test_who_leaves_before_the_end_of_the_step_is_no_member() -> None:
    events = [
        Event(1, "schedule", "A", time_ns=0, start=0, tokens=4),
        Event(1, "schedule", "B", time_ns=0, start=0, tokens=2),
        Event(1, "preempt", "B", time_ns=0, reason="recompute"),
        Event(1, "step", time_ns=5),
        Event(2, "schedule", "A", time_ns=5, start=4, tokens=1),
        Event(2, "abort", "A", time_ns=6, reason="client"),
        Event(2, "step", time_ns=6),
    ]
    (only,) = passes(events)
    assert (only.members, only.tokens) == (1, 4)


def test_without_a_step_row_the_next_step_closes_a_pass() -> None:
    events = [
        Event(1, "schedule", "A", start=0, tokens=4),
        Event(2, "schedule", "A", start=4, tokens=1),
    ]
    assert [(one.step, one.tokens, one.duration_ns) for one in passes(events)] == [(1, 4, None), (2, 1, None)]


def test_passes_that_overlap_have_their_own_times() -> None:
    events = [
        Event(1, "schedule", "A", time_ns=0, start=0, tokens=4),
        Event(1, "dispatch", time_ns=1, pass_=1),
        Event(1, "step", time_ns=2),
        Event(2, "schedule", "A", time_ns=3, start=4, tokens=1),
        Event(2, "dispatch", time_ns=4, pass_=2),
        Event(2, "complete", time_ns=11, pass_=1),
        Event(2, "step", time_ns=11),
        Event(3, "complete", time_ns=14, pass_=2),
        Event(3, "step", time_ns=14),
    ]
    assert [(one.step, one.began_ns, one.ended_ns) for one in passes(events)] == [(1, 1, 11), (2, 4, 14)]


def test_a_pass_that_is_never_complete_has_no_end_and_little_is_kept_for_it() -> None:
    events = []
    for step in range(1, 201):
        events += [
            Event(step, "schedule", "A", time_ns=step, start=step, tokens=1),
            Event(step, "dispatch", time_ns=step, pass_=step),
            Event(step, "step", time_ns=step),
        ]
    stream = passes(events)
    found = list(stream)
    assert [one.step for one in found] == list(range(1, 201))
    assert {one.ended_ns for one in found} == {None}
