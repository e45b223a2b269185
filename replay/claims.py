"""What is claimed for one trace: its header, `--profile` and `--config`, laid over each other."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchspec.spec.errors import ProfileError
from batchspec.spec.library import from_data, load_profile
from batchspec.spec.profile import Profile

_LARGEST_FILE = 1 << 20


def load_config(path: str | Path) -> Profile:
    """A profile or config file of the user's: TOML, or JSON where the name ends in `.json`.

    `extends` starts from a shipped profile. Raises `ProfileError` with the file and what to mend.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(raw) > _LARGEST_FILE:
        raise ProfileError(f"{path}: more than {_LARGEST_FILE} bytes, so it is no profile or config file")
    return from_data(_parsed(raw, path), str(path))


def named_profile(name: str) -> Profile:
    """The profile that `--profile` names: a shipped one, or a `.toml` or `.json` file of the user's."""
    return load_config(name) if name.endswith((".toml", ".json")) else load_profile(name)


def claimed(
    header_profile: str | None = None,
    header_config: Mapping[str, Any] | None = None,
    profile: Profile | None = None,
    config: Profile | None = None,
) -> Profile | None:
    """All claims about one trace, later wins: header profile, header config, `profile`, `config`.

    `profile` replaces the header's policies and keeps its limits. Without any claim: None.
    """
    base = Profile()
    if header_profile is not None and (profile is None or _known(header_profile)):
        try:
            base = load_profile(header_profile)
        except ProfileError as error:
            raise ProfileError(f"header: {error}; name another with --profile") from error
    if header_config is not None:
        base = base.merged(from_data(header_config, "header: config"))
    if profile is not None:
        base = replace(profile, limits=profile.merged(Profile(limits=base.limits)).limits)
    if config is not None:
        base = base.merged(config)
    nothing = header_profile is None and not header_config and profile is None and config is None
    return None if nothing else base


def _known(name: str) -> bool:
    try:
        load_profile(name)
    except ProfileError:
        return False
    return True


def _parsed(raw: bytes, path: Path) -> Mapping[str, Any]:
    try:
        text = raw.decode("utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    # A deeply nested file exhausts the parser's stack before anything else is found wrong with it.
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        reason = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ProfileError(f"{path}: not valid {kind} ({reason})") from error
    if not isinstance(data, Mapping):
        raise ProfileError(f"{path}: must be a table of option groups, not a {type(data).__name__}")
    return data
