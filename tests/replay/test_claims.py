"""What is claimed for a trace: which of its header, `--profile` and `--config` wins."""

import json
from pathlib import Path
from typing import Any

import pytest

from batchspec.replay.claims import claimed, load_config, named_profile
from batchspec.spec.errors import ProfileError
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile


def profile(**groups: Any) -> Profile:
    return Profile.from_dict(groups)


def test_without_any_claim_there_is_none() -> None:
    assert claimed() is None
    assert claimed(None, {}) is None


def test_the_header_config_lies_over_the_header_profile() -> None:
    made = claimed("vllm-v1", {"limits": {"max_seqs": 4}, "admission": {"order": "priority"}})
    assert made is not None
    assert (made.name, made.limits.max_seqs, made.admission.order) == ("vllm-v1", 4, "priority")
    assert made.admission.misfit == "stop"


def test_a_profile_of_the_user_replaces_the_policies_and_keeps_the_limits() -> None:
    made = claimed(
        "vllm-v1", {"limits": {"max_seqs": 4}, "reuse": {"prefix": True}}, profile=load_profile("static")
    )
    assert made is not None
    assert (made.name, made.limits.max_seqs, made.batching.mode) == ("static", 4, "static")
    assert made.reuse.prefix is False
    assert made.preemption.victim is None


def test_the_config_of_the_user_wins_over_everything() -> None:
    made = claimed(
        "vllm-v1",
        {"limits": {"max_seqs": 4}},
        profile=load_profile("static"),
        config=profile(limits={"max_seqs": 9}),
    )
    assert made is not None
    assert (made.limits.max_seqs, made.batching.mode) == (9, "static")


def test_a_header_profile_that_is_not_shipped_is_named() -> None:
    with pytest.raises(ProfileError, match=r"header: unknown profile 'vlm-v1' .*--profile"):
        claimed("vlm-v1")


def test_a_header_profile_that_is_not_shipped_does_not_matter_where_the_user_names_one() -> None:
    made = claimed("somebody-elses", {"limits": {"max_seqs": 4}}, profile=load_profile("static"))
    assert made is not None
    assert (made.name, made.limits.max_seqs) == ("static", 4)


@pytest.mark.parametrize("name", ["mine.toml", "mine.json"])
def test_a_file_of_the_user_may_be_toml_or_json(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = {"extends": "vllm-v1", "limits": {"max_seqs": 3}}
    text = 'extends = "vllm-v1"\n[limits]\nmax_seqs = 3\n' if name.endswith("toml") else json.dumps(data)
    path.write_text(text)
    for read in (load_config(path), named_profile(str(path))):
        assert (read.limits.max_seqs, read.preemption.mode) == (3, "recompute")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "limits = [", "not valid TOML"),
        ("a.json", '{"limits": ', "not valid JSON"),
        ("a.json", "[1]", "must be a table of option groups, not a list"),
        ("a.json", "[" * 100_000, "not valid JSON (nested too deeply)"),
        ("a.toml", "\x00", "not valid TOML"),
        ("a.toml", "[limits]\nmax_seq = 3\n", "did you mean 'max_seqs'?"),
        ("a.toml", "x = 1 # " + "y" * (1 << 20), "no profile or config file"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        load_config(tmp_path / "none.toml")
