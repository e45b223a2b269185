"""Rules of liveness, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_liveness_idle_stall(examples) -> None:
    """vLLM issue 39734: 0 running, 1 waiting, 0 % cache, and nothing happens."""
    passing, failing = examples("liveness/idle-stall")

    assert passing["liveness/idle-stall"].verdict == "conforms"
    assert failing.steps("liveness/idle-stall") == [3]


def test_liveness_starved_member(examples) -> None:
    """SGLang issue 32549: decodes starve while prompts keep coming."""
    passing, failing = examples("liveness/starved-member")

    assert passing["liveness/starved-member"].verdict == "conforms"
    assert failing.of("liveness/starved-member")[0].requests == ("A",)


def test_liveness_livelock(examples) -> None:
    """vLLM PR 54530: equals would swap places for ever."""
    passing, failing = examples("liveness/livelock")

    assert passing["liveness/livelock"].verdict == "conforms"
    assert failing.broken == ["liveness/livelock"]


# -- idle ------------------------------------------------------------------------------------------

POOL = "kv_blocks=4 block_size=4"
RUNS = "1 arrive A prompt=4 max=9\n1 admit A blocks=1\n1 schedule A start=0 tokens=4 blocks=1\n1 step\n"


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_a_running_request_keeps_the_engine_at_work(judge, patience: int) -> None:
    """Rules, bounded: no more than K empty steps; the finding stands at step K + 1."""
    text = f"cfg K={patience} {POOL}\n{RUNS}"

    assert judge(f"{text}2..{patience + 1} step")["liveness/idle-stall"].verdict == "open"
    assert judge(f"{text}2..{patience + 2} step").steps("liveness/idle-stall") == [patience + 2]


def test_a_step_with_a_pass_begins_the_count_anew(judge) -> None:
    text = f"cfg K=2 {POOL}\n{RUNS}2..3 step\n4 schedule A start=4 tokens=1 blocks=2\n4 step\n"

    assert judge(f"{text}5..6 step")["liveness/idle-stall"].violations == 0
    assert judge(f"{text}5..7 step").steps("liveness/idle-stall") == [7]


def test_a_waiting_request_that_fits_keeps_it_at_work_too(judge) -> None:
    claims = f"cfg order=fcfs misfit=stop test=known max_seqs=2 token_budget=8 {POOL} K=2\n"
    text = f"{claims}{RUNS}2 finish A stop\n2 arrive B prompt=4\n2 step\n"

    assert judge(f"{text}3..4 step").broken == []
    assert judge(f"{text}3..5 step").steps("liveness/idle-stall") == [5]


@pytest.mark.parametrize(
    "rows",
    [
        "1 park A grammar blocks=0\n1..9 step",
        "1..9 skip A not_ready\n1..9 step",
        "1 reject A too_long\n1..9 step",
        "1 dispatch pass=1\n1..9 step",
        "1 transfer_begin A receive\n1..9 step",
    ],
)
def test_an_empty_step_is_right_while_something_is_on_its_way(judge, rows: str) -> None:
    """Traps: correct while asynchronous results, transfers or fences are pending."""
    assert judge(f"cfg K=2 {POOL}\n1 arrive A prompt=4\n{rows}")["liveness/idle-stall"].violations == 0


@pytest.mark.parametrize("row", ["1 dispatch pass=1", "1 transfer_begin A receive"])
def test_under_a_bound_of_its_own_what_is_on_its_way_must_end(judge, row: str) -> None:
    """Traps: … and must still fire when they never end."""
    text = f"cfg patience.rules=liveness/idle-stall:5 {POOL}\n1 arrive A prompt=4\n{row}\n"

    assert judge(f"{text}1..5 step")["liveness/idle-stall"].violations == 0
    assert judge(f"{text}1..6 step").steps("liveness/idle-stall") == [6]


def test_no_step_at_all_is_a_stall_where_a_wall_bound_is_claimed(judge) -> None:
    """vLLM downstream issue 191: it resumed after 6 minutes, at the moment another request came in."""
    text = "cfg wall_ns={} kv_blocks=4 block_size=4\n1 arrive A prompt=4 t=0s\n1 admit A t=1s\n"
    text += "1 schedule A start=0 tokens=4 t=1s\n1 step t=2s\n2 schedule A start=4 tokens=1 t=362s\n"

    assert judge(text.format("60s")).steps("liveness/idle-stall") == [2]
    assert judge(text.format("600s")).broken == []


# -- starved ---------------------------------------------------------------------------------------

TWO = "1 arrive A prompt=4 max=9\n1 arrive B prompt=4 max=99\n1 admit A\n1 admit B\n"
TWO += "1 schedule A start=0 tokens=4\n1 schedule B start=0 tokens=4\n1 step\n"


def only_b(first: int, last: int, also: str = "") -> str:
    return "".join(
        f"{n} schedule B start={n + 2} tokens=1\n{also.format(n)}{n} step\n" for n in range(first, last + 1)
    )


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_everyone_who_runs_has_a_turn_in_any_k_plus_1_steps(judge, patience: int) -> None:
    text = f"cfg K={patience}\n{TWO}"

    assert judge(text + only_b(2, patience + 1))["liveness/starved-member"].verdict == "open"
    assert judge(text + only_b(2, patience + 2)).steps("liveness/starved-member") == [patience + 2]


@pytest.mark.parametrize(("reason", "broken"), [("not_ready", False), ("in_flight", False), ("memory", True)])
def test_a_member_that_is_not_ready_is_not_starved(judge, reason: str, broken: bool) -> None:
    text = f"cfg K=2\n{TWO}{only_b(2, 9, also='{} skip A ' + reason + chr(10))}"

    assert bool(judge(text)["liveness/starved-member"].violations) is broken


def test_a_membership_without_a_position_is_no_turn(judge) -> None:
    """vLLM issue 40707: rounding to alignment collapses the plan to zero tokens, again and again."""
    text = f"cfg K=2\n{TWO}{only_b(2, 4, also='{} schedule A start=4 tokens=0' + chr(10))}"

    assert judge(text).steps("liveness/starved-member") == [4]


@pytest.mark.parametrize(
    ("claims", "missing"),
    [
        ("prefill_first=true", ("patience.rules.liveness/starved-member",)),
        ("prefill_first=true patience.rules=liveness/starved-member:64", ()),
        ("batching.mode=static", ("batching.mode=continuous",)),
        ("", ()),
    ],
)
def test_a_prefill_first_engine_claims_it_with_a_bound_of_its_own(judge, claims: str, missing: tuple) -> None:
    """Profiles: prefill-first engines: required, else that rule is not claimed."""
    assert judge(f"cfg {claims}\n{TWO}")["liveness/starved-member"].missing == missing


# -- livelock --------------------------------------------------------------------------------------


def circle(steps: int, emits: bool = False) -> str:
    """A and B evict each other, step after step, each for a part of its prompt or for one more token."""
    text = "cfg K=3\n1 arrive A prompt=9 max=9\n1 arrive B prompt=9 max=9\n1 admit A\n1 admit B\n1 step\n"
    for step in range(2, 2 + steps):
        gains, loses = ("A", "B") if step % 2 == 0 else ("B", "A")
        text += f"{step} resume {gains}\n" if step > 2 else ""
        text += f"{step} preempt {loses} recompute cause={gains}\n"
        tokens = 9 + (step - 2) // 2 if emits else 4
        text += f"{step} schedule {gains} start=0 tokens={tokens}\n{step} step\n"
    return text


def test_a_circle_is_told_after_k_steps_and_once(judge) -> None:
    assert judge(circle(3))["liveness/livelock"].violations == 0
    assert judge(circle(4)).steps("liveness/livelock") == [5]
    assert judge(circle(9)).steps("liveness/livelock") == [5]


def test_a_circle_in_which_tokens_come_out_is_slow_and_no_livelock(judge) -> None:
    assert judge(circle(9, emits=True))["liveness/livelock"].violations == 0


def test_one_that_is_evicted_again_and_again_is_no_circle(judge) -> None:
    text = "cfg K=3\n1 arrive A prompt=99\n1 arrive B prompt=9\n1 admit A\n1 admit B\n"
    for step in range(2, 9):
        text += f"{step} preempt B recompute cause=A\n{step} schedule A start={(step - 2) * 4} tokens=4\n"
        text += f"{step} resume B\n"

    assert judge(text)["liveness/livelock"].violations == 0


def test_without_causes_nobody_knows_who_preempts_whom(judge) -> None:
    assert judge(circle(9).replace(" cause=A", "").replace(" cause=B", ""))["liveness/livelock"].missing == (
        "cause",
    )
