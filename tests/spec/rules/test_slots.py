"""Rules of batch slots, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_slots_exclusive(examples) -> None:
    """Trace format, column `slot`: the batch slot taken."""
    passing, failing = examples("slots/exclusive")

    assert passing["slots/exclusive"].verdict == "conforms"
    assert failing.of("slots/exclusive")[0].requests == ("B", "A")


def test_slots_range(examples) -> None:
    """Trace format, column `slot`: 0 ≤ slot < max_seqs."""
    passing, failing = examples("slots/range")

    assert passing["slots/range"].verdict == "conforms"
    assert failing.broken == ["slots/range"]


def test_slots_early_reuse(examples) -> None:
    """Trace format, `finish`: slot and blocks are free for the scheduling of step k + 1."""
    passing, failing = examples("slots/early-reuse")

    assert passing["slots/early-reuse"].verdict == "conforms"
    assert failing.broken == ["slots/early-reuse"]


def test_slots_reuse(examples) -> None:
    """Orca (OSDI'22) §3.1, OR1: after each iteration finished requests leave and new ones may join."""
    passing, failing = examples("slots/reuse")

    assert passing["slots/reuse"].verdict == "conforms"
    assert failing.steps("slots/reuse") == [2]


# -- who sits where --------------------------------------------------------------------------------

SEATED = "1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit A slot=0\n1 schedule A start=0 tokens=4\n"


def test_after_a_collision_the_newest_taker_has_the_slot(judge) -> None:
    """Rules, repair: the former holder holds it no more, and what follows from it is a consequence."""
    text = f"{SEATED}1 admit B slot=0\n2 arrive C prompt=4\n2 admit C slot=0"

    found = judge(text).of("slots/exclusive")

    assert [finding.requests for finding in found] == [("B", "A"), ("C", "B")]
    assert [finding.consequence for finding in found] == [False, True]


def test_an_admission_without_a_slot_is_skipped(judge) -> None:
    found = judge(f"cfg max_seqs=2\n{SEATED}1 admit B")

    assert [found[f"slots/{name}"].skipped for name in ("exclusive", "range", "early-reuse")] == [1, 1, 1]
    assert found.broken == []


def test_without_a_slot_column_three_of_the_four_are_not_checkable(judge) -> None:
    found = judge("cfg max_seqs=2\n1 arrive A prompt=4\n1 admit A")

    assert {found[f"slots/{name}"].missing for name in ("exclusive", "range", "early-reuse")} == {("slot",)}
    assert "slot" not in found["slots/reuse"].missing, "completion-slot reuse needs no slot column"


# -- too early -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_finish_gives_its_slot_back_after_its_pass_and_the_lag(judge, lag: int) -> None:
    """Rules: not taken again before step k + 1 + slot_lag."""
    text = f"cfg slot_lag={lag}\n{SEATED}1 finish A stop pass=1\n"

    for step in range(1, lag + 2):
        assert judge(f"{text}{step} admit B slot=0").steps("slots/early-reuse") == [step]
    assert judge(f"{text}{lag + 2} admit B slot=0").broken == []


@pytest.mark.parametrize("leaves", ["preempt A recompute", "abort A operator"])
@pytest.mark.parametrize("lag", [0, 1])
def test_an_abort_or_preemption_gives_it_back_at_once(judge, leaves: str, lag: int) -> None:
    """Rules: free from the next row on, with slot_lag L from step k + L on."""
    text = f"cfg slot_lag={lag}\n{SEATED}2 {leaves} pass=2\n"

    assert judge(f"{text}2 admit B slot=0").steps("slots/early-reuse") == [2] * lag
    assert judge(f"{text}3 admit B slot=0")["slots/early-reuse"].violations == 0


def test_the_pass_of_the_finish_counts_and_not_its_row(judge) -> None:
    """An overlapping engine reads the end of pass k in step k + 1; the slot is free from k + 2 on."""
    text = f"cfg slot_lag=1\n{SEATED}2 schedule A start=4 tokens=1\n2 finish A stop pass=1\n"

    assert judge(f"{text}3 admit B slot=0").broken == []
    assert judge(f"{text}2 admit B slot=0").steps("slots/early-reuse") == [2]


def test_with_overlap_and_no_pass_column_nobody_knows_which_pass_ended_it(judge) -> None:
    assert judge(f"cfg slot_lag=1\n{SEATED}")["slots/early-reuse"].missing == ("pass",)


def test_a_static_batch_gives_its_slots_back_when_its_last_member_ends(judge) -> None:
    """Trace format, step 12: only the right to take seat and blocks waits for the last member."""
    text = f"cfg batching.mode=static\n{SEATED}1 admit B slot=1\n1 schedule B start=0 tokens=4\n"
    text += "1 finish A stop\n2 schedule B start=4 tokens=1\n2 arrive C prompt=4\n"

    assert judge(f"{text}2 admit C slot=0").steps("slots/early-reuse") == [2]
    assert judge(f"{text}2 finish B stop\n3 admit C slot=0").broken == []
    assert judge(f"{text}2 finish B stop\n2 admit C slot=0").steps("slots/early-reuse") == [2]


# -- left empty ------------------------------------------------------------------------------------

CLAIMS = """
    cfg batching.mode=continuous order=fcfs misfit=stop work_conserving=true test=known chunked_prefill=true
    cfg max_seqs={seqs} token_budget=8 kv_blocks=6 block_size=4 {more}
"""


def one_ends(seqs: int = 1, more: str = "", waits: str = "prompt=4") -> str:
    text = CLAIMS.format(seqs=seqs, more=more) + f"1 arrive A prompt=4\n1 arrive B {waits}\n"
    return (
        text + "1 admit A blocks=1\n1 schedule A start=0 tokens=4 blocks=1\n1 finish A stop pass=1\n1 step\n"
    )


@pytest.mark.parametrize("lag", [0, 1])
def test_the_step_in_which_the_seat_is_owed(judge, lag: int) -> None:
    """Rules: the decisions of step k + 1 + slot_lag, not of one before and not of one after."""
    text = one_ends(more=f"slot_lag={lag} depth={lag + 1}")
    quiet = "".join(f"{step} step\n" for step in range(2, lag + 2))

    assert judge(text + quiet).broken == []
    assert judge(f"{text}{quiet}{lag + 2} step").steps("slots/reuse") == [lag + 2]
    assert judge(f"{text}{quiet}{lag + 2} admit B blocks=1\n{lag + 2} step").broken == []
    assert judge(text + quiet + f"{lag + 2} step\n{lag + 3} step").steps("slots/reuse") == [lag + 2], "once"


@pytest.mark.parametrize(
    ("prefix", "prompt", "owed"), [("false", 24, True), ("true", 24, False), ("true", 20, True)]
)
def test_a_hit_may_ask_for_more_blocks_than_the_step_without_it(judge, prefix, prompt, owed) -> None:
    """A cache hit moves the step's part behind itself: up to all of n may be asked for (vLLM 0.13)."""
    text = CLAIMS.format(seqs=2, more=f"prefix={prefix}").replace("test=known", "test=step")
    text += f"1 arrive C prompt=4\n1 arrive A prompt=4\n1 arrive B prompt={prompt}\n"
    for name in "CA":
        text += f"1 admit {name} cached=0 blocks=1\n1 schedule {name} start=0 tokens=4 blocks=1\n"
    text += "1 finish A stop\n1 step\n2 schedule C start=4 tokens=1 blocks=1\n2 step\n"

    assert judge(text).steps("slots/reuse") == ([2] if owed else [])


def test_nobody_waits_and_nothing_is_owed(judge) -> None:
    text = one_ends(seqs=2).replace("1 admit A", "1 admit B blocks=1\n1 admit A")

    assert judge(f"{text}2 schedule B start=0 tokens=4 blocks=1\n2 step")["slots/reuse"].verdict == "conforms"


@pytest.mark.parametrize(
    ("waits", "why"),
    [("prompt=28", "blocks: 7 of 6"), ("prompt=4 max=1", None)],
)
def test_the_next_may_not_fit(judge, waits: str, why: str | None) -> None:
    found = judge(f"{one_ends(waits=waits)}2 step")

    assert found["slots/reuse"].violations == (0 if why else 1)


def test_a_resume_fills_a_seat_too(judge) -> None:
    text = CLAIMS.format(seqs=1, more="preemption.resume=front") + "1 arrive A prompt=4\n1 admit A blocks=1\n"
    text += "1 preempt A recompute\n1 arrive B prompt=4\n2 admit B blocks=1\n"
    text += "2 schedule B start=0 tokens=4 blocks=1\n2 finish B stop pass=2\n2 step\n"

    assert judge(f"{text}3 step").steps("slots/reuse") == [3]
    assert judge(f"{text}3 resume A blocks=1\n3 step")["slots/reuse"].verdict == "conforms"


def test_an_abort_gives_a_seat_up_in_its_own_step(judge) -> None:
    """Rules: for an abort, k is the row's step."""
    text = CLAIMS.format(seqs=1, more="") + "1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit A blocks=1\n"
    text += "1 schedule A start=0 tokens=4 blocks=1\n1 step\n2 abort A operator\n2 step\n"

    assert judge(text)["slots/reuse"].violations == 0
    assert judge(f"{text}3 step").steps("slots/reuse") == [3]


def test_a_step_that_preempts_passes_the_duty_on(judge) -> None:
    """Rules: a step that preempted is excused unless admit_in_same_step; the duty passes to the next."""
    ends = "1 arrive A prompt=4\n1 arrive R prompt=4\n1 arrive S prompt=4\n1 arrive B prompt=4\n"
    ends += "".join(
        f"1 admit {name} blocks=1\n1 schedule {name} start=0 tokens={size} blocks=1\n"
        for name, size in (("A", 4), ("R", 2), ("S", 2))
    )
    ends += "1 finish A stop\n1 step\n2 preempt S recompute cause=R\n"
    ends += "2 schedule R start=2 tokens=2 blocks=1\n2 step\n"
    run = "3 schedule R start=4 tokens=1 blocks=2\n3 step\n"

    def found(more: str) -> list:
        text = CLAIMS.format(seqs=3, more=f"preemption.resume=back {more}").replace(
            "kv_blocks=6", "kv_blocks=12"
        )
        return judge(text + ends + run).steps("slots/reuse")

    assert found("admit_in_same_step=false") == [3]
    assert found("admit_in_same_step=true") == [2]


@pytest.mark.parametrize(
    ("without", "word"),
    [
        ("order=fcfs ", "admission.order"),
        ("work_conserving=true ", "admission.work_conserving"),
        ("test=known ", "admission.test"),
        ("max_seqs=1 ", "limits.max_seqs"),
        ("kv_blocks=6 ", "limits.kv_blocks"),
        ("token_budget=8 ", "limits.token_budget"),
    ],
)
def test_each_claim_is_needed_and_named(judge, without: str, word: str) -> None:
    text = f"{one_ends()}2 step"
    assert without in text

    found = judge(text.replace(without, ""))["slots/reuse"]

    assert found.verdict == "not checkable"
    assert word in found.missing


def test_two_that_end_give_two_seats(judge) -> None:
    text = CLAIMS.format(seqs=2, more="") + "".join(f"1 arrive {name} prompt=4\n" for name in "ABCD")
    text += "".join(f"1 admit {n} blocks=1\n1 schedule {n} start=0 tokens=4 blocks=1\n" for n in "AB")
    text += "1 finish A stop\n1 finish B stop\n1 step\n"
    text += "2 admit C blocks=1\n2 schedule C start=0 tokens=4 blocks=1\n"

    assert judge(f"{text}2 step").of("slots/reuse")[0].requests == ("D",)
    assert judge(f"{text}2 admit D blocks=1\n2 schedule D start=0 tokens=4 blocks=1\n2 step").broken == []
