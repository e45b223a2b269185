"""Keyed hashes: stable, different by key, of a known shape."""

import pytest

from batchspec.spec.errors import TraceError
from batchspec.traces.pseudonyms import MAX_KEY, Pseudonyms


def test_the_same_name_is_the_same_word() -> None:
    names = Pseudonyms("key")

    assert names.word("req-1") == names.word("req-1") == Pseudonyms(b"key").word("req-1")
    assert names.word("req-1") != names.word("req-2")
    assert names.word("req-1") != Pseudonyms("other").word("req-1")
    assert len(names.word("req-1")) == 16


def test_words_are_pinned_so_that_traces_of_two_releases_agree() -> None:
    assert Pseudonyms("key").word("req-1") == "aba10d9dedd53093"
    assert Pseudonyms("key").number(7) == Pseudonyms("key").number(b"7")


def test_numbers_fit_a_signed_column() -> None:
    names = Pseudonyms("key")

    assert all(0 <= names.number(index) < 2**63 for index in range(200))
    assert len({names.number(index) for index in range(200)}) == 200


def test_what_is_remembered_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("batchspec.traces.pseudonyms._REMEMBERED", 2)
    names = Pseudonyms("key")
    words = [names.word(f"r{index}") for index in range(5)]

    assert words == [names.word(f"r{index}") for index in range(5)]


@pytest.mark.parametrize("key", ["", "x" * (MAX_KEY + 1)])
def test_a_key_that_is_none(key: str) -> None:
    with pytest.raises(TraceError, match=r"a key has 1 to 64 bytes"):
        Pseudonyms(key)
