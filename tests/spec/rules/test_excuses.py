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
