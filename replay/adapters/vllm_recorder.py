"""vLLM recorded in production: a scheduler class to name on the command line.

    vllm serve MODEL --scheduler-cls batchspec.replay.adapters.vllm_recorder.RecordingAsyncScheduler
    vllm serve MODEL --scheduler-cls batchspec.replay.adapters.vllm_recorder.RecordingScheduler

The first is vLLM's `AsyncScheduler`, the second its `Scheduler`, with which vLLM plans step by step. Neither
decides anything of its own. What they tell (`vllm_notes`) is kept as a tuple a member in the scheduling
thread and written by another thread (`recording`, which also lists the settings). The trace has block ids
(L3) where one table of blocks says where a request's KV is; with several KV groups or a KV connector it has
none (L1), and says so in the log.

Claims: the profile that fits the policy and the scheduler, with the limits of the deployment. Left
unclaimed is what a feature in use overrules: LoRA, encoders and paced prefills admit past others.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from batchspec.replay.adapters.recording import BackgroundWriter, Settings, folder_of, log
from batchspec.replay.adapters.vllm_book import Book
from batchspec.replay.adapters.vllm_notes import Counters, Decisions, Left, checked, noting, runs_ahead
from batchspec.replay.harness import HarnessError
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header


class Desk:
    """Where the notes of a scheduler go: one tuple each, in the scheduling thread. See `vllm_notes.Sink`."""

    def __init__(self, writer: BackgroundWriter, scheduler: Any) -> None:
        """`scheduler` is asked what is live when a part is due."""
        self._writer = writer
        self._note = writer.note
        self._scheduler = scheduler

    def arrived(self, step: int, now: int, request: Any, parked: str | None) -> None:
        """A request arrived."""
        self._note(("arrived", step, now, request, parked))

    def cancelled(self, step: int, now: int, request: Any) -> None:
        """Its client asked for its end."""
        self._note(("cancelled", step, now, request))

    def preempted(self, step: int, now: int, left: Left) -> None:
        """A preemption outside of an iteration."""
        self._note(("preempted", step, now, left))

    def planned(self, step: int, now: int, decisions: Decisions) -> None:
        """The decisions of an iteration."""
        self._note(("planned", step, now, decisions))

    def emitted(self, step: int, now: int, pass_: int, outputs: list[Any]) -> None:
        """The outputs of a pass."""
        self._note(("emitted", step, now, pass_, outputs))

    def ended(
        self,
        step: int,
        now: int,
        pass_: int | None,
        request: Any,
        reason: str,
        block_ids: Sequence[int] | None,
    ) -> None:
        """A request ended."""
        self._note(("ended", step, now, pass_, request, reason, block_ids))

    def kept(self, step: int, now: int, request: Any, held: int) -> None:
        """And holds blocks still."""
        self._note(("kept", step, now, request, held))

    def released(self, step: int, now: int, request: Any, block_ids: Sequence[int] | None) -> None:
        """Blocks that came back later."""
        self._note(("released", step, now, request, block_ids))

    def stepped(self, step: int, now: int, counters: Counters) -> None:
        """The end of an iteration; a part may begin behind it."""
        self._note(("stepped", step, now, counters))
        if self._writer.wanted:
            self._writer.wanted = False
            self._note(("live", step + 1, now, self._scheduler.live_requests()))


def claims(scheduler: Any) -> Profile:
    """What a scheduler of this configuration promises, with its sizes."""
    config = scheduler.scheduler_config
    urgent = str(config.policy) == "priority"
    base = load_profile("vllm-v1-async" if runs_ahead(scheduler) else "vllm-v1")
    if urgent:
        more = load_profile("vllm-v1-priority")
        base = replace(base, name="vllm-v1-priority", admission=more.admission, preemption=more.preemption)
    limits: dict[str, Any] = {
        "max_seqs": scheduler.max_num_running_reqs,
        "token_budget": scheduler.max_num_scheduled_tokens,
        "max_model_len": scheduler.max_model_len,
    }
    admission: dict[str, Any] = {}
    blocks = scheduler.kv_cache_config.num_blocks
    if scheduler.shows_ids:
        # The null block is never handed out.
        limits |= {"kv_blocks": blocks - 1, "block_size": scheduler.block_size}
        admission["test"] = "known" if getattr(config, "scheduler_reserve_full_isl", False) else "step"
        admission["watermark_blocks"] = int(getattr(config, "watermark", 0.0) * blocks)
    cached = bool(scheduler.cache_config.enable_prefix_caching)
    said = {
        "limits": limits,
        "admission": admission,
        "batching": {
            "chunked_prefill": bool(config.enable_chunked_prefill),
            "lookahead": scheduler.num_lookahead_tokens,
        },
        "reuse": {"prefix": cached, "same_pass": cached},
    }
    return _unclaimed(scheduler, base.merged(Profile.from_dict(said, "vLLM")))


def _unclaimed(scheduler: Any, profile: Profile) -> Profile:
    """Without the claims that a feature in use overrules."""
    config = scheduler.vllm_config
    paced = getattr(scheduler.scheduler_config, "prefill_schedule_interval", 1) > 1
    skips = config.lora_config is not None or scheduler.connector is not None or paced
    if not skips and not config.model_config.is_multimodal_model:
        return profile
    left = replace(profile.admission, order=None, misfit=None, work_conserving=None)
    return replace(profile, admission=left, preemption=replace(profile.preemption, resume=None))


def header_of(scheduler: Any, version: str) -> Header:
    """The header of a deployment's trace."""
    profile = claims(scheduler)
    return Header(
        producer_name="vLLM",
        producer_version=version,
        clock="monotonic",
        profile=profile.name,
        config={
            key: value
            for key, value in profile.to_dict().items()
            if key not in ("name", "summary", "sources")
        },
        outputs="recorded" if scheduler.records_outputs else "derived",
    )


def recording(base: type) -> type:
    """`base`, a scheduler class of vLLM, that records itself under the settings of the environment."""
    version = checked()
    notes: Any = noting(base)

    class Recording(notes):  # type: ignore[misc]
        """vLLM's scheduler, recorded."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.recording: BackgroundWriter | None = None
            self._record(version)

        def _record(self, version: str) -> None:
            settings = Settings.of(os.environ)
            folder = folder_of(settings, "vllm")
            book = Book(self.block_size, settings.names)
            try:
                self.recording = BackgroundWriter(folder, header_of(self, version), book, settings.keep)
            except Exception as error:
                log.error("not recording: %s; the server goes on", error)
                return
            if not self.shows_ids:
                log.warning("several KV groups or a KV connector: the trace holds no blocks (L1)")
            log.warning("recording into %s", folder)
            self.tell(Desk(self.recording, self))

        def shutdown(self) -> None:
            super().shutdown()
            if self.recording is not None:
                self.recording.close(complete=not self.requests)

    Recording.__name__ = Recording.__qualname__ = f"Recording{base.__name__}"
    Recording.__module__ = __name__
    return Recording


@cache
def _class(name: str) -> type:
    try:
        if name == "RecordingAsyncScheduler":
            from vllm.v1.core.sched.async_scheduler import AsyncScheduler

            return recording(AsyncScheduler)
        from vllm.v1.core.sched.scheduler import Scheduler

        return recording(Scheduler)
    except ImportError as error:
        raise HarnessError(f"vLLM does not import here: {error}") from error


def __getattr__(name: str) -> Any:
    """`RecordingScheduler` and `RecordingAsyncScheduler`, made when they are asked for: vLLM is large."""
    if name in ("RecordingScheduler", "RecordingAsyncScheduler"):
        return _class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
