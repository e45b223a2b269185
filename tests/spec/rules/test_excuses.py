"""What a rule must not blame on a scheduler. Each of these came out of random runs of the reference
scheduler that a rule once called broken, and each is followed by the fault that must still be found."""

PRIORITY = """
cfg max_seqs=4 token_budget={budget} kv_blocks=8 block_size=4 batching.mode=continuous chunked_prefill=true
cfg order=priority urgent=low misfit=stop test=known reserve=known work_conserving=true
cfg preemption.mode=recompute victim=least-urgent resume=front for_waiting=true admit_in_same_step=true
1 arrive L prompt=24 max=9 priority=5
1 admit L slot=0 cached=0 blocks=6
"""


def test_nobody_is_preempted_for_the_tokens_of_one_step(judge) -> None:
    """Rules, priority-inversion: a seat or blocks are kept; what a step's budget gives, nobody keeps."""
    prefill = "".join(
        f"{step} schedule L start={4 * (step - 1)} tokens=4 blocks=6\n"
        f"{step} step waiting={step > 1:d} running=1\n"
        for step in range(1, 7)
    )
    head, tail = prefill.split("2 schedule", 1)
    text = PRIORITY.format(budget=4) + head + "2 arrive H prompt=4 max=2 priority=0\n2 schedule" + tail

    assert "fairness/priority-inversion" not in judge(text).broken


def test_blocks_that_would_let_the_urgent_one_in_are_another_matter(judge) -> None:
    text = (
        PRIORITY.format(budget=32) + "1 schedule L start=0 tokens=24 blocks=6\n1 step waiting=0 running=1\n"
    )
    text += "2 arrive H prompt=12 max=2 priority=0\n"
    for step in range(2, 8):
        text += f"{step} schedule L start={22 + step} tokens=1 blocks=7\n{step} step waiting=1 running=1\n"

    assert judge(text).steps("fairness/priority-inversion") == [6]


def test_an_eviction_that_would_not_be_enough_is_not_owed(judge) -> None:
    """H needs all 8 blocks; the one less urgent request holds 1, one of the same urgency 6."""
    text = PRIORITY.format(budget=64).replace("priority=5", "priority=0")
    text += "1 arrive M prompt=2 max=9 priority=5\n1 admit M slot=1 cached=0 blocks=1\n"
    text += "1 schedule L start=0 tokens=24 blocks=6\n1 schedule M start=0 tokens=2 blocks=1\n1 step\n"
    text += "2 arrive H prompt=30 max=2 priority=0\n"
    for step in range(2, 4):
        text += f"{step} schedule L start={22 + step} tokens=1 blocks=7\n"
        text += f"{step} schedule M start={step} tokens=1 blocks=1\n{step} step\n"
    text += "".join(f"{step} step\n" for step in range(4, 8))

    assert "fairness/priority-inversion" not in judge(text).broken


DRAFTS = """
cfg kv_blocks=3 block_size=4
1 arrive A prompt=4 max=20
1 admit A
1 schedule A start=0 tokens=4 drafts=0
1 output A tokens=1
"""


def test_rejected_drafts_leave_the_lower_bound_on_memory(judge) -> None:
    """Trace format: c -= drafts + 1 - emitted. Without block counts memory is bounded by ceil(c / b)."""
    text = DRAFTS + "".join(
        f"{step} schedule A start={2 + step} tokens=4 drafts=3\n{step} output A tokens=1\n"
        for step in range(2, 6)
    )

    found = judge(text)

    assert found["memory/bound"].checked > 0
    assert found.broken == []
    more = DRAFTS + "2 arrive B prompt=8 max=2\n2 admit B\n2 schedule A start=4 tokens=1 drafts=0\n"
    assert judge(more + "2 schedule B start=0 tokens=8 drafts=0").steps("memory/bound") == [2]


PHASES = """
cfg max_seqs=4 batching.mode=continuous mixed=false preemption.mode=swap
1 arrive A prompt=4 max=9
1 arrive B prompt=4 max=9
1 admit A cached=0
1 schedule A start=0 tokens=4
1 admit B cached=0
1 schedule B start=0 tokens=4
2 schedule A start=4 tokens=1
2 preempt B swap
3 resume B cached={cached}
"""


def test_one_that_comes_back_from_the_host_goes_on_decoding(judge) -> None:
    """vLLM classic scheduler: what was swapped in joins the decodes."""
    text = PHASES.format(cached=4) + "3 schedule A start=5 tokens=1\n3 schedule B start=4 tokens=1\n3 step"

    assert judge(text)["batch/mixed"].verdict == "conforms"
    rebuilt = PHASES.replace("swap", "recompute").format(cached=0)
    assert judge(rebuilt + "3 schedule A start=5 tokens=1\n3 schedule B start=0 tokens=5\n3 step").broken == [
        "batch/mixed"
    ]


SKIPS = """
cfg max_seqs=9 token_budget=64 kv_blocks=4 block_size=4 batching.mode=continuous chunked_prefill=true
cfg order=fcfs misfit=skip skip_ahead=1 test=known reserve=known preemption.mode=recompute resume=arrival
1 arrive A prompt=8 max=9
1 arrive BIG prompt=12 max=3
1 arrive s1 prompt=4 max=1
1 admit A blocks=2 cached=0
1 admit s1 blocks=1 cached=0
1 schedule A start=0 tokens=8 blocks=2
1 schedule s1 start=0 tokens=4 blocks=1
1 finish s1 length
1 step
"""


def test_a_misfit_that_got_in_is_a_misfit_anew_the_next_time(judge) -> None:
    """Rules: at most skip_ahead later requests are admitted past one misfit *before it is*."""
    again = SKIPS + "2 abort A operator\n2 admit BIG blocks=3 cached=0\n"
    again += "2 schedule BIG start=0 tokens=12 blocks=3\n2 arrive s2 prompt=4 max=9\n2 step\n"
    again += "3 admit s2 blocks=1 cached=0\n3 schedule s2 start=0 tokens=4 blocks=1\n"
    again += "3 preempt BIG operator\n3 step\n4 arrive s3 prompt=4 max=1\n"
    again += "4 schedule s2 start=4 tokens=1 blocks=2\n4 admit s3 blocks=1 cached=0\n"

    assert "admission/head-of-line" not in judge(again).broken
    twice = (
        SKIPS
        + "2 arrive s2 prompt=4 max=1\n2 schedule A start=8 tokens=1 blocks=3\n2 admit s2 blocks=1 cached=0\n"
    )
    assert judge(twice).steps("admission/head-of-line") == [2]


QUOTA = """
cfg max_seqs=4 fairness.rate_limits={"a":{"requests":1,"per_ns":100}} max_waiting=0
1 arrive A prompt=9 max=1 tenant=a time_ns=10
1 arrive B prompt=1 max=1 tenant=a time_ns=20
"""


def test_a_request_refused_for_another_reason_uses_no_quota_up(judge) -> None:
    """Rules, rate-limit: only accepted requests count, also where both arrive before the refusal."""
    assert "fairness/rate-limit" not in judge(QUOTA + "1 reject A too_long\n1 admit B\n1 step").broken
    assert judge(QUOTA + "1 admit A\n1 admit B\n1 finish A stop\n1 step").broken == ["fairness/rate-limit"]
    late = QUOTA + "1 arrive C prompt=1 max=1 tenant=a time_ns=115\n1 reject A too_long\n1 admit B\n"
    assert "fairness/rate-limit" not in judge(late + "1 reject C rate\n1 step").broken


def test_the_newest_token_is_served_before_it_is_resident(judge) -> None:
    """VTC, Theorem 4.4: M is what a running batch is served, one token a request more than it holds."""
    claims = (
        "cfg order=fair misfit=stop preemption.mode=none max_seqs=2 kv_blocks=3 block_size=4 w_p=1 w_q=1\n"
    )

    def trace(outputs: int) -> str:
        text = claims + "1 arrive a1 prompt=1 max=99 tenant=a\n"
        text += "1 admit a1\n1 schedule a1 start=0 tokens=1\n"
        for name in ("a2", "b2"):
            text += f"1 arrive {name} prompt=1 max=2 tenant={name[0]}\n"
        text += "1 step\n"
        for step in range(2, outputs + 1):
            text += f"{step} schedule a1 start={step - 1} tokens=1\n{step} step\n"
        return text + f"{outputs} finish a1 stop\n{outputs} abort a2 operator\n{outputs} abort b2 operator\n"

    assert "fairness/service-gap" not in judge(trace(28)).broken
    assert "fairness/service-gap" in judge(trace(40)).broken


def test_a_block_that_others_share_would_not_come_free(judge) -> None:
    """H needs 6 blocks; L, less urgent, holds 5 of 8, but two of them with K, who is as urgent as H."""
    text = PRIORITY.format(budget=64).split("1 arrive")[0] + "cfg prefix=true same_pass={same}\n"
    text += "1 arrive K prompt=9 max=99 priority=0\n1 admit K cached=0 blocks=3 block_ids=0,1,2\n"
    text += "1 schedule K start=0 tokens=9 blocks=3\n1 step\n"
    text += "2 arrive L prompt=18 max=99 priority=5\n2 schedule K start=9 tokens=1 blocks=3\n"
    text += "2 admit L cached={cached} blocks=5 block_ids={ids}\n"
    text += "2 schedule L start={cached} tokens={tokens} blocks=5\n2 step\n"
    text += "3 arrive H prompt=24 max=9 priority=0\n"
    for step in range(3, 8):
        text += f"{step} schedule K start={7 + step} tokens=1 blocks={3 if step < 5 else 4}"
        text += " block_ids=7\n" if step == 5 else "\n"
        text += f"{step} schedule L start={15 + step} tokens=1 blocks={5 if step < 5 else 6}"
        text += " block_ids=6\n" if step == 5 else "\n"
        text += f"{step} step\n"
    shared = text.format(same="false", cached=8, tokens=10, ids="0,1,3,4,5")

    assert "fairness/priority-inversion" not in judge(shared).broken


CACHE = """
cfg kv_blocks=8 block_size=4 prefix=true same_pass={same} preemption.mode=swap
1 arrive A prompt=8 max=9
1 arrive B prompt=8 max=9
1 admit A cached=0 blocks=2 block_ids=0,1
1 schedule A start=0 tokens={tokens} blocks=2
"""
TAKES = "{step} admit B cached=4 blocks=2 block_ids=0,2\n{step} schedule B start=4 tokens=4 blocks=2\n"


def test_a_block_that_this_very_pass_writes_may_be_taken_over_where_that_is_claimed(judge) -> None:
    """Rules, memory/unwritten: an earlier pass, or with `same_pass` the same."""

    def steps(same: str, tokens: int, step: int) -> list[int | None]:
        return judge(CACHE.format(same=same, tokens=tokens) + TAKES.format(step=step)).steps(
            "memory/unwritten"
        )

    assert steps("true", 8, 1) == []
    assert steps("false", 8, 1) == [1]
    assert steps("false", 8, 2) == []
    assert steps("true", 3, 2) == [2], "three of its four positions are written"


def test_what_comes_back_from_the_host_needs_not_have_been_written_there(judge) -> None:
    """Trace format: swap-in may bring KV back in other blocks."""
    text = CACHE.format(same="false", tokens=8) + "2 preempt A {how} blocks=0\n"
    text += "3 resume A cached=4 blocks=2 block_ids=6,7\n"

    assert judge(text.format(how="swap")).of("memory/unwritten") == []
    assert judge(text.format(how="recompute")).steps("memory/unwritten") == [3]


def test_a_block_that_is_taken_back_before_its_pass_ran_is_not_written(judge) -> None:
    text = CACHE.format(same="true", tokens=8).replace("preemption.mode=swap", "preemption.mode=recompute")
    taken_back = text + "1 preempt A recompute blocks=0\n1 step\n" + TAKES.format(step=2)
    ran_first = text + "1 step\n2 preempt A recompute blocks=0\n" + TAKES.format(step=2)

    assert judge(taken_back).steps("memory/unwritten") == [2]
    assert judge(ran_first).of("memory/unwritten") == []


WINDOW = """
header clock=virtual
cfg batching.mode=dynamic window_ns=100 max_seqs={seats} token_budget={budget} kv_blocks=9 block_size=4
cfg chunked_prefill=false order={order} misfit=stop test=known reserve=known preemption.mode=none {more}
1 arrive A prompt=4 max=1 t=0ns
1 arrive B prompt=4 max=1 t=0ns
"""


def test_a_batch_that_the_next_cannot_join_is_as_full_as_it_gets(judge) -> None:
    """Rules, batch/dynamic-window: nobody can be owed a place in a step whose budget is used up."""
    start = "1 admit A cached=0 t=200ns\n1 schedule A start=0 tokens=4 t=200ns\n1 step\n"

    def steps(budget: int) -> list[int | None]:
        return judge(WINDOW.format(seats=4, budget=budget, order="fcfs", more="") + start).steps(
            "batch/dynamic-window"
        )

    assert steps(7) == []
    assert steps(8) == [1], "B would have joined it"


def test_the_age_that_counts_is_that_of_those_whose_turn_it_is(judge) -> None:
    """Three are there for two seats: under sjf the oldest of all may not be one of the two."""
    text = WINDOW.replace("1 arrive B", "1 arrive C prompt=2 max=1 t=190ns\n1 arrive B")
    start = "1 admit C cached=0 t=200ns\n1 schedule C start=0 tokens=2 t=200ns\n1 step\n"

    def steps(order: str) -> list[int | None]:
        claims = text.format(seats=2, budget=64, order=order, more="preferred_sizes=[1]")
        return judge(claims + start).steps("batch/dynamic-window")

    assert steps("sjf") == []
    assert steps("fcfs") == [1]


SEAT = """
cfg batching.mode=continuous chunked_prefill=true mixed={mixed} max_seqs=2 token_budget=16 kv_blocks={blocks}
cfg block_size=4 order=fcfs misfit=stop test=known reserve=step watermark_blocks={watermark} K=4
cfg work_conserving=true preemption.mode=recompute victim=latest-admitted resume=front
cfg admit_in_same_step={same}
1 arrive A prompt=4 max=40
1 arrive B prompt=4 max=1
1 arrive C prompt=4 max=9
1 admit A slot=0 cached=0 blocks=1
1 schedule A start=0 tokens=4 blocks=1
1 admit B slot=1 cached=0 blocks=1
1 schedule B start=0 tokens=4 blocks=1
1 finish B length blocks=0
1 step
"""


def seat(mixed: str = "true", blocks: int = 9, watermark: int = 0, same: str = "false") -> str:
    return SEAT.format(mixed=mixed, blocks=blocks, watermark=watermark, same=same)


def decodes(*steps: int) -> str:
    return "".join(
        f"{step} schedule A start={2 + step} tokens=1 blocks={-(-(3 + step) // 4)}\n{step} step\n"
        for step in steps
    )


def test_a_step_of_decodes_has_no_place_for_a_prompt_where_the_phases_are_apart(judge) -> None:
    """Trace format, step 9: whether C fits then is not known, and what is not known is not assumed."""
    assert judge(seat() + decodes(2)).steps("slots/reuse") == [2]
    apart = judge(seat(mixed="false") + decodes(2, 3, 4, 5, 6, 7))
    assert apart.of("slots/reuse") == []
    assert apart.of("admission/needless-wait") == []
    assert judge(seat(mixed="false") + "2 step\n").steps("slots/reuse") == [2], "no decode takes the step"


def test_the_watermark_is_kept_while_another_runs_and_only_then(judge) -> None:
    """Options, watermark_blocks: C needs one block; A holds two of three in step 2."""
    assert judge(seat(blocks=3) + decodes(2)).steps("slots/reuse") == [2]
    assert judge(seat(blocks=3, watermark=1) + decodes(2)).of("slots/reuse") == []
    alone = seat(blocks=3, watermark=1).replace(
        "1 finish B length", "1 finish A stop blocks=0\n1 finish B length"
    )
    assert judge(alone + "2 step\n").steps("slots/reuse") == [2], "nobody runs that it is kept for"


PREEMPTS = "2 preempt A operator blocks=0\n2 step\n"


def test_a_step_that_preempts_owes_the_seat_in_the_next_one(judge) -> None:
    """Rules, slots/reuse: such a step is excused unless `admit_in_same_step`; the duty then passes on."""
    later = PREEMPTS + "3 resume A slot=0 cached=0 blocks=2\n3 schedule A start=0 tokens=5 blocks=2\n"

    assert judge(seat() + later + "3 admit C slot=1 cached=0 blocks=1\n3 step").of("slots/reuse") == []
    assert judge(seat() + PREEMPTS + "3 step").steps("slots/reuse") == [3]
    assert judge(seat(same="true") + PREEMPTS).of("slots/reuse") == [], "only A is left to come in"


def test_excused_steps_neither_count_nor_reset_and_a_turn_that_is_not_does(judge) -> None:
    """Rules, admission/needless-wait: K consecutive steps in which the same request is next and fits."""

    def steps(text: str) -> list[int | None]:
        return judge(seat() + text).steps("admission/needless-wait")

    assert steps(decodes(2, 3, 4, 5)) == []
    assert steps(decodes(2, 3, 4, 5, 6)) == [6], "next, and fits, in steps 2 to 5"
    evicts = "4 preempt A operator blocks=0\n4 step\n"
    back = "5 resume A slot=0 cached=0 blocks=2\n5 schedule A start=0 tokens=7 blocks=2\n5 step\n"
    late = "".join(f"{step} schedule A start={1 + step} tokens=1 blocks=3\n{step} step\n" for step in (6, 7))
    assert steps(decodes(2, 3) + evicts + back + late) == [7], "step 4 counts for nothing"
    unready = decodes(4).replace("4 step", "4 skip C not_ready\n4 step")
    assert steps(decodes(2, 3) + unready + decodes(5, 6, 7, 8)) == []
    assert steps(decodes(2, 3) + unready + decodes(5, 6, 7, 8, 9)) == [9], "it begins anew in step 5"
