"""Which limits the suite tries: small ones, where every corner is a few steps away.

A limit that the profile claims stays as it is. A factory that can have only some sizes says so in an
attribute `limits`, a table of `limits` options and the values to choose from; none for a limit that it
does not have.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from batchspec.replay.conform.case import longest
from batchspec.replay.harness import Factory
from batchspec.spec.profile import Profile


class Draw(Protocol):
    """Where the suite's choices come from: Hypothesis, or one fixed middle of the road."""

    def among(self, values: Sequence[Any]) -> Any:
        """One of the values; the first is the plainest."""

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included; `low` is the plainest."""


class Plain:
    """The plainest choice everywhere."""

    def among(self, values: Sequence[Any]) -> Any:
        """The first."""
        return values[0]

    def between(self, low: int, high: int) -> int:
        """The lowest."""
        return low


class Middle:
    """Sizes from the middle: room for some, not for all."""

    def among(self, values: Sequence[Any]) -> Any:
        """The first."""
        return values[0]

    def between(self, low: int, high: int) -> int:
        """Nearer to the low end than to the high one."""
        return low + (high - low) // 3


def sized(draw: Draw, claims: Profile, factory: Factory) -> Profile:
    """`claims` with every limit that a run needs."""
    allowed: Mapping[str, Sequence[int]] = getattr(factory, "limits", {})
    limits: dict[str, Any] = {}

    def limit(name: str, pick: Any) -> int:
        claimed = getattr(claims.limits, name)
        if claimed is not None:
            return int(claimed)
        value = draw.among(list(allowed[name])) if allowed.get(name) else pick()
        if allowed.get(name) or name not in allowed:
            limits[name] = value
        return int(value)

    block = limit("block_size", lambda: draw.among((4, 4, 2, 8, 1, 16)))
    seats = limit("max_seqs", lambda: draw.among((3, 2, 4, 1, 5, 6, 8)))
    blocks = limit("kv_blocks", lambda: _blocks(draw, block))
    # Who does not claim to cut prompts may have to compute them whole.
    whole = not claims.batching.chunked_prefill
    limit("token_budget", lambda: _budget(draw, seats, whole, block * blocks))
    made = claims.merged(Profile.from_dict({"limits": limits}, "conform"))
    limit("max_model_len", lambda: max(2, longest(made)))
    if claims.preemption.mode == "swap":
        limit("host_blocks", lambda: draw.among((blocks, blocks, blocks // 2, 0)))
    more: dict[str, Any] = {"limits": limits}
    if claims.batching.mode == "dynamic" and claims.batching.window_ns is None:
        more["batching"] = {"window_ns": draw.among((30, 0, 10, 70))}
    return claims.merged(Profile.from_dict(more, "conform"))


def _blocks(draw: Draw, block: int) -> int:
    """A pool of a few blocks: room for one or two requests, sometimes for all."""
    least = max(2, -(-12 // block))
    most = max(least + 2, -(-64 // block))
    if draw.among((False, False, False, True)):
        return most * 3
    return draw.between(least, most)


def _budget(draw: Draw, seats: int, whole: bool, pool: int) -> int:
    """Tokens of a step: never fewer than seats, so that everybody who runs can decode."""
    if whole:
        return max(seats, int(draw.among((32, 24, 48, 64))))
    return seats + int(draw.among((5, 1, 0, 2, 3, 8, 16, pool)))
