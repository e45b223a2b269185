"""Rules of a request's life, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_lifecycle_unknown_request(examples) -> None:
    """Trace format, table of events: every event but arrive and live is legal from a known state only."""
    passing, failing = examples("lifecycle/unknown-request")

    assert passing.broken == []
    assert failing.broken == ["lifecycle/unknown-request"]
    assert failing.of("lifecycle/unknown-request")[0].requests == ("B",)


def test_lifecycle_legal_transition(examples) -> None:
    """Trace format, column `legal from`: schedule is legal from running."""
    passing, failing = examples("lifecycle/legal-transition")

    assert passing.broken == []
    assert failing.broken == ["lifecycle/legal-transition"]
    assert failing["lifecycle/legal-transition"].violations == 1, "the event was applied: A runs now"


def test_lifecycle_duplicate_id(examples) -> None:
    """Trace format: an id may be used again after its end. transformers PR 48918: callers' ids collide."""
    passing, failing = examples("lifecycle/duplicate-id")

    assert passing.broken == []
    assert failing.broken == ["lifecycle/duplicate-id"]


def test_lifecycle_after_end(examples) -> None:
    """vLLM issue 10890: steps left over after an early stop run in the next request's time."""
    passing, failing = examples("lifecycle/after-end")

    assert passing.broken == []
    assert failing.broken == ["lifecycle/after-end"]


def test_lifecycle_unfinished(examples) -> None:
    """Trace format, header `complete`; vLLM semantic-router issue 2890."""
    passing, failing = examples("lifecycle/unfinished")

    assert passing["lifecycle/unfinished"].verdict == "conforms"
    assert failing.broken == ["lifecycle/unfinished"]


def test_lifecycle_abort_ignored(examples) -> None:
    """SGLang issue 34149, llama.cpp fork issue 20: a cancelled request goes on."""
    passing, failing = examples("lifecycle/abort-ignored")

    assert passing["lifecycle/abort-ignored"].verdict == "conforms"
    assert failing.steps("lifecycle/abort-ignored") == [4]


def test_lifecycle_abort_target(examples) -> None:
    """llama.cpp issue 23652: one request's exhaustion ends all."""
    passing, failing = examples("lifecycle/abort-target")

    assert passing["lifecycle/abort-target"].verdict == "conforms"
    assert failing.of("lifecycle/abort-target")[0].requests == ("A",)


# -- legal from ------------------------------------------------------------------------------------

WAITING = "1 arrive A prompt=8"
RUNNING = f"{WAITING}\n1 admit A\n1 schedule A start=0 tokens=4"
STATES = {
    "waiting": WAITING,
    "parked": f"{WAITING}\n1 park A grammar",
    "running": RUNNING,
    "preempted": f"{RUNNING}\n2 preempt A recompute",
}
ROWS = {
    "reject": "3 reject A error",
    "park": "3 park A rate",
    "ready": "3 ready A",
    "admit": "3 admit A",
    "schedule": "3 schedule A tokens=1",
    "preempt": "3 preempt A recompute",
    "resume": "3 resume A",
    "finish": "3 finish A stop",
    "cancel": "3 cancel A",
    "abort": "3 abort A operator",
    "skip": "3 skip A policy",
    "release": "3 release A",
    "take": "3 take A row units=1",
    "give": "3 give A row units=0",
    "deliver": "3 deliver A",
    "transfer_begin": "3 transfer_begin A send",
}
LEGAL = {
    "waiting": {
        "reject",
        "park",
        "admit",
        "cancel",
        "abort",
        "skip",
        "release",
        "take",
        "give",
        "transfer_begin",
    },
    "parked": {"ready", "cancel", "abort", "skip", "release", "take", "give", "transfer_begin"},
    "running": {
        *("schedule", "preempt", "finish", "cancel", "abort", "skip", "release", "take", "give"),
        "transfer_begin",
    },
    "preempted": {"resume", "cancel", "abort", "skip", "release", "take", "give", "transfer_begin"},
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("state", STATES)
def test_each_kind_of_event_is_legal_from_the_states_of_the_table(judge, state: str, kind: str) -> None:
    """Trace format, table of events, column `legal from`, state by state and kind by kind."""
    found = judge(f"{STATES[state]}\n{ROWS[kind]}").steps("lifecycle/legal-transition")

    assert found == ([] if kind in LEGAL[state] else [3])


@pytest.mark.parametrize("kind", ROWS)
def test_an_unknown_request_has_no_events(judge, kind: str) -> None:
    row = ROWS[kind].replace(" A", " B", 1)

    assert judge(f"{WAITING}\n{row}").broken[:1] == ["lifecycle/unknown-request"]


AFTER_END = {"release", "give", "transfer_begin", "deliver", "cancel"}


@pytest.mark.parametrize("kind", ROWS)
def test_after_its_end_only_what_is_left_over_happens(judge, kind: str) -> None:
    """Trace format: release, give, transfers and deliver are legal from ended; a late cancel hurts nobody."""
    found = judge(f"{RUNNING}\n1 finish A stop\n{ROWS[kind]}").steps("lifecycle/after-end")

    assert found == ([] if kind in AFTER_END else [3])


@pytest.mark.parametrize(("members", "found"), [(0, [2, 3, 4]), (1, [3, 4]), (2, [4])])
def test_an_overlapping_engine_may_run_an_ended_request_a_little_longer(
    judge, members: int, found: list
) -> None:
    """Trace format, step 11: a member of passes k+1 … k+M, k the pass of its end."""
    text = f"cfg overlap_member={members}\n{RUNNING}\n1 finish A stop\n"
    rows = "".join(f"{step} schedule A start={step + 2} tokens=1\n" for step in (2, 3, 4))

    # After the first violation the row is applied: A is live again, so each trace is cut at its first.
    for step in (2, 3, 4):
        row = f"{step} schedule A start=4 tokens=1"
        assert judge(f"{text}{row}").steps("lifecycle/after-end") == ([step] if step in found else [])
    assert judge(text + rows).steps("lifecycle/after-end")[:1] == found[:1]


def test_a_late_output_of_an_ended_request_is_a_matter_of_tokens(judge) -> None:
    """Rules: an output whose pass belongs to an ended incarnation is `tokens/in-flight`."""
    text = (
        "cfg depth=2 slot_lag=1 lookahead=0\n1 arrive A prompt=4\n1 admit A\n1 schedule A start=0 tokens=4\n"
    )
    text += "2 output A tokens=1 pass=1\n2 finish A stop pass=1\n3 output A tokens=1 pass=2\n"

    assert judge(text).broken == ["tokens/in-flight"]


def test_an_id_may_be_used_again_after_its_end(judge) -> None:
    text = "1..3 arrive A prompt=4\n1..3 admit A\n1..3 schedule A start=0 tokens=4\n1..3 finish A stop\nend"

    assert judge(text).broken == []
    assert judge(text).report.requests == 3


# -- the end ---------------------------------------------------------------------------------------


def test_a_cut_trace_leaves_ends_open(judge) -> None:
    cut = judge(WAITING)

    assert cut["lifecycle/unfinished"].verdict == "open"
    assert cut.broken == []


def test_each_live_request_of_a_complete_trace_is_one_violation(judge) -> None:
    whole = judge("1 arrive A prompt=4\n1 arrive B prompt=4\n1 arrive C prompt=4\n1 reject C error\nend")

    assert whole["lifecycle/unfinished"].violations == 2
    assert "2 such requests" in whole.of("lifecycle/unfinished")[0].observed


# -- cancels and aborts ----------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_cancel_takes_effect_within_slot_lag_and_a_step(judge, lag: int) -> None:
    """Rules: it ends within slot_lag + 1 steps; the finding stands at the cancel's step + slot_lag + 2."""
    text = f"cfg slot_lag={lag} depth={1 + bool(lag)} K=9\n{RUNNING}\n2 cancel A\n"
    quiet = "".join(f"{step} step\n" for step in range(2, 2 + lag + 2))

    late = judge(f"{text}{quiet}{lag + 4} step")
    cut = judge(text + quiet)
    in_time = judge(f"{text}{quiet}{lag + 3} abort A client\n{lag + 4} step")

    assert late.steps("lifecycle/abort-ignored") == [lag + 4]
    assert cut["lifecycle/abort-ignored"].verdict == "open"
    assert in_time["lifecycle/abort-ignored"].verdict == "conforms"


@pytest.mark.parametrize("lag", [0, 1])
def test_a_cancelled_request_runs_and_emits_no_later_than_its_lag(judge, lag: int) -> None:
    """Rules: a member of no step, and no output of a pass, greater than the cancel's step + slot_lag."""
    text = f"cfg slot_lag={lag} depth={1 + lag} lookahead=0\n1 arrive A prompt=9\n1 admit A\n"
    text += "1 schedule A start=0 tokens=4\n2 cancel A\n"
    last = 2 + lag
    runs = "".join(f"{step} schedule A start={4 + step - 2} tokens=1\n" for step in range(2, last + 1))

    assert judge(text + runs)["lifecycle/abort-ignored"].violations == 0
    assert judge(f"{text}{runs}{last + 1} schedule A start={4 + lag + 1} tokens=1").steps(
        "lifecycle/abort-ignored"
    ) == [last + 1]
    assert judge(f"{text}{runs}{last + 1} output A tokens=1 pass={last + 1}").steps(
        "lifecycle/abort-ignored"
    ) == [last + 1]


def test_a_finish_after_a_cancel_is_an_end_as_well(judge) -> None:
    found = judge(f"{RUNNING}\n2 cancel A\n3 finish A stop\n4 step")

    assert found["lifecycle/abort-ignored"].verdict == "conforms"


def test_without_cancels_nothing_is_known_of_what_was_cancelled(judge) -> None:
    found = judge(f"{RUNNING}\n2 abort A client")

    assert found["lifecycle/abort-ignored"].missing == ("cancel rows",)
    assert found["lifecycle/abort-target"].violations == 0, "this half is not judged without cancel rows"


@pytest.mark.parametrize("reason", ["timeout", "operator", "memory", "error"])
def test_an_abort_for_another_reason_needs_no_cancel(judge, reason: str) -> None:
    found = judge(f"{RUNNING}\n2 arrive B prompt=4\n2 cancel B\n2 abort B client\n2 abort A {reason}")

    assert found["lifecycle/abort-target"].violations == 0


BOTH = """
    {cfg}
    1 arrive A prompt=8 max=4
    1 arrive B prompt={b} max=4
    1 admit A
    1 admit B
"""


@pytest.mark.parametrize("ends", ["abort {} memory", "abort {} error", "finish {} error"])
def test_one_failure_ends_one_request(judge, ends: str) -> None:
    """Rules: where two or more end with error or memory in one step, none could have gone on by itself."""
    pool = "cfg kv_blocks=4 block_size=4"
    both = f"2 {ends.format('A')}\n2 {ends.format('B')}\n2 step\n"
    apart = f"2 {ends.format('A')}\n2 step\n3 {ends.format('B')}\n3 step\n"

    assert judge(BOTH.format(cfg=pool, b=8) + both).steps("lifecycle/abort-target") == [2]
    assert judge(BOTH.format(cfg=pool, b=8) + apart)["lifecycle/abort-target"].violations == 0


def test_two_that_could_never_go_on_may_fail_together(judge) -> None:
    found = judge(
        BOTH.format(cfg="cfg kv_blocks=1 block_size=4", b=8) + "2 abort A memory\n2 abort B memory\n2 step\n"
    )

    assert found["lifecycle/abort-target"].verdict == "conforms"
    assert found["lifecycle/abort-target"].checked == 1


def test_a_response_leaves_once(judge) -> None:
    text = "1 arrive A prompt=1\n1 admit A\n1 schedule A start=0 tokens=1\n1 finish A stop\n1 step\n"
    text += "2 deliver A\n"

    assert judge(text).broken == []
    assert judge(text + "3 deliver A").steps("lifecycle/after-end") == [3]
    again = text + "3 arrive A prompt=1\n3 reject A error\n3 step\n4 deliver A\n"
    assert judge(again).broken == []


PASSES = """
1 arrive A prompt=1
1 admit A
1 schedule A start=0 tokens=1
1 dispatch pass=1
1 step
"""


def test_a_pass_starts_once_and_ends_once(judge) -> None:
    """Trace format: dispatch and complete are the start and the end of one pass."""
    assert judge(PASSES + "2 complete pass=1\n2 step").broken == []
    twice = judge(PASSES + "2 dispatch pass=1\n2 complete pass=1\n2 step")
    assert [(one.rule, one.row) for one in twice.report.findings] == [("lifecycle/legal-transition", 5)]
    never = judge(PASSES + "2 complete pass=2\n2 complete pass=1\n2 step")
    assert [(one.rule, one.row) for one in never.report.findings] == [("lifecycle/legal-transition", 5)]
    ended = judge(PASSES + "2 complete pass=1\n2 complete pass=1\n2 step")
    assert [(one.rule, one.row) for one in ended.report.findings] == [("lifecycle/legal-transition", 6)]


def test_a_pass_whose_other_end_no_row_tells_is_not_judged(judge) -> None:
    without = PASSES.replace("1 dispatch pass=1\n", "")
    assert judge(without + "2 complete pass=1\n2 complete pass=1\n2 step").broken == []
    assert judge(PASSES + "2 dispatch pass=1\n2 step").broken == []
    running = "header begins=running\n1 live A running start=1 prompt=1 output_tokens=1\n1 complete pass=0\n"
    assert "lifecycle/legal-transition" not in judge(running + "1 dispatch pass=1\n1 step").broken


TRANSFER = """
1 arrive A prompt=4
1 admit A block_ids=0
1 schedule A start=0 tokens=4
1 finish A stop
1 transfer_begin A send block_ids=0
"""


def test_a_transfer_ends_that_has_begun(judge) -> None:
    assert judge(TRANSFER + "2 transfer_end A send block_ids=0").of("lifecycle/legal-transition") == []
    assert judge(TRANSFER + "2 transfer_end A failed block_ids=0").of("lifecycle/legal-transition") == []
    assert judge(TRANSFER + "2 transfer_end A receive").steps("lifecycle/legal-transition") == [2]
    twice = TRANSFER + "2 transfer_end A send block_ids=0\n3 transfer_end A send block_ids=0"
    assert judge(twice).steps("lifecycle/legal-transition") == [3]
    alone = TRANSFER.replace("1 transfer_begin A send block_ids=0\n", "")
    assert judge(alone + "2 transfer_end A send").of("lifecycle/legal-transition") == []
