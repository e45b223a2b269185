"""Record and replay: the engine repeats a recorded membership, and its tokens must not change.

Greedy tokens are a property of the prompt alone. Batch, chunks and preemptions may change rounding,
so they may change a token whose two best logits nearly tie, and nothing else. `follow` runs a trace's
steps member for member; `compare` holds the tokens against those of each request alone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from batchspec.engine.blocks import BlockPool
from batchspec.engine.engine import Engine
from batchspec.engine.errors import EngineError
from batchspec.engine.model import Model
from batchspec.engine.options import engine_profile
from batchspec.engine.runner import Runner
from batchspec.engine.sequence import Plan, Request, Sequence
from batchspec.engine.workload import prompt_of
from batchspec.spec.events import Event, RequestId
from batchspec.spec.verdict import Finding, RuleResult, Verdict

RULE = "outputs/invariant"
TOLERANCE: Mapping[str, float] = {"float64": 0.0, "float32": 1e-3, "bfloat16": 0.25, "float16": 0.05}
"""A first difference counts only where the two best logits are further apart than this, by dtype."""


@dataclass(slots=True)
class Followed:
    """One request of the trace as the engine repeated it."""

    prompt: tuple[int, ...]
    arrived: int
    tokens: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """The step that emitted each token."""


def follow(
    model: Model, events: Callable[[], Iterable[Event]], *, seed: int = 0, block_size: int = 16
) -> dict[RequestId, Followed]:
    """Run the members of every step of a trace; the tokens of each incarnation that emitted any.

    `events` is called twice: for the sizes, then for the run. Prompts are those that `record` draws
    from the same seed, in order of arrival. Raises `EngineError` where a step cannot be repeated.
    """
    slots, blocks, longest = _sizes(events(), block_size)
    if longest > model.config.max_positions:
        raise EngineError(f"the trace needs {longest} positions, the model has {model.config.max_positions}")
    repeat = _Repeat(model, slots, blocks, block_size, seed)
    for event in events():
        repeat.take(event)
    repeat.run()
    return repeat.done


class _Repeat:
    """Carries out one trace. Blocks are the engine's own: cached prefixes are computed again."""

    def __init__(self, model: Model, slots: int, blocks: int, block_size: int, seed: int) -> None:
        self.done: dict[RequestId, Followed] = {}
        self._size, self._seed = block_size, seed
        self._vocab = model.config.vocab_size
        self._runner = Runner(model, slots, blocks, block_size, blocks, keep_margins=True)
        self._pool, self._host = BlockPool(blocks), BlockPool(blocks)
        self._slots = list(range(slots))[::-1]
        self._live: dict[RequestId, Sequence] = {}
        self._arrivals = 0
        self._plan = Plan(0)

    def take(self, event: Event) -> None:
        """One row. The pass of a step runs before its first result."""
        if event.step != self._plan.step or event.event in ("finish", "output", "step"):
            self.run()
            if event.step != self._plan.step:
                self._plan = Plan(event.step)
        if event.event == "arrive":
            self._arrive(event)
        elif event.event in ("admit", "resume"):
            self._join(self._known(event))
        elif event.event == "schedule":
            self._schedule(event, self._known(event))
        elif event.event == "preempt":
            self._preempt(event, self._known(event))
        elif event.event in ("finish", "abort", "reject") and event.request in self._live:
            self._leave(self._live.pop(event.request))
        elif event.event == "live":
            raise EngineError("the trace begins with live requests: it cannot be repeated from its start")

    def run(self) -> None:
        """Run the pass that has come together, if any."""
        plan, self._plan = self._plan, Plan(self._plan.step)
        passed = self._runner.execute(plan)
        for sequence, start, count in zip(plan.sequences, plan.starts, plan.counts, strict=True):
            sequence.computed = start + count
        gaps = passed.margins or []
        for sequence, token, gap in zip(passed.emitters, passed.tokens, gaps, strict=True):
            sequence.tokens.append(token)
            found = self.done[sequence.request.id]
            found.tokens.append(token)
            found.margins.append(gap)
            found.steps.append(plan.step)

    def _arrive(self, event: Event) -> None:
        if event.request is None or not event.prompt_tokens:
            raise EngineError(f"step {event.step}: an arrival without prompt_tokens cannot be repeated")
        prompt = prompt_of(self._seed, self._arrivals, event.prompt_tokens, self._vocab)
        request = Request(event.request, prompt, max(1, event.max_tokens or 1))
        self._live[event.request] = Sequence(request, self._arrivals)
        # An id that comes back is a new incarnation: the last one is compared.
        self.done[event.request] = Followed(prompt, self._arrivals)
        self._arrivals += 1

    def _known(self, event: Event) -> Sequence:
        found = self._live.get(event.request) if event.request is not None else None
        if found is None:
            raise EngineError(f"step {event.step}: {event.event} of {event.request!r}, which is not live")
        return found

    def _join(self, sequence: Sequence) -> None:
        sequence.slot = self._slots.pop()
        if sequence.host_blocks:
            sequence.blocks = self._pool.grant(len(sequence.host_blocks))
            self._plan.copies.append((False, sequence.blocks[:], sequence.host_blocks))
            self._host.release(sequence.host_blocks)
            sequence.host_blocks = []
            self._plan.grants.append(sequence)

    def _schedule(self, event: Event, sequence: Sequence) -> None:
        if event.start is None or not event.tokens or event.drafts:
            raise EngineError(f"step {event.step}: a schedule needs start and tokens, and no drafts")
        end = event.start + event.tokens
        if end > len(sequence.tokens) or sequence.computed >= end or sequence.slot < 0:
            raise EngineError(
                f"step {event.step}: {event.request!r} computes up to {end}, its known tokens are"
                f" {len(sequence.tokens)}, of which {sequence.computed} are computed"
            )
        missing = -(-end // self._size) - len(sequence.blocks)
        if missing > 0:
            sequence.blocks += self._pool.grant(missing)
            self._plan.grants.append(sequence)
        self._plan.add(sequence, sequence.computed, end - sequence.computed)

    def _preempt(self, event: Event, sequence: Sequence) -> None:
        self._plan.drop(sequence)
        used = -(-sequence.computed // self._size)
        if event.reason == "swap" and used:
            sequence.host_blocks = self._host.grant(used)
            self._plan.copies.append((True, sequence.blocks[:used], sequence.host_blocks))
        else:
            sequence.computed = 0
        self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self._plan.drop(sequence)
        self._pool.release(sequence.blocks)
        sequence.blocks = []
        if sequence.slot >= 0:
            self._slots.append(sequence.slot)
            sequence.slot = -1


def _sizes(events: Iterable[Event], block_size: int) -> tuple[int, int, int]:
    """Most members at once, most blocks at once (nothing shared), longest sequence."""
    ends: dict[RequestId, int] = {}
    running: set[RequestId] = set()
    blocks = most_blocks = 0
    most, longest = 1, 1
    for event in events:
        request = event.request
        if request is None:
            continue
        if event.event in ("admit", "resume"):
            running.add(request)
            ends[request] = max(1, event.cached or 0)
            blocks += -(-ends[request] // block_size)
            most = max(most, len(running))
        elif event.event == "schedule" and request in running:
            end = (event.start or 0) + (event.tokens or 0)
            if end > ends[request]:
                blocks += -(-end // block_size) - -(-ends[request] // block_size)
                ends[request] = end
            longest = max(longest, end)
        elif event.event in ("preempt", "finish", "abort") and request in running:
            running.discard(request)
            blocks -= -(-ends.pop(request) // block_size)
        most_blocks = max(most_blocks, blocks)
    # Swapped requests keep a copy on the host, which is as large as the device's pool.
    return most, max(1, most_blocks), longest


def compare(
    model: Model, followed: Mapping[RequestId, Followed], tolerance: float | None = None
) -> tuple[RuleResult, list[Finding]]:
    """Hold the tokens of `follow` against those of each request with the engine to itself."""
    allowed = TOLERANCE[str(model.dtype).removeprefix("torch.")] if tolerance is None else tolerance
    checked = close = 0
    findings: list[Finding] = []
    for name, found in followed.items():
        if not found.tokens:
            continue
        tokens, margins = _alone(model, found)
        for index, (seen, wanted) in enumerate(zip(found.tokens, tokens, strict=True)):
            checked += 1
            if seen == wanted:
                continue
            gap = min(found.margins[index], margins[index])
            if gap > allowed:
                findings.append(_finding(name, found, index, wanted, gap, allowed))
            else:
                close += 1
            break  # from here on the two runs answer different questions
    verdict: Verdict = "violates" if findings else "conforms"
    return RuleResult(RULE, verdict, checked, len(findings), close), findings


def _alone(model: Model, found: Followed) -> tuple[list[int], list[float]]:
    count = len(found.tokens)
    length = len(found.prompt) + count
    profile = engine_profile(max_seqs=1, token_budget=length, kv_blocks=-(-length // 16), block_size=16)
    engine = Engine(model, profile, keep_margins=True)
    engine.submit(Request("alone", found.prompt, count))
    tokens: list[int] = []
    margins: list[float] = []
    while engine.busy:
        tokens += [output.token for output in engine.step() if output.token is not None]
        if engine.last is not None:
            margins += engine.last.passed.margins or []
    return tokens, margins


def _finding(
    name: RequestId, found: Followed, index: int, wanted: int, gap: float, allowed: float
) -> Finding:
    return Finding(
        rule=RULE,
        step=found.steps[index],
        row=None,
        requests=(name,),
        expected=f"token {wanted}, as the request gives alone",
        observed=f"token {found.tokens[index]}; the two best logits are {gap:.3g} apart, allowed {allowed:g}",
        message=f"output {index + 1} of {name} depends on how it was scheduled",
    )
