"""Reshaping a workload: slices, speed, lengths, tenants; prefix hashes stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.reshape import Reshape

SECOND = 1_000_000_000
RECORDS = [
    Record(n, 7 * SECOND + n * SECOND, 100 + n, 10, max_tokens=20, tenant="ab"[n % 2], prefix_hashes=(1, n))
    for n in range(10)
]


def shaped(**knobs: object) -> list[Record]:
    return list(Reshape(**knobs).apply(RECORDS))  # type: ignore[arg-type]


def names(records: list[Record]) -> list[object]:
    return [record.request for record in records]


def test_neutral_knobs_give_the_records_back() -> None:
    assert shaped() == RECORDS
    assert Reshape().hash_block(512) == 512


def test_a_slice_by_time_begins_at_zero_and_leaves_its_end_out() -> None:
    found = shaped(from_s=2, to_s=5)
    assert names(found) == [2, 3, 4]
    assert [record.arrival_ns for record in found] == [0, SECOND, 2 * SECOND]


def test_a_slice_by_count() -> None:
    assert names(shaped(skip=3, limit=2)) == [3, 4]
    assert shaped(limit=4) == RECORDS[:4], "the first ones keep their times"


def test_a_choice_of_tenants_is_made_before_counting() -> None:
    assert names(shaped(keep=("b",), limit=2)) == [1, 3]


def test_speed_divides_all_times() -> None:
    timed = Record(0, 10 * SECOND, 1, 1, admitted_ns=12 * SECOND, first_token_ns=13 * SECOND, finish_ns=None)
    (found,) = Reshape(speed=2).apply([timed])
    assert (found.arrival_ns, found.admitted_ns, found.first_token_ns, found.finish_ns) == (
        5 * SECOND,
        6 * SECOND,
        13 * SECOND // 2,
        None,
    )


def test_a_wall_clock_loses_no_digit_where_nothing_is_scaled() -> None:
    late = [Record(0, 1_700_000_000_123_456_789, 1, 1), Record(1, 1_700_000_000_123_456_790, 1, 1)]
    found = list(Reshape(skip=0, prompt_scale=2).apply(late))
    assert [record.arrival_ns for record in found] == [record.arrival_ns for record in late]
    assert [record.arrival_ns for record in Reshape(from_s=0).apply(late)] == [0, 1]


def test_lengths_are_scaled_and_never_vanish() -> None:
    found = shaped(prompt_scale=0.001, output_scale=2.5)
    assert {record.prompt_tokens for record in found} == {1}
    assert {(record.output_tokens, record.max_tokens) for record in found} == {(25, 50)}


def test_prefix_hashes_stay_and_stand_for_scaled_blocks() -> None:
    shape = Reshape(prompt_scale=0.25)
    assert [record.prefix_hashes for record in shape.apply(RECORDS)] == [(1, n) for n in range(10)]
    assert shape.hash_block(512) == 128
    assert shape.hash_block(None) is None
    assert Reshape(prompt_scale=0.001).hash_block(16) == 1


def test_tenants_and_priorities_are_given_to_those_without_by_the_seed() -> None:
    plain = [record._replace(tenant=None) for record in RECORDS]
    knobs = {"tenants": 3, "priorities": 2}
    one, same, other = (
        [(r.tenant, r.priority) for r in Reshape(seed=seed, **knobs).apply(plain)] for seed in (1, 1, 2)
    )
    assert one == same != other
    assert {tenant for tenant, _ in one} <= {"t0", "t1", "t2"}
    assert {priority for _, priority in one} <= {0, 1}
    assert [record.tenant for record in shaped(tenants=3)] == [record.tenant for record in RECORDS]


def test_a_request_keeps_its_tenant_in_every_slice() -> None:
    plain = [record._replace(tenant=None) for record in RECORDS]
    whole = {r.request: r.tenant for r in Reshape(tenants=5).apply(plain)}
    part = {r.request: r.tenant for r in Reshape(tenants=5, skip=4).apply(plain)}
    assert part.items() <= whole.items()


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"speed": 0}, "speed must lie in"),
        ({"speed": float("nan")}, "speed must lie in"),
        ({"prompt_scale": -1}, "prompt-scale must lie in"),
        ({"output_scale": float("inf")}, "output-scale must lie in"),
        ({"from_s": 5, "to_s": 5}, "is empty"),
    ],
)
def test_knobs_that_leave_nothing_are_refused(knobs: dict[str, float], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Reshape(**knobs)  # type: ignore[arg-type]


@pytest.mark.parametrize("knobs", [{"skip": 10}, {"keep": ("c",)}, {"from_s": 100}])
def test_a_workload_of_which_nothing_is_left_is_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(TraceError, match="no request is left"):
        shaped(**knobs)


@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=20).map(sorted),
    st.floats(0.01, 100),
    st.integers(0, 5),
)
def test_the_order_of_arrival_is_kept(times: list[int], speed: float, skip: int) -> None:
    records = [Record(n, time, 1, 1) for n, time in enumerate(times)]
    if skip >= len(records):
        return
    found = list(Reshape(speed=speed, skip=skip).apply(records))
    assert names(found) == list(range(skip, len(times)))
    arrivals = [record.arrival_ns for record in found]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 0
