"""Rules of token accounting, one test a rule named after it, then its edges."""

import pytest

# -- one test a rule -------------------------------------------------------------------------------


def test_tokens_position(examples) -> None:
    """vLLM V1: num_computed_tokens only moves by what was scheduled. SGLang issue 36855: a chunk again."""
    passing, failing = examples("tokens/position")

    assert passing["tokens/position"].verdict == "conforms"
    assert failing.steps("tokens/position") == [2]


def test_tokens_overrun(examples) -> None:
    """vLLM V1.1: a step assigns at most total - computed tokens."""
    passing, failing = examples("tokens/overrun")

    assert passing["tokens/overrun"].verdict == "conforms"
    assert failing.broken == ["tokens/overrun"]


def test_tokens_early_output(examples) -> None:
    """G4: emit only in a step in which c reaches n. vLLM issue 57562: a token for a chunk."""
    passing, failing = examples("tokens/early-output")

    assert passing["tokens/early-output"].verdict == "conforms"
    assert failing.broken == ["tokens/early-output"]


def test_tokens_output_count(examples) -> None:
    """Rules: outputs counted = output_tokens at the end. vLLM V1 stop check."""
    passing, failing = examples("tokens/output-count")

    assert passing["tokens/output-count"].verdict == "conforms"
    assert failing.broken == ["tokens/output-count"]


def test_tokens_lost(examples) -> None:
    """vLLM (SOSP'23) §4.5, VL4: generated tokens are appended to the prompt, prompt' = p + o."""
    passing, failing = examples("tokens/lost")

    assert passing["tokens/lost"].verdict == "conforms"
    assert failing.broken == ["tokens/lost"]


def test_tokens_chunking(examples) -> None:
    """vLLM classic scheduler, VL6: whole prompts."""
    passing, failing = examples("tokens/chunking")

    assert passing["tokens/chunking"].verdict == "conforms"
    assert failing.broken == ["tokens/chunking"]


def test_tokens_in_flight(examples) -> None:
    """vLLM issue 57562: a placeholder counter below zero. Rules: each dispatched token is settled once."""
    passing, failing = examples("tokens/in-flight")

    assert passing["tokens/in-flight"].verdict == "conforms"
    assert failing.broken == ["tokens/in-flight"]


# -- positions -------------------------------------------------------------------------------------

A = "1 arrive A prompt=8 max=9\n1 admit A\n"
FIRST = f"{A}1 schedule A start=0 tokens=8\n"


@pytest.mark.parametrize(("start", "broken"), [(0, False), (4, False), (7, False), (8, True)])
def test_an_unknown_cache_hit_is_taken_from_the_first_start(judge, start: int, broken: bool) -> None:
    """Rules: cached null: the next start, 0 ≤ start < n, is adopted."""
    found = judge(f"{A}1 schedule A start={start} tokens=1")

    assert bool(found["tokens/position"].violations) is broken


@pytest.mark.parametrize(
    ("cached", "start", "broken"), [(4, 4, False), (4, 0, True), (7, 7, False), (8, 8, True)]
)
def test_a_stated_cache_hit_is_where_the_first_pass_begins(
    judge, cached: int, start: int, broken: bool
) -> None:
    """vLLM issue 53514: a hit of the whole prompt leaves nothing to run."""
    found = judge(f"1 arrive A prompt=8\n1 admit A cached={cached}\n1 schedule A start={start} tokens=1")

    assert bool(found["tokens/position"].violations) is broken


@pytest.mark.parametrize(
    ("drafts", "emitted", "back"),
    [(3, 4, 0), (3, 2, 2), (3, 1, 3), (3, 0, 4), (1, 0, 2), (0, 1, 0)],
)
def test_rejected_drafts_are_taken_back(judge, drafts: int, emitted: int, back: int) -> None:
    """Rules: c -= d + 1 - e, e = 0 included. vLLM PR 42722: subtracted only if something was returned."""
    text = f"{FIRST}1 output A tokens=1\n2 schedule A start=8 tokens={drafts + 1} drafts={drafts}\n"
    text += f"2 output A tokens={emitted}\n"
    at = 8 + drafts + 1 - back

    assert judge(f"{text}3 schedule A start={at} tokens=1 drafts=0").broken == []
    for other in (at - 1, at + 1):
        found = judge(f"{text}3 schedule A start={other} tokens=1 drafts=0")
        assert "tokens/position" in found.broken


@pytest.mark.parametrize(("reason", "start"), [("recompute", 0), ("swap", 4)])
def test_a_preemption_keeps_or_drops_what_was_computed(judge, reason: str, start: int) -> None:
    """Trace format, step 10: recompute, c = 0; swap, c stays."""
    text = f"{A}1 schedule A start=0 tokens=4\n2 preempt A {reason}\n3 resume A cached={start}\n"

    assert judge(f"{text}3 schedule A start={start} tokens=1").broken == []
    assert judge(f"{text}3 schedule A start={start + 1} tokens=1").broken == ["tokens/position"]


def test_after_a_repair_the_stated_position_counts(judge) -> None:
    """Rules, repair: c = start + tokens."""
    text = f"{A}1 schedule A start=0 tokens=2\n2 schedule A start=4 tokens=2\n3 schedule A start=6 tokens=2"

    assert judge(text).steps("tokens/position") == [2]


def test_of_an_unknown_request_no_position_is_known(judge) -> None:
    found = judge(
        "1 schedule A start=5 tokens=2\n2 schedule A start=7 tokens=1\n3 schedule A start=9 tokens=1"
    )

    assert found.broken[0] == "lifecycle/unknown-request"
    assert found.steps("tokens/position") == [3]


@pytest.mark.parametrize("rule", ["position", "overrun", "early-output", "output-count", "lost", "chunking"])
def test_a_null_is_skipped_and_never_guessed(judge, rule: str) -> None:
    text = "cfg chunked_prefill=false\n1 arrive A max=4\n1 admit A\n1 schedule A\n1 output A tokens=1\n"
    text += (
        "2 arrive B prompt=4 max=1\n2 admit B\n2 schedule B start=0 tokens=4 drafts=0\n2 output B tokens=1\n"
    )
    text += "2 finish B length out=1\n2 finish A stop\n"

    assert judge(text).broken == []


# -- beyond what is known --------------------------------------------------------------------------


@pytest.mark.parametrize(("drafts", "found"), [(0, [2]), (1, [2]), (2, [])])
def test_drafts_may_run_beyond_the_known_tokens(judge, drafts: int, found: list) -> None:
    text = f"{FIRST}1 output A tokens=1\n2 schedule A start=8 tokens=3 drafts={drafts}"

    assert judge(text).steps("tokens/overrun") == found


def test_tokens_in_flight_are_known_tokens(judge) -> None:
    """Rules: n also counts tokens in flight, at most depth - 1."""
    text = f"cfg depth=2 slot_lag=1 lookahead=0\n{FIRST}2 schedule A start=8 tokens=1\n"
    text += "2 output A tokens=1 pass=1\n"

    assert judge(f"{text}3 schedule A start=9 tokens=1\n3 output A tokens=1 pass=2").broken == []
    assert judge(f"{text}3 schedule A start=9 tokens=2").steps("tokens/overrun") == [3]


def test_without_overlap_nothing_is_in_flight(judge) -> None:
    assert judge(f"cfg lookahead=0\n{FIRST}2 schedule A start=8 tokens=1\n2 output A tokens=1").broken[
        :1
    ] == ["tokens/overrun"]


# -- outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafts", "emitted", "broken"), [(0, 2, True), (1, 2, False), (1, 3, True)])
def test_a_pass_emits_at_most_one_token_more_than_its_drafts(judge, drafts, emitted, broken) -> None:
    text = f"{FIRST}1 output A tokens=1\n2 schedule A start=8 tokens={drafts + 1} drafts={drafts}\n"

    assert bool(judge(f"{text}2 output A tokens={emitted}")["tokens/early-output"].violations) is broken


def test_an_output_of_somebody_who_did_not_run_is_early(judge) -> None:
    assert judge(f"cfg lookahead=0\n{FIRST}1 output A tokens=1\n2 output A tokens=1").broken == [
        "tokens/early-output"
    ]


def test_a_second_output_of_one_pass_is_lost_or_in_flight(judge) -> None:
    """Rules: a second output of one pass is tokens/in-flight (no `pass` column: tokens/lost)."""
    twice = f"cfg lookahead=0\n{FIRST}1 output A tokens=1{{0}}\n1 output A tokens=1{{0}}"

    assert judge(twice.format("")).broken == ["tokens/lost"]
    assert judge(twice.format(" pass=1")).broken == ["tokens/in-flight"]


def test_derived_outputs_are_never_early(judge) -> None:
    found = judge(FIRST)

    assert found["tokens/early-output"].missing == ("output rows",)


@pytest.mark.parametrize(
    ("end", "broken"),
    [
        ("finish A stop out=1", False),
        ("finish A stop", False),
        ("finish A stop out=2", True),
        ("finish A length out=1", True),
        ("abort A operator out=1", False),
        ("abort A operator out=0", True),
    ],
)
def test_the_end_reports_what_was_emitted(judge, end: str, broken: bool) -> None:
    found = judge(f"{FIRST}1 step\n2 {end}")

    assert bool(found["tokens/output-count"].violations) is broken
    assert found["tokens/output-count"].checked == 1


def test_reason_length_means_all_that_was_allowed(judge) -> None:
    text = "1 arrive A prompt=8 max=2\n1 admit A\n1 schedule A start=0 tokens=8\n1 step\n"

    assert judge(f"{text}2 schedule A start=8 tokens=1\n2 finish A length out=2").broken == []
    assert judge(f"{text}2 finish A length out=1").broken == ["tokens/output-count"]


def test_nobody_emits_more_than_it_may(judge) -> None:
    text = "1 arrive A prompt=8 max=1\n1 admit A\n1 schedule A start=0 tokens=8\n1 step\n"

    assert judge(f"{text}2 schedule A start=8 tokens=1\n2 finish A stop out=2").broken == [
        "tokens/output-count"
    ]


def test_a_member_that_is_aborted_emits_nothing(judge) -> None:
    """Trace format, step 4: a member aborted before its derived output counts emits nothing."""
    assert judge(f"{FIRST}1 abort A operator out=0\n1 step").broken == []


def test_the_model_s_length_ends_a_request_for_its_length_too(judge) -> None:
    text = "cfg max_model_len=9\n1 arrive A prompt=8 max=5\n1 admit A\n1 schedule A start=0 tokens=8\n"

    assert judge(f"{text}1 finish A length out=1").broken == []


# -- preemption ------------------------------------------------------------------------------------


def test_an_end_that_forgets_what_came_before_the_preemption(judge) -> None:
    """nano-vllm PR 217: the token computed by the re-prefill is thrown away."""
    text = f"{FIRST}1 step\n2 schedule A start=8 tokens=1\n2 step\n3 preempt A recompute\n4 resume A\n"
    text += "4 schedule A start=0 tokens=10\n"

    assert judge(f"{text}4 finish A stop out=3").broken == []
    assert set(judge(f"{text}4 finish A stop out=1").broken) == {"tokens/output-count", "tokens/lost"}


def test_a_prefix_may_be_rebuilt_in_parts(judge) -> None:
    text = f"cfg lookahead=0\n{FIRST}1 output A tokens=1\n2 preempt A recompute\n3 resume A\n"
    text += "3 schedule A start=0 tokens=4\n4 schedule A start=4 tokens=5\n"

    assert judge(f"{text}4 output A tokens=1").broken == []


# -- chunks ----------------------------------------------------------------------------------------


def test_a_prefix_that_is_rebuilt_is_not_cut_either(judge) -> None:
    text = f"cfg chunked_prefill=false\n{FIRST}1 step\n2 preempt A recompute\n3 resume A\n"

    assert judge(f"{text}3 schedule A start=0 tokens=9").broken == []
    assert judge(f"{text}3 schedule A start=0 tokens=8").broken == ["tokens/chunking"]


def test_a_cache_hit_shortens_what_must_be_computed_at_once(judge) -> None:
    text = "cfg chunked_prefill=false\n1 arrive A prompt=8\n1 admit A cached=4\n1 schedule A start=4 tokens=4"

    assert judge(text).broken == []


# -- in flight -------------------------------------------------------------------------------------

ASYNC = f"cfg depth=2 slot_lag=1 overlap_member=1 lookahead=0\n{FIRST}2 schedule A start=8 tokens=1\n"


def test_tokens_go_to_the_incarnation_that_dispatched_them(judge) -> None:
    text = f"{ASYNC}2 output A tokens=1 pass=1\n2 finish A stop pass=1\n"

    assert judge(text).broken == []
    assert judge(f"{text}3 output A tokens=1 pass=2").broken == ["tokens/in-flight"]
    again = "3 arrive A prompt=4\n3 admit A\n3 output A tokens=1 pass=2"
    assert judge(text + again)["tokens/in-flight"].violations == 0, (
        "nothing is known of how A came by a cache hit"
    )


def test_a_pass_without_tokens_in_flight_gives_none(judge) -> None:
    text = "cfg depth=2 slot_lag=1 lookahead=0\n1 arrive A prompt=8\n1 admit A cached=0\n"
    text += "1 schedule A start=0 tokens=4\n2 schedule A start=4 tokens=4\n"

    assert judge(f"{text}2 output A tokens=1 pass=1").broken == ["tokens/in-flight"]
    assert judge(f"{text}3 output A tokens=1 pass=2").broken == []


CUT = "header begins=running\ncfg depth=2 slot_lag=1 overlap_member=1 lookahead=0\n"
CUT += "7 live A running prompt=8 max=9 start=10 out=2 tokens={flying}\n7 schedule A start=10 tokens=1\n"


def test_a_pass_in_flight_when_the_trace_begins_is_settled_in_it(judge) -> None:
    """A `live` row says how many tokens are in flight: they are known, and an earlier pass brings them."""
    text = CUT.format(flying=1) + "7 output A tokens=1 pass=6\n8 schedule A start=11 tokens=1\n"

    assert judge(f"{text}8 output A tokens=1 pass=7\n").broken == []
    assert judge(f"{text}9 schedule A start=12 tokens=2").broken == ["tokens/overrun"]
    assert judge(CUT.format(flying=0)).broken == ["tokens/overrun"]
    assert judge(f"{text}8 output A tokens=1 pass=6").broken == ["tokens/in-flight"]


@pytest.mark.parametrize("rule", ["position", "overrun", "early-output", "lost"])
def test_with_overlap_each_output_must_name_its_pass(judge, rule: str) -> None:
    found = judge(f"{ASYNC}2 output A tokens=1")

    assert "pass" in found[f"tokens/{rule}"].missing


@pytest.mark.parametrize("rule", ["position", "overrun", "early-output", "lost"])
def test_recorded_outputs_need_drafts_or_the_claim_that_there_are_none(judge, rule: str) -> None:
    text = f"{FIRST}1 output A tokens=1\n"

    assert judge(text)[f"tokens/{rule}"].missing == ("drafts",)
    assert judge(f"cfg lookahead=0\n{text}")[f"tokens/{rule}"].missing == ()
