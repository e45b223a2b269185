"""A request on its way through the engine: what it asks for, and how far it has come."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from batchspec.engine.errors import EngineError
from batchspec.engine.sampler import GREEDY, Sampling
from batchspec.spec.events import RequestId


@dataclass(frozen=True, slots=True)
class Request:
    """One request: tokens in, at most `max_tokens` tokens out.

    `stop_after` ends it after exactly that many outputs (a workload's recorded length);
    `stop_tokens` end it when one of them is emitted. Times are nanoseconds of the engine's clock.
    """

    id: RequestId
    prompt: tuple[int, ...]
    max_tokens: int
    arrival_ns: int = 0
    stop_after: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    tenant: str | None = None
    priority: int | None = None
    sampling: Sampling = GREEDY

    def __post_init__(self) -> None:
        """Refuse what no engine could run. Raises `EngineError`."""
        if not self.prompt or self.max_tokens < 1:
            raise EngineError(f"request {self.id!r}: a prompt token and max_tokens of at least 1 are needed")
        if self.stop_after is not None and self.stop_after < 1:
            raise EngineError(f"request {self.id!r}: stop_after must be at least 1")


class Status(IntEnum):
    """Where a request stands."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    ENDED = 3


class Sequence:
    """The engine's own books on one request. Token counts: n = len(tokens), c = `computed`."""

    __slots__ = (
        "admitted",
        "arrived",
        "blocks",
        "computed",
        "entry",
        "first_admitted",
        "hashes",
        "host_blocks",
        "limit",
        "margins",
        "passed_by",
        "place",
        "prompt_len",
        "request",
        "seen_ns",
        "slot",
        "status",
        "tokens",
    )

    def __init__(self, request: Request, arrived: int, max_model_len: int | None = None) -> None:
        """`arrived` is the place in the order of arrivals."""
        self.request = request
        self.arrived = arrived
        self.tokens: list[int] = list(request.prompt)
        self.prompt_len = len(request.prompt)
        self.limit = request.max_tokens
        if max_model_len is not None:
            # A sequence that reaches the model's length has emitted all it may: say so from the start.
            self.limit = max(1, min(self.limit, max_model_len - self.prompt_len))
        self.status = Status.WAITING
        self.computed = 0
        self.slot = -1
        self.blocks: list[int] = []
        self.host_blocks: list[int] = []
        self.hashes: list[int] = []
        self.admitted = -1
        self.first_admitted = -1
        self.entry: Any = None
        self.passed_by = 0
        self.place = arrived
        self.seen_ns = -1
        self.margins: list[float] | None = None

    @property
    def num_outputs(self) -> int:
        """Tokens emitted so far."""
        return len(self.tokens) - self.prompt_len

    @property
    def outputs(self) -> list[int]:
        """The tokens emitted so far."""
        return self.tokens[self.prompt_len :]

    def end_after(self, token: int) -> str | None:
        """Why the sequence ends now that `token` is its last output: `length`, `stop`, or None."""
        outputs = len(self.tokens) - self.prompt_len
        if outputs >= self.limit:
            return "length"
        request = self.request
        if outputs == request.stop_after or token in request.stop_tokens:
            return "stop"
        return None


@dataclass(frozen=True, slots=True)
class Output:
    """What a caller receives: one token of one request, or its end.

    `token` is None where the request ended without a token (rejected, aborted). `finish` is the
    reason of the end, None while the request goes on. `time_ns` is the engine's clock.
    """

    request: RequestId
    token: int | None
    index: int
    time_ns: int
    finish: str | None = None


class Plan:
    """What one step runs: members in order, with their first position and number of positions.

    `grants` are sequences whose block table changed; `copies` are swaps to perform before the pass:
    (out?, device blocks, host blocks), in order. `padding` counts rows that compute nothing useful.
    """

    __slots__ = ("copies", "counts", "grants", "padding", "sequences", "starts", "step", "tokens")

    def __init__(self, step: int) -> None:
        """An empty plan of step `step`."""
        self.step = step
        self.sequences: list[Sequence] = []
        self.starts: list[int] = []
        self.counts: list[int] = []
        self.grants: list[Sequence] = []
        self.copies: list[tuple[bool, list[int], list[int]]] = []
        self.padding = 0
        self.tokens = 0

    def add(self, sequence: Sequence, start: int, count: int) -> None:
        """Make `sequence` a member with positions [start, start + count)."""
        self.sequences.append(sequence)
        self.starts.append(start)
        self.counts.append(count)
        self.tokens += count

    def drop(self, sequence: Sequence) -> int:
        """Take a membership back; returns its tokens (0 if it was no member)."""
        if sequence not in self.sequences:
            return 0
        at = self.sequences.index(sequence)
        del self.sequences[at], self.starts[at]
        count = self.counts.pop(at)
        self.tokens -= count
        return count
