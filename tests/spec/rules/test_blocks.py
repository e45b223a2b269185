"""Rules of memory by block ids, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_memory_exclusive(examples) -> None:
    """vLLM (SOSP'23) §4.3, VL5: shared blocks carry reference counts; all others have one owner."""
    passing, failing = examples("memory/exclusive")

    assert passing["memory/exclusive"].verdict == "conforms"
    assert failing.of("memory/exclusive")[0].requests == ("B", "A")


def test_memory_release_once(examples) -> None:
    """vLLM issue 1556: shared blocks with a sliding window are freed twice."""
    passing, failing = examples("memory/release-once")

    assert passing["memory/release-once"].verdict == "conforms"
    assert failing.broken == ["memory/release-once"]


def test_memory_use_after_release(examples) -> None:
    """vLLM PR 45357: blocks go back to the pool while a later step that writes them is in flight."""
    passing, failing = examples("memory/use-after-release")

    assert passing["memory/use-after-release"].verdict == "conforms"
    assert failing.broken == ["memory/use-after-release"]


def test_memory_unwritten(examples) -> None:
    """vLLM V1 prefix cache: hashes are set before the pass runs, so a hit may be to nothing."""
    passing, failing = examples("memory/unwritten")

    assert passing["memory/unwritten"].verdict == "conforms"
    assert failing.broken == ["memory/unwritten"]


# -- one owner -------------------------------------------------------------------------------------

A = "1 arrive A prompt=8\n1 arrive B prompt=8\n1 admit A cached=0 ids=1,2\n1 schedule A start=0 tokens=8\n"
SHARED = f"cfg block_size=4 prefix=true\n{A}"


@pytest.mark.parametrize(
    ("row", "broken"),
    [
        ("2 admit B cached=0 ids=3", False),
        ("2 admit B cached=0 ids=1", True),
        ("2 admit B cached=4 ids=1,3", False),
        ("2 admit B cached=4 ids=1,2", True),  # only the first is taken over whole
        ("2 admit B cached=6 ids=1,2", True),
        ("2 admit B cached=4 ids=1,1", True),
    ],
)
def test_only_whole_blocks_of_a_prefix_are_shared(judge, row: str, broken: bool) -> None:
    """Rules: the row takes over all b positions of it, index < floor(cached / b)."""
    assert bool(judge(f"{SHARED}{row}")["memory/exclusive"].violations) is broken


def test_without_a_shared_prefix_nothing_is_shared(judge) -> None:
    assert judge(f"cfg block_size=4 prefix=false\n{A}2 admit B cached=4 ids=1,3").broken == [
        "memory/exclusive"
    ]


def test_a_block_is_free_after_its_last_return(judge) -> None:
    """Trace format, shared blocks: each owner returns them; a block is free after the last return."""
    text = f"{SHARED}2 admit B cached=4 ids=1,3\n3 finish A stop ids=1,2\n4 arrive C prompt=4\n"

    assert judge(f"{text}4 admit C cached=0 ids=1").broken == ["memory/exclusive"]
    assert judge(f"{text}4 admit C cached=0 ids=2").broken == []
    assert judge(f"{text}4 finish B stop ids=1,3\n5 admit C cached=0 ids=1").broken == []


def test_after_a_double_grant_the_newest_taker_holds_the_block(judge) -> None:
    text = f"{A}1 admit B ids=2\n"

    found = judge(f"{text}2 finish A stop ids=1,2\n3 finish B stop ids=2")

    assert [(finding.rule, finding.consequence) for finding in found.report.findings] == [
        ("memory/exclusive", False),
        ("memory/release-once", True),
    ]


# -- one return ------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["finish A stop", "abort A operator", "preempt A recompute", "release A"])
def test_only_the_owner_returns_a_block_and_only_once(judge, row: str) -> None:
    assert judge(f"{A}2 {row} ids=1,2").broken == []
    assert judge(f"{A}2 {row} ids=1,2,2").broken == ["memory/release-once"]
    assert judge(f"{A}2 {row} ids=1,2,7").broken == ["memory/release-once"]


def test_nobody_returns_what_another_holds(judge) -> None:
    found = judge(f"{A}1 admit B ids=3\n2 release B ids=1")

    assert found.broken == ["memory/release-once"]
    assert "held by A" in found.of("memory/release-once")[0].observed


def test_units_come_back_once_too(judge) -> None:
    """LMCache issue 3381: a pin count goes negative."""
    text = "1 arrive A prompt=4\n1 take A pin units=1\n2 give A pin units=1\n"

    assert judge(text).broken == []
    assert judge(f"{text}3 give A pin units=1").broken == ["memory/release-once"]


# -- after the return ------------------------------------------------------------------------------

FLIGHT = """
    cfg depth=2 slot_lag=1 overlap_member=1 {more}
    1 arrive A prompt=4
    1 admit A ids=1,2
    1 schedule A start=0 tokens=4
    1 dispatch pass=1
    2 schedule A start=4 tokens=1
    2 dispatch pass=2
    2 complete pass=1
    2 finish A stop pass=1 ids=1,2
    2 step
    3 arrive C prompt=8
"""


@pytest.mark.parametrize(
    ("more", "rows", "broken"),
    [
        ("", "3 admit C ids=1", True),
        ("", "3 admit C ids=3", False),
        ("", "3 complete pass=2\n3 admit C ids=1", False),
        ("ordered_passes=true", "3 admit C ids=1", False),
        ("ordered_passes=true", "3 park C remote_kv ids=1\n3 transfer_begin C receive ids=1", True),
        ("", "3 complete pass=2\n3 park C remote_kv ids=1\n3 transfer_begin C receive ids=1", False),
        ("ordered_passes=true", "3 park C remote_kv ids=1\n3 transfer_begin C send ids=1", False),
    ],
)
def test_a_block_of_a_pass_in_flight(judge, more: str, rows: str, broken: bool) -> None:
    """Rules: granted to a later pass only under ordered_passes, and never the target of a transfer."""
    found = judge(FLIGHT.format(more=more) + rows)

    assert bool(found["memory/use-after-release"].violations) is broken


@pytest.mark.parametrize("row", ["abort A client", "release A", "preempt A recompute"])
def test_no_block_is_returned_under_a_transfer(judge, row: str) -> None:
    """vLLM PR 32255: an abort during an asynchronous load releases blocks the network still writes."""
    text = f"{A}2 cancel A\n2 transfer_begin A receive ids=1,2\n"

    assert judge(f"{text}3 {row} ids=1,2").broken == ["memory/use-after-release"]
    assert judge(f"{text}3 transfer_end A receive\n3 {row} ids=1,2").broken == []


def test_a_schedule_before_the_end_was_planned_earlier(judge) -> None:
    """Rules: an overlapping engine that planned the pass earlier writes the schedule before the finish."""
    text = f"cfg overlap_member=1 block_lag={{lag}}\n{A}"
    after = "2 finish A stop pass=1 {ids}\n2 schedule A start=8 tokens=1"
    before = "2 schedule A start=8 tokens=1\n2 finish A stop pass=1 {ids}"

    assert judge(text.format(lag=0) + after.format(ids="ids=1,2")).broken == ["memory/use-after-release"]
    assert judge(text.format(lag=0) + before.format(ids="ids=1,2")).broken == []
    assert judge(text.format(lag=1) + after.format(ids="blocks=2")).broken == [], (
        "within block_lag they are held"
    )


# -- shadow KV -------------------------------------------------------------------------------------

WRITER = "cfg block_size=4 prefix=true {more}\n1 arrive A prompt=8\n1 arrive B prompt=8\n1 admit A cached=0\n"


@pytest.mark.parametrize(
    ("tokens", "step", "more", "broken"),
    [
        (4, 2, "", False),
        (3, 2, "", True),
        (4, 1, "", True),
        (4, 1, "same_pass=true", False),
        (3, 1, "same_pass=true", True),
    ],
)
def test_a_hit_is_to_a_block_that_an_earlier_pass_filled(judge, tokens, step, more, broken) -> None:
    """Rules: computed before by a pass with a smaller number (same_pass: or the same pass)."""
    text = (
        WRITER.format(more=more)
        + f"1 schedule A start=0 tokens={tokens} ids=1\n{step} admit B cached=4 ids=1"
    )

    assert bool(judge(text)["memory/unwritten"].violations) is broken


@pytest.mark.parametrize(
    ("wrote", "wants", "broken"),
    [("hashes=11", "hashes=11", False), ("hashes=11", "hashes=12", True), ("", "hashes=12", False)],
)
def test_a_hit_is_to_the_same_content(judge, wrote: str, wants: str, broken: bool) -> None:
    """Rules: for the same block_hashes entry; without hashes the content is not judged."""
    text = (
        WRITER.format(more="")
        + f"1 schedule A start=0 tokens=4 ids=1 {wrote}\n2 admit B cached=4 ids=1 {wants}"
    )

    assert bool(judge(text)["memory/unwritten"].violations) is broken


def test_a_pass_that_was_taken_back_wrote_nothing(judge) -> None:
    text = WRITER.format(more="") + "1 schedule A start=0 tokens=4 ids=1\n1 preempt A recompute ids=1\n"

    assert judge(f"{text}2 admit B cached=4 ids=1").broken == ["memory/unwritten"]


@pytest.mark.parametrize(
    ("before", "after", "skipped", "broken"),
    [("", "", 1, False), ("1 dispatch\n", "", 0, False), ("", "1 dispatch\n", 0, True)],
    ids=["nobody says", "while it runs", "before it runs"],
)
def test_an_abort_does_not_stop_a_pass_that_runs(judge, before, after, skipped, broken) -> None:
    """A client may leave between the plan and its results; vLLM's pass then writes all the same."""
    text = WRITER.format(more="") + "1 schedule A start=0 tokens=4 ids=1\n"

    found = judge(f"{text}{before}1 cancel A\n1 abort A client ids=1\n{after}2 admit B cached=4 ids=1")

    assert found["memory/unwritten"].skipped == skipped
    assert bool(found["memory/unwritten"].violations) is broken


def test_the_cache_outlives_its_writer_and_not_its_block(judge) -> None:
    text = WRITER.format(more="") + "1 schedule A start=0 tokens=4 ids=1\n2 abort A operator ids=1\n"
    other = "2 arrive C prompt=4\n2 admit C cached=0\n2 schedule C start=0 tokens=2 ids=1\n"
    other += "3 abort C operator ids=1\n"

    assert judge(f"{text}3 admit B cached=4 ids=1").broken == []
    assert judge(f"{text}{other}4 admit B cached=4 ids=1").broken == ["memory/unwritten"]


@pytest.mark.parametrize(("reason", "broken"), [("receive", False), ("failed", True)])
def test_a_transfer_writes_too(judge, reason: str, broken: bool) -> None:
    text = (
        "cfg block_size=4\n1 arrive A prompt=8\n1 park A remote_kv cached=0 ids=1\n"
        "1 transfer_begin A receive ids=1\n"
    )
    text += f"2 transfer_end A {reason} ids=1\n2 ready A\n2 arrive B prompt=8\n2 abort A operator ids=1\n"

    found = judge(
        f"{text.replace('block_size=4', 'block_size=4 prefix=true')}3 admit B cached=4 ids=1\n"
        "3 schedule B start=4 tokens=4 ids=2"
    )

    assert bool(found["memory/unwritten"].violations) is broken


def test_what_was_resident_before_the_trace_counts_as_written(judge) -> None:
    text = "header begins=running\ncfg block_size=4 prefix=true\n"
    text += "1 live A running prompt=8 start=5 out=0 ids=1,2\n1 arrive B prompt=8\n"
    rest = "\n1 schedule A start=5 tokens=1"

    assert judge(f"{text}1 admit B cached=4 ids=1{rest}")["memory/unwritten"].violations == 0
    assert judge(f"{text}1 admit B cached=8 ids=1,2{rest}")["memory/unwritten"].violations == 1
    assert judge(f"{text}1 admit B cached=4 ids=9{rest}")["memory/unwritten"].skipped == 1, (
        "nobody knows of block 9"
    )


@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        ("memory/exclusive", ("block_ids",)),
        ("memory/release-once", ("block_ids",)),
        ("memory/use-after-release", ("block_ids",)),
        ("memory/unwritten", ("block_ids", "cached")),
    ],
)
def test_without_ids_none_of_this_is_checkable(judge, rule: str, missing: tuple) -> None:
    text = "cfg block_size=4\n1 arrive A prompt=8\n1 admit A blocks=2\n1 schedule A start=0 tokens=8 blocks=2"

    assert judge(text)[rule].missing == missing
