"""Rules of fairness, one test a rule named after it, then its edges."""

import pytest

from batchspec.replay.checker import check
from batchspec.replay.cost import CostModel
from batchspec.replay.simulate import header_of, simulate
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.trace import Trace

# -- one test a rule -------------------------------------------------------------------------------


def test_fairness_overtaking(examples) -> None:
    """vLLM (SOSP'23) §4.5, VL1: earliest arrived served first. Orca (OSDI'22) OR6."""
    passing, failing = examples("fairness/overtaking")

    assert passing["fairness/overtaking"].verdict == "conforms"
    assert failing.of("fairness/overtaking")[0].requests == ("C", "A")


def test_fairness_priority_inversion(examples) -> None:
    """vLLM issue 40004: a high-priority arrival waits for a slot held by a low-priority one."""
    passing, failing = examples("fairness/priority-inversion")

    assert passing["fairness/priority-inversion"].verdict == "conforms"
    assert failing.steps("fairness/priority-inversion") == [4]


def test_fairness_service_gap(examples) -> None:
    """VTC (OSDI'24) Theorem 4.4: f, g backlogged during all of [t1, t2): |W_f - W_g| ≤ 2U."""
    passing, failing = examples("fairness/service-gap")

    assert passing["fairness/service-gap"].verdict == "conforms"
    assert failing.broken == ["fairness/service-gap"]


def test_fairness_starvation(examples) -> None:
    """FastServe FS5: whoever has not run for the limit is promoted. SGLang PR 15129."""
    passing, failing = examples("fairness/starvation")

    assert passing["fairness/starvation"].violations == 0
    assert failing.steps("fairness/starvation") == [3]


def test_fairness_rate_limit(examples) -> None:
    """VTC artifact, RPM limiter: reject above r requests in 60 s."""
    passing, failing = examples("fairness/rate-limit")

    assert passing["fairness/rate-limit"].verdict == "conforms"
    assert failing.of("fairness/rate-limit")[0].requests == ("B",)


def test_fairness_delivery_order(examples) -> None:
    """Triton dynamic batcher, TR9: responses leave in the order of requests."""
    passing, failing = examples("fairness/delivery-order")

    assert passing["fairness/delivery-order"].verdict == "conforms"
    assert failing.of("fairness/delivery-order")[0].requests == ("B", "A")


# -- overtaking ------------------------------------------------------------------------------------

THREE = "1 arrive A prompt=4 t=9ms\n1 arrive B prompt=4 t=1ms\n1 arrive C prompt=4 t=5ms\n"


def test_row_order_is_arrival_order_whatever_the_clock_says(judge) -> None:
    """Trace format, step 2: `arrive` order, not `time_ns`, is arrival order."""
    text = f"cfg order=fcfs misfit=stop\n{THREE}"

    assert judge(f"{text}1 admit A\n1 admit B\n1 admit C").broken == []
    assert judge(f"{text}1 admit B")["fairness/overtaking"].violations == 1


@pytest.mark.parametrize("aside", ["park A grammar", "skip A not_ready"])
def test_who_is_not_ready_is_not_overtaken(judge, aside: str) -> None:
    text = f"cfg order=fcfs misfit=stop\n{THREE}1 {aside}\n1 admit B"

    assert judge(text)["fairness/overtaking"].violations == 0


@pytest.mark.parametrize("order", ["sjf", "priority", "fair"])
def test_other_orders_overtake_by_design(judge, order: str) -> None:
    found = judge(f"cfg order={order} misfit=stop urgent=low\n{THREE}1 admit C")

    assert "admission.order=fcfs" in found["fairness/overtaking"].missing


def test_a_policy_that_skips_must_say_how_far(judge) -> None:
    assert judge(f"cfg order=fcfs misfit=skip\n{THREE}")["fairness/overtaking"].missing == (
        "admission.skip_ahead",
    )


# -- inversion -------------------------------------------------------------------------------------

URGENT = "cfg order=priority urgent=low for_waiting=true max_seqs=1 K={k}\n"
URGENT += "1 arrive L prompt=4 priority=9\n1 admit L\n1 schedule L start=0 tokens=4\n1 step\n"


def runs(first: int, last: int) -> str:
    return "".join(f"{n} schedule L start={n + 2} tokens=1\n{n} step\n" for n in range(first, last + 1))


@pytest.mark.parametrize("patience", [1, 2, 4])
def test_an_urgent_request_waits_at_most_k_steps(judge, patience: int) -> None:
    text = URGENT.format(k=patience) + "2 arrive H prompt=4 priority=0\n"
    last = patience + 1

    assert judge(text + runs(2, last))["fairness/priority-inversion"].verdict == "open"
    assert judge(text + runs(2, last + 1)).steps("fairness/priority-inversion") == [last + 1]


@pytest.mark.parametrize("priority", [9, 10])
def test_equals_and_lesser_ones_wait(judge, priority: int) -> None:
    text = URGENT.format(k=1) + f"2 arrive H prompt=4 priority={priority}\n{runs(2, 9)}"

    assert judge(text)["fairness/priority-inversion"].violations == 0


def test_priority_without_eviction_claims_nothing(judge) -> None:
    """Rules: vLLM's priority order does not claim it."""
    text = URGENT.format(k=1).replace("for_waiting=true", "for_waiting=false")

    assert judge(text)["fairness/priority-inversion"].missing == ("preemption.for_waiting",)


# -- service gap -----------------------------------------------------------------------------------


def fair_run(lift: bool, weights: dict[str, float] | None = None) -> tuple[Trace, Profile]:
    """Tenant f alone for a while, then f and g together: the pattern that the lift is for."""
    claims = {
        "limits": {"max_seqs": 4, "token_budget": 64, "kv_blocks": 8, "block_size": 4},
        "batching": {"mode": "continuous", "chunked_prefill": True},
        "admission": {
            "order": "fair",
            "misfit": "stop",
            "test": "full",
            "reserve": "full",
            "work_conserving": True,
        },
        "preemption": {"mode": "none"},
        "fairness": {"lift": lift, **({"weights": weights} if weights else {})},
    }
    alone = [Record(f"f{number}", 0, 4, 8, tenant="f") for number in range(60)]
    both = [Record(f"{name}{number}", 900, 4, 8, tenant=name) for number in range(100, 160) for name in "fg"]
    profile = Profile.from_dict(claims)
    events = list(simulate([*alone, *both], profile, cost=CostModel(10, 0, 0, 0)))
    return Trace.from_events(events, header_of(profile, complete=True)), profile


@pytest.mark.parametrize("weights", [None, {"f": 2}, {"g": 3}])
def test_the_bound_holds_for_the_published_counter(weights: dict[str, float] | None) -> None:
    """VTC (OSDI'24) Algorithm 2 with the lift of lines 7 to 13, and Theorem 4.4."""
    trace, profile = fair_run(lift=True, weights=weights)

    report = check(trace, profile)

    assert report.findings == ()
    assert next(result for result in report.rules if result.id == "fairness/service-gap").checked > 20


def test_the_bound_is_broken_without_the_lift() -> None:
    """Must fail: LCF, the counter without the lift, serves the tenant that wakes until it has caught up."""
    trace, profile = fair_run(lift=False)

    report = check(trace, profile)

    assert [finding.rule for finding in report.findings] == ["fairness/service-gap"]


GAP = """
    cfg order=fair misfit=stop preemption.mode=none kv_blocks=1 block_size=1 lift=false {more}
    1..9 arrive F tenant=f prompt=1 max=1
    1..9 admit F
    1..9 schedule F start=0 tokens=1
    1..9 finish F length
    9 arrive E tenant=f prompt={prompt} max=1
    9 arrive G tenant=g prompt=1 max=1
"""
TURNS = """
    10..{last} admit G
    10..{last} schedule G start=0 tokens=1
    10..{last} finish G length
    10..{last} arrive G tenant=g prompt=1 max=1
"""


@pytest.mark.parametrize(
    ("more", "prompt", "turns"),
    [("", 1, 3), ("w_q=0", 1, 3), ("w_p=0", 1, 5), ("w_p=9", 1, 2), ("", 9, 7)],
)
def test_the_bound_is_two_u(judge, more: str, prompt: int, turns: int) -> None:
    """U = max(w_p · longest input, w_q · (N · b + S)): the first turn beyond it is found, none before."""
    text = GAP.format(more=more, prompt=prompt)
    ends = "20 abort E operator\n20 abort G operator\nend"

    within = judge(f"{text}{TURNS.format(last=9 + turns - 1)}{ends}")
    beyond = judge(f"{text}{TURNS.format(last=9 + turns)}{ends}")

    assert within["fairness/service-gap"].violations == 0
    assert beyond.steps("fairness/service-gap") == [9 + turns]


def test_in_a_cut_trace_a_longer_input_may_still_come(judge) -> None:
    """End: judged where the trace is complete; in a cut one against the longest input the pool can hold."""
    text = GAP.format(more="w_p=9 w_q=1", prompt=1).replace("block_size=1", "block_size=4") + TURNS.format(
        last=12
    )

    whole, cut = judge(f"{text}13 abort E operator\n13 abort G operator\nend"), judge(f"{text}13 step")

    assert whole["fairness/service-gap"].verdict == "violates"
    assert cut["fairness/service-gap"].verdict == "open"
    assert (
        judge(GAP.format(more="", prompt=1) + TURNS.format(last=13))["fairness/service-gap"].verdict
        == "violates"
    )


@pytest.mark.parametrize(
    ("claims", "missing"),
    [
        ("misfit=skip preemption.mode=none", "admission.misfit=stop"),
        ("misfit=stop preemption.mode=recompute", "preemption.mode=none"),
        ("misfit=stop preemption.mode=none prefix=true", "reuse.prefix=false"),
    ],
)
def test_the_theorem_has_premises(judge, claims: str, missing: str) -> None:
    """VTC (OSDI'24): VT2 (stop at a misfit), VT4 (no preemption), M tokens in a batch."""
    found = judge(f"cfg order=fair kv_blocks=4 block_size=4 {claims}\n1 arrive A tenant=x prompt=4")

    assert missing in found["fairness/service-gap"].missing


# -- starvation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_the_wait_before_the_first_service(judge, bound: int) -> None:
    text = f"cfg starvation_steps={bound}\n1 arrive A prompt=4\n1 arrive R prompt=9\n1 admit R\n"
    text += "1 schedule R start=0 tokens=9\n1 step\n"

    def run(last: int) -> str:
        return "".join(f"{n} schedule R start={n + 7} tokens=1\n{n} step\n" for n in range(2, last + 1))

    assert judge(text + run(bound))["fairness/starvation"].verdict == "open"
    assert judge(text + run(bound + 1)).steps("fairness/starvation") == [bound + 1]
    assert (
        judge(text + run(bound) + f"{bound + 1} admit A\n{bound + 1} schedule A start=0 tokens=4").broken
        == []
    )


@pytest.mark.parametrize("bound", [1, 2])
def test_overtakings_before_the_first_service(judge, bound: int) -> None:
    text = f"cfg starvation_steps={bound}\n1 arrive A prompt=4\n"
    text += "".join(f"1 arrive B{n} prompt=4\n1 admit B{n}\n" for n in range(bound))

    assert judge(text)["fairness/starvation"].violations == 0
    assert judge(f"{text}1 arrive C prompt=4\n1 admit C").of("fairness/starvation")[0].requests == ("A",)


def test_a_parked_request_waits_for_its_condition_and_not_for_the_scheduler(judge) -> None:
    text = "cfg starvation_steps=2 K=99\n1 arrive A prompt=4\n1 park A grammar\n1..9 step\n"

    assert judge(text)["fairness/starvation"].violations == 0
    assert judge(f"{text}10 ready A\n10..12 step").steps("fairness/starvation") == [12]


# -- rate limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "times", "refused", "broken"),
    [
        ("a:2/10s", (0, 1, 2), "C", False),
        ("a:2/10s", (0, 1, 2), "", True),  # the third is over it
        ("a:2/10s", (0, 1, 10), "", False),  # the first has left the window
        ("a:2/10s", (0, 1, 9), "", True),
        ("a:3/10s", (0, 1, 2), "C", True),  # refused with a place left
        ("b:1/10s", (0, 1, 2), "", False),  # another tenant's
        ("*:1/10s", (0, 1, 2), "BC", False),
    ],
)
def test_refusals_match_the_quota(judge, quota: str, times, refused: str, broken: bool) -> None:
    text = f"cfg rate_limits={quota}\n"
    for name, time in zip("ABC", times, strict=True):
        what = f"reject {name} rate" if name in refused else f"admit {name}"
        text += f"1 arrive {name} tenant=a prompt=4 t={time}s\n1 {what} t={time}s\n"
    text += "1 finish A stop t=20s"

    assert bool(judge(text)["fairness/rate-limit"].violations) is broken


def test_what_was_refused_does_not_count(judge) -> None:
    text = "cfg rate_limits=a:1/10s\n1 arrive A tenant=a prompt=4 t=0s\n1 admit A t=0s\n"
    text += "1 arrive B tenant=a prompt=4 t=5s\n1 reject B rate t=5s\n1 arrive C tenant=a prompt=4 t=11s\n"

    assert judge(f"{text}1 admit C t=11s").broken == []
    assert judge(f"{text}1 reject C rate t=11s").broken == ["fairness/rate-limit"]


# -- delivery --------------------------------------------------------------------------------------

DONE = (
    "cfg delivery=arrival\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit A\n1 admit B\n1 finish B stop\n"
)


def test_with_deliver_rows_the_finish_is_not_the_delivery(judge) -> None:
    text = f"{DONE}1 finish A stop\n"

    assert judge(f"{text}2 deliver A\n2 deliver B").broken == []
    assert judge(f"{text}2 deliver B\n2 deliver A").broken == ["fairness/delivery-order"]


@pytest.mark.parametrize("end", ["abort A operator", "reject A error"])
def test_nothing_is_owed_to_who_has_no_response(judge, end: str) -> None:
    text = "cfg delivery=arrival\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 admit B\n"

    assert judge(f"{text}1 {end}\n1 finish B stop").broken == []
    assert judge(f"{text}1 finish B stop\n1 {end}").broken == ["fairness/delivery-order"]


QUEUE = """
cfg max_waiting={most}
1 arrive A prompt=4
1 arrive B prompt=4
1 arrive C prompt=4
"""


def test_nobody_is_refused_for_a_queue_that_is_not_full(judge) -> None:
    """Rules: refusals match the declared quotas; the length of the queue is one (Triton, TR2)."""

    def steps(rows: str, most: int = 2) -> list[int | None]:
        return judge(QUEUE.format(most=most) + rows).steps("fairness/rate-limit")

    assert steps("1 reject C queue_full") == []
    assert steps("1 reject C queue_full", most=3) == [1]
    assert steps("1 reject B queue_full\n1 reject C queue_full") == [], "full when it came"
    assert steps("1 admit A\n1 reject C queue_full") == [], "full when it came"
    assert steps("1 reject C error", most=3) == []


def test_without_refusals_the_length_of_the_queue_is_not_judged(judge) -> None:
    assert judge(QUEUE.format(most=2))["fairness/rate-limit"].missing == (
        "fairness.rate_limits",
        "time_ns",
        "tenant",
        "reason",
    )
