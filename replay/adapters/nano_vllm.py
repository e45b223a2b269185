"""nano-vllm-fork under test: `batchspec.replay.adapters.nano_vllm:make`, profile `nano-vllm`.

The real `Scheduler` and `BlockManager` of the installed package. Left out: `nanovllm/__init__.py`, which
imports the model and its GPU kernels; the package is entered beside it. Nothing else is replaced.
Decisions are read off where they are made: `BlockManager.allocate` (admission), `may_append` (a decode's
turn), `Scheduler.preempt`.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
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
    admit,
    finish,
    preempt,
    resume,
    schedule,
)
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

PACKAGE: Final = "nano-vllm-fork"
KNOWN: Final = ("20260210",)


class Adapter:
    """nano-vllm's scheduler behind the protocol of the harness. It knows no cancel and no priority."""

    def __init__(self, profile: Profile) -> None:
        """A scheduler without requests. Raises `HarnessError` for an unknown version or a missing limit."""
        release, parts = _engine()
        limits = profile.limits
        for name in ("max_seqs", "token_budget", "kv_blocks", "block_size"):
            if getattr(limits, name) is None:
                raise HarnessError(f"nano-vllm needs limits.{name}")
        self._size = limits.block_size or 1
        self._sequence = parts.sequence
        self._params = parts.params
        self._scheduler = parts.scheduler(
            SimpleNamespace(
                max_num_seqs=limits.max_seqs,
                max_num_batched_tokens=limits.token_budget,
                eos=-1,
                num_kvcache_blocks=limits.kv_blocks,
                kvcache_block_size=self._size,
            )
        )
        self._blocks = self._scheduler.block_manager
        # Names are kept: what the scheduler does with a request after its end is told too.
        self._names: dict[int, RequestId] = {}
        self._live: set[RequestId] = set()
        self._started: set[int] = set()
        self._rows: list[Event] = []
        self._asking: Any = None
        self._batch: list[Any] = []
        self._watch()
        self.capabilities = Capabilities(
            name=PACKAGE, version=release, blocks="ids", prefix=True, abort=False
        )

    def add(self, request: Request) -> None:
        """A request arrives. The end token is the engine's, the same for all."""
        if request.id in self._live:
            raise Refused("error", f"request {request.id!r} is still live")
        if not request.prompt or request.max_tokens < 1:
            raise Refused("error", "a prompt token and max_tokens of at least 1 are needed")
        self._scheduler.eos = request.stop_token
        self._sequence.block_size = self._size
        made = self._sequence(list(request.prompt), self._params(max_tokens=request.max_tokens))
        self._names[made.seq_id] = request.id
        self._live.add(request.id)
        self._scheduler.add(made)

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Not known to this engine."""
        raise HarnessError("nano-vllm cannot cancel a request")

    def plan(self) -> Plan:
        """One `schedule` call, in the words of a trace."""
        self._rows = []
        self._sequence.block_size = self._size
        scheduler = self._scheduler
        if scheduler.is_finished():  # the engine's own loop asks only while there is work
            self._batch = []
        else:
            self._batch, _ = scheduler.schedule()
        return Plan(self._rows, **self._counters())

    def commit(self, results: Results) -> Outcome:
        """One `postprocess` call: every member of a batch emits a token."""
        tokens = [results.tokens[self._names[item.seq_id]] for item in self._batch]
        if self._batch:
            self._scheduler.postprocess(self._batch, [found[0] if found else 0 for found in tokens])
        rows = []
        for item in self._batch:
            if item.is_finished:
                name = self._names[item.seq_id]
                self._live.discard(name)
                reason = "stop" if item.last_token == self._scheduler.eos else "length"
                rows.append(finish(name, reason, item.num_completion_tokens))
        return Outcome(rows, **self._counters())

    def _counters(self) -> dict[str, int]:
        return {
            "free_blocks": len(self._blocks.free_block_ids),
            "waiting": len(self._scheduler.waiting),
            "running": len(self._scheduler.running),
            "shared_blocks": sum(block.ref_count - 1 for block in self._blocks.blocks if block.ref_count),
        }

    # -- where decisions are made ------------------------------------------------------------------

    def _watch(self) -> None:
        blocks, scheduler = self._blocks, self._scheduler
        blocks.allocate = self._around_allocate(blocks.allocate)
        blocks.may_append = self._around_append(blocks.may_append)
        blocks.can_append = self._around_question(blocks.can_append)
        scheduler.preempt = self._around_preempt(scheduler.preempt)

    def _around_allocate(self, allocate: Any) -> Any:
        def joined(item: Any) -> None:
            allocate(item)
            name, cached, known = self._names[item.seq_id], item.num_cached_tokens, len(item)
            joins = resume if item.seq_id in self._started else admit
            self._started.add(item.seq_id)
            table = list(item.block_table)
            self._rows.append(joins(name, cached=cached, blocks=len(table), block_ids=table))
            self._rows.append(self._turn(item, cached, known - cached, ()))

        return joined

    def _around_append(self, may_append: Any) -> Any:
        def appended(item: Any) -> None:
            before = len(item.block_table)
            may_append(item)
            self._rows.append(self._turn(item, len(item) - 1, 1, item.block_table[before:]))

        return appended

    def _turn(self, item: Any, start: int, tokens: int, granted: Iterable[int]) -> Event:
        return schedule(
            self._names[item.seq_id],
            tokens,
            start=start,
            blocks=len(item.block_table),
            block_ids=granted,
        )

    def _around_question(self, can_append: Any) -> Any:
        def asked(item: Any) -> bool:
            self._asking = item
            return bool(can_append(item))

        return asked

    def _around_preempt(self, interrupt: Any) -> Any:
        def interrupted(item: Any) -> None:
            returned = list(item.block_table)
            interrupt(item)
            cause = None if self._asking is None else self._names[self._asking.seq_id]
            self._rows.append(
                preempt(self._names[item.seq_id], "recompute", cause=cause, blocks=0, block_ids=returned)
            )

        return interrupted


def make(profile: Profile) -> Adapter:
    """nano-vllm's scheduler with the limits of the profile."""
    return Adapter(profile)


make.limits = {"block_size": (4, 8, 2)}  # type: ignore[attr-defined]
"""Its arithmetic on whole blocks needs more than one position a block (it ships with 256)."""


def _engine() -> tuple[str, SimpleNamespace]:
    """The installed version and its classes, without the package's own `__init__`."""
    try:
        release = version(PACKAGE)
    except PackageNotFoundError:
        raise HarnessError(f"{PACKAGE} is not installed; scripts/thirdparty nano-vllm sets it up") from None
    if release not in KNOWN:
        raise HarnessError(f"{PACKAGE} {release} is not known to this adapter; it knows {', '.join(KNOWN)}")
    if "nanovllm" not in sys.modules:
        spec = find_spec("nanovllm")
        if spec is None or spec.submodule_search_locations is None:
            raise HarnessError(f"{PACKAGE} holds no package nanovllm; install it again")
        bare = ModuleType("nanovllm")
        bare.__path__ = list(spec.submodule_search_locations)
        bare.__spec__ = ModuleSpec("nanovllm", None, is_package=True)
        sys.modules["nanovllm"] = bare
    try:
        return release, SimpleNamespace(
            scheduler=import_module("nanovllm.engine.scheduler").Scheduler,
            sequence=import_module("nanovllm.engine.sequence").Sequence,
            params=import_module("nanovllm.sampling_params").SamplingParams,
        )
    except ImportError as error:
        raise HarnessError(f"{PACKAGE} does not import: {error}") from error
