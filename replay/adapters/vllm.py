"""vLLM V1 under test: `batchspec.replay.adapters.vllm:make`, profiles `vllm-v1`, `-async`, `-priority`.

The real `Scheduler` (with `reuse.depth` 2 the `AsyncScheduler`), KV cache manager and block pool of the
installed package, configured by the real config classes; its decisions are read by `vllm_notes`. Left out:
the model, the engine core's loop (the harness calls in its order) and the front end, of which only its
refusals are kept: an empty prompt, one that leaves no room for an output in the model's length, a live id.
`max_tokens` below 1 is refused by the real `SamplingParams`.

Without `limits.max_model_len` a sequence may fill the pool: an engine starts only if one sequence of that
length fits. What the profile claims is configured: `batching.chunked_prefill`, `admission.order`, `.test`
(`known`: the whole sequence must fit), `.watermark_blocks`, `reuse.prefix`, `reuse.depth`.
"""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from batchspec.replay.adapters.vllm_notes import Counters, Decisions, Left, checked, noting
from batchspec.replay.adapters.vllm_rows import Rows
from batchspec.replay.harness import (
    Capabilities,
    HarnessError,
    Outcome,
    Plan,
    Refused,
    Request,
    Results,
    output,
    release,
)
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

_SETTINGS: Final = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "HF_HUB_OFFLINE": "1",
}
_MODEL: Final = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 64,
    "ffn_dim": 64,
    "num_attention_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 32_000,
    "word_embed_proj_dim": 64,
    "torch_dtype": "float16",
}
_LENGTH: Final = 1 << 20
"""Positions of the model that is never run; a run's own length is `max_model_len`."""


class Adapter:
    """vLLM's scheduler behind the protocol of the harness."""

    def __init__(self, profile: Profile, chunk: int = 0) -> None:
        """A scheduler without requests. Raises `HarnessError` for what vLLM cannot be, or is unknown here.

        `chunk` is vLLM's `long_prefill_token_threshold`: the most prompt tokens of a request in a step.
        """
        release_name = checked()
        self._vllm = parts()
        self._scheduler, self._hasher, self._length = built(self._vllm, profile, chunk)
        self._scheduler.tell(self)
        self._names: dict[str, RequestId] = {}
        self._rows: list[Event] = []
        self._made = Rows()
        self._plans: list[tuple[Plan, Any]] = []
        self._counters: Counters | None = None
        self._arrivals = 0
        depth = profile.value("reuse.depth")
        self.capabilities = Capabilities(
            name="vLLM",
            version=release_name,
            blocks="ids",
            depth=depth,
            outputs="recorded" if depth > 1 else "derived",
            priority=profile.admission.order == "priority",
            prefix=bool(profile.reuse.prefix),
        )

    def add(self, request: Request) -> None:
        """A request arrives."""
        name = str(request.id)
        if name in self._names:
            raise Refused("error", f"request {request.id!r} is still live")
        if not request.prompt:
            raise Refused("error", "the prompt is empty")
        if len(request.prompt) >= self._length:
            raise Refused(
                "too_long", f"a prompt of {len(request.prompt)} tokens leaves no room for an output"
            )
        try:
            params = self._vllm.SamplingParams(
                max_tokens=request.max_tokens, stop_token_ids=[request.stop_token], ignore_eos=True
            )
            params.update_from_generation_config({}, None)
        except Exception as error:  # its validation errors have had several bases
            raise Refused("error", str(error)) from None
        self._arrivals += 1
        made = self._vllm.Request(
            request_id=name,
            prompt_token_ids=list(request.prompt),
            sampling_params=params,
            pooling_params=None,
            arrival_time=float(self._arrivals),
            priority=request.priority,
            block_hasher=self._hasher,
            **self._vllm.more,
        )
        self._names[name] = request.id
        self._scheduler.add_request(made)

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Takes effect at once."""
        self._rows = []
        self._scheduler.finish_requests(str(request), self._vllm.Status.FINISHED_ABORTED)
        return self._rows

    def plan(self) -> Plan:
        """One `schedule` call."""
        self._rows = []
        out = self._scheduler.schedule()
        plan = Plan(self._rows)
        members = {str(row.subject): row.tokens for row in plan.members}
        if members != out.num_scheduled_tokens:
            raise HarnessError(f"vLLM planned {out.num_scheduled_tokens}, but the notes say {members}")
        self._plans.append((plan, out))
        return plan

    def commit(self, results: Results) -> Outcome:
        """One `update_from_output` call."""
        out = next(out for plan, out in self._plans if plan is results.plan)
        self._plans = [pair for pair in self._plans if pair[1] is not out]
        names = list(out.num_scheduled_tokens)
        told = self._vllm.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[list(results.tokens.get(self._names.get(name, name), ())) for name in names],
            **self._vllm.no_logprobs,
        )
        self._rows = []
        self._scheduler.update_from_output(out, told)
        counters = self._counters
        if counters is None:
            raise HarnessError("vLLM's scheduler told no end of its step")
        return Outcome(self._rows, counters.free_blocks, counters.waiting, counters.running)

    # -- what the scheduler tells (vllm_notes.Sink) ------------------------------------------------

    def arrived(self, step: int, now: int, request: Any, parked: str | None) -> None:
        """The harness writes arrivals itself."""

    def cancelled(self, step: int, now: int, request: Any) -> None:
        """And cancels."""

    def preempted(self, step: int, now: int, left: Left) -> None:
        """Nothing here resets the cache."""
        self._rows.append(self._named(self._made.preempted(left)))

    def planned(self, step: int, now: int, decisions: Decisions) -> None:
        """The decisions of a step."""
        self._rows += map(self._named, self._made.decided(decisions))

    def emitted(self, step: int, now: int, pass_: int, outputs: list[Any]) -> None:
        """The outputs of a pass."""
        for told in outputs:
            if told.new_token_ids:
                self._rows.append(output(self._names[told.request_id], len(told.new_token_ids)))

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
        row = self._named(self._made.ended(request, reason, block_ids))
        del self._names[request.request_id]
        self._rows.append(row)

    def kept(self, step: int, now: int, request: Any, held: int) -> None:
        """Only with a KV connector, which is not set up here."""
        self._rows[-1] = self._rows[-1]._replace(blocks=held)

    def released(self, step: int, now: int, request: Any, block_ids: Sequence[int] | None) -> None:
        """The same."""
        self._rows.append(release(request.request_id, block_ids=block_ids))

    def stepped(self, step: int, now: int, counters: Counters) -> None:
        """The end of a step."""
        self._counters = counters

    def _named(self, row: Event) -> Event:
        """With the harness's ids in place of vLLM's, which are texts."""
        cause = None if row.cause is None else self._names.get(str(row.cause), row.cause)
        return row._replace(request=self._names.get(str(row.request), row.request), cause=cause)


def make(profile: Profile) -> Adapter:
    """vLLM's scheduler with the limits and policies of the profile."""
    return Adapter(profile)


def make_chunked(profile: Profile) -> Adapter:
    """The same with prompts in chunks of at most two blocks: `long_prefill_token_threshold`."""
    return Adapter(profile, 2 * (profile.limits.block_size or 1))


@cache
def parts() -> SimpleNamespace:
    """The classes of the installed package. Its environment is set first: it reads it while it loads."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import torch
        from vllm import SamplingParams
        from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request as VllmRequest
        from vllm.v1.request import RequestStatus
        from vllm.v1.structured_output import StructuredOutputManager
    except ImportError as error:
        raise HarnessError(f"vLLM does not import here: {error}") from error
    init_none_hash(sha256)
    old = "eos_token_id" in VllmRequest.__init__.__code__.co_varnames
    return SimpleNamespace(
        torch=torch,
        SamplingParams=SamplingParams,
        CacheConfig=CacheConfig,
        DeviceConfig=DeviceConfig,
        ModelConfig=ModelConfig,
        SchedulerConfig=SchedulerConfig,
        VllmConfig=VllmConfig,
        hasher=lambda size: get_request_block_hasher(size, sha256),
        Scheduler=noting(Scheduler),
        AsyncScheduler=noting(AsyncScheduler),
        FullAttentionSpec=FullAttentionSpec,
        KVCacheConfig=KVCacheConfig,
        KVCacheGroupSpec=KVCacheGroupSpec,
        ModelRunnerOutput=ModelRunnerOutput,
        Request=VllmRequest,
        Status=RequestStatus,
        StructuredOutputManager=StructuredOutputManager,
        more={"eos_token_id": None} if old else {},
        no_logprobs={"logprobs": None, "prompt_logprobs_dict": {}, "pooler_output": []},
        model=_model(),
    )


def _model() -> str:
    """A folder with the configuration of a model that is never built."""
    folder = tempfile.mkdtemp(prefix="batchspec-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config = {**_MODEL, "max_position_embeddings": _LENGTH}
    Path(folder, "config.json").write_text(json.dumps(config))
    return folder


def built(
    vllm: SimpleNamespace, profile: Profile, chunk: int = 0, kind: type | None = None
) -> tuple[Any, Any, int]:
    """A scheduler under these claims, its hash function, and the longest sequence.

    `kind` is its class; None: one that tells what it does.
    """
    limits, test = profile.limits, profile.admission.test
    for name in ("max_seqs", "token_budget", "kv_blocks", "block_size"):
        if getattr(limits, name) is None:
            raise HarnessError(f"vLLM needs limits.{name}")
    seats, budget = limits.max_seqs or 1, limits.token_budget or 1
    blocks, size = limits.kv_blocks or 1, limits.block_size or 1
    length = limits.max_model_len or blocks * size
    depth = profile.value("reuse.depth")
    if depth not in (1, 2):
        raise HarnessError(f"vLLM plans one or two passes ahead, not reuse.depth {depth}")
    if length > (blocks + 1) * size:
        raise HarnessError(f"vLLM does not start: limits.max_model_len {length} does not fit the pool")
    order, whole = profile.admission.order or "fcfs", profile.batching.chunked_prefill is False
    if order not in ("fcfs", "priority"):
        raise HarnessError(f"vLLM knows the orders fcfs and priority, not {order}")
    known = vllm.SchedulerConfig.__dataclass_fields__
    options: dict[str, Any] = {"async_scheduling": depth == 2, "is_encoder_decoder": False, "policy": order}
    if "scheduler_reserve_full_isl" in known:
        options["scheduler_reserve_full_isl"] = test != "step"
    elif test not in (None, "step"):
        raise HarnessError(f"this vLLM admits on the blocks of the step, not on admission.test {test}")
    if watermark := profile.value("admission.watermark_blocks"):
        if "watermark" not in known:
            raise HarnessError("this vLLM keeps no blocks free: admission.watermark_blocks is 0")
        options["watermark"] = (watermark + 0.5) / (blocks + 1)
    try:
        model = vllm.ModelConfig(
            model=vllm.model, skip_tokenizer_init=True, dtype="float16", max_model_len=length
        )
        scheduler = vllm.SchedulerConfig(
            max_num_seqs=seats,
            max_num_batched_tokens=budget,
            max_model_len=length,
            enable_chunked_prefill=not whole,
            long_prefill_token_threshold=chunk,
            **options,
        )
        cached = bool(profile.reuse.prefix)
        cache_config = vllm.CacheConfig(block_size=size, enable_prefix_caching=cached)
        config = vllm.VllmConfig(
            model_config=model,
            cache_config=cache_config,
            scheduler_config=scheduler,
            device_config=vllm.DeviceConfig(device="cpu"),
        )
    except ValueError as error:
        raise HarnessError(f"vLLM does not take these limits: {_first(error)}") from error
    # The null block is one of vLLM's blocks, and never handed out.
    cache_config.num_gpu_blocks = blocks + 1
    cache_config.block_size = size
    spec = vllm.FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=vllm.torch.float16)
    kv_config = vllm.KVCacheConfig(
        num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[vllm.KVCacheGroupSpec(["layer"], spec)]
    )
    kind = kind or (vllm.AsyncScheduler if depth == 2 else vllm.Scheduler)
    made = kind(
        vllm_config=config,
        kv_cache_config=kv_config,
        structured_output_manager=vllm.StructuredOutputManager(config),
        block_size=size,
    )
    return made, vllm.hasher(size) if cached else None, length


def _first(error: Exception) -> str:
    """What pydantic says in many lines, in one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300]
