"""transformers continuous batching under test: `batchspec.replay.adapters.transformers:make`.

Profile `transformers`. The real `ContinuousBatchProcessor` with its FIFO scheduler, paged cache, offloading
manager and input tensors, on the CPU, stepped as its own loop steps it. Left out: the model (no forward pass
is run; the tokens are the harness's, handed in where the processor reads those of the device), the manager's
thread and its queues. The asynchronous loop is not driven: it needs device streams.

Decisions are read off where they are made: `count_new_complete_blocks` (a member of the batch),
`search_prefix_match` (a request that joins with cached blocks), `free_blocks` (a preemption, by offloading),
`finish_request`. A sequence's blocks may be exchanged for equal ones when prefixes are shared: then blocks
are only counted. A denied request is preempted by a reset, `cpu_offload_space` being 0. The engine knows no
longest sequence: a prompt that leaves no room in `limits.max_model_len` is refused here. Its
`max_requests_per_batch` counts the members of a batch, not those that hold blocks.
"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any, Final

from batchspec.replay.harness import (
    Capabilities,
    HarnessError,
    Outcome,
    Plan,
    Refused,
    Request,
    Results,
    aborted,
    admit,
    finish,
    preempt,
    resume,
    schedule,
)
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

KNOWN: Final = ("5.24.0",)
_CB: Final = "transformers.generation.continuous_batching"


class Watch:
    """Reads the decisions of a batch processor off where they are made, as rows without step and time."""

    def __init__(self, processor: Any) -> None:
        """From now on. `names` maps the engine's ids, which are texts, to those of the rows."""
        self.rows: list[Event] = []
        self.names: dict[str, RequestId] = {}
        self.shares = bool(processor.cache.use_prefix_sharing)
        self._scheduler = processor.scheduler
        self._cache = processor.cache
        self._joined: set[str] = set()
        self._seen: set[str] = set()
        self._held: dict[str, int] = {}
        self._offloading = False
        self._read_along(processor)

    def counters(self) -> dict[str, int]:
        """The engine's own, in the words of a step row; cached blocks that nobody holds count as free."""
        allocator = self._allocator
        pool = self._cache.pool
        free = pool.num_free_sectors * allocator.blocks_per_sector + pool.count_free_blocks(allocator.index)
        counters = {
            "free_blocks": free + len(allocator.ledger.cached_blocks),
            "waiting": len(self._scheduler.waiting_requests),
            "running": len(self._scheduler.active_requests),
        }
        if self.shares:
            counters["shared_blocks"] = sum(
                count - 1 for count in allocator.ledger.shared_ref_counts.values()
            )
        return counters

    @property
    def _allocator(self) -> Any:
        return next(iter(self._cache.cache_allocators.values()))

    def table(self, name: str) -> list[int]:
        """The blocks that a request holds now."""
        return list(self._allocator.block_table.get(name, ()))

    # -- where decisions are made ------------------------------------------------------------------

    def _read_along(self, processor: Any) -> None:
        scheduler, blocks = self._scheduler, self._cache
        blocks.count_new_complete_blocks = self._around_member(blocks.count_new_complete_blocks)
        blocks.search_prefix_match = self._around_match(blocks.search_prefix_match)
        blocks.free_blocks = self._around_free(blocks.free_blocks)
        scheduler.finish_request = self._around_finish(scheduler.finish_request)
        scheduler.clear_cancelled_requests = self._around_cancel(scheduler.clear_cancelled_requests)
        manager = processor.offloading_manager
        manager.offload_requests = self._around_offload(manager.offload_requests)

    def _join(self, name: str, cached: int) -> None:
        table = self.table(name)
        joins = resume if name in self._seen else admit
        self._joined.add(name)
        self._seen.add(name)
        self._held[name] = len(table)
        ids = None if self.shares else table
        self.rows.append(joins(self.names[name], cached=cached, blocks=len(table), block_ids=ids))

    def _around_member(self, count: Any) -> Any:
        def counted(state: Any, tokens: int) -> Any:
            name = state.request_id
            if name not in self._joined:
                self._join(name, state.position_offset)
            table = self.table(name)
            granted = None if self.shares else table[self._held[name] :]
            self._held[name] = len(table)
            self.rows.append(
                schedule(
                    self.names[name],
                    tokens,
                    start=state.position_offset,
                    blocks=len(table),
                    block_ids=granted,
                )
            )
            return count(state, tokens)

        return counted

    def _around_match(self, search: Any) -> Any:
        def searched(name: str, prompt: list[int]) -> Any:
            found = search(name, prompt)
            if found:
                self._join(name, found)
            return found

        return searched

    def _around_offload(self, offload: Any) -> Any:
        def offloaded() -> Any:
            self._offloading = True
            try:
                return offload()
            finally:
                self._offloading = False

        return offloaded

    def _around_free(self, free: Any) -> Any:
        def freed(name: str, no_cache: bool = False) -> None:
            returned = self.table(name)
            free(name, no_cache)
            if self._offloading and no_cache and name in self._joined:
                self._joined.discard(name)
                self._held.pop(name, None)
                ids = None if self.shares else returned
                self.rows.append(preempt(self.names[name], "recompute", blocks=0, block_ids=ids))

        return freed

    def _around_finish(self, end: Any) -> Any:
        def ended(name: str) -> None:
            state = self._scheduler.active_requests.get(name)
            returned = self.table(name)
            end(name)
            if self._offloading or state is None or name not in self.names:
                return
            stopped = bool(state.generated_tokens) and state.generated_tokens[-1] in state._eos_token_ids
            ids = None if self.shares else returned
            request = self._forget(name)
            outputs = len(state.initial_tokens) + len(state.generated_tokens) - state._true_initial_tokens
            outputs = outputs if state._true_initial_tokens else len(state.generated_tokens)
            self.rows.append(
                finish(request, "stop" if stopped else "length", outputs, blocks=0, block_ids=ids)
            )

        return ended

    def _around_cancel(self, clear: Any) -> Any:
        def cleared() -> Any:
            tables = {name: self.table(name) for name in self._scheduler._requests_to_cancel}
            gone = clear()
            for state in gone:
                name = state.request_id
                ids = None if self.shares else tables.get(name, [])
                self.rows.append(aborted(self._forget(name), "client", blocks=0, block_ids=ids))
            return gone

        return cleared

    def _forget(self, name: str) -> RequestId:
        self._joined.discard(name)
        self._seen.discard(name)
        self._held.pop(name, None)
        return self.names.pop(name)


class Adapter:
    """The continuous batching of transformers behind the protocol of the harness."""

    def __init__(self, profile: Profile) -> None:
        """No requests yet. Raises `HarnessError` for an unknown version, a missing limit or overlap."""
        self._parts = parts()
        if profile.value("reuse.depth") > 1:
            raise HarnessError("the asynchronous loop of transformers needs device streams: reuse.depth is 1")
        self._processor = processor(self._parts, profile)
        self._scheduler = self._processor.scheduler
        self._longest = profile.limits.max_model_len
        self._watch = Watch(self._processor)
        self._names = self._watch.names
        self._batch: list[Any] = []
        self._tokens: list[int] = []
        self._processor.inputs_and_outputs.prepare_batch_update = self._update
        self.capabilities = Capabilities(
            name="transformers continuous batching",
            version=self._parts.version,
            blocks="counts" if self._watch.shares else "ids",
            prefix=self._watch.shares,
        )

    def add(self, request: Request) -> None:
        """A request arrives."""
        name = str(request.id)
        if name in self._names:
            raise Refused("error", f"request {request.id!r} is still live")
        if not request.prompt or request.max_tokens < 1:
            raise Refused("error", "a prompt token and max_new_tokens of at least 1 are needed")
        if self._longest is not None and len(request.prompt) >= self._longest:
            raise Refused(
                "too_long", f"a prompt of {len(request.prompt)} tokens leaves no room for an output"
            )
        self._names[name] = request.id
        self._scheduler.add_waiting_request(
            self._parts.RequestState(
                request_id=name,
                initial_tokens=list(request.prompt),
                max_new_tokens=request.max_tokens,
                eos_token_id=request.stop_token,
            )
        )

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Takes effect when the next batch is prepared."""
        self._scheduler.set_request_cancellation(str(request))
        return ()

    def plan(self) -> Plan:
        """`prepare_next_batch`: cancellations, the batch, whoever is offloaded for it."""
        self._watch.rows, self._batch = [], []
        if self._processor.prepare_next_batch():
            self._batch = list(self._processor.inputs_and_outputs.requests_in_batch)
        return Plan(self._watch.rows, **self._watch.counters())

    def commit(self, results: Results) -> Outcome:
        """`update_batch` with the tokens of the results."""
        self._watch.rows = []
        if self._batch:
            self._tokens = [
                next(iter(results.tokens.get(self._names.get(part.state.request_id, ""), ())), 0)
                for part in self._batch
                if part.has_new_token
            ]
            self._processor.update_batch()
        return Outcome(self._watch.rows, **self._watch.counters())

    def _update(self) -> tuple[list[Any], list[int], None]:
        """In place of the tokens that the device has sampled."""
        return self._batch, self._tokens, None


def make(profile: Profile) -> Adapter:
    """Continuous batching with the limits of the profile."""
    return Adapter(profile)


@cache
def parts() -> SimpleNamespace:
    """The classes of the installed package. Raises `HarnessError` where it is not, or not known."""
    try:
        found = version("transformers")
    except PackageNotFoundError:
        raise HarnessError(
            "transformers is not installed here: scripts/thirdparty transformers makes an environment with it"
        ) from None
    if found not in KNOWN:
        raise HarnessError(f"transformers {found} is not known to this adapter; it knows {', '.join(KNOWN)}")
    try:
        api = import_module(f"{_CB}.continuous_api")
        import torch
        from transformers import GenerationConfig, LlamaConfig, LogitsProcessorList
        from transformers.generation.configuration_utils import ContinuousBatchingConfig
    except ImportError as error:
        raise HarnessError(f"transformers does not import here: {error}") from error
    return SimpleNamespace(
        version=found,
        torch=torch,
        api=api,
        Cache=import_module(f"{_CB}.cache").PagedAttentionCache,
        Helper=import_module(f"{_CB}.distributed").DistributedHelper,
        Logits=import_module(f"{_CB}.cb_logits_processors").ContinuousBatchingLogitsProcessorList,
        Scheduler=import_module(f"{_CB}.scheduler").FIFOScheduler,
        RequestState=import_module(f"{_CB}.requests").RequestState,
        Processors=LogitsProcessorList,
        GenerationConfig=GenerationConfig,
        LlamaConfig=LlamaConfig,
        Config=ContinuousBatchingConfig,
    )


def processor(parts: SimpleNamespace, profile: Profile) -> Any:
    """The batch processor under these limits."""
    limits = profile.limits
    for name in ("max_seqs", "token_budget", "kv_blocks", "block_size"):
        if getattr(limits, name) is None:
            raise HarnessError(f"transformers continuous batching needs limits.{name}")
    torch = parts.torch
    model = parts.LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_hidden_layers=1,
        vocab_size=32_000,
    )
    model._attn_implementation = "paged|sdpa"
    try:
        config = parts.Config(
            page_size=limits.block_size,
            num_blocks=limits.kv_blocks,
            max_batch_tokens=limits.token_budget,
            max_memory_percent=0.9,
            max_requests_per_batch=limits.max_seqs,
            allow_block_sharing=bool(profile.reuse.prefix),
            use_async_batching=False,
            use_cuda_graph=False,
            max_blocks_per_request=0,
            cpu_offload_space=0.0,
        )
        helper = parts.Helper(None, None)
        cached = parts.Cache(model, config, torch.device("cpu"), helper, torch.float32)
    except (TypeError, ValueError) as error:
        raise HarnessError(
            f"transformers does not take these limits: {' '.join(str(error).split())}"
        ) from error
    if cached.num_blocks != limits.kv_blocks:
        raise HarnessError(f"transformers makes a pool of {cached.num_blocks} blocks for {limits.kv_blocks}")
    generation = parts.GenerationConfig(do_sample=False)
    return parts.api.ContinuousBatchProcessor(
        cache=cached,
        config=model,
        generation_config=generation,
        continuous_batching_config=config,
        logit_processor=parts.Logits(parts.Processors()),
        input_queue=None,
        cancel_queue=None,
        output_router=parts.api.OutputRouter(),
        background_thread_status=parts.api.BackgroundThreadStatus(),
        model_device=torch.device("cpu"),
        model_dtype=torch.float32,
        scheduler=parts.Scheduler(cached, config.safety_margin, limits.max_seqs),
        distributed_helper=helper,
    )
