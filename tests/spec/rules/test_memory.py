"""Rules of memory by block counts, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_memory_bound(examples) -> None:
    """vLLM (SOSP'23) §4.2: a fixed pool of blocks. SGLang PR 30743: a grant beyond it."""
    passing, failing = examples("memory/bound")

    assert passing["memory/bound"].verdict == "conforms"
    assert failing.broken == ["memory/bound"]


def test_memory_coverage(examples) -> None:
    """vLLM (SOSP'23) §4.3: the KV of every position lies in a block of its request's table."""
    passing, failing = examples("memory/coverage")

    assert passing["memory/coverage"].verdict == "conforms"
    assert failing.broken == ["memory/coverage"]


def test_memory_waste(examples) -> None:
    """vLLM (SOSP'23) §4.3, VL5: a block is allocated only when the last one is full."""
    passing, failing = examples("memory/waste")

    assert passing["memory/waste"].verdict == "conforms"
    assert failing.broken == ["memory/waste"]


def test_memory_conservation(examples) -> None:
    """G1: free + held - shared = N. SGLang-JAX PR 1000: a page that is never returned."""
    passing, failing = examples("memory/conservation")

    assert passing["memory/conservation"].verdict == "conforms"
    assert failing.broken == ["memory/conservation", "stats/agree"], "both speak of the reported free blocks"


def test_memory_release(examples) -> None:
    """vLLM (SOSP'23) §4.5, VL2: all blocks of a sequence or none."""
    passing, failing = examples("memory/release")

    assert passing["memory/release"].verdict == "conforms"
    assert failing.broken == ["memory/release"]


def test_memory_leak(examples) -> None:
    """SGLang PR 10871: the idle check finds a row that did not come back."""
    passing, failing = examples("memory/leak")

    assert passing["memory/leak"].verdict == "conforms"
    assert failing.broken == ["memory/leak"]


def test_memory_host_bound(examples) -> None:
    """vLLM (SOSP'23) §4.5, VL3: swapped blocks are copied to a CPU pool of bounded size."""
    passing, failing = examples("memory/host-bound")

    assert passing["memory/host-bound"].verdict == "conforms"
    assert failing.broken == ["memory/host-bound"]


HOLDS = "1 arrive A prompt=8\n1 admit A\n1 schedule A start=0 tokens=8 blocks=2\n"

# -- bound -----------------------------------------------------------------------------------------

POOL = """
    cfg kv_blocks=3 block_size=4 {more}
    1 arrive A prompt=8 max=9
    1 arrive B prompt=8 max=9
    1 admit A
    1 admit B
"""


def test_without_counts_the_positions_bound_it_from_below(judge) -> None:
    """Rules: at L1 Σ ceil(c/b) ≤ N, nothing shared."""
    text = POOL.format(more="") + "1 schedule A start=0 tokens=8\n"

    assert judge(f"{text}1 schedule B start=0 tokens=4")["memory/bound"].verdict == "conforms"
    assert judge(f"{text}1 schedule B start=0 tokens=5").broken == ["memory/bound"]


def test_shared_blocks_count_once_at_the_step_row(judge) -> None:
    """Rules: at step rows Σ B(r) - shared_blocks ≤ N where blocks are shared."""
    text = POOL.format(more="prefix=true")
    text += "1 schedule A start=0 tokens=8 blocks=2\n1 schedule B start=0 tokens=8 blocks=2\n"

    assert judge(f"{text}1 step shared=1")["memory/bound"].violations == 0
    assert judge(f"{text}1 step shared=0").broken == ["memory/bound"]


def test_with_ids_each_block_counts_once(judge) -> None:
    text = POOL.format(more="prefix=true").replace("1 admit A\n    1 admit B\n", "1 admit A cached=0\n")
    text += "1 schedule A start=0 tokens=8 ids=1,2\n2 admit B cached=4 ids=1\n"

    assert judge(f"{text}2 schedule B start=4 tokens=4 ids=3").broken == []
    assert judge(f"{text}2 schedule B start=4 tokens=4 ids=3,4").broken == ["memory/bound"]


@pytest.mark.parametrize(
    ("columns", "missing"),
    [("start=0 tokens=4", ("blocks",)), ("start=0 tokens=4 blocks=1", ("shared_blocks",))],
)
def test_where_blocks_are_shared_something_must_say_so(judge, columns: str, missing: tuple) -> None:
    found = judge(POOL.format(more="prefix=true") + f"1 schedule A {columns}")

    assert found["memory/bound"].missing == missing


def test_units_of_another_resource_have_a_capacity(judge) -> None:
    """vLLM PR 31857: an encoder cache that is full of waiting requests."""
    text = "cfg resources=encoder:8\n1 arrive A prompt=4\n1 arrive B prompt=4\n1 take A encoder units=5\n"

    assert judge(f"{text}1 take B encoder units=3").broken == []
    assert judge(f"{text}1 take B encoder units=4").broken == ["memory/bound"]
    assert judge(f"{text}1 give A encoder units=5\n2 take B encoder units=8").broken == []
    assert judge(f"{text}1 take B adapter units=99").broken == [], "no capacity is declared for it"


# -- coverage and waste ----------------------------------------------------------------------------

ONE = "cfg block_size=4 {more}\n1 arrive A prompt=8 max=8\n1 admit A\n"


@pytest.mark.parametrize(("blocks", "broken"), [(1, True), (2, False), (3, False)])
def test_drafts_need_a_home_too(judge, blocks: int, broken: bool) -> None:
    """Rules: drafts are part of tokens."""
    text = ONE.format(more="") + "1 schedule A start=0 tokens=2 blocks=1\n1 output A tokens=1\n"

    found = judge(f"{text}2 schedule A start=2 tokens=3 drafts=1 blocks={blocks}\n2 step")

    assert bool(found["memory/coverage"].violations) is broken


def test_who_was_taken_out_of_the_step_needs_no_home(judge) -> None:
    text = ONE.format(more="") + "1 schedule A start=0 tokens=8 blocks=1\n1 preempt A recompute\n1 step"

    assert judge(text)["memory/coverage"].violations == 0


@pytest.mark.parametrize(
    ("more", "most"),
    [
        ("reserve=step", 1),
        ("reserve=step lookahead=3", 2),
        ("reserve=known", 2),
        ("reserve=known+1", 3),
        ("reserve=full", 4),
    ],
)
def test_a_reservation_is_no_waste(judge, more: str, most: int) -> None:
    """Rules: B(r) ≤ max(ceil((start + tokens + lookahead)/b), the reservation, B(r) before)."""
    text = ONE.format(more=more)

    for blocks in range(1, 6):
        found = judge(f"{text}1 schedule A start=0 tokens=4 blocks={blocks}")
        assert bool(found["memory/waste"].violations) is (blocks > most)


def test_keeping_is_not_judged_and_growing_is(judge) -> None:
    text = (
        ONE.format(more="reserve=step")
        + "1 schedule A start=0 tokens=8 drafts=0 blocks=2\n1 output A tokens=1\n"
    )
    text += (
        "2 schedule A start=8 tokens=4 drafts=3 blocks=3\n2 output A tokens=1\n3 schedule A start=9 tokens=1 "
    )

    assert judge(f"{text}drafts=0 blocks=3")["memory/waste"].verdict == "conforms"
    assert judge(f"{text}drafts=0 blocks=4").steps("memory/waste") == [3]


@pytest.mark.parametrize("reserve", ["ratio", "peak"])
def test_a_predicted_reservation_is_not_judged(judge, reserve: str) -> None:
    text = ONE.format(more=f"reserve={reserve}") + "1 schedule A start=0 tokens=4 blocks=9"

    assert judge(text)["memory/waste"].missing == ("admission.reserve",)


# -- conservation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "step", "broken"),
    [
        ("", "free=2", False),
        ("", "free=1 pinned=1", False),
        ("", "free=2 pinned=1", True),
        ("prefix=true", "free=2 shared=0", False),
        ("prefix=true", "free=3 shared=1", False),
        ("prefix=true", "free=2 shared=1", True),
    ],
)
def test_free_held_and_pinned_are_the_pool(judge, more: str, step: str, broken: bool) -> None:
    text = f"cfg kv_blocks=4 {more}\n{HOLDS}1 step "

    assert bool(judge(text + step)["memory/conservation"].violations) is broken


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_blocks_of_ended_requests_are_held_within_their_lag(judge, lag: int) -> None:
    """Rules: held includes ended requests within block_lag. vLLM PR 45357 holds releases back."""
    text = f"cfg kv_blocks=4 block_lag={lag}\n{HOLDS}"
    text += f"1 finish A stop blocks={2 if lag else 0}\n"

    for step in range(1, 5):
        held = 2 if lag and step < 2 + lag else 0
        rows = "".join(
            f"{number} step free={4 - (2 if lag and number < 2 + lag else 0)}\n" for number in range(1, step)
        )
        assert judge(f"{text}{rows}{step} step free={4 - held}").broken == []
        assert judge(f"{text}{rows}{step} step free={3 - held}")["memory/conservation"].violations == 1


def test_a_transfer_with_an_unknown_number_of_pins_is_not_guessed(judge) -> None:
    text = "cfg kv_blocks=4\n1 arrive A prompt=8\n1 admit A\n1 schedule A start=0 tokens=8 blocks=2\n"
    text += "1 transfer_begin A send\n"

    assert judge(f"{text}1 step free=1")["memory/conservation"].skipped == 1
    assert judge(f"{text}1 step free=3").broken == ["memory/conservation"], "more than there can be"


# -- release and leak ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["finish A stop", "abort A operator", "preempt A recompute"])
def test_whoever_ends_or_is_dropped_holds_nothing(judge, end: str) -> None:
    assert judge(f"{HOLDS}2 {end}").broken == []
    assert judge(f"{HOLDS}2 {end} blocks=0").broken == []
    assert judge(f"{HOLDS}2 {end} blocks=1").broken == ["memory/release"]


def test_who_is_refused_holds_nothing(judge) -> None:
    """Dynamo issue 11016: a failed admission leaves blocks behind."""
    assert judge(
        "1 arrive A prompt=4\n1 park A remote_kv blocks=2\n2 ready A\n2 reject A error blocks=2"
    ).broken == ["memory/release"]


@pytest.mark.parametrize(
    ("more", "row"),
    [
        ("keeps_blocks=true", "2 preempt A recompute blocks=2"),
        ("", "2 preempt A swap blocks=1"),
        ("block_lag=1", "2 finish A stop blocks=2"),
        ("block_lag=release", "2 finish A stop blocks=2"),
    ],
)
def test_where_the_profile_says_so_blocks_stay_a_while(judge, more: str, row: str) -> None:
    assert judge(f"cfg {more}\n{HOLDS}{row}").broken == []


def test_pins_come_back_after_the_last_transfer(judge) -> None:
    """TensorRT-LLM issue 5820: the KV of failed transfers stays pinned."""
    text = f"cfg K=2\n{HOLDS}2 transfer_begin A send ids=1,2\n2 finish A stop\n2 step pinned=2\n"
    text += "3 transfer_end A failed\n"

    assert judge(f"{text}3 step pinned=2\n4 step pinned=2\n5 step pinned=0\n6 step pinned=0").broken == []
    assert judge(f"{text}3..5 step pinned=2").steps("memory/release") == [5]


def test_a_transfer_has_a_deadline_where_the_profile_names_one(judge) -> None:
    """vLLM issue 46283: deferred blocks need a deadline; TensorRT-LLM issue 5820."""
    text = f"cfg patience.rules=memory/release:3\n{HOLDS}2 transfer_begin A send\n2 finish A stop\n"

    assert judge(f"{text}2..4 step pinned=2")["memory/release"].verdict == "open"
    assert judge(f"{text}2..5 step pinned=2").steps("memory/release") == [5]
    assert judge(f"{text}2..3 step pinned=2\n4 transfer_end A send\n4..6 step pinned=0").broken == []


@pytest.mark.parametrize(("free", "broken"), [(4, False), (3, True)])
def test_an_empty_engine_has_all_blocks_free(judge, free: int, broken: bool) -> None:
    text = (
        f"cfg kv_blocks=4\n{HOLDS.replace(' blocks=2', '')}1 step free=2\n2 finish A stop\n2 step free={free}"
    )

    assert bool(judge(text)["memory/leak"].violations) is broken


def test_a_leak_is_told_once_until_somebody_is_live_again(judge) -> None:
    text = f"cfg kv_blocks=4\n{HOLDS.replace(' blocks=2', '')}2 finish A stop\n2..5 step free=3\n"

    assert judge(text)["memory/leak"].violations == 1
    assert judge(f"{text}6 arrive B prompt=4\n6 reject B error\n6 step free=3\n").steps("memory/leak") == [2]
    assert judge(f"{text}6 arrive B prompt=4\n6 step free=3\n7 reject B error\n7 step free=3\n").steps(
        "memory/leak"
    ) == [2, 7]


@pytest.mark.parametrize("pinned", [1, 0])
def test_pinned_blocks_belong_to_others(judge, pinned: int) -> None:
    text = f"cfg kv_blocks=4\n{HOLDS.replace(' blocks=2', '')}2 finish A stop\n2 step free=3 pinned={pinned}"

    assert judge(text)["memory/leak"].violations == 1 - pinned


def test_every_unit_of_another_resource_comes_back(judge) -> None:
    """SGLang PR 10871: a request that ends in its first mixed chunk keeps its row."""
    text = "1 arrive A prompt=4\n1 admit A\n1 take A row units=1\n1 schedule A start=0 tokens=4\n"
    text += "1 finish A stop\n"

    assert judge(f"{text}1 give A row units=1\n1 step").broken == []
    assert judge(f"{text}1 step").of("memory/leak")[0].requests == ("A",)


def test_blocks_of_a_session_come_back_with_its_release(judge) -> None:
    """LMDeploy: blocks are free when the client ends the session (block_lag = "release")."""
    text = f"cfg kv_blocks=4 block_lag=release\n{HOLDS}2 finish A stop blocks=2\n2 step free=2\n"

    assert judge(f"{text}end").broken == ["memory/leak"]
    assert judge(text).broken == [], "in a trace that was cut it may still come"
    assert judge(f"{text}3 release A\n3 step free=4\nend").broken == []


# -- host ------------------------------------------------------------------------------------------


def test_a_request_that_came_back_leaves_the_host(judge) -> None:
    text = "cfg host_blocks=2 block_size=4\n1 arrive A prompt=8\n1 arrive B prompt=8\n1 admit A\n1 admit B\n"
    text += "1 schedule A start=0 tokens=8\n1 schedule B start=0 tokens=8\n1 step\n2 preempt A swap\n"

    assert judge(f"{text}3 preempt B swap").broken == ["memory/host-bound"]
    assert judge(f"{text}3 resume A cached=8\n4 preempt B swap").broken == []
    assert judge(f"{text}3 abort A operator\n4 preempt B swap").broken == []
    assert judge(f"{text}3 preempt B recompute").broken == []
