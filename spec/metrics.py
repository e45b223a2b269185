"""Metrics: the field's quantities, measured over events in one pass.

Definitions. A *pass* is the forward pass of a step that has members. Times are those of the rows: a
request is admitted at its first `admit`, its tokens are out at their `output` row, or where outputs
are derived at its `finish` or the `step` row. *Queueing delay* runs from arrival to admission, *TTFT*
from arrival to the first token, *TBT* between two emissions of one request (one gap an emission,
however many tokens it brings), *end to end* from arrival to finish. A percentile is the nearest rank:
the smallest value that at least that share of all values do not exceed. What a trace does not say is
None. Steps are counted from 1 at the first step of the trace.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from batchspec.spec.events import Event, RequestId


@dataclass(frozen=True, slots=True)
class Distribution:
    """Many values in short: how many, their mean, and the nearest ranks p50, p95, p99 and the largest."""

    count: int
    mean: float
    p50: int
    p95: int
    p99: int
    largest: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a run came to. Times are nanoseconds, lengths tokens, `*_steps` steps; shares lie in 0…1."""

    steps: int
    """Makespan in steps."""
    passes: int
    span_ns: int | None
    requests: int
    finished: int
    aborted: int
    rejected: int
    slot_utilisation: float | None
    """Members of all passes / (S · steps): a seat held by a finished request is waste."""
    seat_occupancy: float | None
    """Running requests at the end of all steps / (S · steps)."""
    mean_finish_steps: float | None
    queueing_delay: Distribution | None
    ttft: Distribution | None
    tbt: Distribution | None
    end_to_end: Distribution | None
    members_per_pass: Distribution | None
    """Batch size in members."""
    tokens_per_pass: Distribution | None
    """Batch size in tokens, which is weight reuse: each weight is read once a pass."""
    concurrency: Distribution | None
    """Requests in flight, running or waiting, at the end of each step."""
    queue_depth: Distribution | None
    computed_tokens: int
    output_tokens: int
    preemptions: int
    recomputed_share: float
    """Positions computed again after a preemption / positions computed."""
    draft_acceptance: float | None
    padding_waste: float
    """What padding every member to the longest of its pass would add / all of the padded batch."""
    goodput: float | None
    """Output tokens of finished requests a second."""
    service: Mapping[str, float] = field(default_factory=dict)
    """Weighted tokens that each tenant was served: w_p · prompt at admission + w_q · outputs."""

    @property
    def weight_reuse(self) -> float | None:
        """Tokens a weight read: the mean batch size in tokens."""
        return self.tokens_per_pass.mean if self.tokens_per_pass else None


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a pass of a model costs. The defaults are those of an 8-billion-parameter model in 16 bits
    with 32 layers of 8 KV heads and 32 query heads of 128."""

    parameters: int = 8_000_000_000
    bytes_per_parameter: float = 2.0
    kv_bytes_per_position: int = 131_072
    attention_flops_per_pair: int = 524_288
    """FLOPs of attention for one query position over one resident position, all layers."""


def percentile(values: Sequence[int], share: float) -> int:
    """The nearest rank: the smallest value not exceeded by `share` of all. `values` must be sorted."""
    return values[max(0, ceil(share * len(values)) - 1)]


def distribution(values: Iterable[int]) -> Distribution | None:
    """The distribution of whole numbers; None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(
        count=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=percentile(ordered, 0.50),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        largest=ordered[-1],
    )


def padding_waste(tokens: Sequence[int]) -> float:
    """Share of a padded batch that is padding, for one pass with these tokens a member."""
    padded = len(tokens) * max(tokens, default=0)
    return 1 - sum(tokens) / padded if padded else 0.0


def arithmetic_intensity(tokens: int, kv_positions: int, model: ModelShape | None = None) -> float:
    """FLOPs per byte of one pass, counted from the model: a decode at batch 1 has about 1.

    `tokens` run through every weight (2 FLOPs each; the weights are read once), and attention reads
    `kv_positions` resident positions, one query position a member being the case of a decode.
    """
    shape = model or ModelShape()
    flops = 2 * shape.parameters * tokens + shape.attention_flops_per_pair * kv_positions
    moved = shape.parameters * shape.bytes_per_parameter + shape.kv_bytes_per_position * kv_positions
    return flops / moved


def jain_index(service: Iterable[float]) -> float | None:
    """Jain's fairness index of what each tenant was served: 1 is equal, 1/n is all for one."""
    values = list(service)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


class Meter:
    """Measures a stream of events. Memory: one record a live request, 8 bytes a measured value."""

    def __init__(
        self, *, max_seqs: int | None = None, recorded: bool = False, w_p: float = 1, w_q: float = 2
    ) -> None:
        """`max_seqs` is S; `recorded` says that every emission has an `output` row; `w_p` and `w_q`
        weigh input and output tokens in `service`."""
        self._max_seqs = max_seqs
        self._recorded = recorded
        self._w_p, self._w_q = w_p, w_q
        self._live: dict[RequestId, _Part] = {}
        self._members: dict[RequestId, tuple[_Part, int, int, int]] = {}
        self._first_step: int | None = None
        self._step = 0
        self._steps = 0
        self._open = False
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._counts = dict.fromkeys(("arrive", "finish", "abort", "reject", "preempt"), 0)
        self._running = 0
        self._seat_steps = 0
        self._member_steps = 0
        self._finish_steps = 0
        self._good_tokens = 0
        self._computed = self._recomputed = self._outputs = self._drafts = self._accepted = 0
        self._padded = 0
        self._queueing, self._ttft, self._tbt = array("q"), array("q"), array("q")
        self._end_to_end = array("q")
        self._batch, self._tokens = array("q"), array("q")
        self._in_flight, self._waiting = array("q"), array("q")
        self._service: dict[str, float] = {}

    def add(self, event: Event) -> None:
        """One more row."""
        if event.step != self._step or self._first_step is None:
            self._next_step(event.step)
        if event.time_ns is not None and event.event != "arrive":
            self._first_ns = event.time_ns if self._first_ns is None else self._first_ns
            self._last_ns = event.time_ns
        act = _ACTS.get(event.event)
        if act is not None:
            act(self, event)

    def result(self) -> Metrics:
        """The figures so far; the last step counts as over."""
        self._close_step(None)
        steps, seats = self._steps, self._max_seqs
        span = None
        if self._first_ns is not None and self._last_ns is not None:
            span = self._last_ns - self._first_ns
        finished = self._counts["finish"]
        return Metrics(
            steps=steps,
            passes=len(self._batch),
            span_ns=span,
            requests=self._counts["arrive"],
            finished=finished,
            aborted=self._counts["abort"],
            rejected=self._counts["reject"],
            slot_utilisation=self._member_steps / (seats * steps) if seats and steps else None,
            seat_occupancy=self._seat_steps / (seats * steps) if seats and steps else None,
            mean_finish_steps=self._finish_steps / finished if finished else None,
            queueing_delay=distribution(self._queueing),
            ttft=distribution(self._ttft),
            tbt=distribution(self._tbt),
            end_to_end=distribution(self._end_to_end),
            members_per_pass=distribution(self._batch),
            tokens_per_pass=distribution(self._tokens),
            concurrency=distribution(self._in_flight),
            queue_depth=distribution(self._waiting),
            computed_tokens=self._computed,
            output_tokens=self._outputs,
            preemptions=self._counts["preempt"],
            recomputed_share=self._recomputed / self._computed if self._computed else 0.0,
            draft_acceptance=self._accepted / self._drafts if self._drafts else None,
            padding_waste=1 - self._computed / self._padded if self._padded else 0.0,
            goodput=self._good_tokens * 1e9 / span if span else None,
            service=dict(self._service),
        )

    # -- rows --------------------------------------------------------------------------------------

    def _arrive(self, event: Event) -> None:
        self._counts["arrive"] += 1
        if event.request is not None:
            self._live[event.request] = _Part(event.time_ns, event.prompt_tokens, event.tenant)

    def _begin_live(self, event: Event) -> None:
        self._arrive(event)
        part = self._part(event)
        part.outputs = event.output_tokens or 0
        part.reached = event.start or 0
        part.admitted = event.reason in ("running", "preempted")
        part.running = event.reason == "running"
        self._running += part.running

    def _join(self, event: Event) -> None:
        self._running += 1
        part = self._part(event)
        part.running = True
        if event.event == "admit" and not part.admitted:
            part.admitted = True
            _note(self._queueing, part.arrived_ns, event.time_ns)
            if part.prompt is not None:
                self._serve(part, self._w_p * part.prompt)

    def _schedule(self, event: Event) -> None:
        if event.request is not None and event.request in self._live:
            start, tokens = event.start or 0, event.tokens or 0
            self._members[event.request] = (self._live[event.request], start, tokens, event.drafts or 0)

    def _preempt(self, event: Event) -> None:
        self._counts["preempt"] += 1
        self._leave(event, self._part(event))

    def _output(self, event: Event) -> None:
        member = self._members.get(event.subject) if event.pass_step == event.step else None
        if member is not None and member[3]:
            self._accepted += max(0, (event.tokens or 0) - 1)
        self._emit(self._part(event), event.tokens or 0, event.time_ns)

    def _finish(self, event: Event) -> None:
        part = self._part(event)
        self._derive(event.request, event.time_ns)
        self._counts["finish"] += 1
        self._finish_steps += event.pass_step - (self._first_step or 0) + 1
        self._good_tokens += part.outputs
        _note(self._end_to_end, part.arrived_ns, event.time_ns)
        self._end(event, part)

    def _abort(self, event: Event) -> None:
        self._counts["abort"] += 1
        part = self._part(event)
        self._members.pop(event.subject, None)
        self._end(event, part)

    def _reject(self, event: Event) -> None:
        self._counts["reject"] += 1
        self._end(event, self._part(event))

    def _close(self, event: Event) -> None:
        self._close_step(event.time_ns)

    # -- parts -------------------------------------------------------------------------------------

    def _next_step(self, step: int) -> None:
        if self._first_step is None:
            self._first_step = step
        else:
            self._close_step(self._last_ns)
        self._step = step
        self._steps += 1
        self._open = True

    def _close_step(self, now_ns: int | None) -> None:
        """The members of a step are final, and what their pass emitted is out."""
        if self._first_step is None or not self._open:
            return
        self._open = False
        members = self._members
        for request in list(members):
            self._derive(request, now_ns)
        if members:
            sizes = [member[2] for member in members.values()]
            self._batch.append(len(sizes))
            self._tokens.append(sum(sizes))
            self._member_steps += len(sizes)
            self._padded += len(sizes) * max(sizes)
            for part, start, tokens, drafts in members.values():
                self._computed += tokens
                self._drafts += drafts
                self._recomputed += max(0, min(start + tokens, part.reached) - start)
                part.reached = max(part.reached, start + tokens - drafts)
            self._members = {}
        self._seat_steps += self._running
        self._in_flight.append(len(self._live))
        self._waiting.append(len(self._live) - self._running)

    def _derive(self, request: RequestId | None, now_ns: int | None) -> None:
        """Emit the token of a member that reached n, where outputs have no rows."""
        member = self._members.get(request) if request is not None else None
        if self._recorded or member is None or member[0].emitted_in == self._step:
            return
        part, start, tokens, _ = member
        if part.prompt is not None and start + tokens >= part.prompt + part.outputs:
            self._emit(part, 1, now_ns)

    def _emit(self, part: "_Part", tokens: int, now_ns: int | None) -> None:
        part.emitted_in = self._step
        if tokens < 1:
            return
        if part.outputs == 0:
            _note(self._ttft, part.arrived_ns, now_ns)
        else:
            _note(self._tbt, part.emitted_ns, now_ns)
        part.outputs += tokens
        part.emitted_ns = now_ns
        self._outputs += tokens
        self._serve(part, self._w_q * tokens)

    def _serve(self, part: "_Part", service: float) -> None:
        if part.tenant is not None:
            self._service[part.tenant] = self._service.get(part.tenant, 0) + service

    def _leave(self, event: Event, part: "_Part") -> None:
        self._members.pop(event.subject, None)
        if part.running:
            part.running = False
            self._running -= 1

    def _end(self, event: Event, part: "_Part") -> None:
        if part.running:
            part.running = False
            self._running -= 1
        self._live.pop(event.subject, None)

    def _part(self, event: Event) -> "_Part":
        """The request's figures; one that the trace never introduced begins here, with nothing known."""
        request = event.request if event.request is not None else ""
        part = self._live.get(request)
        if part is None:
            part = self._live[request] = _Part(None, None, None)
        return part


@dataclass(slots=True)
class _Part:
    """One live request's figures. `reached`: the positions that it has ever computed, from 0 on."""

    arrived_ns: int | None
    prompt: int | None
    tenant: str | None
    outputs: int = 0
    emitted_ns: int | None = None
    emitted_in: int | None = None
    admitted: bool = False
    running: bool = False
    reached: int = 0


def _note(values: "array[int]", since_ns: int | None, now_ns: int | None) -> None:
    if since_ns is not None and now_ns is not None:
        values.append(now_ns - since_ns)


_ACTS = {
    "arrive": Meter._arrive,
    "live": Meter._begin_live,
    "admit": Meter._join,
    "resume": Meter._join,
    "schedule": Meter._schedule,
    "preempt": Meter._preempt,
    "output": Meter._output,
    "finish": Meter._finish,
    "abort": Meter._abort,
    "reject": Meter._reject,
    "step": Meter._close,
}


def measure(
    events: Iterable[Event],
    *,
    max_seqs: int | None = None,
    recorded: bool = False,
    w_p: float = 1,
    w_q: float = 2,
) -> Metrics:
    """The metrics of a whole trace. Arguments as for `Meter`."""
    meter = Meter(max_seqs=max_seqs, recorded=recorded, w_p=w_p, w_q=w_q)
    for event in events:
        meter.add(event)
    return meter.result()
