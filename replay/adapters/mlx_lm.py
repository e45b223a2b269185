"""mlx-lm's `BatchGenerator` under test: `batchspec.replay.adapters.mlx_lm:make`, profile `mlx-lm`.

The real generator, its prompt and generation batches and its KV caches, on the CPU. Replaced: the model,
whose logits are all zero, and the sampler, since the harness scripts the tokens; they are put where the
generator keeps what it has sampled.

One call of `next` is one iteration: it dispatches a decode of everybody who generates, reads the tokens
that the iteration before has sampled, lets go who has ended, takes new prompts in, gives each prompt a
chunk, and lets prompts that are through emit. So results are read one iteration late, and who ended was
a member of one more pass.
"""

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
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
    output,
    schedule,
)
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

KNOWN: Final = ("0.32.2",)
CHUNK: Final = 8
"""Positions of a prompt that one iteration computes at most (`prefill_step_size`)."""


class Adapter:
    """The batch generator behind the protocol of the harness. It knows no priority and no memory bound."""

    def __init__(self, profile: Profile) -> None:
        """A generator without requests. Raises `HarnessError` for an unknown version or a missing limit."""
        release, self._parts = _engine()
        seats = profile.limits.max_seqs
        if seats is None:
            raise HarnessError("mlx-lm needs limits.max_seqs")
        self._generator = self._parts.generator(
            self._parts.model,
            sampler=self._sample,
            completion_batch_size=seats,
            prefill_batch_size=min(2, seats),
            prefill_step_size=CHUNK,
        )
        self._sent: dict[int, Request] = {}
        self._uids: dict[RequestId, int] = {}
        self._done: dict[int, int] = {}
        self._emitted: dict[int, int] = {}
        self._pass = 0
        self.capabilities = Capabilities(name="mlx-lm", version=release, outputs="late")

    def add(self, request: Request) -> None:
        """A request arrives."""
        if request.id in self._uids:
            raise Refused("error", f"request {request.id!r} is still live")
        stops = self._parts.stops([[request.stop_token]])
        try:
            (uid,) = self._generator.insert(
                [list(request.prompt)], max_tokens=[request.max_tokens], stop_sequences=[stops]
            )
        except ValueError as error:
            raise Refused("error", str(error)) from error
        self._sent[uid] = request
        self._uids[request.id] = uid
        self._emitted[uid] = 0

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Removed at once."""
        uid = self._uids.pop(request)
        self._generator.remove([uid])
        return [aborted(request, "client", self._emitted[uid])]

    def plan(self) -> Plan:
        """One call of `next`, in the words of a trace."""
        generator = self._generator
        generating = generator._generation_batch
        rows = [schedule(self._sent[uid].id, 1) for uid in generating.uids]
        queue = [waiting[0] for waiting in generator._unprocessed_sequences]
        if rows or generator._unprocessed_sequences or generator._currently_processing:
            prompts, tokens = generator.next()
        else:
            prompts, tokens = [], []
        for response in tokens:
            rows += self._read(response)
        joined = len(queue) - len(generator._unprocessed_sequences)
        rows += [admit(self._sent[uid].id) for uid in queue[:joined]]
        rows += [self._chunk(response) for response in prompts]
        return Plan(rows, waiting=self._waiting, running=self._running)

    def commit(self, results: Results) -> Outcome:
        """The tokens go where the generator keeps what it has sampled; its next call reads them."""
        self._pass = results.pass_
        batch = self._generator._generation_batch
        if batch.uids:
            found = (results.tokens.get(self._sent[uid].id, ()) for uid in batch.uids)
            batch._next_tokens = self._parts.array([tokens[0] if tokens else 0 for tokens in found])
        return Outcome((), waiting=self._waiting, running=self._running)

    @property
    def _waiting(self) -> int:
        return len(self._generator._unprocessed_sequences)

    @property
    def _running(self) -> int:
        return len(self._generator._generation_batch) + len(self._generator._prompt_batch)

    def _read(self, response: Any) -> list[Event]:
        """A token that the pass before has sampled."""
        request = self._sent[response.uid]
        self._emitted[response.uid] += 1
        rows = [output(request.id, 1, pass_=self._pass)]
        if response.finish_reason is not None:
            emitted = self._emitted[response.uid]
            rows.append(finish(request.id, response.finish_reason, emitted, pass_=self._pass))
            self._uids.pop(request.id, None)
        return rows

    def _chunk(self, response: Any) -> Event:
        """A prompt's turn."""
        request = self._sent[response.uid]
        done = response.progress[0]
        before = self._done.get(response.uid, 0)
        self._done[response.uid] = done
        if response.end_of_prompt:  # its last token was left for the pass that emits
            before, done = len(request.prompt) - 1, len(request.prompt)
        return schedule(request.id, done - before)

    def _sample(self, logprobs: Any) -> Any:
        """Something for each member, until the harness says what."""
        return self._parts.array([0] * logprobs.shape[0])


def make(profile: Profile) -> Adapter:
    """mlx-lm's batch generator with as many places as the profile has."""
    return Adapter(profile)


make.limits = {"token_budget": (), "kv_blocks": (), "block_size": (), "max_model_len": (48, 24, 96)}  # type: ignore[attr-defined]
"""A chunk is bounded for each prompt, the tokens of an iteration and the KV memory are not."""


def _engine() -> tuple[str, SimpleNamespace]:
    """The installed version, its classes, and a model that computes nothing."""
    try:
        release = version("mlx-lm")
    except PackageNotFoundError:
        raise HarnessError("mlx-lm is not installed; scripts/thirdparty mlx-lm sets it up") from None
    if release not in KNOWN:
        raise HarnessError(f"mlx-lm {release} is not known to this adapter; it knows {', '.join(KNOWN)}")
    try:
        mx, generate = import_module("mlx.core"), import_module("mlx_lm.generate")
    except ImportError as error:
        raise HarnessError(f"mlx-lm does not import: {error}") from error

    class Model:
        """One layer of KV cache and no weights."""

        layers = (None,)

        def __call__(self, inputs: Any, cache: Any = None) -> Any:
            rows, length = inputs.shape
            nothing = mx.zeros((rows, 1, length, 1))
            cache[0].update_and_fetch(nothing, nothing)
            return mx.zeros((rows, length, 2))

    return release, SimpleNamespace(
        generator=generate.BatchGenerator, stops=generate.StopSequences, array=mx.array, model=Model()
    )
