"""The domain: which traces and claims the kernel can judge, and the claims as numbers.

What lies outside is judged by the readable checker, whole. Each limit here is one of the kernel's, not
of the spec: the reason given is for tests and benchmarks, so that the share of fast traces is known.
"""

from typing import Any, Final

import numpy as np

from batchspec.replay.checker import Walk
from batchspec.replay.fast import layout
from batchspec.spec.actions import only_mode
from batchspec.spec.model import State
from batchspec.spec.profile import Profile, parse_need

NEEDED: Final = ("request", "prompt_tokens", "start", "tokens")
"""Columns without which hardly anything is known of any request."""

_UNREAD: Final = ("block_ids", "block_hashes", "pass")
_WORDS: Final = {
    "step": layout.NEED_STEP,
    "known": layout.NEED_KNOWN,
    "full": layout.NEED_FULL,
    "ratio": layout.NEED_PREDICTED,
    "peak": layout.NEED_PREDICTED,
}


def outside(walk: Walk) -> str | None:
    """Why the kernel cannot judge the trace behind this walk, or None where it can."""
    profile, state = walk.profile, walk.state
    for rule in walk.rules:
        if rule not in layout.RULES:
            return f"rule {rule}"
    for kind in sorted(walk.kinds):
        if kind not in layout.KINDS:
            return f"kind {kind}"
    for column in NEEDED:
        if column not in walk.columns:
            return f"no column {column}"
    for column in _UNREAD:
        if column in walk.columns:
            return f"column {column}"
    return _claims(profile, state)


def _claims(profile: Profile, state: State) -> str | None:
    claims = (
        ("overlap", state.overlaps),
        ("block lag", state.block_lag != 0),
        ("a barrier", state.barrier),
        ("blocks kept", state.keeps_blocks),
        ("shared blocks", state.shares),
        ("an order beyond fcfs", profile.admission.order not in (None, "fcfs")),
        ("a look past misfits", profile.admission.misfit == "skip" and bool(profile.admission.skip_ahead)),
        ("an unknown test", profile.admission.test in ("ratio", "peak")),
        ("a place of return", profile.preemption.resume not in (None, "front")),
        ("eviction for who waits", bool(profile.preemption.for_waiting)),
        ("a victim", profile.preemption.victim not in (None, *layout.VICTIMS)),
        ("separate phases", profile.batching.mixed is False),
        ("a prefill budget", profile.limits.prefill_budget is not None),
        ("a wall bound", profile.patience.wall_ns is not None),
        ("a state at the beginning", state.began_running),
        ("a number beyond 31 bits", _largest(profile) >= 1 << 31),
    )
    return next((why for why, true in claims if true), None)


def _largest(profile: Profile) -> int:
    """The largest number claimed: products of two must fit 64 bits."""
    limits, needs = profile.limits, (profile.admission.test, profile.admission.reserve)
    sizes = (limits.kv_blocks, limits.block_size, limits.max_seqs, limits.token_budget, limits.max_model_len)
    more = (parse_need(need)[1] for need in needs if need is not None)
    others = (
        profile.batching.lookahead,
        profile.value("admission.watermark_blocks"),
        profile.value("preemption.headroom_blocks"),
        profile.value("patience.K"),
        *(profile.patience.rules or {}).values(),
    )
    return max(value or 0 for value in (*sizes, *more, *others))


def numbers(walk: Walk) -> tuple[Any, Any]:
    """The claims `K` and the rules that are judged `A`, as layout.py numbers them."""
    profile, state = walk.profile, walk.state
    claims = np.zeros(layout.K_WIDTH, np.int64)
    limits = profile.limits
    for place, value in (
        (layout.TOTAL, limits.kv_blocks),
        (layout.SIZE, limits.block_size),
        (layout.SEATS, limits.max_seqs),
        (layout.BUDGET, limits.token_budget),
        (layout.LONGEST, limits.max_model_len),
    ):
        claims[place] = layout.NIL if value is None else value
    for place, need in (
        (layout.TEST, profile.admission.test),
        (layout.RESERVE, profile.admission.reserve),
    ):
        word, more = ("", 0) if need is None else parse_need(need)
        claims[place] = _WORDS.get(word, layout.NEED_NONE)
        claims[place + 1] = more
    claims[layout.PER_STEP] = profile.value("limits.seqs_cap") == "per-step"
    claims[layout.CHUNKED] = bool(profile.batching.chunked_prefill)
    claims[layout.CHUNKED_UNSAID] = profile.batching.chunked_prefill is None
    claims[layout.ORDERED] = profile.admission.order is not None
    claims[layout.LOOKAHEAD] = profile.batching.lookahead or 0
    claims[layout.WATERMARK] = profile.value("admission.watermark_blocks")
    claims[layout.HEADROOM] = profile.value("preemption.headroom_blocks")
    claims[layout.VICTIM] = layout.VICTIMS.get(profile.preemption.victim or "", 0)
    claims[layout.FRONT] = profile.preemption.resume == "front"
    claims[layout.SAME_STEP] = bool(profile.preemption.admit_in_same_step)
    claims[layout.RECOMPUTES] = only_mode(profile) == "recompute"
    claims[layout.NO_PREFIX] = profile.reuse.prefix is False
    claims[layout.CLOCK] = state.clock_runs
    claims[layout.HAS_BLOCKS] = state.has_blocks
    claims[layout.PINS] = "pinned_blocks" in walk.columns
    for place, rule in (
        (layout.IDLE_K, "liveness/idle-stall"),
        (layout.STARVED_K, "liveness/starved-member"),
        (layout.NEEDLESS_K, "admission/needless-wait"),
        (layout.THRASH_K, "preemption/thrash"),
        (layout.LIVELOCK_K, "liveness/livelock"),
    ):
        claims[place] = profile.patience_of(rule)
    judged = np.zeros(layout.A_WIDTH, np.bool_)
    for rule in walk.rules:
        judged[layout.RULES[rule]] = True
    return claims, judged
