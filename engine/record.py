"""`record`: a workload through the engine, everything it decides written down as it happens."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from batchspec.engine.clock import Clock, VirtualClock
from batchspec.engine.engine import Engine
from batchspec.engine.measure import Gauge, Usage
from batchspec.engine.model import Model
from batchspec.engine.options import Options
from batchspec.engine.sequence import Request
from batchspec.engine.tape import Tape
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import RequestId
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.journal import JournaledRecorder


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording came to. `stopped` is the one line that says why it ended early, else None."""

    rows: int
    steps: int
    requests: int
    preemptions: int
    usage: Usage
    stopped: str | None
    tokens: dict[RequestId, tuple[int, ...]]


def header_of(options: Options, clock: Clock, seed: int | None = None) -> Header:
    """The header of a trace of this engine: its claims are those it was configured with."""
    extra = {} if seed is None else {"seed": seed}
    return Header(
        producer_name="batchspec engine",
        producer_version=version("batchspec"),
        clock=clock.kind,
        config=options.profile.to_dict(),
        outputs="derived",
        extra=extra,
    )


def record(
    requests: Iterable[Request],
    out: str | Path,
    profile: Profile,
    *,
    model: Model | None = None,
    clock: Clock | None = None,
    level: str = "L3",
    seed: int | None = None,
    sync: bool = False,
    warn: Callable[[str], None] | None = None,
    each_step: Callable[[Engine], None] | None = None,
) -> Recorded:
    """Serve `requests` and record the trace `out`. A disk that is full ends the recording, not the run.

    `warn` receives the one line that says so, when it happens. `each_step` sees the engine after each
    step (progress, cancels). Raises `EngineError` for a profile the engine cannot keep, `TraceError`
    for an `out` that cannot be begun.
    """
    clock = clock or VirtualClock()
    options = Options.of(profile)
    coming = sorted(requests, key=lambda item: item.arrival_ns)
    id_type = int if coming and all(isinstance(item.id, int) for item in coming) else str
    recorder = JournaledRecorder(out, header_of(options, clock, seed), sync=sync)
    tape = Tape(recorder.write_batch, level, id_type)
    engine = Engine(model, profile, clock=clock, tape=tape)
    gauge = Gauge(engine.model)
    tokens: dict[RequestId, list[int]] = {item.id: [] for item in coming}
    stopped: str | None = None
    finished = False
    try:
        for request in coming:
            engine.submit(request)
        while engine.busy:
            for output in engine.step():
                if output.token is not None:
                    tokens[output.request].append(output.token)
            if engine.last is not None:
                gauge.add(engine.last)
            if each_step is not None:
                each_step(engine)
            if tape.broken is not None and stopped is None:
                stopped = _stop(tape.broken, engine, warn)
        finished = True
    finally:
        # Also where the engine itself fails: what was recorded until then is worth reading.
        tape.flush()
        finished = finished and tape.broken is None
        try:
            recorder.close(complete=finished)
        except BatchspecError as error:
            stopped = stopped or _stop(error, engine, warn)
    if tape.broken is not None and stopped is None:
        stopped = _stop(tape.broken, engine, warn)
    return Recorded(
        rows=recorder.rows,
        steps=engine.scheduler.step,
        requests=len(coming),
        preemptions=engine.scheduler.preemptions,
        usage=gauge.usage(),
        stopped=stopped,
        tokens={name: tuple(found) for name, found in tokens.items()},
    )


def _stop(error: Exception, engine: Engine, warn: Callable[[str], None] | None) -> str:
    engine.scheduler.record(None)
    text = f"recording stopped at step {engine.scheduler.step}: {error}; the engine goes on"
    if warn is not None:
        warn(text)
    return text
