"""The engine: requests in, tokens out. Puts clock, scheduler, runner and tape together.

    engine = Engine(Model.random(), engine_profile(max_seqs=8))
    for output in engine.generate([Request("a", prompt=(1, 2, 3), max_tokens=4)]):
        print(output.request, output.token)

One step: take in what has arrived and what was cancelled, schedule, run the pass, commit.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns

from batchspec.engine.clock import Clock, VirtualClock
from batchspec.engine.errors import EngineError
from batchspec.engine.model import Model
from batchspec.engine.options import Options, engine_profile
from batchspec.engine.runner import Pass, Runner
from batchspec.engine.scheduler import Scheduler
from batchspec.engine.sequence import Output, Plan, Request
from batchspec.engine.tape import Tape
from batchspec.spec.events import RequestId
from batchspec.spec.profile import Profile


@dataclass(frozen=True, slots=True)
class Step:
    """One step as it was carried out. Times in nanoseconds: of the engine's clock, and spent."""

    number: int
    began_ns: int
    ended_ns: int
    members: int
    emitted: int
    passed: Pass
    plan: Plan
    deciding_ns: int
    running_ns: int
    committing_ns: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A request as a whole: its output tokens and why it ended."""

    request: RequestId
    tokens: tuple[int, ...]
    finish: str


class Engine:
    """A serving engine over one model. Not thread-safe: one caller, or the async face."""

    def __init__(
        self,
        model: Model | None = None,
        profile: Profile | None = None,
        *,
        clock: Clock | None = None,
        tape: Tape | None = None,
        keep_margins: bool = False,
    ) -> None:
        """Defaults: the tiny random model, the engine's own profile, a virtual clock, no tape."""
        self.model = model or Model.random()
        self.options = Options.of(profile or engine_profile())
        options = self.options
        if (options.max_model_len or 0) > self.model.config.max_positions:
            raise EngineError(
                f"limits.max_model_len {options.max_model_len} is more than the model's"
                f" {self.model.config.max_positions} positions"
            )
        self.clock: Clock = clock or VirtualClock()
        self.tape = tape
        self.scheduler = Scheduler(options, tape)
        self.runner = Runner(
            self.model,
            options.max_seqs,
            options.kv_blocks,
            options.block_size,
            options.host_blocks,
            keep_margins,
        )
        self.last: Step | None = None
        """The step that ran last."""
        self._arrivals: deque[Request] = deque()
        self._cancels: deque[RequestId] = deque()
        self._known: set[RequestId] = set()
        self._queues: dict[RequestId, asyncio.Queue[Output]] = {}
        self._driver: asyncio.Task[None] | None = None

    # In

    def submit(self, request: Request) -> None:
        """Hand in a request; it arrives in the first step that starts at or after its `arrival_ns`.

        Requests are handed in by rising arrival. Raises `EngineError` for an id that is still live, a
        token outside the vocabulary, or an arrival before that of the request before it.
        """
        if request.id in self._known:
            raise EngineError(f"request {request.id!r} is still live: its id cannot be used again yet")
        if max(request.prompt) >= self.model.config.vocab_size or min(request.prompt) < 0:
            raise EngineError(f"request {request.id!r}: a prompt token is outside the vocabulary")
        if len(request.prompt) + request.max_tokens > self.model.config.max_positions + 1:
            raise EngineError(
                f"request {request.id!r}: prompt and max_tokens exceed the model's"
                f" {self.model.config.max_positions} positions"
            )
        if self._arrivals and request.arrival_ns < self._arrivals[-1].arrival_ns:
            raise EngineError(f"request {request.id!r} arrives before the request handed in before it")
        self._known.add(request.id)
        self._arrivals.append(request)

    def cancel(self, request: RequestId) -> None:
        """Ask for a request's end; it takes effect when the next step begins."""
        self._cancels.append(request)

    # A step

    @property
    def busy(self) -> bool:
        """Is there anything left to do?"""
        return bool(self._arrivals or self._cancels or self.scheduler.sequences)

    def step(self) -> list[Output]:
        """Run one step; returns what it gave. An idle engine first waits for the next arrival."""
        scheduler, clock = self.scheduler, self.clock
        self._wait()
        began = clock.now()
        start = perf_counter_ns()
        scheduler.begin(began)
        while self._arrivals and self._arrivals[0].arrival_ns <= began:
            scheduler.add(self._arrivals.popleft())
        while self._cancels:
            self._cancel(self._cancels.popleft())
        plan = scheduler.schedule()
        decided = perf_counter_ns()
        passed = self.runner.execute(plan)
        ran = perf_counter_ns()
        if plan.sequences:
            clock.ran(passed.rows)
        ended = clock.now()
        scheduler.commit(plan, passed.emitters, passed.tokens, ended)
        committed = perf_counter_ns()
        outputs = self._outputs(passed, ended)
        self.last = Step(
            number=plan.step,
            began_ns=began,
            ended_ns=ended,
            members=len(plan.sequences),
            emitted=len(passed.tokens),
            passed=passed,
            plan=plan,
            deciding_ns=decided - start,
            running_ns=ran - decided,
            committing_ns=committed - ran,
        )
        return outputs

    def _wait(self) -> None:
        if self._cancels or self.scheduler.running:
            return
        moments = [self._arrivals[0].arrival_ns] if self._arrivals else []
        if self.scheduler.num_waiting:
            deadline = self.scheduler.next_deadline()
            if deadline is None:
                return
            moments.append(deadline)
        if moments:
            self.clock.wait_until(min(moments))

    def _cancel(self, request: RequestId) -> None:
        if self.scheduler.cancel(request) or request not in self._known:
            return
        # It has not arrived yet: the client left before the scheduler ever saw it.
        self._arrivals.remove(next(item for item in self._arrivals if item.id == request))
        self._known.discard(request)

    def _outputs(self, passed: Pass, now: int) -> list[Output]:
        outputs = []
        ends = {id(sequence): reason for sequence, reason in self.scheduler.ended}
        for row, (sequence, token) in enumerate(zip(passed.emitters, passed.tokens, strict=True)):
            if passed.margins is not None:
                sequence.margins = sequence.margins or []
                sequence.margins.append(passed.margins[row])
            finish = ends.pop(id(sequence), None) if ends else None
            index = len(sequence.tokens) - sequence.prompt_len - 1
            outputs.append(Output(sequence.request.id, token, index, now, finish))
        for sequence, reason in self.scheduler.ended:
            self._known.discard(sequence.request.id)
            if id(sequence) in ends:
                outputs.append(Output(sequence.request.id, None, sequence.num_outputs, now, reason))
        self.scheduler.ended.clear()
        return outputs

    # Out

    def generate(self, requests: Iterable[Request]) -> Iterator[Output]:
        """Serve `requests` and yield outputs as they are made, until all have ended."""
        for request in sorted(requests, key=lambda item: item.arrival_ns):
            self.submit(request)
        while self.busy:
            yield from self.step()
        if self.tape is not None:
            self.tape.flush()

    def complete(self, requests: list[Request]) -> dict[RequestId, Completion]:
        """Serve `requests` to their end; their tokens by id."""
        tokens: dict[RequestId, list[int]] = {request.id: [] for request in requests}
        ends: dict[RequestId, str] = {}
        for output in self.generate(requests):
            if output.token is not None:
                tokens[output.request].append(output.token)
            if output.finish is not None:
                ends[output.request] = output.finish
        return {name: Completion(name, tuple(found), ends[name]) for name, found in tokens.items()}

    async def stream(self, request: Request) -> AsyncIterator[Output]:
        """Serve one request and yield its outputs; many may be streamed at once and share each step.

        Steps run in a worker thread, so the event loop stays free. Closing the iterator early
        cancels the request.
        """
        queue: asyncio.Queue[Output] = asyncio.Queue()
        self.submit(request)
        self._queues[request.id] = queue
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        ended = False
        try:
            while not ended:
                output = await self._next(queue)
                ended = output.finish is not None
                yield output
        finally:
            del self._queues[request.id]
            if not ended:
                self.cancel(request.id)

    async def _next(self, queue: asyncio.Queue[Output]) -> Output:
        """The next output, or the driver's error: a stream must not wait for a dead driver."""
        waiting = asyncio.ensure_future(queue.get())
        driver = self._driver
        if driver is not None:
            await asyncio.wait({waiting, driver}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and queue.empty():
                waiting.cancel()
                driver.result()
                raise EngineError("the engine stopped before this request had ended")
        return await waiting

    async def _drive(self) -> None:
        while self.busy:
            for output in await asyncio.to_thread(self.step):
                if output.request in self._queues:
                    self._queues[output.request].put_nowait(output)
        if self.tape is not None:
            self.tape.flush()
