"""This project's own engine under test: `batchspec.replay.adapters.engine:make`.

Its scheduler and block pool as they are, its tape as what it did. Only the model is left out: the tokens
are those of the harness. A cancel that comes while a pass runs waits for the next step, as in the
engine's own loop.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from batchspec.replay.drive import STEP_NS
from batchspec.replay.harness import Capabilities, HarnessError, Outcome, Plan, Refused, Request, Results
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

_NEWS: Final = frozenset({"arrive", "cancel"})


class Adapter:
    """The engine's scheduler behind the protocol of the harness."""

    def __init__(self, profile: Profile) -> None:
        """A scheduler without requests. Raises `HarnessError` for a claim that the engine cannot keep."""
        options, self._sequence, self._tapes = _engine("options"), _engine("sequence"), _engine("tape")
        try:
            resolved = options.Options.of(profile)
        except BatchspecError as error:
            raise HarnessError(str(error)) from error
        self._tape = self._tapes.Tape(lambda batch: None)
        self._scheduler = _engine("scheduler").Scheduler(resolved, self._tape)
        self._plan: Any = None
        self._now = 0
        self._open = False
        self._late: list[RequestId] = []
        self.capabilities = Capabilities(
            name="batchspec engine",
            blocks="ids",
            seats=True,
            priority=True,
            tenants=True,
            prefix=bool(profile.reuse.prefix),
        )

    def add(self, request: Request) -> None:
        """A request arrives."""
        if request.id in self._scheduler.sequences:
            raise Refused("error", f"request {request.id!r} is still live")
        self._now = max(self._now, request.arrival_ns)
        try:
            made = self._sequence.Request(
                request.id,
                request.prompt,
                request.max_tokens,
                arrival_ns=request.arrival_ns,
                stop_tokens=frozenset({request.stop_token}),
                tenant=request.tenant,
                priority=request.priority,
            )
        except BatchspecError as error:
            raise Refused("error", str(error)) from error
        self._begin()
        self._scheduler.add(made)

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Takes effect when the next step begins."""
        self._late.append(request)
        return ()

    def plan(self) -> Plan:
        """One `schedule` of the engine."""
        self._begin()
        for request in self._late:
            self._scheduler.cancel(request)
        self._late.clear()
        self._plan = self._scheduler.schedule()
        return Plan(self._rows())

    def commit(self, results: Results) -> Outcome:
        """One `commit` of the engine."""
        emitters = [sequence for sequence in self._plan.sequences if results.tokens[sequence.request.id]]
        tokens = [results.tokens[sequence.request.id][0] for sequence in emitters]
        self._now += STEP_NS
        self._scheduler.commit(self._plan, emitters, tokens, self._now)
        self._scheduler.ended.clear()
        self._open = False
        *rows, step = self._rows()
        return Outcome(rows, step.free_blocks, step.waiting, step.running, None, step.shared_blocks)

    def _begin(self) -> None:
        if not self._open:
            self._scheduler.begin(self._now)
            self._open = True

    def _rows(self) -> list[Event]:
        """What the tape has taken down since the last call, as events."""
        rows = []
        for kind, step, request, time_ns, *fields in self._tape.rows:
            word = self._tapes.KINDS[kind]
            if word in _NEWS:
                continue
            values = dict(zip(self._tapes.FIELDS[word], fields, strict=True))
            for name in ("block_ids", "block_hashes"):
                if values.get(name) is not None:
                    values[name] = tuple(values[name])
            rows.append(Event(step, word, request, time_ns=time_ns, **values))
        self._tape.rows.clear()
        return rows


def make(profile: Profile) -> Adapter:
    """The engine's scheduler under these claims and limits."""
    return Adapter(profile)


def _engine(module: str) -> Any:
    """A module of the engine, by name: for this room it is a scheduler under test like any other."""
    try:
        return import_module(f"batchspec.engine.{module}")
    except ImportError as error:
        raise HarnessError(
            f"the engine needs the extra `engine`: pip install 'batchspec[engine]' ({error})"
        ) from error
