"""Vidur's replica schedulers under test: `batchspec.replay.adapters.vidur:make_vllm` (profile `vllm-v0`),
`:make_sarathi` (profile `sarathi`), `:make_orca` (profile `orca`).

The real classes of the installed package. Replaced: the memory planner, which reads model figures from a
hub (its answer only bounds the batch, which the limits do), and the execution time predictor, which is
never asked. A simulated request knows its length; here it learns it when the stop token comes.

What Vidur calls preempted requests are those that stay resident between two batches.
"""

from collections.abc import Callable, Iterable
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
    admit,
    finish,
    preempt,
    resume,
    schedule,
)
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

KNOWN: Final = ("0.0.26",)
_SCHEDULERS: Final = {
    "vllm": "VLLMReplicaScheduler",
    "sarathi": "SarathiReplicaScheduler",
    "orca": "OrcaReplicaScheduler",
}

_ONE_TICK: Final = SimpleNamespace(total_time=1.0, model_time=1.0)
"""What a stage takes."""


class Adapter:
    """One replica scheduler behind the protocol of the harness. It knows no cancel and no priority."""

    def __init__(self, kind: str, profile: Profile) -> None:
        """A scheduler without requests. Raises `HarnessError` for an unknown version or a missing limit."""
        release, parts = _engine(kind)
        limits = profile.limits
        for name in ("max_seqs", "token_budget", "kv_blocks", "block_size"):
            if getattr(limits, name) is None:
                raise HarnessError(f"vidur needs limits.{name}")
        seqs, blocks, size = limits.max_seqs or 1, limits.kv_blocks or 1, limits.block_size or 1
        # Orca reserves whole blocks for the longest request; longer ones are the front end's to refuse.
        self._longest = limits.max_model_len or max(1, blocks // seqs) * size
        self._request = parts.request
        self._orca = kind == "orca"
        self._scheduler = parts.scheduler(
            SimpleNamespace(enable_sequence_pipeline_parallel=False),
            SimpleNamespace(
                batch_size_cap=seqs, max_tokens_in_batch=limits.token_budget, chunk_size=limits.token_budget
            ),
            SimpleNamespace(block_size=size, num_blocks=blocks, watermark_blocks_fraction=0.01),
            SimpleNamespace(max_tokens=self._longest),
            SimpleNamespace(id=0),
            1,
            None,
        )
        self._total_blocks = blocks
        self._names: dict[int, RequestId] = {}
        self._sent: dict[int, Request] = {}
        self._emitted: dict[int, int] = {}
        self._started: set[int] = set()
        self._planning = False
        self._rows: list[Event] = []
        self._told: set[int] = set()
        self._batch: Any = None
        self._stage: Any = None
        self._now = 0
        self._watch()
        self.capabilities = Capabilities(name=f"vidur {kind}", version=release, blocks="counts", abort=False)

    def add(self, request: Request) -> None:
        """A request arrives."""
        if request.id in self._names.values():
            raise Refused("error", f"request {request.id!r} is still live")
        if not request.prompt or request.max_tokens < 1:
            raise Refused("error", "a prompt token and max_tokens of at least 1 are needed")
        if self._orca and len(request.prompt) + request.max_tokens > self._longest:
            raise Refused("too_long")
        made = self._request(float(request.arrival_ns), len(request.prompt), request.max_tokens)
        self._names[made.id] = request.id
        self._sent[made.id] = request
        self._emitted[made.id] = 0
        self._scheduler.add_request(made)

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Not known to Vidur."""
        raise HarnessError("vidur cannot cancel a request")

    def plan(self) -> Plan:
        """One `on_schedule` call, in the words of a trace."""
        self._rows, self._told = [], set()
        self._planning = True
        self._batch = self._scheduler.on_schedule(float(self._now))
        self._planning = False
        if self._batch is not None:
            self._batch.on_schedule(float(self._now))
            self._stage = self._batch.to_batch_stage(0, _ONE_TICK)
            self._stage.on_schedule(float(self._now))
            for item, tokens in zip(self._batch.requests, self._batch.num_q_tokens, strict=True):
                if item.id not in self._told:
                    self._rows.append(self._turn(item, tokens))
        return Plan(self._rows, **self._counters())

    def commit(self, results: Results) -> Outcome:
        """The end of the batch."""
        batch, stage = self._batch, self._stage
        self._batch = self._stage = None
        self._now += 1
        if batch is None:
            return Outcome((), **self._counters())
        for item in batch.requests:
            tokens = results.tokens.get(self._names[item.id], ())
            self._emitted[item.id] += len(tokens)
            sent = self._sent[item.id]
            if sent.stop_token in tokens:
                total = len(sent.prompt) + self._emitted[item.id]
                item._num_decode_tokens = total - item.num_prefill_tokens
        stage.on_stage_end(float(self._now))
        self._scheduler.on_stage_end(0, stage)
        batch.on_batch_end(float(self._now))
        rows = []
        for item in batch.requests:
            if item.completed:
                sent = self._sent.pop(item.id)
                reason = "length" if self._emitted[item.id] >= sent.max_tokens else "stop"
                rows.append(finish(self._names[item.id], reason, self._emitted[item.id]))
        self._scheduler.on_batch_end(batch)
        for item in batch.requests:
            if item.completed:
                del self._names[item.id]
        return Outcome(rows, **self._counters())

    def _counters(self) -> dict[str, int]:
        scheduler = self._scheduler
        return {
            "free_blocks": self._total_blocks - scheduler.num_allocated_blocks,
            "waiting": len(scheduler._request_queue),
            "running": len(scheduler._allocation_map),
        }

    def _turn(self, item: Any, tokens: int) -> Event:
        # A processed token may be one that is known and not computed: the last one of a decode.
        start = item.num_processed_tokens - item.is_prefill_complete
        self._told.add(item.id)
        held = self._scheduler._allocation_map.get(item.id)
        return schedule(self._names[item.id], tokens, start=start, blocks=held)

    # -- where decisions are made ------------------------------------------------------------------

    def _watch(self) -> None:
        scheduler = self._scheduler
        scheduler.allocate = self._around_allocate(scheduler.allocate)
        scheduler.free = self._around_free(scheduler.free)
        if not self._orca:
            scheduler._allocate_request = self._around_turn(scheduler._allocate_request)

    def _around_allocate(self, allocate: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def allocated(item: int, blocks: int) -> None:
            joins = item not in self._scheduler._allocation_map
            allocate(item, blocks)
            if joins:
                join = resume if item in self._started else admit
                self._started.add(item)
                self._rows.append(join(self._names[item], blocks=blocks))

        return allocated

    def _around_free(self, free: Callable[..., None]) -> Callable[..., None]:
        def freed(*items: int) -> None:
            free(*items)
            if self._planning:
                self._rows += [preempt(self._names[item], "recompute", blocks=0) for item in items]

        return freed

    def _around_turn(self, allocate_request: Callable[[Any], None]) -> Callable[[Any], None]:
        def turn(item: Any) -> None:
            allocate_request(item)
            if item.is_prefill_complete:
                self._rows.append(self._turn(item, 1))

        return turn


def make_vllm(profile: Profile) -> Adapter:
    """Vidur's scheduler in the manner of vLLM V0."""
    return Adapter("vllm", profile)


def make_sarathi(profile: Profile) -> Adapter:
    """Vidur's scheduler in the manner of Sarathi-Serve."""
    return Adapter("sarathi", profile)


def make_orca(profile: Profile) -> Adapter:
    """Vidur's scheduler in the manner of Orca."""
    return Adapter("orca", profile)


make_orca.limits = {"token_budget": (1 << 20,)}  # type: ignore[attr-defined]
"""Orca bounds the members of an iteration, not its tokens."""


class _Planner:
    """In place of the memory planner: so much memory that only the limits bound the batch."""

    def __init__(self, *_: Any) -> None:
        pass

    def get_max_kv_cache_size_in_tokens(self) -> int:
        return 1 << 40


def _engine(kind: str) -> tuple[str, SimpleNamespace]:
    """The installed version and its classes."""
    try:
        release = version("vidur")
    except PackageNotFoundError:
        raise HarnessError("vidur is not installed; scripts/thirdparty vidur sets it up") from None
    if release not in KNOWN:
        raise HarnessError(f"vidur {release} is not known to this adapter; it knows {', '.join(KNOWN)}")
    try:
        base = import_module("vidur.scheduler.replica_scheduler.base_replica_scheduler")
        module = import_module(f"vidur.scheduler.replica_scheduler.{kind}_replica_scheduler")
        request = import_module("vidur.entities.request").Request
    except ImportError as error:
        raise HarnessError(f"vidur does not import: {error}") from error
    vars(base)["MemoryPlanner"] = _Planner
    return release, SimpleNamespace(scheduler=getattr(module, _SCHEDULERS[kind]), request=request)
