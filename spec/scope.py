"""The scope of exploration: which claims the space has a model of, and which it needs.

One device pass a step, whole requests, no shared blocks, and sizes that are all known.
"""

from typing import Final

from batchspec.spec.errors import ProfileError
from batchspec.spec.profile import Profile

_MODELLED: Final = {
    "batching.mode": ("static", "continuous"),
    "batching.mixed": (True,),
    "batching.prefill_first": (False,),
    "batching.lookahead": (0,),
    "limits.seqs_cap": ("resident",),
    "preemption.keeps_blocks": (False,),
    "preemption.headroom_blocks": (0,),
    "reuse.slot_lag": (0,),
    "reuse.block_lag": (0,),
    "reuse.depth": (1,),
    "reuse.overlap_member": (0,),
    "reuse.prefix": (False,),
}


def refuse_unmodelled(profile: Profile) -> None:
    """Raises `ProfileError` for a claim without a model, or a missing one that decides what is allowed."""
    for option, values in _MODELLED.items():
        claim = profile.claim(option)
        if claim is not None and claim not in values:
            raise ProfileError(f"explore has no model of {option} = {claim}; leave it out or set {values[0]}")
    for option in ("max_seqs", "token_budget", "kv_blocks", "block_size"):
        if getattr(profile.limits, option) is None:
            raise ProfileError(f"explore needs limits.{option}: every size must be known")
    needed = ["admission.order", "admission.test", "preemption.mode"]
    if profile.preemption.mode != "none":
        needed += ["preemption.victim", "preemption.resume"]
    for option in needed:
        if profile.claim(option) is None:
            raise ProfileError(
                f"explore needs a claim for {option}: without one nobody can say what is allowed"
            )
    for need in (profile.admission.test, profile.admission.reserve):
        if need in ("ratio", "peak"):
            raise ProfileError(f"explore has no predictions, which {need} needs; use step, known or full")
    if profile.preemption.victim == "newest-denied":
        raise ProfileError("explore has no model of preemption.victim = newest-denied")
