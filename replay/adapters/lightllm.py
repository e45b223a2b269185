"""LightLLM's router under test: `batchspec.replay.adapters.lightllm:make`, profile `lightllm`.

The real `RouterManager` with its step, queue and pause strategy. Replaced: the model process (it answers
with the harness's tokens and counts the memory that each request fills), the sockets and the shared
memory that the constructor opens, and the imports of model code (`model_rpc`, `radix_cache`, `tokenizer`).

Memory is counted in tokens: a block holds one position. A step of the router is one iteration; the pass
lies where the step waits for the model process.
"""

import asyncio
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType, SimpleNamespace
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

KNOWN: Final = ("0.0.1",)
_STRIDE: Final = 8
"""Ids of requests are so far apart (the engine numbers the samples of one request in between)."""


class Adapter:
    """The router behind the protocol of the harness. It knows no priority."""

    def __init__(self, profile: Profile) -> None:
        """A router without requests. Raises `HarnessError` for an unknown version or a missing limit."""
        release, self._parts = _engine()
        limits = profile.limits
        for name in ("max_seqs", "token_budget", "kv_blocks"):
            if getattr(limits, name) is None:
                raise HarnessError(f"lightllm needs limits.{name}")
        if limits.block_size != 1:
            raise HarnessError("lightllm counts memory in tokens: set limits.block_size to 1")
        self._total = limits.kv_blocks or 1
        self._longest = limits.max_model_len
        self._loop = asyncio.new_event_loop()
        self._router = self._make_router(limits.max_seqs or 1, limits.token_budget or 1)
        self._sent: dict[int, Request] = {}
        self._numbers: dict[RequestId, int] = {}
        self._held: dict[int, int] = {}
        self._emitted: dict[int, int] = {}
        self._aborting: set[int] = set()
        self._started: set[int] = set()
        self._count = 0
        self._rows: list[Event] = []
        self._pass: Any = None
        self._step: Any = None
        self.capabilities = Capabilities(name="lightllm", version=release, blocks="counts")

    def __del__(self) -> None:
        """The loop of this run goes with it."""
        self._loop.close()

    def add(self, request: Request) -> None:
        """A request arrives."""
        if request.id in self._numbers:
            raise Refused("error", f"request {request.id!r} is still live")
        if not request.prompt or request.max_tokens < 1:
            raise Refused("error", "a prompt token and max_tokens of at least 1 are needed")
        if self._longest is not None and len(request.prompt) + request.max_tokens > self._longest:
            raise Refused("too_long")  # as its HTTP server does
        self._count += 1
        number = self._count * _STRIDE
        self._numbers[request.id] = number
        self._sent[number] = request
        self._emitted[number] = 0
        wishes = SimpleNamespace(
            max_new_tokens=request.max_tokens,
            ignore_eos=False,
            best_of=1,
            skip_special_tokens=True,
            add_spaces_between_special_tokens=True,
            print_eos_token=False,
            to_dict=dict,
        )
        self._router.add_req(list(request.prompt), wishes, SimpleNamespace(to_dict=dict), number)

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Marked; the router lets it go in a later step."""
        number = self._numbers[request]
        self._aborting.add(number)
        self._loop.run_until_complete(self._router.abort(number))
        return ()

    def plan(self) -> Plan:
        """A step of the router, up to the point where it waits for a pass."""
        self._rows = []
        self._pass = None
        self._step = self._loop.create_task(self._router._step())
        self._loop.run_until_complete(self._until_asked())
        return Plan([*self._dropped(), *self._rows], **self._counters())

    def commit(self, results: Results) -> Outcome:
        """The rest of the step."""
        self._rows = []
        if self._pass is not None:
            asked, self._pass = self._pass, None
            asked.set_result(results.tokens)
        self._loop.run_until_complete(self._step)
        return Outcome(self._rows, **self._counters())

    async def _until_asked(self) -> None:
        while not self._step.done() and self._pass is None:
            await asyncio.sleep(0)
        if self._step.done():
            self._step.result()

    def _dropped(self) -> list[Event]:
        """Cancelled requests that the queue has left out."""
        waiting = {item.request_id for item in self._router.req_queue.waiting_req_list}
        gone = sorted(self._aborting - waiting - self._held.keys())
        return [self._end(number) for number in gone]

    def _end(self, number: int) -> Event:
        self._aborting.discard(number)
        name = self._sent.pop(number).id
        del self._numbers[name]
        return aborted(name, "client")

    def _counters(self) -> dict[str, int]:
        running = self._router.running_batch
        return {
            "free_blocks": self._total - sum(self._held.values()),
            "waiting": len(self._router.req_queue.waiting_req_list),
            "running": 0 if running is None else len(running.reqs),
        }

    # -- the model process -------------------------------------------------------------------------

    async def init_batch(self, batch: str, requests: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
        """Requests take a place in the batch."""
        answer = {}
        for item in requests:
            number = item["request_id"]
            join = resume if number in self._started else admit
            self._started.add(number)
            self._held[number] = 0
            self._rows.append(join(self._sent[number].id, blocks=0))
            answer[number] = self._status(number, 0)
        self._fresh = [item["request_id"] for item in requests]
        return answer

    async def prefill_batch(self, batch: str) -> dict[int, tuple[Any, ...]]:
        """The whole prompts of the fresh batch."""
        lengths = {number: len(self._sent[number].prompt) + self._emitted[number] for number in self._fresh}
        return await self._run(lengths, dict.fromkeys(lengths, 0))

    async def decode_batch(self, batch: str) -> dict[int, tuple[Any, ...]]:
        """One token for everybody who runs."""
        starts = {item.request_id: self._held[item.request_id] for item in self._router.running_batch.reqs}
        return await self._run(dict.fromkeys(starts, 1), starts)

    async def _run(self, tokens: dict[int, int], starts: dict[int, int]) -> dict[int, tuple[Any, ...]]:
        for number, count in tokens.items():
            self._held[number] = starts[number] + count
            name = self._sent[number].id
            self._rows.append(schedule(name, count, start=starts[number], blocks=self._held[number]))
        self._share()
        self._pass = self._loop.create_future()
        emitted = await self._pass
        answer = {}
        for number in tokens:
            request = self._sent[number]
            found = emitted.get(request.id, ())
            self._emitted[number] += len(found)
            end = 0
            if request.stop_token in found:
                end = 1
            elif self._emitted[number] >= request.max_tokens:
                end = 2
            answer[number] = self._status(number, end, [(token, {}) for token in found])
        return answer

    async def filter_batch(self, batch: str, staying: list[int], leaving: list[int]) -> None:
        """Those who ended leave."""
        self._leave(leaving)

    async def remove_batch(self, batch: str) -> None:
        """The last of a batch leave."""
        joined = self._router.running_batch
        staying = set() if joined is None else {item.request_id for item in joined.reqs}
        self._leave([number for number in self._held if number not in staying])

    async def merge_batch(self, batch: str, other: str) -> None:
        """Places do not change."""

    async def pause_reqs(self, batch: str, paused: list[tuple[int, Any]]) -> None:
        """Memory of the paused comes back."""
        for number, _ in paused:
            del self._held[number]
            self._rows.append(preempt(self._sent[number].id, "recompute", blocks=0))
        self._share()

    def _leave(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self._held[number]
            if number in self._aborting:
                self._rows.append(self._end(number))
                continue
            request = self._sent.pop(number)
            del self._numbers[request.id]
            reason = "length" if self._emitted[number] >= request.max_tokens else "stop"
            self._rows.append(finish(request.id, reason, self._emitted[number]))
        self._share()

    def _status(self, number: int, end: int, tokens: Iterable[Any] = ()) -> tuple[Any, ...]:
        running = self._parts.status.RUNNING
        return running, self._held[number], self._emitted[number], list(tokens), end, None

    def _share(self) -> None:
        self._router.shared_can_use_token_num.value = self._total - sum(self._held.values())

    def _make_router(self, seats: int, budget: int) -> Any:
        """The manager without the sockets and shared memory of its constructor."""
        router = object.__new__(self._parts.manager)
        nothing = SimpleNamespace(
            need_update_dynamic_max_load=lambda: False,
            set_dynamic_max_load=lambda value: None,
            count_prompt_tokens=lambda batch: None,
            count_output_tokens=lambda batch: None,
            send_pyobj=lambda item: None,
        )
        left = SimpleNamespace(value=self._total)
        left.get_value = lambda: left.value
        router.args = SimpleNamespace(
            max_total_token_num=self._total,
            batch_max_tokens=budget,
            running_max_req_size=seats,
            router_token_ratio=0.0,
            router_max_new_token_len=1024,
            splitfuse_mode=False,
            beam_mode=False,
            diverse_mode=False,
            use_dynamic_prompt_cache=False,
        )
        router.world_size = 1
        router.max_total_token_num = self._total
        router.shared_can_use_token_num = left
        router.shared_token_load = router.stats_tool = router.send_to_detokenization = nothing
        router.radix_cache_client = None
        router.pause_strategy = self._parts.fcfs()
        router.running_batch = None
        router.has_wait_tokens = 0
        router.max_wait_tokens = 1
        router.is_splitfuse_mode = False
        router.model_rpcs = [self]
        router.req_queue = self._parts.queue(router.args, router)
        return router


def make(profile: Profile) -> Adapter:
    """LightLLM's router with the limits of the profile."""
    return Adapter(profile)


make.limits = {"block_size": (1,)}  # type: ignore[attr-defined]
"""Memory is counted in tokens."""


def _engine() -> tuple[str, SimpleNamespace]:
    """The installed version and its classes, with empty modules where model code would be."""
    try:
        release = version("lightllm")
    except PackageNotFoundError:
        raise HarnessError("lightllm is not installed; scripts/thirdparty lightllm sets it up") from None
    if release not in KNOWN:
        raise HarnessError(f"lightllm {release} is not known to this adapter; it knows {', '.join(KNOWN)}")
    _left_out("lightllm.server.router.model_infer.model_rpc", "start_model_process", "ModelRpcClient")
    _left_out("lightllm.server.router.dynamic_prompt.radix_cache", "RadixCacheReadOnlyClient")
    _left_out("lightllm.server.tokenizer", "get_tokenizer")
    policy = asyncio.get_event_loop_policy()
    try:
        manager = import_module("lightllm.server.router.manager")
    except ImportError as error:
        raise HarnessError(f"lightllm does not import: {error}") from error
    finally:
        asyncio.set_event_loop_policy(policy)  # the module installs one of its own
    manager.logger.disabled = True
    return release, SimpleNamespace(
        manager=manager.RouterManager,
        fcfs=manager.Fcfs,
        queue=manager.build_req_queue,
        status=manager.ReqRunStatus,
    )


def _left_out(name: str, *members: str) -> None:
    if name not in sys.modules:
        empty = ModuleType(name)
        for member in members:
            setattr(empty, member, None)
        sys.modules[name] = empty
