"""Level L0: what one row a request can tell, and what it cannot."""

from hypothesis import given
from hypothesis import strategies as st

from batchspec.replay.records import check_records
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.rules.requests import RECORD_RULES, overtaking, service_spreads
from batchspec.spec.verdict import Report
from batchspec.traces.workload import RecordTable

S = 1_000_000_000


def judged(records: list[Record], **claims: dict[str, object]) -> Report:
    return check_records(RecordTable.from_records(records), Profile.from_dict(claims))


def result(report: Report, rule: str) -> tuple[str, int]:
    found = next(result for result in report.rules if result.id == rule)
    return found.verdict, found.checked


FCFS = {"admission": {"order": "fcfs", "misfit": "stop"}}


def test_who_begins_before_an_earlier_arrival_overtakes_it() -> None:
    """Orca, iteration-level FCFS: the earlier arrival begins first."""
    late = Record("late", 1 * S, admitted_ns=2 * S)
    early = Record("early", 0, admitted_ns=3 * S)
    report = judged([early, late], **FCFS)
    assert report.level == "L0"
    assert result(report, "fairness/overtaking") == ("violates", 2)
    (finding,) = report.findings
    assert (finding.step, finding.row, finding.requests) == (None, 1, ("late", "early"))
    assert "late overtakes early by 1000000000 ns" in finding.message


def test_an_overtaking_within_the_tolerance_is_none() -> None:
    """0.05 s by default: clocks of client and engine meet here."""
    records = [Record("a", 0, admitted_ns=3 * S), Record("b", 1, admitted_ns=3 * S - 50_000_000)]
    assert result(judged(records, **FCFS), "fairness/overtaking") == ("conforms", 2)


def test_requests_of_one_instant_have_no_order() -> None:
    """Mooncake's arrivals are bunched: file order inside a bunch is nobody's claim."""
    records = [Record("a", 0, admitted_ns=3 * S), Record("b", 0, admitted_ns=1 * S)]
    assert result(judged(records, **FCFS), "fairness/overtaking") == ("conforms", 2)


def test_the_first_token_stands_for_the_beginning_only_with_whole_prompts() -> None:
    """A chunked prompt may begin early and emit late."""
    records = [Record("a", 0, first_token_ns=3 * S), Record("b", 1, first_token_ns=1 * S)]
    report = judged(records, **FCFS)
    assert result(report, "fairness/overtaking") == ("not checkable", 0)
    whole = judged(records, batching={"chunked_prefill": False}, **FCFS)
    assert result(whole, "fairness/overtaking") == ("violates", 2)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12),
    st.integers(0, 3),
)
def test_overtaking_counts_as_the_plain_definition_does(times: list[tuple[int, int]], ahead: int) -> None:
    """Fenwick tree against the double loop."""
    records = [Record(row, a * S, admitted_ns=(a + w) * S) for row, (a, w) in enumerate(times)]
    claims = {"order": "fcfs", "misfit": "skip", "skip_ahead": ahead}
    found = overtaking(records, Profile.from_dict({"admission": claims}))
    plain = [
        one.request
        for one in records
        if sum(
            other.arrival_ns > one.arrival_ns and (other.admitted_ns or 0) < (one.admitted_ns or 0) - S // 20
            for other in records
        )
        > ahead
    ]
    assert sorted(broken.rows[1] for broken in found.broken) == plain


def test_times_that_run_backwards_are_impossible() -> None:
    """Arrival ≤ admit ≤ first token ≤ finish."""
    records = [Record("a", 5, first_token_ns=7, finish_ns=6), Record("b", 5, admitted_ns=5, finish_ns=5)]
    report = judged(records)
    assert result(report, "time/causality") == ("violates", 2)
    assert report.findings[0].requests == ("a",)


def test_more_running_than_there_are_seats() -> None:
    """An end and a beginning at one instant share a seat."""
    records = [Record(n, 0, admitted_ns=n, finish_ns=10) for n in range(3)]
    claims: dict[str, dict[str, object]] = {"limits": {"max_seqs": 2}, "preemption": {"mode": "none"}}
    assert result(judged(records, **claims), "batch/capacity") == ("violates", 3)
    for preempts in ({"mode": "recompute"}, {}):
        assert result(judged(records, **claims | {"preemption": preempts}), "batch/capacity") == (
            "not checkable",
            0,
        )
    per_step: dict[str, object] = {"max_seqs": 2, "seqs_cap": "per-step"}
    assert result(judged(records, **claims | {"limits": per_step}), "batch/capacity") == ("not checkable", 0)
    relay = [Record(n, 0, admitted_ns=n * 10, finish_ns=n * 10 + 10) for n in range(3)]
    one: dict[str, object] = {"max_seqs": 1}
    assert result(judged(relay, **claims | {"limits": one}), "batch/capacity") == ("conforms", 3)


def test_a_limiter_is_held_to_its_quota_but_for_the_edge_of_its_window() -> None:
    """VTC artifact, LShare: at most five accepted requests in sixty seconds."""
    limits = {"rate_limits": {"*": {"requests": 1, "per_ns": 60 * S}}}
    good = [
        Record("a", 0, tenant="t", status="ok"),
        Record("b", 30 * S, tenant="t", status="rejected"),
        Record("c", 61 * S, tenant="t", status="ok"),
    ]
    assert result(judged(good, fairness=limits), "fairness/rate-limit") == ("conforms", 3)
    eager = [good[0], good[1]._replace(status="ok")]
    assert result(judged(eager, fairness=limits), "fairness/rate-limit") == ("violates", 2)
    strict = [good[0], good[1]._replace(arrival_ns=60 * S + 2)]
    assert result(judged(strict, fairness=limits), "fairness/rate-limit") == ("conforms", 2)
    wide = [good[0], good[1]._replace(arrival_ns=61 * S)]
    assert result(judged(wide, fairness=limits), "fairness/rate-limit") == ("violates", 2)


def _two_tenants(first_come: bool) -> list[Record]:
    """Two tenants, both there from the start; one asks for ten times as many tokens."""
    queue = [("big" if first_come or n % 2 else "small", n) for n in range(40)]
    records = []
    for place, (tenant, n) in enumerate(queue):
        begin = place * S
        records.append(Record(n, 0, 10, 10, tenant=tenant, first_token_ns=begin + 1, finish_ns=begin + S))
    records += [
        Record(f"w{tenant}", 0, 10, 10, tenant=tenant, first_token_ns=100 * S, finish_ns=101 * S)
        for tenant in ("big", "small")
    ]
    return records


def test_services_of_backlogged_tenants_stay_within_2u() -> None:
    """VTC (OSDI'24) Theorem 4.4: |W_f - W_g| ≤ 2U, U = max(w_p · L, w_q · M)."""
    claims = {
        "limits": {"kv_blocks": 20, "block_size": 1},
        "admission": {"order": "fair", "misfit": "stop"},
        "preemption": {"mode": "none"},
    }
    fair = judged(_two_tenants(first_come=False), **claims)
    assert result(fair, "fairness/service-gap")[0] == "conforms"
    greedy = judged(_two_tenants(first_come=True), **claims)
    assert result(greedy, "fairness/service-gap")[0] == "violates"
    assert "2U = 80" in greedy.findings[0].expected


def test_the_spread_is_that_of_the_services() -> None:
    """One request of one tenant while the other waits: its prompt and its outputs."""
    records = [
        Record("a", 0, 7, 5, tenant="x", first_token_ns=1 * S, finish_ns=2 * S),
        Record("b", 0, 1, 1, tenant="x", first_token_ns=5 * S, finish_ns=6 * S),
        Record("c", 0, 1, 1, tenant="y", first_token_ns=5 * S, finish_ns=6 * S),
    ]
    spreads = list(service_spreads(records, Profile()))
    assert round(spreads[-1].units) == 7 + 2 * 5


def test_what_needs_events_says_so() -> None:
    """A rule without a judgement at L0 is never reported as passed."""
    report = judged([Record("a", 0)])
    for found in report.rules:
        if found.id not in RECORD_RULES:
            assert (found.verdict, found.missing) == ("not checkable", ("events (level L1)",))


@st.composite
def honest(draw: st.DrawFn) -> Record:
    """A record that some run could have written: refused, or served with its times in order."""
    record = Record(
        draw(st.integers(0, 3)),
        draw(st.integers(0, 9)),
        draw(st.none() | st.integers(0, 5)),
        draw(st.none() | st.integers(0, 5)),
        max_tokens=draw(st.none() | st.integers(0, 5)),
        tenant=draw(st.none() | st.sampled_from("xy")),
    )
    if draw(st.booleans()):
        return record._replace(status="rejected")
    begin = record.arrival_ns + draw(st.integers(0, 5))
    end = begin + 1 + draw(st.integers(0, 5))
    return record._replace(status="ok", admitted_ns=begin, first_token_ns=begin + 1, finish_ns=end)


@given(st.lists(honest(), min_size=1, max_size=8), st.sampled_from(Record._fields[2:]))
def test_a_column_that_is_taken_away_makes_no_new_violation(records: list[Record], column: str) -> None:
    """What a table does not say, no rule may assume."""
    claims = {
        "limits": {"max_seqs": 2, "kv_blocks": 2, "block_size": 1},
        "batching": {"chunked_prefill": False},
        "admission": {"order": "fcfs", "misfit": "stop"},
        "fairness": {"rate_limits": {"x": {"requests": 1, "per_ns": 4}}, "delivery": "arrival"},
        "patience": {"wall_ns": 3, "tolerance_ns": 0},
    }
    before = {found.id: found.violations for found in judged(records, **claims).rules}
    bare = [record._replace(**{column: None}) for record in records]
    for found in judged(bare, **claims).rules:
        assert before[found.id] or not found.violations, found


def test_who_was_refused_or_gave_up_is_owed_no_response() -> None:
    claims = {"fairness": {"delivery": "arrival"}}
    first = Record("first", 0, admitted_ns=0, finish_ns=9 * S)
    second = Record("second", 1 * S, admitted_ns=1 * S, finish_ns=5 * S)
    assert result(judged([first, second], **claims), "fairness/delivery-order") == ("violates", 2)
    for status in ("rejected", "aborted"):
        report = judged([first, second._replace(status=status)], **claims)
        assert result(report, "fairness/delivery-order") == ("conforms", 1)


def test_a_refusal_may_have_another_reason_than_the_rate() -> None:
    quota = {"fairness": {"rate_limits": {"*": {"requests": 1, "per_ns": 9}}}}
    record = Record("A", 0, prompt_tokens=8, max_tokens=4, tenant="a", status="rejected")

    def verdict(**limits: object) -> str:
        return result(judged([record], **quota, limits=limits), "fairness/rate-limit")[0]

    assert verdict() == "violates"
    assert verdict(max_model_len=12) == "violates"
    assert verdict(max_model_len=11) == "conforms"
    assert verdict(max_waiting=3) == "conforms"
    assert verdict(kv_blocks=1, block_size=4) == "conforms"
