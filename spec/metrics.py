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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from batchspec.spec.events import Event, RequestId
from batchspec.spec.quantities import Distribution, ModelShape, distribution
from batchspec.spec.served import Served, ServedSink


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
    active: Distribution | None
    """Active sequences: running, with KV resident, at the end of each step."""
    throughput: float | None
    """Output tokens a second, of all requests."""
    busy: float | None
    """Share of the span in which a pass runs; of overlapping passes at most all of it."""
    flops: float
    """FLOPs of all passes, counted from the model's shape; see `mfu`."""
    arithmetic_intensity: float | None
    """FLOPs per byte moved, over all passes: weights read once a pass, KV positions once a member."""
    service: Mapping[str, float] = field(default_factory=dict)
    """Weighted tokens that each tenant was served: w_p · prompt at admission + w_q · outputs."""

    @property
    def weight_reuse(self) -> float | None:
        """Tokens a weight read: the mean batch size in tokens."""
        return self.tokens_per_pass.mean if self.tokens_per_pass else None

    def mfu(self, peak_flops: float) -> float | None:
        """Share of a device's peak FLOPs a second that the span made use of. Not `busy`: a device is busy
        with a pass of one token as with one of thousands."""
        return self.flops * 1e9 / self.span_ns / peak_flops if self.span_ns else None


class Meter:
    """Measures a stream of events. Memory: one record a live request, 8 bytes a measured value."""

    def __init__(
        self,
        *,
        max_seqs: int | None = None,
        recorded: bool = False,
        w_p: float = 1,
        w_q: float = 2,
        model: ModelShape | None = None,
        served: ServedSink | None = None,
    ) -> None:
        """`max_seqs` is S; `recorded` says that every emission has an `output` row; `w_p` and `w_q`
        weigh input and output tokens in `service`; `model` is what FLOPs and bytes are counted from.
        `served` is told of each request when it ends, and of those still live at `result`."""
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
        self._active = array("q")
        self._service: dict[str, float] = {}
        self._model = model or ModelShape()
        self._served = served
        self._pass_began_ns: int | None = None
        self._busy_ns = 0
        self._flops = self._moved = 0.0

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

    @property
    def service(self) -> Mapping[str, float]:
        """What each tenant has been served so far, in weighted tokens."""
        return self._service

    def result(self) -> Metrics:
        """The figures so far; the last step counts as over."""
        self._close_step(self._last_ns)
        for request, part in list(self._live.items()):
            self._tell(request, part, None, None)
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
            active=distribution(self._active),
            throughput=self._outputs * 1e9 / span if span else None,
            busy=min(1.0, self._busy_ns / span) if span else None,
            flops=self._flops,
            arithmetic_intensity=self._flops / self._moved if self._moved else None,
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
            part.admitted_ns = event.time_ns
            _note(self._queueing, part.arrived_ns, event.time_ns)
            if part.prompt is not None:
                self._serve(part, self._w_p * part.prompt)

    def _schedule(self, event: Event) -> None:
        if event.request is not None and event.request in self._live:
            start, tokens = event.start or 0, event.tokens or 0
            if self._pass_began_ns is None:
                self._pass_began_ns = event.time_ns
            self._members[event.request] = (self._live[event.request], start, tokens, event.drafts or 0)

    def _preempt(self, event: Event) -> None:
        self._counts["preempt"] += 1
        part = self._part(event)
        part.preemptions += 1
        self._leave(event, part)

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
            positions = pairs = 0
            for part, start, tokens, drafts in members.values():
                end = start + tokens
                positions += end
                pairs += tokens * start + tokens * (tokens + 1) // 2
                self._computed += tokens
                if drafts:
                    self._drafts += drafts
                if start < part.reached:
                    again = min(end, part.reached) - start
                    self._recomputed += again
                    part.recomputed += again
                part.reached = max(part.reached, end - drafts)
            flops, moved = self._model.work(sum(sizes), positions, pairs)
            self._flops += flops
            self._moved += moved
            if self._pass_began_ns is not None and now_ns is not None:
                self._busy_ns += now_ns - self._pass_began_ns
            self._members = {}
        self._pass_began_ns = None
        self._seat_steps += self._running
        self._active.append(self._running)
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
            part.first_ns = now_ns
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
        self._tell(event.subject, part, event.time_ns, event.event)

    def _tell(self, request: RequestId, part: "_Part", now_ns: int | None, end: str | None) -> None:
        if self._served is None:
            return
        self._served(
            Served(
                request=request,
                tenant=part.tenant,
                arrival_ns=part.arrived_ns,
                admitted_ns=part.admitted_ns,
                first_token_ns=part.first_ns,
                finish_ns=now_ns,
                prompt_tokens=part.prompt,
                output_tokens=part.outputs,
                preemptions=part.preemptions,
                recomputed=part.recomputed,
                end=end,
            )
        )

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
    admitted_ns: int | None = None
    first_ns: int | None = None
    running: bool = False
    preemptions: int = 0
    recomputed: int = 0
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
    model: ModelShape | None = None,
    served: ServedSink | None = None,
) -> Metrics:
    """The metrics of a whole trace. Arguments as for `Meter`."""
    meter = Meter(max_seqs=max_seqs, recorded=recorded, w_p=w_p, w_q=w_q, model=model, served=served)
    for event in events:
        meter.add(event)
    return meter.result()
