"""Rules of time, one test a rule named after it, then its edges."""

import pytest


def test_time_backwards(examples) -> None:
    """Trace format, column `step`: never falling."""
    passing, failing = examples("time/backwards")

    assert passing["time/backwards"].verdict == "conforms"
    assert failing.steps("time/backwards") == [1]


def test_time_causality(examples) -> None:
    """Trace format, column `time_ns`: arrival ≤ admit ≤ first output ≤ end."""
    passing, failing = examples("time/causality")

    assert passing["time/causality"].verdict == "conforms"
    assert failing.broken == ["time/causality"]


# -- clocks ----------------------------------------------------------------------------------------

FALLS = "1 arrive A prompt=4 t=1ms\n1 admit A t=5ms\n1 schedule A start=0 tokens=4 t=4ms\n"


@pytest.mark.parametrize("clock", ["monotonic", "virtual"])
def test_a_clock_that_runs_never_falls(judge, clock: str) -> None:
    assert judge(f"header clock={clock}\n{FALLS}").broken == ["time/backwards"]


@pytest.mark.parametrize("header", ["header clock=wall\n", ""])
def test_a_wall_clock_may_be_set_back(judge, header: str) -> None:
    """A wall clock's rows are not compared (rules: L0 records only); neither are those of no clock."""
    found = judge(header + FALLS)

    assert found.broken == []
    assert found["time/causality"].checked == 0


def test_arrivals_and_cancels_bear_the_clients_time(judge) -> None:
    """An arrive row tells when the request came, which is before the step that first sees it."""
    text = (
        "header clock=monotonic\n1 arrive A prompt=4 t=9ms\n1 admit A t=10ms\n1 schedule A tokens=4 t=10ms\n"
    )
    text += "2 arrive B prompt=4 t=8ms\n2 cancel A t=7ms\n2 abort A client t=11ms"

    assert judge(text).broken == []


@pytest.mark.parametrize(
    ("row", "broken"),
    [
        ("2 output A tokens=1 t=4ms", True),
        ("2 output A tokens=1 t=5ms", False),
        ("2 finish A stop t=4ms", True),
        ("2 finish A stop t=5ms", False),
        ("2 abort A operator t=4ms", True),
    ],
)
def test_nothing_comes_before_the_admission(judge, row: str, broken: bool) -> None:
    text = "header clock=monotonic\ncfg lookahead=0\n1 arrive A prompt=4 t=1ms\n1 admit A t=5ms\n"
    text += f"2 schedule A start=0 tokens=4\n{row}"

    assert bool(judge(text)["time/causality"].violations) is broken


def test_a_new_incarnation_has_its_own_times(judge) -> None:
    text = (
        "header clock=virtual\n1 arrive A prompt=4 t=5ms\n1 reject A error t=6ms\n2 arrive A prompt=4 t=1ms\n"
    )

    found = judge(f"{text}2 reject A error t=6ms")

    assert found["time/causality"].verdict == "conforms"
    assert found["time/causality"].checked == 2


def test_without_times_causality_is_not_checkable(judge) -> None:
    assert judge("1 arrive A prompt=4")["time/causality"].missing == ("time_ns",)


def test_the_step_number_may_jump(judge) -> None:
    assert judge("1 arrive A prompt=4\n1 step\n9 step").broken == []


def test_without_step_rows_the_number_says_where_a_step_ends(judge) -> None:
    text = "1 arrive A prompt=4\n1 admit A\n1 schedule A start=0 tokens=4\n2 schedule A start=4 tokens=1\n"
    assert judge(text + "2 finish A stop").broken == []


def test_a_step_does_not_go_on_after_its_step_row(judge) -> None:
    """Trace format: what happens between two iterations carries the number of the next."""
    text = "1 arrive A prompt=4\n1 admit A\n1 schedule A start=0 tokens=4\n1 step\n"

    again = judge(text + "1 cancel A\n1 step\n2 abort A client\n2 step")

    assert again.broken == ["time/backwards"]
    assert [finding.row for finding in again.of("time/backwards")] == [4]
    assert judge(text + "1 step\n2 cancel A\n2 abort A client\n2 step").steps("time/backwards") == [1]
    assert judge(text + "2 cancel A\n2 abort A client\n2 step").broken == []
