"""The shipped profiles, read once from package data; `extends` starts a profile from one of them."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from batchspec.spec.errors import ProfileError
from batchspec.spec.profile import Profile


@cache
def profile_names() -> tuple[str, ...]:
    """The names of all shipped profiles, sorted."""
    files = resources.files("batchspec.spec.profiles").iterdir()
    return tuple(sorted(item.name.removesuffix(".toml") for item in files if item.name.endswith(".toml")))


@cache
def load_profile(name: str) -> Profile:
    """A shipped profile, with `extends` resolved. Raises `ProfileError` that names the nearest one."""
    return _resolved(_shipped(name), f"profile {name}", (name,))


def from_data(data: Mapping[str, Any], where: str) -> Profile:
    """A profile from plain data in the shape of a profile file, `extends` included."""
    return _resolved(data, where, ())


def extends_of(name: str) -> str | None:
    """The shipped profile that a shipped one starts from, or None."""
    parent = _shipped(name).get("extends")
    return parent if isinstance(parent, str) else None


@cache
def _shipped(name: str) -> Mapping[str, Any]:
    if name not in profile_names():
        known = profile_names()
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        raise ProfileError(f"unknown profile {name!r} ({hint})")
    text = resources.files("batchspec.spec.profiles").joinpath(f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


def _resolved(data: Mapping[str, Any], where: str, seen: tuple[str, ...]) -> Profile:
    own = {key: value for key, value in data.items() if key != "extends"}
    profile = Profile.from_dict(own, where)
    if "extends" not in data:
        return profile
    parent = data["extends"]
    if not isinstance(parent, str):
        raise ProfileError(f"{where}: extends must be the name of a profile")
    if parent in seen:
        raise ProfileError(f"{where}: extends goes in a circle ({' -> '.join((*seen, parent))})")
    try:
        base = _resolved(_shipped(parent), f"profile {parent}", (*seen, parent))
    except ProfileError as error:
        raise ProfileError(f"{where}: extends: {error}") from error
    return base.merged(profile)
