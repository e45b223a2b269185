"""Rules of preemption, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_preemption_forbidden(examples) -> None:
    """Orca (OSDI'22) OR3: the reservation covers a request's whole life, hence no preemption. VTC VT4."""
    passing, failing = examples("preemption/forbidden")

    assert passing["preemption/forbidden"].verdict == "conforms"
    assert failing.broken == ["preemption/forbidden"]


def test_preemption_cause(examples) -> None:
    """vLLM V1.3: while there is no block for a running request, one is preempted; not before."""
    passing, failing = examples("preemption/cause")

    assert passing["preemption/cause"].verdict == "conforms"
    assert failing.broken == ["preemption/cause"]


def test_preemption_victim(examples) -> None:
    """vLLM (SOSP'23) §4.5, VL1: latest preempted first."""
    passing, failing = examples("preemption/victim")

    assert passing["preemption/victim"].verdict == "conforms"
    assert failing.of("preemption/victim")[0].requests == ("A", "B")


def test_preemption_useful(examples) -> None:
    """vLLM issue 49674: fenced victims free nothing, so the whole running set is evicted for no gain."""
    passing, failing = examples("preemption/useful")

    assert passing["preemption/useful"].verdict == "conforms"
    assert failing.broken == ["preemption/useful"]


def test_preemption_resume_first(examples) -> None:
    """vLLM (SOSP'23) §4.5, VL3: no new request until all preempted sequences are completed."""
    passing, failing = examples("preemption/resume-first")

    assert passing["preemption/resume-first"].verdict == "conforms"
    assert failing.broken == ["preemption/resume-first"]


def test_preemption_no_admission(examples) -> None:
    """vLLM V1.4: waiting is looked at only if this step preempted nobody."""
    passing, failing = examples("preemption/no-admission")

    assert passing["preemption/no-admission"].verdict == "conforms"
    assert failing.broken == ["preemption/no-admission"]


def test_preemption_thrash(examples) -> None:
    """SGLang-JAX PR 1232: forced retraction faster than progress."""
    passing, failing = examples("preemption/thrash")

    assert passing["preemption/thrash"].verdict == "conforms"
    assert failing.broken == ["preemption/thrash"]


def test_preemption_swap(examples) -> None:
    """vLLM (SOSP'23) §4.5, VL3 and VL4: blocks copied out and back, or KV rebuilt from nothing."""
    passing, failing = examples("preemption/swap")

    assert passing["preemption/swap"].verdict == "conforms"
    assert failing.broken == ["preemption/swap"]


# -- the operator ----------------------------------------------------------------------------------


def test_the_operator_is_judged_by_three_rules_alone(judge) -> None:
    """Trace format, `reason`: judged by no preemption rule but forbidden, no-admission and resume-first."""
    text = "cfg kv_blocks=9 block_size=4 victim=latest-admitted preemption.resume=front {}\n"
    text += "cfg admit_in_same_step=false\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 arrive C prompt=4\n"
    text += "1 admit A blocks=1\n1 admit B blocks=1\n2 preempt A operator cause=B\n"

    assert judge(text.format("")).broken == []
    assert judge(text.format("preemption.mode=none") + "2 step").broken == ["preemption/forbidden"]
    assert judge(text.format("") + "2 admit C blocks=1").steps("preemption/no-admission") == [2]
    assert judge(text.format("") + "3 admit C blocks=1").steps("preemption/resume-first") == [3]


# -- cause -----------------------------------------------------------------------------------------

NEED = """
    cfg kv_blocks={pool} block_size=4 {more}
    1 arrive A prompt=4 priority=5
    1 arrive B prompt=4 priority=5
    1 arrive C prompt=4 priority={c}
    1 admit A blocks=1
    1 schedule A start=0 tokens=4 blocks=1
    1 admit B blocks=1
    1 schedule B start=0 tokens=4 blocks=1
    1 step
"""


@pytest.mark.parametrize(("pool", "broken"), [(2, False), (3, True), (4, True)])
@pytest.mark.parametrize("cause", [" cause=A", ""])
def test_the_beneficiary_needs_more_than_is_free(judge, pool: int, broken: bool, cause: str) -> None:
    """Rules: `cause`, or (null) some running request not yet scheduled, or the victim itself."""
    text = (
        NEED.format(pool=pool, more="", c=5)
        + f"2 preempt B recompute{cause}\n2 schedule A start=4 tokens=1 blocks=2"
    )

    assert bool(judge(text)["preemption/cause"].violations) is broken


@pytest.mark.parametrize(("headroom", "broken"), [(0, True), (1, False)])
def test_some_engines_free_a_few_blocks_more(judge, headroom: int, broken: bool) -> None:
    """Rules: + headroom_blocks (SGLang frees for several further decodes)."""
    text = NEED.format(pool=3, more=f"headroom_blocks={headroom}", c=5) + "2 preempt B recompute cause=A"

    assert bool(judge(text)["preemption/cause"].violations) is broken


def test_who_was_scheduled_already_needs_nothing_more(judge) -> None:
    text = NEED.format(pool=3, more="", c=5) + "2 schedule A start=4 tokens=1 blocks=2\n"

    assert judge(f"{text}2 preempt B recompute cause=A").broken == ["preemption/cause"]
    assert judge(f"{text}2 preempt B recompute cause=B").broken == []


@pytest.mark.parametrize(
    ("more", "c", "broken"),
    [
        ("for_waiting=true urgent=low", 1, False),
        ("for_waiting=true urgent=low", 5, True),  # equals would swap for ever
        ("for_waiting=true urgent=high", 9, False),
        ("for_waiting=true urgent=high", 1, True),
        ("for_waiting=false urgent=low", 1, True),
    ],
)
def test_only_a_strictly_more_urgent_request_evicts_from_the_queue(
    judge, more: str, c: int, broken: bool
) -> None:
    """vLLM PR 54530: with arrival as a tie-break two equals would swap for ever."""
    text = NEED.format(pool=2, more=more, c=c) + "2 preempt B recompute cause=C\n2 admit C blocks=1\n"
    text += "2 schedule C start=0 tokens=4 blocks=1"

    assert bool(judge(text)["preemption/cause"].violations) is broken


def test_where_the_profile_is_silent_an_eviction_for_the_queue_is_not_judged(judge) -> None:
    found = judge(NEED.format(pool=9, more="urgent=low", c=1) + "2 preempt B recompute cause=C")

    assert found["preemption/cause"].skipped == 1
    assert found["preemption/cause"].violations == 0


# -- victim ----------------------------------------------------------------------------------------

FOUR = """
    cfg victim={policy} {more}
    1 arrive D prompt=4 priority=4
    1 arrive A prompt=4 priority=1
    1 arrive B prompt=4 priority=9
    1 arrive C prompt=4 priority=3
    1 admit B
    1 schedule B start=0 tokens=4
    1 admit A
    1 schedule A start=0 tokens=4
    1 admit C
    1 schedule C start=0 tokens=2
    1 step
"""


@pytest.mark.parametrize(
    ("policy", "more", "right"),
    [
        ("latest-admitted", "", "C"),
        ("latest-arrived", "", "C"),
        ("least-urgent", "urgent=low", "B"),
        ("least-urgent", "urgent=high", "A"),
        ("fewest-outputs", "", "C"),
    ],
)
def test_each_policy_has_its_victim(judge, policy: str, more: str, right: str) -> None:
    for name in "ABC":
        found = judge(FOUR.format(policy=policy, more=more) + f"2 preempt {name} recompute")
        assert bool(found["preemption/victim"].violations) is (name != right)


def test_a_resume_counts_as_an_admission(judge) -> None:
    """Rules: latest-admitted counts a resume as an admission."""
    back = "2 preempt C recompute\n3 admit D\n4 resume C\n"

    for policy, right in (("latest-admitted", "C"), ("latest-arrived", "C")):
        text = FOUR.format(policy=policy, more="") + back
        assert judge(f"{text}5 preempt {right} recompute")["preemption/victim"].violations == 0
    assert judge(FOUR.format(policy="latest-admitted", more="") + f"{back}5 preempt D recompute").steps(
        "preemption/victim"
    ) == [5]


def test_the_requester_itself(judge) -> None:
    text = FOUR.format(policy="self", more="")

    assert judge(f"{text}2 preempt C recompute cause=C")["preemption/victim"].violations == 0
    assert judge(f"{text}2 preempt C recompute cause=A")["preemption/victim"].violations == 1
    assert judge(f"{text}2 preempt C recompute")["preemption/victim"].missing == ("cause",)


def test_the_newest_that_was_denied_has_no_part_in_the_step_yet(judge) -> None:
    """transformers continuous batching: newest denied, never one that has its part of the step."""
    text = FOUR.format(policy="newest-denied", more="") + "2 schedule B start=4 tokens=1\n"

    assert judge(f"{text}2 preempt C recompute")["preemption/victim"].violations == 0
    assert judge(f"{text}2 preempt B recompute")["preemption/victim"].violations == 1


# -- useful ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ("2 schedule A start=4 tokens=1 blocks=2\n2 step", False),
        ("2 preempt A recompute cause=A\n2 step", False),
        ("2 finish A stop\n2 step", False),
        ("2 step", True),
    ],
)
def test_the_beneficiary_is_served_or_gone(judge, rows: str, broken: bool) -> None:
    """Rules: the cause is a member of that step, or ended, or was itself preempted in it."""
    text = NEED.format(pool=2, more="", c=5) + f"2 preempt B recompute cause=A\n{rows}"

    assert bool(judge(text)["preemption/useful"].violations) is broken


def test_a_victim_that_holds_on_to_its_blocks_is_no_use(judge) -> None:
    text = NEED.format(pool=2, more="{}", c=5) + "2 preempt B recompute cause=A blocks=1\n"
    text += "2 schedule A start=4 tokens=1 blocks=1\n2 step"

    assert "preemption/useful" in judge(text.format("")).broken
    assert "preemption/useful" not in judge(text.format("keeps_blocks=true")).broken


def test_an_overlapping_engine_serves_a_step_later(judge) -> None:
    """Rules: a member of that step (+ lag)."""
    text = (
        NEED.format(pool=2, more="slot_lag=1 depth=2 lookahead=0", c=5)
        + "2 preempt B recompute cause=A\n2 step\n"
    )

    assert judge(f"{text}3 schedule A start=4 tokens=1 blocks=2\n3 step")["preemption/useful"].violations == 0
    assert judge(f"{text}3 step").steps("preemption/useful") == [2]


def test_a_victim_of_its_own_need_is_useful(judge) -> None:
    text = NEED.format(pool=2, more="", c=5) + "2 preempt B recompute cause=B\n2 step"

    assert judge(text)["preemption/useful"].verdict == "conforms"


# -- resume first ----------------------------------------------------------------------------------

GONE = """
    cfg preemption.resume={resume} {more}
    1 arrive A prompt=4 priority=5
    1 arrive B prompt=4 priority=5
    1 arrive C prompt=4 priority={c}
    1 admit A
    1 admit B
    2 preempt B recompute
    2 preempt A recompute
"""


def test_several_come_back_in_the_order_of_their_first_admission(judge) -> None:
    """VL7: victims go to the front one by one, so the earliest ends up first."""
    text = GONE.format(resume="front", more="order=fcfs misfit=stop", c=5)

    assert judge(f"{text}3 resume A\n3 resume B\n3 admit C").broken == []
    assert judge(f"{text}3 resume B\n3 resume A").steps("preemption/resume-first") == [3]
    assert judge(f"{text}3 resume A\n3 admit C\n3 resume B").steps("preemption/resume-first") == [3]


def test_a_resume_does_not_make_the_first_admission_later(judge) -> None:
    text = (
        GONE.format(resume="front", more="order=fcfs misfit=stop", c=5)
        + "3 resume A\n3 resume B\n4 preempt B recompute\n4 preempt A recompute\n"
    )

    assert judge(f"{text}5 resume B").steps("preemption/resume-first") == [5]


@pytest.mark.parametrize(("c", "broken"), [(1, False), (5, True), (9, True)])
def test_under_order_priority_only_among_equals_and_more_urgent(judge, c: int, broken: bool) -> None:
    """Rules: under order priority only among requests of equal or greater urgency."""
    text = GONE.format(resume="front", more="order=priority urgent=low misfit=stop", c=c) + "3 admit C"

    assert bool(judge(text)["preemption/resume-first"].violations) is broken


def test_a_preempted_request_that_is_not_ready_holds_nobody_up(judge) -> None:
    text = (
        GONE.format(resume="front", more="order=fcfs misfit=stop", c=5)
        + "3 skip A not_ready\n3 skip B in_flight\n3 admit C"
    )

    assert judge(text)["preemption/resume-first"].violations == 0


@pytest.mark.parametrize("resume", ["back", "arrival"])
def test_elsewhere_they_have_their_place_in_the_order(judge, resume: str) -> None:
    text = GONE.format(resume=resume, more="order=fcfs misfit=stop", c=5) + "3 admit C"

    assert judge(text)["preemption/resume-first"].missing == ("preemption.resume=front",)


# -- no admission ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ("2 preempt A recompute\n2 admit B", True),
        ("2 admit B\n2 preempt A recompute", True),
        ("2 preempt A recompute\n2 resume A", True),
        ("2 preempt A recompute\n3 admit B", False),
        ("2 admit B\n3 preempt A recompute", False),
    ],
)
def test_a_step_that_preempts_admits_and_resumes_nobody(judge, rows: str, broken: bool) -> None:
    text = f"cfg admit_in_same_step=false\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit A\n{rows}"

    assert bool(judge(text)["preemption/no-admission"].violations) is broken


def test_where_nothing_is_declared_it_may(judge) -> None:
    for claim in ("cfg admit_in_same_step=true\n", ""):
        found = judge(f"{claim}1 arrive A prompt=4\n1 admit A\n2 preempt A recompute\n2 resume A")
        assert found["preemption/no-admission"].missing == ("preemption.admit_in_same_step=false",)


# -- thrash ----------------------------------------------------------------------------------------


def rounds(number: int, tokens: int, first: int = 2) -> str:
    return "".join(
        f"{step} preempt A {{reason}}\n{step} resume A\n"
        f"{step} schedule A start=0 tokens={tokens}\n{step} step\n"
        for step in range(first, first + number)
    )


THRASH = "cfg K={k}\n1 arrive A prompt=8 max=9\n1 admit A\n1 schedule A start=0 tokens=4\n1 step\n"


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_at_most_k_preemptions_without_progress(judge, patience: int) -> None:
    """Rules, bounded: between two preemptions a new maximum of n, else at most K times."""
    text = THRASH.format(k=patience)

    assert (
        judge(text + rounds(patience + 1, 4).format(reason="recompute"))["preemption/thrash"].violations == 0
    )
    assert judge(text + rounds(patience + 2, 4).format(reason="recompute")).steps("preemption/thrash") == [
        patience + 3
    ]


def test_a_token_between_begins_the_count_anew(judge) -> None:
    some, token = rounds(2, 4).format(reason="recompute"), "4 schedule A start=4 tokens=4\n4 step\n"

    found = judge(THRASH.format(k=1) + some + token + rounds(2, 4, first=5).format(reason="recompute"))

    assert found["preemption/thrash"].violations == 0


def test_the_operator_may_reset_as_often_as_it_likes(judge) -> None:
    text = THRASH.format(k=1) + rounds(9, 4).format(reason="operator")

    assert judge(text)["preemption/thrash"].violations == 0


# -- swap ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "reason", "back", "broken"),
    [
        ("", "swap", "resume A cached=4", False),
        ("", "swap", "resume A cached=3", True),
        ("", "recompute", "resume A cached=0", False),
        ("prefix=false", "recompute", "resume A cached=4", True),
        ("prefix=true", "recompute", "resume A cached=4", False),
        ("", "recompute", "resume A cached=4", False),  # whether a prefix is cached is not claimed
        ("prefix=false keeps_blocks=true", "recompute", "resume A cached=4", False),
    ],
)
def test_what_a_preempted_request_comes_back_with(judge, claims, reason, back, broken) -> None:
    """Rules: swap out and in keep c; recompute sets c to the cached prefix, at most."""
    text = f"cfg {claims}\n1 arrive A prompt=8\n1 admit A\n1 schedule A start=0 tokens=4\n1 step\n"
    text += f"2 preempt A {reason}\n"

    assert bool(judge(f"{text}3 {back}")["preemption/swap"].violations) is broken


URGENT = """
cfg max_seqs={seats} token_budget=16 kv_blocks=4 block_size=4 batching.mode=continuous chunked_prefill=true
cfg order=priority urgent=low test=known reserve=known misfit=stop for_waiting=true preemption.mode=recompute
cfg victim=least-urgent resume=front admit_in_same_step=true
1 arrive L prompt=4 max=9 priority=5
1 admit L cached=0 blocks=1
1 schedule L start=0 tokens=4 blocks=1
1 step
2 arrive H prompt={prompt} max=2 priority=0
2 preempt L recompute cause=H blocks=0
2 admit H cached=0 blocks={need}
2 schedule H start=0 tokens={prompt} blocks={need}
2 step
"""


@pytest.mark.parametrize(
    ("seats", "prompt", "extra", "blamed"),
    [
        (2, 12, "", True),  # 3 blocks and a seat are free
        (1, 12, "", False),  # no seat
        (2, 13, "", False),  # 4 blocks
        (2, 12, "watermark_blocks=1", False),
        (2, 12, "preemption.headroom_blocks=1", False),
        (2, 8, "preemption.headroom_blocks=1", True),
    ],
)
def test_nobody_makes_room_for_an_urgent_one_that_fits(judge, seats, prompt, extra, blamed) -> None:
    """Rules, preemption/cause: a need beyond what is free; urgency alone is none."""
    text = URGENT.format(seats=seats, prompt=prompt, need=-(-prompt // 4))

    found = judge(f"cfg {extra}\n{text}" if extra else text)

    assert found.steps("preemption/cause") == ([2] if blamed else [])


def test_room_for_an_urgent_one_that_is_not_next_may_be_needed(judge) -> None:
    """The free seat is the first one's; the second needs that of the victim."""
    text = URGENT.format(seats=2, prompt=4, need=1)
    second = "2 arrive H prompt=4 max=2 priority=0\n2 arrive G prompt=4 max=2 priority=0\n"
    text = text.replace("2 arrive H prompt=4 max=2 priority=0\n", second).replace("cause=H", "cause=G")
    text = text.replace(
        "2 step\n", "2 admit G cached=0 blocks=1\n2 schedule G start=0 tokens=4 blocks=1\n2 step\n"
    )

    assert judge(text).of("preemption/cause") == []


def test_nobody_is_swapped_out_where_recompute_is_the_mode(judge) -> None:
    text = "cfg preemption.mode={}\n1 arrive A prompt=4\n1 admit A\n1 schedule A start=0 tokens=4\n"
    text += "2 preempt A swap\n"
    assert judge(text.format("recompute")).steps("preemption/swap") == [2]
    assert judge(text.format("swap")).broken == []
    assert judge(text.format("swap").replace("A swap", "A recompute")).broken == []
