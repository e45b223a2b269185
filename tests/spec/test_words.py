"""Numbers as a finding says them."""

import pytest

from batchspec.spec.words import count, duration, ordinal


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 us"),
        (1_500_000, "1.5 ms"),
        (90_000_000_000, "90 s"),
        (1_000_000_001, "1.000000001 s"),
        (-2_000_000_000, "-2 s"),
        (3_600_000_000_000, "3,600 s"),
    ],
)
def test_durations_keep_every_digit(nanoseconds, text):
    assert duration(nanoseconds) == text


def test_counts_agree_with_their_noun():
    assert [count(number, "block") for number in (0, 1, 2, 1024)] == [
        "0 blocks",
        "1 block",
        "2 blocks",
        "1,024 blocks",
    ]


def test_ordinals_of_the_teens():
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "112th",
    ]
