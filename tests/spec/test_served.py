"""Goodput under objectives: whole requests count, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.spec.served import Objectives, Served, attainment

SECOND = 1_000_000_000


def served(ttft: int | None = 5, tpot: int = 2, outputs: int = 11, end: str | None = "finish") -> Served:
    """A request that arrived at 100 and has the given latencies."""
    first = None if ttft is None else 100 + ttft
    finish = None if first is None else first + tpot * (outputs - 1)
    return Served("A", None, 100, 100, first, finish, 4, outputs, 0, 0, end)


@pytest.mark.parametrize(
    ("objectives", "met"),
    [
        (Objectives(), True),
        (Objectives(ttft_ns=5), True),
        (Objectives(ttft_ns=4), False),
        (Objectives(tpot_ns=2), True),
        (Objectives(tpot_ns=1), False),
        (Objectives(e2e_ns=25), True),
        (Objectives(e2e_ns=24), False),
        (Objectives(ttft_ns=5, tpot_ns=2, e2e_ns=24), False),
    ],
)
def test_every_objective_must_be_met(objectives: Objectives, met: bool) -> None:
    assert objectives.met_by(served()) is met


@pytest.mark.parametrize("end", ["abort", "reject", None])
def test_who_did_not_finish_met_nothing(end: str | None) -> None:
    assert not Objectives().met_by(served(end=end))


def test_an_unknown_latency_meets_no_objective_on_it() -> None:
    assert not Objectives(ttft_ns=10**9).met_by(served(ttft=None))
    assert Objectives().met_by(served(ttft=None))


def test_a_single_token_takes_no_time_per_further_token() -> None:
    assert served(outputs=1).tpot_ns == 0.0


def test_goodput_is_a_rate_of_requests_and_of_their_tokens() -> None:
    found = attainment([served(), served(ttft=50), served(end="reject")], Objectives(ttft_ns=5), 2 * SECOND)
    assert (found.requests, found.met, found.share) == (3, 1, 1 / 3)
    assert (found.requests_per_s, found.tokens_per_s) == (0.5, 5.5)
    assert attainment([], Objectives(), None).share is None


@given(st.lists(st.integers(0, 100)), st.integers(0, 100), st.integers(0, 100))
def test_a_looser_objective_is_met_by_no_fewer(times: list[int], one: int, other: int) -> None:
    requests = [served(ttft=time) for time in times]
    strict, loose = sorted((one, other))
    counts = [attainment(requests, Objectives(ttft_ns=most), SECOND).met for most in (strict, loose)]
    assert counts[0] <= counts[1]
