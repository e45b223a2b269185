"""The text form of traces: what its words mean, where they are not obvious."""

import pytest

from batchspec.spec.errors import TraceError
from batchspec.traces.scenario import parse_scenario

ONE = "1 arrive A prompt=4 max=2\n1 step\n"


@pytest.mark.parametrize("rest", ["----\nviolates memory/bound: step 1\n", "---- \r\n\x00 anything", "----"])
def test_what_follows_the_line_of_dashes_is_not_read(rest):
    assert list(parse_scenario(ONE + rest).events()) == list(parse_scenario(ONE).events())


def test_what_follows_end_may_be_an_expectation_and_nothing_else():
    assert parse_scenario(ONE + "end\n----\nviolates\n").complete
    with pytest.raises(TraceError, match="scenario:4: nothing may follow `end`"):
        parse_scenario(ONE + "end\n2 step\n")


@pytest.mark.parametrize("line", ["-----", "---- x", "--", "  ----"])
def test_only_the_line_itself_ends_a_scenario(line):
    with pytest.raises(TraceError, match="scenario:3: "):
        parse_scenario(ONE + line + "\n")
