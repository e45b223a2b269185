"""Settings: the claims of a profile as the reference scheduler needs them, defaults filled in.

What a profile leaves out, the scheduler chooses the usual way: continuous batching, chunked and
mixed, first come first served, stop at the first misfit, preemption by recompute of the latest
admitted, back to its place by arrival. Claims that contradict each other are refused with the one to change.
"""

from dataclasses import dataclass
from typing import Final

from batchspec.spec.errors import ProfileError
from batchspec.spec.profile import Profile, parse_need

UNBOUNDED: Final = 1 << 60
_NEEDS: Final = {"step": 0, "known": 1, "ratio": 2, "peak": 2, "full": 3}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every choice made, nothing left open. Sizes without a limit are `UNBOUNDED`."""

    profile: Profile
    mode: str
    max_seqs: int
    budget: int
    prefill_budget: int
    total_blocks: int | None
    block_size: int
    host_blocks: int
    max_model_len: int
    max_waiting: int
    queue_timeout_ns: int
    per_step_cap: bool
    window_ns: int
    preferred_sizes: tuple[int, ...]
    chunked: bool
    mixed: bool
    prefill_first: bool
    stall_free: bool
    lookahead: int
    order: str
    skips: bool
    skip_ahead: int
    test: str
    reserve: str
    watermark: int
    preempts: str
    victim: str
    same_step: bool
    keeps_blocks: bool
    for_waiting: bool
    headroom: int
    slot_lag: int
    block_lag: int | str
    depth: int
    shares: bool
    same_pass: bool
    conserves: bool
    in_order: bool
    patience: int
    starves_for: int
    """Steps for which prompts may keep a decode from running, where prefill goes first."""

    @property
    def predicts(self) -> bool:
        """Whether admission rests on predicted lengths."""
        return self.test in ("ratio", "peak")

    @classmethod
    def of(cls, profile: Profile) -> "Settings":
        """Read a profile. Raises `ProfileError` for claims that no scheduler can keep together."""
        limits, batching, admission = profile.limits, profile.batching, profile.admission
        preemption, reuse = profile.preemption, profile.reuse
        mode = batching.mode or "continuous"
        barrier = mode != "continuous"
        max_seqs = limits.max_seqs or UNBOUNDED
        mixed = batching.mixed is not False
        need = "full" if barrier else "known"
        settings = cls(
            profile=profile,
            mode=mode,
            max_seqs=max_seqs,
            budget=limits.token_budget or UNBOUNDED,
            prefill_budget=limits.prefill_budget or UNBOUNDED,
            total_blocks=limits.kv_blocks,
            block_size=limits.block_size or 1,
            host_blocks=UNBOUNDED if limits.host_blocks is None else limits.host_blocks,
            max_model_len=limits.max_model_len or UNBOUNDED,
            max_waiting=UNBOUNDED if limits.max_waiting is None else limits.max_waiting,
            queue_timeout_ns=UNBOUNDED if limits.queue_timeout_ns is None else limits.queue_timeout_ns,
            per_step_cap=profile.value("limits.seqs_cap") == "per-step",
            window_ns=batching.window_ns or 0,
            preferred_sizes=batching.preferred_sizes or (max_seqs,),
            chunked=batching.chunked_prefill is not False,
            mixed=mixed,
            prefill_first=bool(batching.prefill_first) or not mixed,
            stall_free=bool(batching.stall_free),
            lookahead=batching.lookahead or 0,
            order=admission.order or "fcfs",
            skips=admission.misfit == "skip",
            skip_ahead=UNBOUNDED if admission.skip_ahead is None else admission.skip_ahead,
            test=admission.test or admission.reserve or need,
            reserve=admission.reserve or ("full" if barrier and admission.test is None else "step"),
            watermark=profile.value("admission.watermark_blocks"),
            preempts=preemption.mode or ("none" if barrier else "recompute"),
            victim=preemption.victim or "latest-admitted",
            same_step=bool(preemption.admit_in_same_step or preemption.for_waiting),
            keeps_blocks=profile.value("preemption.keeps_blocks"),
            for_waiting=bool(preemption.for_waiting),
            headroom=profile.value("preemption.headroom_blocks"),
            slot_lag=profile.value("reuse.slot_lag"),
            block_lag=profile.value("reuse.block_lag"),
            depth=profile.value("reuse.depth"),
            shares=bool(reuse.prefix),
            same_pass=bool(reuse.same_pass),
            conserves=bool(admission.work_conserving),
            in_order=profile.fairness.delivery == "arrival",
            patience=profile.value("patience.K"),
            starves_for=(profile.patience.rules or {}).get("liveness/starved-member", 64),
        )
        _refuse_contradictions(settings)
        return settings


def _refuse_contradictions(s: Settings) -> None:
    profile = s.profile
    # A prediction may be as low as what is known, so it does not cover known+k.
    short = s.predicts and parse_need(s.reserve)[1] > 0
    if _weight(s.reserve) > _weight(s.test) or short:
        raise ProfileError(
            f"admission.reserve {s.reserve} takes more than admission.test {s.test} looks for:"
            f" set admission.test to {s.reserve}"
        )
    if s.total_blocks is not None and profile.limits.block_size is None:
        raise ProfileError("limits.kv_blocks needs limits.block_size")
    if s.stall_free and s.prefill_first:
        raise ProfileError("batching.stall_free contradicts prefill first: clear one of the two")
    if s.for_waiting and profile.preemption.admit_in_same_step is False:
        raise ProfileError("preemption.for_waiting needs preemption.admit_in_same_step")
    if s.for_waiting and s.slot_lag:
        raise ProfileError("preemption.for_waiting needs reuse.slot_lag 0: a seat would come back too late")
    if s.for_waiting and s.mode != "continuous":
        raise ProfileError(f"preemption.for_waiting needs batching.mode continuous, not {s.mode}")
    if s.depth > 2:
        raise ProfileError("the reference scheduler keeps at most 2 passes in flight: set reuse.depth to 2")
    if s.depth == 2:
        _refuse_overlap(s)


def _refuse_overlap(s: Settings) -> None:
    reuse = s.profile.reuse
    if s.mode != "continuous":
        raise ProfileError(f"reuse.depth 2 needs batching.mode continuous, not {s.mode}")
    if s.slot_lag < 1:
        raise ProfileError("reuse.depth 2 needs reuse.slot_lag 1: an end is known one step late")
    if not reuse.overlap_member:
        raise ProfileError("reuse.depth 2 needs reuse.overlap_member 1: an end is known one step late")
    if not reuse.ordered_passes:
        raise ProfileError("reuse.depth 2 needs reuse.ordered_passes: blocks are granted again at once")
    if s.preempts == "swap":
        raise ProfileError("reuse.depth 2 needs preemption.mode recompute: a transfer waits for no pass")


def _weight(need: str) -> tuple[int, int]:
    word, extra = parse_need(need)
    return (_NEEDS[word], extra)
