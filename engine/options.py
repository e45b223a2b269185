"""What the scheduler was told to do: a profile, resolved into plain values, or refused.

The engine serves part of what a profile can claim. `Options.of` takes a profile, fills what it leaves
open from the shipped profile `batchspec`, and names the first option that this engine cannot keep.
"""

from dataclasses import dataclass, replace
from typing import Final

from batchspec.engine.errors import EngineError
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile, parse_need

MODES: Final = ("static", "dynamic", "continuous")
ORDERS: Final = ("fcfs", "sjf", "priority", "fair")
VICTIMS: Final = ("latest-admitted", "latest-arrived", "self", "fewest-outputs", "least-urgent")
PREEMPTIONS: Final = ("none", "recompute", "swap")
WINDOW_NS: Final = 50_000_000
"""How long a dynamic batch waits for company where nobody says otherwise."""


def engine_profile(
    mode: str = "continuous",
    order: str = "fcfs",
    preempt: str = "recompute",
    *,
    max_seqs: int = 16,
    token_budget: int = 256,
    kv_blocks: int = 512,
    block_size: int = 16,
    **more: dict[str, object],
) -> Profile:
    """The engine's own profile for a mode, policy and preemption; `more` overlays option groups.

    Without preemption a request holds the blocks of its whole life from the start, since nothing
    could make room for it later.
    """
    need = "full" if preempt == "none" else "known"
    victim = "least-urgent" if order == "priority" else "latest-admitted"
    claims: dict[str, dict[str, object]] = {
        "limits": {
            "max_seqs": max_seqs,
            "token_budget": token_budget,
            "kv_blocks": kv_blocks,
            "block_size": block_size,
        },
        "batching": {"mode": mode},
        "admission": {"order": order, "test": need, "reserve": need},
        "preemption": {"mode": preempt, "victim": victim},
    }
    if mode != "continuous":
        claims["admission"]["work_conserving"] = mode == "static"
    if preempt == "swap":
        claims["limits"]["host_blocks"] = kv_blocks
    if mode == "dynamic":
        claims["batching"]["window_ns"] = WINDOW_NS
    for group, options in more.items():
        claims.setdefault(group, {}).update(options)
    return load_profile("batchspec").merged(Profile.from_dict(claims, "engine profile"))


def completed(claims: Profile) -> Profile:
    """`claims` with what a user may leave out: sizes, a host as large as the pool, a window, needs.

    Without preemption the needs become `full`: nothing could make room later.
    """
    limits = claims.limits
    sizes = {"max_seqs": 16, "token_budget": 256, "kv_blocks": 512, "block_size": 16}
    missing: dict[str, dict[str, object]] = {
        "limits": {name: size for name, size in sizes.items() if getattr(limits, name) is None}
    }
    if claims.preemption.mode == "swap" and limits.host_blocks is None:
        missing["limits"]["host_blocks"] = limits.kv_blocks or sizes["kv_blocks"]
    if claims.preemption.mode == "none":
        missing["admission"] = {"test": "full", "reserve": "full"}
    if claims.batching.mode == "dynamic" and claims.batching.window_ns is None:
        missing["batching"] = {"window_ns": WINDOW_NS}
    return claims.merged(Profile.from_dict(missing, "engine defaults"))


@dataclass(frozen=True, slots=True)
class Options:
    """A profile as plain values. Sizes in requests, tokens, blocks; times in nanoseconds."""

    profile: Profile
    max_seqs: int
    token_budget: int
    kv_blocks: int
    block_size: int
    max_model_len: int | None
    host_blocks: int
    max_waiting: int | None
    mode: str
    window_ns: int
    preferred: tuple[int, ...]
    chunked: bool
    order: str
    urgent_high: bool
    skip: bool
    skip_ahead: int | None
    test: tuple[str, int]
    reserve: tuple[str, int]
    watermark: int
    preemption: str
    victim: str
    resume: str
    admit_after_preempt: bool
    prefix: bool

    @classmethod
    def of(cls, profile: Profile) -> "Options":
        """Resolve `profile`. Raises `EngineError` naming the first option that cannot be kept."""
        profile = load_profile("batchspec").merged(profile)
        limits, batching, admission = profile.limits, profile.batching, profile.admission
        preemption, reuse = profile.preemption, profile.reuse
        for size in ("max_seqs", "token_budget", "kv_blocks", "block_size"):
            if getattr(limits, size) is None:
                raise EngineError(f"limits.{size} must be given: the engine needs its sizes")
        options = cls(
            profile=profile,
            max_seqs=limits.max_seqs or 0,
            token_budget=limits.token_budget or 0,
            kv_blocks=limits.kv_blocks or 0,
            block_size=limits.block_size or 0,
            max_model_len=limits.max_model_len,
            host_blocks=limits.host_blocks or 0,
            max_waiting=limits.max_waiting,
            mode=batching.mode or "continuous",
            window_ns=batching.window_ns or 0,
            preferred=batching.preferred_sizes or (),
            chunked=bool(batching.chunked_prefill),
            order=admission.order or "fcfs",
            urgent_high=admission.urgent == "high",
            skip=admission.misfit == "skip",
            skip_ahead=admission.skip_ahead,
            test=parse_need(admission.test),
            reserve=parse_need(admission.reserve),
            watermark=admission.watermark_blocks or 0,
            preemption=preemption.mode or "none",
            victim=preemption.victim or "latest-admitted",
            resume=preemption.resume or "front",
            admit_after_preempt=bool(preemption.admit_in_same_step),
            prefix=bool(reuse.prefix),
        )
        options._check()
        return options

    def _check(self) -> None:
        profile = self.profile
        refused = {
            "limits.seqs_cap": profile.limits.seqs_cap not in (None, "resident"),
            "limits.prefill_budget": profile.limits.prefill_budget is not None,
            "limits.resources": bool(profile.limits.resources),
            "limits.queue_timeout_ns": profile.limits.queue_timeout_ns is not None,
            "batching.mixed": profile.batching.mixed is False,
            "batching.prefill_first": bool(profile.batching.prefill_first),
            "batching.lookahead": bool(profile.batching.lookahead),
            "admission.test": self.test[0] in ("ratio", "peak"),
            "admission.reserve": self.reserve[0] in ("ratio", "peak"),
            "admission.order": self.order not in ORDERS,
            "preemption.victim": self.victim not in VICTIMS,
            "preemption.keeps_blocks": bool(profile.preemption.keeps_blocks),
            "preemption.for_waiting": bool(profile.preemption.for_waiting),
            "preemption.headroom_blocks": bool(profile.preemption.headroom_blocks),
            "reuse.slot_lag": bool(profile.reuse.slot_lag),
            "reuse.block_lag": bool(profile.reuse.block_lag),
            "reuse.overlap_member": bool(profile.reuse.overlap_member),
            "reuse.depth": (profile.reuse.depth or 1) > 1,
            "reuse.same_pass": bool(profile.reuse.same_pass),
            "fairness.rate_limits": bool(profile.fairness.rate_limits),
            "fairness.delivery": profile.fairness.delivery is not None,
        }
        for option, stands in refused.items():
            if stands:
                value = profile.claim(option)
                raise EngineError(f"{option} = {value!r} is not something this engine does; leave it out")
        if self.token_budget < self.max_seqs:
            raise EngineError(
                f"limits.token_budget {self.token_budget} must be at least limits.max_seqs {self.max_seqs}:"
                " every running request decodes in every step"
            )
        if self.preemption == "none" and (self.test[0] != "full" or self.reserve[0] != "full"):
            raise EngineError('preemption.mode "none" needs admission.test and reserve "full"')
        rank = {"step": 0, "known": 1, "full": 2}
        more = rank[self.reserve[0]] > rank[self.test[0]]
        if more or (self.reserve[1] and (self.reserve[0], self.reserve[1]) > self.test):
            raise EngineError("admission.reserve must not ask for more than admission.test")
        if not self.chunked and self.preemption != "none":  # a full host turns a swap into a recompute
            longest = self.max_model_len
            if longest is None or longest > self.token_budget:
                raise EngineError(
                    "without chunked_prefill a recomputed request is rebuilt in one step:"
                    f" limits.max_model_len must be given and at most {self.token_budget}"
                )

    def resized(self, kv_blocks: int) -> "Options":
        """The same options over another pool."""
        limits = replace(self.profile.limits, kv_blocks=kv_blocks)
        return replace(self, kv_blocks=kv_blocks, profile=replace(self.profile, limits=limits))
