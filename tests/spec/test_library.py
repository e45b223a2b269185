"""The shipped profiles are sound, and `extends` is resolved and refused where it must be."""

import pytest

from batchspec.spec import library
from batchspec.spec.errors import ProfileError
from batchspec.spec.library import extends_of, from_data, load_profile, profile_names
from batchspec.spec.profile import Profile


def test_the_shipped_profiles_are_named_in_order() -> None:
    names = profile_names()
    assert {"batchspec", "static", "vllm-v1"} <= set(names)
    assert list(names) == sorted(names)


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_has_its_file_name_a_summary_and_a_source(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.summary
    assert profile.sources
    assert profile.batching.mode is not None


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_states_policies_and_leaves_sizes_to_the_trace(name: str) -> None:
    limits = load_profile(name).to_dict().get("limits", {})
    assert set(limits) <= {"seqs_cap"}


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_survives_a_round_trip(name: str) -> None:
    data = load_profile(name).to_dict()
    assert Profile.from_dict(data).to_dict() == data


def test_an_unknown_profile_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ProfileError, match=r"unknown profile 'vlm-v1' \(did you mean 'vllm-v1'\?\)"):
        load_profile("vlm-v1")


def test_an_unknown_profile_without_a_near_one_lists_what_there_is() -> None:
    with pytest.raises(ProfileError, match="known: batchspec, "):
        load_profile("zzzzzz")


def test_extends_starts_from_a_shipped_profile_and_the_own_claim_wins() -> None:
    profile = from_data({"extends": "vllm-v1", "admission": {"order": "priority"}}, "mine.toml")
    assert profile.admission.order == "priority"
    assert profile.preemption.mode == "recompute"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"extends": "vlm-v1"}, "mine.toml: extends: unknown profile 'vlm-v1'"),
        ({"extends": 3}, "mine.toml: extends must be the name of a profile"),
        ({"batching": {"mod": "static"}}, "mine.toml: unknown option batching.mod"),
    ],
)
def test_what_is_wrong_in_a_profile_is_named(data: dict[str, object], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        from_data(data, "mine.toml")


def test_extends_that_goes_in_a_circle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = {"one": {"extends": "two"}, "two": {"extends": "one"}}
    monkeypatch.setattr(library, "_shipped", shipped.__getitem__)
    load_profile.cache_clear()
    with pytest.raises(ProfileError, match=r"extends goes in a circle \(one -> two -> one\)"):
        load_profile("one")


def test_a_profile_that_starts_from_none_says_so() -> None:
    assert extends_of("batchspec") is None
