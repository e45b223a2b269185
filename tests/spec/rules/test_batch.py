"""Rules of the batch of one step, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_batch_membership(examples) -> None:
    """Orca (OSDI'22) §3.1: a request is in at most one batch at a time (OR5)."""
    passing, failing = examples("batch/membership")

    assert passing["batch/membership"].verdict == "conforms"
    assert failing.broken == ["batch/membership"]


def test_batch_capacity(examples) -> None:
    """Orca (OSDI'22) Algorithm 1: select until the batch has max_bs. nano-vllm PR 271."""
    passing, failing = examples("batch/capacity")

    assert passing["batch/capacity"].verdict == "conforms"
    assert failing.of("batch/capacity")[0].requests == ("C",)


def test_batch_token_budget(examples) -> None:
    """Sarathi-Serve (OSDI'24) §4.2: the tokens of an iteration stay within a fixed budget."""
    passing, failing = examples("batch/token-budget")

    assert passing["batch/token-budget"].verdict == "conforms"
    assert failing.steps("batch/token-budget") == [1]


def test_batch_empty_member(examples) -> None:
    """vLLM issue 53514: a full cache hit leaves nothing to run."""
    passing, failing = examples("batch/empty-member")

    assert passing["batch/empty-member"].verdict == "conforms"
    assert failing.steps("batch/empty-member") == [2]


def test_batch_static_barrier(examples) -> None:
    """Static batching, ST2: no admission until every member is finished."""
    passing, failing = examples("batch/static-barrier")

    assert passing["batch/static-barrier"].verdict == "conforms"
    assert failing.steps("batch/static-barrier") == [3]


def test_batch_dynamic_window(examples) -> None:
    """Triton dynamic batcher, TR6: send when full or late, else wait. Ray Serve PR 36510."""
    passing, failing = examples("batch/dynamic-window")

    assert passing["batch/dynamic-window"].verdict == "conforms"
    assert failing.steps("batch/dynamic-window") == [1]


def test_batch_no_stall(examples) -> None:
    """Sarathi-Serve (OSDI'24) §4.2, SA4: no running decode is left out because of a prefill."""
    passing, failing = examples("batch/no-stall")

    assert passing["batch/no-stall"].verdict == "conforms"
    assert failing.of("batch/no-stall")[0].requests == ("A",)


def test_batch_mixed(examples) -> None:
    """vLLM classic scheduler, VL6: if anything was admitted the step is prefill only."""
    passing, failing = examples("batch/mixed")

    assert passing["batch/mixed"].verdict == "conforms"
    assert failing.steps("batch/mixed") == [2]


# -- membership: what a later row of the step takes back ---------------------------------------------

TWO = "1 arrive A prompt=8 max=4\n1 arrive B prompt=8 max=4\n1 admit A\n1 admit B\n"


@pytest.mark.parametrize("leaves", ["preempt A recompute", "abort A operator"])
def test_who_leaves_a_step_takes_its_tokens_along(judge, leaves: str) -> None:
    """Rules: a preempt or abort after the schedule of the same step takes that membership back."""
    text = f"cfg token_budget=8\n{TWO}1 schedule A start=0 tokens=8\n1 {leaves}\n"
    text += "1 schedule B start=0 tokens=8\n1 step"

    assert judge(text).broken == []


@pytest.mark.parametrize(
    ("leaves", "rows"),
    [
        ("preempt A recompute", ["schedule A start=0 tokens=4"]),
        ("preempt A recompute", ["output A tokens=1"]),
        ("abort A operator", ["schedule A start=0 tokens=4"]),
        ("abort A operator", ["output A tokens=1"]),
    ],
)
def test_who_left_a_step_has_no_more_part_in_it(judge, leaves: str, rows: list[str]) -> None:
    """Rules: a schedule, output or draft of it later in that step is the violation. vLLM PR 28558."""
    text = f"cfg lookahead=0\n{TWO}1 schedule A start=0 tokens=8\n1 {leaves}\n"

    assert judge(text + "\n".join(f"1 {row}" for row in rows)).steps("batch/membership") == [1]


def test_who_comes_back_in_the_same_step_may_run_in_it(judge) -> None:
    text = f"{TWO}1 schedule A start=0 tokens=4\n1 preempt A recompute\n1 resume A\n"
    text += "1 schedule A start=0 tokens=4"

    assert judge(text).broken == []


# -- capacity ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "leaves"), [("resume", "2 preempt A recompute"), ("admit", "2 finish A stop")]
)
def test_a_seat_that_was_left_may_be_taken(judge, kind: str, leaves: str) -> None:
    who = "A" if kind == "resume" else "C"
    text = f"cfg max_seqs=2\n{TWO}1 arrive C prompt=4\n{leaves}\n3 {kind} {who}\n"

    assert judge(text).broken == []
    assert judge(f"{text}3 arrive D prompt=4\n3 admit D").steps("batch/capacity") == [3]


def test_a_cap_per_step_counts_members_and_not_residents(judge) -> None:
    """False-alarm catalogue: counts may exceed a cap that is per step rather than resident (B99)."""
    resident = "1 arrive C prompt=8\n1 admit C\n"
    members = "1 schedule A start=0 tokens=4\n1 schedule B start=0 tokens=4\n"
    text = f"cfg max_seqs=2 seqs_cap=per-step\n{TWO}{resident}{members}"

    assert judge(f"{text}1 step")["batch/capacity"].verdict == "conforms"
    assert judge(f"{text}1 schedule C start=0 tokens=4\n1 step").steps("batch/capacity") == [1]


def test_requests_that_were_live_before_the_trace_count(judge) -> None:
    text = "header begins=running\ncfg max_seqs=1\n1 live A running\n"

    assert judge(text).broken == []
    assert judge(f"{text}1 live B running").steps("batch/capacity") == [1]


# -- budget ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafts", "found"), [(3, []), (4, [2])])
def test_drafts_are_charged_to_the_budget(judge, drafts: int, found: list) -> None:
    """TensorRT-LLM PR 16101: drafts not charged, the step ran over the limit."""
    text = f"cfg token_budget=8\n{TWO}1 schedule A start=0 tokens=8\n1 output A tokens=1\n"
    text += f"2 schedule A start=8 tokens={drafts + 1} drafts={drafts}\n2 schedule B start=0 tokens=4\n2 step"

    assert judge(text).steps("batch/token-budget") == found


def test_members_added_after_a_result_are_judged_at_the_step_row(judge) -> None:
    """Trace format, step 3: judged at the first result row, and again if members were added."""
    text = f"cfg token_budget=8\n{TWO}1 schedule A start=0 tokens=8\n1 finish A stop\n"

    assert judge(f"{text}1 step").broken == []
    assert judge(f"{text}1 schedule B start=0 tokens=4\n1 step").steps("batch/token-budget") == [1]


def test_a_cut_step_is_judged_by_its_rows_alone(judge) -> None:
    """Trace format, step 4: the last step without a `step` row owes nothing at its end."""
    text = f"cfg token_budget=8\n{TWO}1 schedule A start=0 tokens=8\n1 schedule B start=0 tokens=8\n"

    assert judge(text)["batch/token-budget"].checked == 0
    assert judge(f"{text}2 schedule A start=8 tokens=1").steps("batch/token-budget") == [1]


def test_a_step_with_an_unknown_part_is_skipped(judge) -> None:
    found = judge(f"cfg token_budget=8\n{TWO}1 schedule A start=0 tokens=8\n1 schedule B\n1 step")

    assert found["batch/token-budget"].skipped == 1
    assert found.broken == []


def test_a_prefill_budget_counts_prompt_tokens_alone(judge) -> None:
    """mini-sglang PR 47: the sum was never updated, so any number of prompts entered one step."""
    text = f"cfg token_budget=99 prefill_budget=8\n{TWO}1 schedule A start=0 tokens=8\n1 step\n"
    both = f"{text}2 schedule A start=8 tokens=1\n2 schedule B start=0 tokens=8\n2 step"

    assert judge(both).broken == []
    more = "1 arrive A prompt=8\n1 arrive B prompt=8\n1 admit A\n1 admit B\n"
    more += "1 schedule A start=0 tokens=5\n1 schedule B start=0 tokens=4\n1 step"
    assert judge(f"cfg token_budget=99 prefill_budget=8\n{more}").steps("batch/token-budget") == [1]


def test_an_empty_part_that_was_taken_back_is_none(judge) -> None:
    found = judge(
        f"{TWO}1 schedule A start=0 tokens=0\n1 preempt A recompute\n1 schedule B start=0 tokens=8\n1 step"
    )

    assert found["batch/empty-member"].violations == 0


def test_drafts_alone_are_nothing_to_compute(judge) -> None:
    text = f"{TWO}1 schedule A start=0 tokens=8\n1 output A tokens=1\n"
    text += "2 schedule A start=8 tokens=2 drafts=2\n2 step"

    assert judge(text).steps("batch/empty-member") == [2]


# -- barrier -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_batch_is_what_joins_before_its_first_result(judge, mode: str) -> None:
    """Trace format, step 12: admitted in the first step in which nobody runs, up to its first result row."""
    one = f"cfg batching.mode={mode}\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit A\n"
    one += "1 schedule A start=0 tokens=4\n"

    assert judge(f"{one}1 admit B")["batch/static-barrier"].violations == 0
    assert judge(f"{one}1 finish A stop\n2 admit B")["batch/static-barrier"].violations == 0
    assert judge(f"{one}1 output A tokens=1\n1 admit B").steps("batch/static-barrier") == [1]


def test_a_resume_counts_as_an_admission(judge) -> None:
    text = "cfg batching.mode=static\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit A\n1 admit B\n"
    text += "2 preempt B recompute\n3 schedule A start=0 tokens=4\n"

    assert judge(f"{text}3 step\n4 resume B").steps("batch/static-barrier") == [4]
    assert judge(f"{text}3 finish A stop\n4 resume B").broken == []


def test_continuous_batching_has_no_barrier(judge) -> None:
    found = judge("cfg batching.mode=continuous\n1 arrive A prompt=4")

    assert found["batch/static-barrier"].missing == ("batching.mode=static|dynamic",)


# -- window ------------------------------------------------------------------------------------------

WINDOW = """
    cfg batching.mode=dynamic window_ns=10ms max_seqs={seqs} {more}
    cfg order=fcfs misfit=stop test=known reserve=known token_budget=64 kv_blocks=16 block_size=4
"""
BARE = "cfg batching.mode=dynamic window_ns=10ms max_seqs=2\n"


def started(members: str, time: str) -> str:
    rows = "".join(f"2 admit {name} t={time}\n" for name in members)
    return rows + "".join(f"2 schedule {name} start=0 tokens=4\n" for name in members) + "2 step\n"


def arrivals(*times: int) -> str:
    return "".join(
        f"1 arrive {name} prompt=4 t={time}ms\n" for name, time in zip("ABCD", times, strict=False)
    )


@pytest.mark.parametrize(
    ("times", "members", "at", "found"),
    [
        ((0, 1), "AB", "2ms", []),  # full: at once
        ((0,), "A", "9ms", [2]),  # early and not full
        ((0,), "A", "10ms", []),  # its window is over
        ((0, 9), "A", "10ms", [2]),  # late, and smaller than it had to be
        ((0, 9), "AB", "10ms", []),
        ((0, 1, 2), "A", "3ms", [2]),  # one of two that were due
        ((0, 1, 2), "AB", "3ms", []),
    ],
)
def test_a_batch_leaves_full_or_late(judge, times, members, at, found) -> None:
    """Triton dynamic batcher, TR6 and TR8."""
    text = WINDOW.format(seqs=2, more="") + arrivals(*times) + started(members, at)

    assert judge(text).steps("batch/dynamic-window") == found


@pytest.mark.parametrize(("members", "found"), [("AB", []), ("A", [2]), ("ABC", [2])])
def test_a_preferred_size_leaves_early(judge, members: str, found: list) -> None:
    """Triton dynamic batcher, TR7: the largest preferred size that is there."""
    text = WINDOW.format(seqs=4, more="preferred_sizes=2") + arrivals(0, 1, 2)

    assert judge(text + started(members, "3ms")).steps("batch/dynamic-window") == found


def test_a_batch_that_does_not_start_is_late_at_once(judge) -> None:
    """Rules: late = not started by the first step at or after the window's end, reported at that step."""
    text = WINDOW.format(seqs=2, more="") + arrivals(0)

    found = judge(f"{text}2 step t=9ms\n3 step t=10ms\n4 step t=11ms")

    assert found.steps("batch/dynamic-window")[0] == 3


def test_whether_a_batch_could_be_larger_is_not_judged_where_nobody_knows_what_fits(judge) -> None:
    text = BARE + arrivals(0, 9)

    smaller, early = judge(text + started("A", "10ms")), judge(BARE + arrivals(0) + started("A", "9ms"))

    assert smaller.broken == []
    assert smaller["batch/dynamic-window"].skipped == 1
    assert early.steps("batch/dynamic-window") == [2]


def test_a_batch_that_the_next_request_cannot_join_is_full(judge) -> None:
    text = WINDOW.format(seqs=2, more="") + "1 arrive A prompt=4 t=0ms\n1 arrive B prompt=64 t=0ms\n"

    assert judge(text + started("A", "10ms")).broken == []


def test_a_request_that_came_after_the_decision_is_owed_nothing(judge) -> None:
    text = WINDOW.format(seqs=2, more="") + arrivals(0) + started("A", "10ms").replace("2 step\n", "")

    assert judge(f"{text}2 arrive B prompt=4 t=10ms\n2 step").broken == []


def test_a_time_limit_of_the_queue_fires_in_time(judge) -> None:
    """Triton issue 7512: a limit of 10 s fires when the running inference ends, after 90 s."""
    text = WINDOW.format(seqs=1, more="queue_timeout_ns=10s tolerance_ns=50ms") + "1 arrive A prompt=4 t=0s\n"
    text += "1 admit A t=10ms\n1 schedule A start=0 tokens=4\n1 arrive B prompt=4 t=1s\n1 step\n"
    run = "2 schedule A start=4 tokens=1 t=1s\n"

    assert judge(f"{text}{run}2 abort B timeout t=90s").steps("batch/dynamic-window") == [2]
    assert judge(f"{text}{run}2 abort B timeout t=11.05s").broken == []


# -- no stall ----------------------------------------------------------------------------------------

STALL = """
    cfg stall_free=true token_budget={budget}
    1 arrive A prompt=4 max=9
    1 arrive B prompt=4 max=9
    1 arrive C prompt=8 max=9
    1 admit A
    1 admit B
    1 schedule A start=0 tokens=4
    1 schedule B start=0 tokens=4
    1 step
    2 admit C
"""


def test_decodes_may_be_left_out_only_for_decodes(judge) -> None:
    prefill = "2 schedule C start=0 tokens=7\n2 schedule A start=4 tokens=1\n2 step\n"
    decode = "2 schedule A start=4 tokens=1\n2 step\n"

    assert judge(STALL.format(budget=8) + prefill).steps("batch/no-stall") == [2]
    assert judge(STALL.format(budget=1) + decode)["batch/no-stall"].violations == 0
    assert judge(STALL.format(budget=8) + decode).of("batch/no-stall")[0].requests == ("B",)


@pytest.mark.parametrize("reason", ["memory", "budget", "policy", "not_ready"])
def test_a_skip_row_says_why(judge, reason: str) -> None:
    """vLLM issue 49097: a running request is skipped without a trace."""
    text = STALL.format(budget=8) + f"2 schedule A start=4 tokens=1\n2 skip B {reason}\n2 step\n"

    assert judge(text)["batch/no-stall"].violations == 0


def test_a_member_that_ends_does_not_stand_for_one_left_out(judge) -> None:
    """Found by exploration: as many members as run on, but not the same ones."""
    text = STALL.format(budget=8) + "2 schedule A start=4 tokens=1\n2 finish A stop\n2 step\n"

    assert judge(text).of("batch/no-stall")[0].requests == ("B",)


def test_the_last_token_of_a_prompt_is_no_decode(judge) -> None:
    """Found by exploration: a part of one token is a decode only after a first output."""
    text = """
        cfg stall_free=true token_budget=4
        1 arrive A prompt=4 max=2
        1 arrive B prompt=9 max=2
        1 admit A
        1 schedule A start=0 tokens=3
        1 admit B
        1 schedule B start=0 tokens=1
        1 step
        2 schedule B start=1 tokens=4
        2 step
    """

    assert judge(text)["batch/no-stall"].violations == 0


def test_a_step_without_a_pass_stalls_nobody(judge) -> None:
    assert judge(STALL.format(budget=8) + "2 step\n")["batch/no-stall"].violations == 0


def test_a_request_whose_tokens_are_all_in_flight_has_nothing_to_compute(judge) -> None:
    text = """
        cfg stall_free=true token_budget=8 depth=2 slot_lag=1 lookahead=0
        1 arrive A prompt=4 max={most}
        1 arrive B prompt=9 max=9
        1 admit A
        1 admit B
        1 schedule A start=0 tokens=4
        1 schedule B start=0 tokens=4
        1 step
        2 schedule B start=4 tokens=4
        2 step
    """

    assert judge(text.format(most=1) + "3 output A tokens=1 pass=1").broken == []
    assert judge(text.format(most=2) + "3 output A tokens=1 pass=1").steps("batch/no-stall") == [2]


# -- mixed -------------------------------------------------------------------------------------------


def test_a_request_is_a_prefill_again_after_its_preemption(judge) -> None:
    text = f"cfg batching.mixed=false\n{TWO}1 schedule A start=0 tokens=8\n1 schedule B start=0 tokens=8\n"
    text += "1 step\n2 preempt B recompute\n2 schedule A start=8 tokens=1\n2 step\n3 resume B\n"

    assert judge(f"{text}3 schedule B start=0 tokens=9\n3 step")["batch/mixed"].violations == 0
    assert judge(f"{text}3 schedule B start=0 tokens=9\n3 schedule A start=9 tokens=1\n3 step").steps(
        "batch/mixed"
    ) == [3]


def test_where_phases_may_mix_they_mix(judge) -> None:
    assert "batching.mixed=false" in judge("cfg batching.mixed=true\n1 arrive A")["batch/mixed"].missing
