"""Options that several commands share, each declared once, and what they come to.

`compare` and `sweep` take lists (`fcfs,sjf`) where `simulate` and `record` take one value.
"""

import math
from typing import Annotated, Any, Final

import typer

from batchspec.replay import plugins
from batchspec.replay.claims import load_config, named_profile
from batchspec.replay.report.page import plain
from batchspec.spec.profile import Profile
from batchspec.spec.served import Objectives
from batchspec.traces.reshape import Reshape

Config = Annotated[
    str | None, typer.Option(metavar="FILE", help="Limits and policies on top of it (.toml or .json).")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same trace.")]
Cost = Annotated[
    str | None,
    typer.Option(metavar="FILE|MODULE:NAME", help="A step's time: calibrated, or a function of your own."),
]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Take only the first N requests.")]
Skip = Annotated[int, typer.Option(metavar="N", min=0, help="Leave the first N requests out.")]
FromS = Annotated[
    float | None, typer.Option("--from-s", metavar="S", help="Take requests from S seconds after the first.")
]
ToS = Annotated[
    float | None, typer.Option("--to-s", metavar="S", help="Take requests before S seconds after the first.")
]
Speed = Annotated[float, typer.Option(metavar="X", help="Let requests arrive X times as fast.")]
PromptScale = Annotated[float, typer.Option(metavar="X", help="Make prompts X times as long.")]
OutputScale = Annotated[float, typer.Option(metavar="X", help="Make outputs X times as long.")]
Tenant = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Take only this tenant's requests. May be repeated.")
]
Tenants = Annotated[
    int, typer.Option(metavar="N", min=0, help="Give requests without a tenant one of N, by the seed.")
]
Priorities = Annotated[
    int, typer.Option(metavar="N", min=0, help="Give requests without a priority one of N, by the seed.")
]
Slo = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Goodput under objectives, such as ttft=500ms,tpot=50ms,e2e=20s."),
]

_UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1_000_000_000}


def words(text: str | None) -> list[str]:
    """The words of a list such as `fcfs,sjf`; of None none."""
    return [] if text is None else [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str | None, option: str) -> list[int]:
    """The whole numbers of a list such as `16,64`. Raises a usage error that names the option."""
    found = []
    for word in words(text):
        if not (word.isascii() and word.isdigit() and 1 <= int(word[:12]) < 10**9):
            raise typer.BadParameter(
                f"{option} must be whole numbers of at least 1, such as 16,64, not {plain(word, 40)!r}"
            )
        found.append(int(word))
    return found


def nanoseconds(text: str, option: str) -> int:
    """A duration such as `500ms`, `1.5s` or `2` (seconds) in nanoseconds."""
    digits = text.rstrip("nums")
    unit = text[len(digits) :]
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if unit not in _UNITS or not 0 < value < 1e9:
        raise typer.BadParameter(f"{option} must be a time such as 500ms or 1.5s, not {plain(text, 40)!r}")
    return round(value * _UNITS[unit])


def objectives(text: str | None) -> Objectives | None:
    """Service objectives from `ttft=500ms,tpot=50ms,e2e=20s`, any of them."""
    if text is None:
        return None
    found: dict[str, int] = {}
    for word in words(text):
        name, equals, value = word.partition("=")
        if name not in ("ttft", "tpot", "e2e") or not equals or f"{name}_ns" in found:
            raise typer.BadParameter(
                f"--slo takes each of ttft, tpot and e2e once, as in ttft=500ms,tpot=50ms,"
                f" not {plain(word, 40)!r}"
            )
        found[f"{name}_ns"] = nanoseconds(value, f"--slo {name}")
    if not found:
        raise typer.BadParameter("--slo names no objective; write for example ttft=500ms,tpot=50ms")
    return Objectives(**found)


def reshape(
    *,
    speed: float,
    prompt_scale: float,
    output_scale: float,
    from_s: float | None,
    to_s: float | None,
    skip: int,
    limit: int | None,
    tenant: list[str] | None,
    tenants: int,
    priorities: int,
    seed: int,
) -> Reshape:
    """The knobs on a workload. Raises `TraceError` for values that leave nothing of it."""
    return Reshape(
        speed=speed,
        prompt_scale=prompt_scale,
        output_scale=output_scale,
        from_s=from_s,
        to_s=to_s,
        skip=skip,
        limit=limit,
        keep=tuple(tenant or ()),
        tenants=tenants,
        priorities=priorities,
        seed=seed,
    )


def claims_of(
    profile: str,
    config: str | None = None,
    *,
    mode: str | None = None,
    policy: str | None = None,
    victim: str | None = None,
    preempt: str | None = None,
    **sizes: int | None,
) -> Profile:
    """What a scheduler is to claim: a profile, a config on it, and single options on top of both.

    A policy of the user's own is loaded where it is named as `module:name`. `sizes` are options of
    `limits`. Raises `ProfileError` and `PluginError`.
    """
    given: dict[str, dict[str, Any]] = {
        "batching": {"mode": mode},
        "admission": {"order": None if policy is None else plugins.order_named(policy)},
        "preemption": {
            "mode": preempt,
            "victim": None if victim is None else plugins.victim_named(victim),
        },
        "limits": sizes,
    }
    said = {
        group: {name: value for name, value in table.items() if value is not None}
        for group, table in given.items()
    }
    claims = named_profile(profile)
    if config is not None:
        claims = claims.merged(load_config(config))
    return claims.merged(Profile.from_dict(said, "options"))
