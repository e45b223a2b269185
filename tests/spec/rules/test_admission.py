"""Rules of admission, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_admission_order(examples) -> None:
    """vLLM V1's queues and VTC (OSDI'24) Algorithm 2: the policy names who is next."""
    passing, failing = examples("admission/order")

    assert passing["admission/order"].verdict == "conforms"
    assert failing.of("admission/order")[0].requests == ("A", "B")


def test_admission_head_of_line(examples) -> None:
    """Orca (OSDI'22) Algorithm 1, OR3: if a request does not fit, stop (break), do not skip."""
    passing, failing = examples("admission/head-of-line")

    assert passing["admission/head-of-line"].verdict == "conforms"
    assert failing.broken == ["admission/head-of-line"]


def test_admission_fit(examples) -> None:
    """Orca (OSDI'22) OR3: n_rsrv + max_tokens ≤ n_slots. SGLang PR 30743: a grant from nothing."""
    passing, failing = examples("admission/fit")

    assert passing["admission/fit"].verdict == "conforms"
    assert failing.broken == ["admission/fit"]


def test_admission_never_fit(examples) -> None:
    """vLLM issues 39734 and 35541: larger than the pool, it waits for ever and blocks everyone."""
    passing, failing = examples("admission/never-fit")

    assert passing["admission/never-fit"].verdict == "conforms"
    assert failing.steps("admission/never-fit") == [3]


def test_admission_needless_wait(examples) -> None:
    """G6, work conservation: who passes the policy's own admission test is admitted."""
    passing, failing = examples("admission/needless-wait")

    assert passing["admission/needless-wait"].verdict == "conforms"
    assert failing.steps("admission/needless-wait") == [4]


def test_admission_parked(examples) -> None:
    """vLLM issue 53130: deferred requests are only looked at when there is room."""
    passing, failing = examples("admission/parked")

    assert passing["admission/parked"].verdict == "conforms"
    assert failing.steps("admission/parked") == [4]


# -- order -----------------------------------------------------------------------------------------

THREE = {
    "fcfs": ("", "prompt=9 max=9", "prompt=1 max=1", "prompt=5 max=5", "ABC"),
    "sjf": ("", "prompt=9 max=9", "prompt=1 max=1", "prompt=5 max=5", "BCA"),
    "priority": ("urgent=low", "priority=9", "priority=1", "priority=5", "BCA"),
}


@pytest.mark.parametrize("order", THREE)
def test_each_policy_has_its_next(judge, order: str) -> None:
    more, a, b, c, right = THREE[order]
    text = f"cfg order={order} misfit=stop {more}\n1 arrive A {a}\n1 arrive B {b}\n1 arrive C {c}\n"

    def found(names: str) -> list:
        rows = "".join(f"{step} admit {name}\n" for step, name in enumerate(names, 2))
        return judge(text + rows).steps("admission/order")

    assert found(right) == []
    assert found(right[::-1]) == [2, 3]
    assert found(right[0] + right[2] + right[1]) == [3]


def test_the_other_direction_of_priority(judge) -> None:
    """inference-sim issue 1086: vLLM takes lower as more urgent, SGLang higher."""
    text = "cfg order=priority misfit=stop urgent={}\n1 arrive A priority=9\n1 arrive B priority=1\n"

    assert judge(text.format("high") + "1 admit A").broken == []
    assert judge(text.format("low") + "1 admit A").broken == ["admission/order"]


def test_equal_work_and_equal_priority_keep_the_order_of_arrival(judge) -> None:
    sjf = "cfg order=sjf misfit=stop\n1 arrive A prompt=3 max=5\n1 arrive B prompt=5 max=3\n"
    priority = "cfg order=priority urgent=low misfit=stop\n1 arrive A priority=3\n1 arrive B priority=3\n"

    for text in (sjf, priority):
        assert judge(f"{text}1 admit A").broken == []
        assert judge(f"{text}1 admit B").broken == ["admission/order"]


def test_a_parked_request_is_not_next(judge) -> None:
    text = "cfg order=fcfs misfit=stop\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 park A grammar\n"

    assert judge(f"{text}1 admit B").broken == []
    assert "admission/order" in judge(f"{text}1 ready A\n1 admit B").broken


@pytest.mark.parametrize(("reason", "broken"), [("not_ready", False), ("policy", False), ("memory", True)])
def test_a_skip_row_may_say_that_it_was_not_its_turn(judge, reason: str, broken: bool) -> None:
    text = (
        f"cfg order=fcfs misfit=stop\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 skip A {reason}\n1 admit B"
    )

    assert ("admission/order" in judge(text).broken) is broken


def test_fair_takes_the_least_served_tenants_earliest(judge) -> None:
    """VTC (OSDI'24) Algorithm 2: k = argmin of the counters, then k's earliest."""
    text = "cfg order=fair misfit=stop\n1 arrive A tenant=x prompt=8\n1 arrive B tenant=x prompt=1\n"
    text += "1 arrive C tenant=y prompt=1\n1 arrive D tenant=y prompt=1\n1 admit A\n"
    text += "1 schedule A start=0 tokens=4\n"

    assert judge(f"{text}2 admit C\n2 admit D").broken == []
    assert judge(f"{text}2 admit B").broken == ["admission/order"], "x has had 8, y nothing"
    assert judge(f"{text}2 admit D").broken == ["admission/order"], "C is y's earliest"


@pytest.mark.parametrize("weight", [1, 20])
def test_a_weight_divides_what_a_tenant_is_charged(judge, weight: int) -> None:
    text = f"cfg order=fair misfit=stop weights=x:{weight}\n1 arrive A tenant=x prompt=8\n"
    text += "1 arrive B tenant=x prompt=1\n1 arrive C tenant=y prompt=1\n1 arrive D tenant=y prompt=1\n"
    text += "1 admit A\n2 admit C\n2 schedule A start=0 tokens=4\n2 schedule C start=0 tokens=1\n2 step\n"

    assert ("admission/order" in judge(f"{text}3 admit B").broken) is (weight == 1)


@pytest.mark.parametrize(("resume", "broken"), [("back", True), ("arrival", False)])
def test_a_preempted_request_takes_its_place_in_the_line(judge, resume: str, broken: bool) -> None:
    """Rules, resume-first: under back and arrival they take that place in admission/order."""
    text = f"cfg order=fcfs misfit=stop preemption.resume={resume} test=known kv_blocks=9 block_size=4\n"
    text += "1 arrive A prompt=4\n1 admit A blocks=1\n1 schedule A start=0 tokens=2 blocks=1\n"
    text += "1 arrive B prompt=4\n2 preempt A recompute\n3 resume A blocks=1\n"

    assert bool(judge(text)["admission/order"].violations) is broken
    assert bool(judge(text.replace("3 resume A", "3 admit B"))["admission/order"].violations) is not broken


@pytest.mark.parametrize(
    ("order", "missing"),
    [("sjf", "max_tokens"), ("priority", "priority"), ("priority", "admission.urgent"), ("fair", "tenant")],
)
def test_what_the_order_is_made_of_is_named(judge, order: str, missing: str) -> None:
    found = judge(f"cfg order={order} misfit=stop\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit B")

    assert missing in found["admission/order"].missing


# -- head of line ----------------------------------------------------------------------------------

MISFIT = """
    cfg order=priority urgent=low test=known kv_blocks=4 block_size=4 token_budget=64 {more}
    1 arrive R prompt=8 priority=0
    1 admit R blocks=2
    1 schedule R start=0 tokens=8 blocks=2
    2 arrive A prompt={a} priority=1
    2 arrive B prompt=1 priority=2
    2 arrive C prompt=1 priority=3
    2 schedule R start=8 tokens=1 blocks=3
"""


def test_past_one_that_fits_is_order_and_past_a_misfit_head_of_line(judge) -> None:
    """Rules: under `stop` an admission past a misfit is head-of-line, past one that fits is order."""
    past = "2 admit B blocks=1\n"

    assert judge(MISFIT.format(more="misfit=stop", a=8) + past).broken == ["admission/head-of-line"]
    assert judge(MISFIT.format(more="misfit=stop", a=4) + past).broken == ["admission/order"]


def test_under_fcfs_either_is_overtaking_too(judge) -> None:
    text = MISFIT.replace("order=priority urgent=low", "order=fcfs").format(more="misfit=stop", a=8)

    assert set(judge(f"{text}2 admit B blocks=1").broken) == {"admission/head-of-line", "fairness/overtaking"}


@pytest.mark.parametrize("most", [0, 1, 2])
def test_skip_passes_a_misfit_at_most_so_often(judge, most: int) -> None:
    """Rules: at most skip_ahead later requests are admitted past one misfit."""
    text = MISFIT.format(more=f"misfit=skip skip_ahead={most}", a=16).replace("kv_blocks=4", "kv_blocks=6")
    text += "2 admit B blocks=1\n2 schedule B start=0 tokens=1 blocks=1\n2 admit C blocks=1\n"

    assert judge(text)["admission/head-of-line"].violations == 2 - most


def test_without_blocks_nobody_knows_a_misfit(judge) -> None:
    text = MISFIT.format(more="misfit=stop", a=8)
    bare = "\n".join(
        line.partition(" blocks=")[0] if "cfg" not in line else line for line in text.split("\n")
    )

    assert judge(f"{bare}\n2 admit B")["admission/head-of-line"].missing == ("blocks",)
    assert judge(MISFIT.format(more="misfit=skip", a=8))["admission/head-of-line"].missing == (
        "admission.skip_ahead",
    )


# -- fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "blocks"),
    [("known", 2), ("known+1", 3), ("full", 4), ("step", 1)],
)
@pytest.mark.parametrize("free", [0, 1, 2, 3, 4])
def test_what_the_test_asks_for_must_be_free(judge, test: str, blocks: int, free: int) -> None:
    text = (
        f"cfg test={test} kv_blocks={free + 1} block_size=4\n1 arrive R prompt=4 max=1\n1 admit R blocks=1\n"
    )
    text += "1 arrive A prompt=8 max=8\n1 admit A blocks=1"

    assert bool(judge(text)["admission/fit"].violations) is (free < blocks)


@pytest.mark.parametrize("runs", [False, True])
def test_the_watermark_holds_while_another_runs(judge, runs: bool) -> None:
    """Profiles: watermark_blocks, kept free at admission while another request runs."""
    text = "cfg test=known kv_blocks=3 block_size=4 watermark_blocks=1\n1 arrive R prompt=4\n"
    text += "1 arrive A prompt=8\n"
    text += "1 admit R blocks=1\n" if runs else "1 reject R error\n"

    assert bool(judge(f"{text}1 admit A blocks=2")["admission/fit"].violations) is runs
    assert (
        judge(f"{text}1 admit A blocks=3".replace("prompt=8", "prompt=12"))["admission/fit"].violations
        == runs
    )


def test_blocks_taken_over_from_another_holder_cost_nothing(judge) -> None:
    """Rules: the blocks that the request neither holds nor takes over from another holder."""
    text = "cfg test=known kv_blocks=3 block_size=4 prefix=true\n1 arrive R prompt=8\n1 arrive A prompt=8\n"
    text += "1 admit R cached=0 ids=1,2\n1 schedule R start=0 tokens=8 ids=\n"

    assert judge(f"{text}2 admit A cached=4 ids=1,3")["admission/fit"].violations == 0
    assert judge(f"{text}2 admit A cached=0 ids=3")["admission/fit"].violations == 1


def test_a_resume_must_fit_too_and_what_it_kept_counts(judge) -> None:
    text = "cfg test=known kv_blocks=2 block_size=4 {more}\n1 arrive A prompt=8\n1 arrive R prompt=4\n"
    text += "1 admit A blocks=2\n2 preempt A recompute blocks={kept}\n3 admit R blocks=1\n"

    assert judge(text.format(more="", kept=0) + "4 resume A blocks=1")["admission/fit"].violations == 1
    kept = text.format(more="keeps_blocks=true", kept=2).replace("3 admit R blocks=1\n", "")
    assert judge(f"{kept}4 resume A blocks=2")["admission/fit"].violations == 0


# -- never fit -------------------------------------------------------------------------------------

HOPELESS = {
    "pool": ("kv_blocks=2 block_size=4", "prompt=9"),
    "model": ("max_model_len=9", "prompt=9"),
    "unchunked": ("kv_blocks=9 block_size=4 chunked_prefill=false token_budget=8", "prompt=9"),
    "reservation": ("kv_blocks=2 block_size=4 test=full", "prompt=8 max=1"),
    "known+k": ("kv_blocks=2 block_size=4 test=known+1", "prompt=8 max=1"),
}


@pytest.mark.parametrize("why", HOPELESS)
@pytest.mark.parametrize("patience", [1, 3])
def test_it_ends_within_k_steps_of_becoming_next(judge, why: str, patience: int) -> None:
    """Rules, bounded: the step in which the duty first holds is step 1; the finding stands at step K + 1."""
    claims, request = HOPELESS[why]
    text = f"cfg order=fcfs K={patience} {claims}\n1 arrive A {request}\n"

    quiet = "".join(f"{step} step\n" for step in range(1, patience))

    within = judge(f"{text}{quiet}{patience} step")
    late = judge(f"{text}1..{patience + 1} step")
    in_time = judge(f"{text}{quiet}{patience} reject A too_long\n{patience} step\n{patience + 1} step")

    assert within["admission/never-fit"].verdict == "open"
    assert late.steps("admission/never-fit") == [patience + 1]
    assert in_time["admission/never-fit"].verdict == "conforms"


def test_a_request_that_may_outgrow_the_pool_may_still_run(judge) -> None:
    """Rules: except under full and known+k, one whose max_tokens could outgrow the pool is not never-fit."""
    text = "cfg order=fcfs K=2 kv_blocks=2 block_size=4 test=known\n1 arrive A prompt=4 max=99\n1..4 step"

    assert judge(text)["admission/never-fit"].violations == 0


def test_a_lone_request_that_needs_one_block_more_ends_too(judge) -> None:
    """nano-vllm bb823b3: a lone request that outgrows the pool preempts itself and dies on an assert."""
    text = "cfg order=fcfs K=2 kv_blocks=1 block_size=4\n1 arrive A prompt=4 max=9\n1 admit A\n"
    text += "1 schedule A start=0 tokens=4\n1 step\n"

    assert judge(f"{text}2..3 step").broken == []
    assert judge(f"{text}2..4 step").steps("admission/never-fit") == [4]
    assert judge(f"{text}2 step\n3 abort A memory\n3..4 step").broken == []


# -- needless wait ---------------------------------------------------------------------------------

WAITS = """
    cfg batching.mode=continuous order=fcfs misfit=stop work_conserving=true test=known K={k}
    cfg chunked_prefill=true max_seqs=2 token_budget=8 kv_blocks=4 block_size=4 {more}
    1 arrive R prompt=4 max=99
    1 admit R blocks=1
    1 schedule R start=0 tokens=4 blocks=1
    1 step
    2 arrive A prompt={a}
"""


def steps(first: int, last: int) -> str:
    return "".join(
        f"{n} schedule R start={n + 2} tokens=1 blocks=1\n{n} step\n" for n in range(first, last + 1)
    )


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_the_next_that_fits_waits_fewer_than_k_steps(judge, patience: int) -> None:
    text = WAITS.format(k=patience, more="", a=4).replace("block_size=4", "block_size=64")
    last = patience + 1

    assert judge(text + steps(2, last))["admission/needless-wait"].verdict == "open"
    assert judge(text + steps(2, last + 1)).steps("admission/needless-wait") == [last + 1]
    assert judge(text + steps(2, last - 1) + f"{last} admit A blocks=1\n" + steps(last, last)).broken == []


@pytest.mark.parametrize(
    ("more", "a"),
    [("", 64 * 4), ("watermark_blocks=3", 4), ("", 64 * 3 + 1)],
)
def test_a_next_that_does_not_fit_waits_as_it_must(judge, more: str, a: int) -> None:
    text = WAITS.format(k=2, more=more, a=a).replace("block_size=4", "block_size=64")

    assert judge(text + steps(2, 9))["admission/needless-wait"].violations == 0


def test_a_step_that_preempts_neither_counts_nor_resets(judge) -> None:
    """Rules: a step excused under slots/reuse neither counts nor resets."""
    text = WAITS.format(k=2, more="preemption.resume=back", a=4).replace("block_size=4", "block_size=64")
    text = text.replace("max_seqs=2", "max_seqs=3").replace(
        "1 step", "1 arrive S prompt=4\n    1 admit S blocks=1\n    1 step"
    )
    run = "{0} schedule R start={1} tokens=1 blocks=1\n{0} schedule S start={2} tokens=1 blocks=1\n"
    pre = "3 schedule R start=5 tokens=1 blocks=1\n3 preempt S recompute cause=R\n3 step\n"

    found = judge(f"{text}{run.format(2, 4, 0)}2 step\n{pre}{steps(4, 5)}")

    assert found.steps("admission/needless-wait") == [5], "steps 2 and 4 count, 3 does not"


@pytest.mark.parametrize(
    ("more", "step"),
    [
        ("misfit=stop", None),
        ("misfit=skip", None),
        ("misfit=skip skip_ahead=1", None),
        ("misfit=skip skip_ahead=2", 7),
    ],
)
def test_a_policy_that_skips_owes_the_first_that_fits_as_often_as_it_may_pass(judge, more: str, step) -> None:
    """vLLM issue 31731: one that fits is not left out for an earlier one. B has passed A once."""
    text = f"""
        cfg order=fcfs {more} test=known kv_blocks=4 block_size=4 token_budget=64 max_seqs=4
        cfg work_conserving=true batching.mode=continuous chunked_prefill=true reserve=step
        2 arrive R prompt=7 max=9
        2 arrive A prompt=16 max=9
        2 arrive B prompt=1 max=3
        2 arrive C prompt=1 max=3
        2 admit R blocks=2
        2 schedule R start=0 tokens=7 blocks=2
        2 step
        3 admit B blocks=1
        3 schedule B start=0 tokens=1 blocks=1
        3 schedule R start=7 tokens=1 blocks=2
        3 step
        4..9 skip A memory
        4..9 step
    """

    assert judge(text).steps("admission/needless-wait") == ([] if step is None else [step])


# -- parked ----------------------------------------------------------------------------------------

PARKED = "cfg K=2 {more}\n1 arrive A prompt=4\n1 park A {reason}\n1 arrive B prompt=4\n"


@pytest.mark.parametrize(
    "look", ["admit A", "skip A budget", "reject A error", "park A rate", "abort A operator"]
)
@pytest.mark.parametrize("reason", ["remote_kv", "grammar", "rate"])
def test_a_ready_request_is_looked_at(judge, look: str, reason: str) -> None:
    """Rules: looked at = admit, skip, reject, park or abort."""
    text = PARKED.format(more="", reason=reason) + "2 ready A\n"

    seen = judge(f"{text}2..3 skip B budget\n3 {look}\n4 skip B budget")

    assert seen["admission/parked"].violations == 0
    assert seen["admission/parked"].checked == 1
    assert judge(f"{text}2..3 skip B budget")["admission/parked"].verdict == "open"
    assert judge(f"{text}2..4 skip B budget").steps("admission/parked") == [4]


def test_a_request_that_is_not_ready_is_owed_nothing(judge) -> None:
    assert judge(PARKED.format(more="", reason="grammar") + "2..9 skip B budget\n9 ready A").broken == []


def test_without_skip_rows_only_one_that_fits_is_owed_a_look(judge) -> None:
    """Rules: without any skip row only while it fits."""
    claims = "order=fcfs misfit=stop test=known max_seqs=2 token_budget=8 kv_blocks=4 block_size=64"
    text = "cfg K=2 {}\n1 arrive R prompt=4\n1 admit R blocks=1\n1 schedule R start=0 tokens=4 blocks=1\n"
    text += "1 arrive A prompt=4\n1 park A grammar blocks=0\n2 ready A\n"

    assert judge(text.format(claims) + steps(2, 4)).steps("admission/parked") == [4]
    assert judge(text.format(claims.replace("max_seqs=2", "max_seqs=1")) + steps(2, 9)).broken == []
    assert "admission.test" in judge(text.format("") + steps(2, 4))["admission/parked"].missing


REFUSED = """
cfg max_model_len={length} kv_blocks={blocks} block_size=4 order=fcfs
cfg token_budget=16 chunked_prefill={chunked}
1 arrive A prompt=8 max={most}
1 reject A too_long
1 step
"""


def test_nobody_is_refused_as_too_long_who_fits_every_limit(judge) -> None:
    """The other side of never-fit: a bound that is met is no reason to refuse."""

    def steps(**sizes: object) -> list[int | None]:
        claims = {"length": 16, "blocks": 4, "chunked": "true", "most": 8} | sizes
        return judge(REFUSED.format(**claims)).steps("admission/never-fit")

    assert steps() == [1]
    assert steps(length=15) == [], "prompt + max_tokens is over the model's length"
    assert steps(blocks=3) == [], "it could outgrow the pool"
    assert steps(chunked="false") == [1]
    assert steps(chunked="false", length=99, blocks=9, most=9) == [], "it could outgrow an unchunked step"
    assert steps(chunked="true", length=99, blocks=9, most=9) == [1]


@pytest.mark.parametrize(
    ("claim", "blamed"),
    [
        ("watermark_blocks=1", False),
        ("lookahead=1", False),
        ("preemption.headroom_blocks=1", False),
        ("test=known+1", False),
        ("test=known", True),
        ("limits.prefill_budget=15", False),
        ('limits.resources={"encoder":1}', False),
        ("test=peak", False),
    ],
)
def test_what_is_kept_beside_a_request_may_make_it_too_long(judge, claim: str, blamed: bool) -> None:
    text = f"cfg {claim}\n" + REFUSED.format(length=16, blocks=4, chunked="true", most=8)
    assert ("admission/never-fit" in judge(text).broken) is blamed


def test_a_refusal_is_judged_only_where_its_limits_are_claimed(judge) -> None:
    text = REFUSED.format(length=16, blocks=4, chunked="true", most=8)
    for claim in ("max_model_len=16 ", "kv_blocks=4 ", "block_size=4 "):
        assert "admission/never-fit" not in judge(text.replace(claim, "")).broken
    assert "admission/never-fit" not in judge(text.replace(" max=8", "")).broken
    assert "admission/never-fit" not in judge(text.replace("too_long", "queue_full")).broken
