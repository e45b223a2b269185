"""transformers continuous batching recorded in production: wrap the manager before it starts.

    manager = recorded(model.init_continuous_batching(...))
    manager.start()

What is taken down and how is the adapter's (`transformers.Watch`); rows are written by another thread under
the settings of `recording`. Only the synchronous loop (`use_async_batching=False`): in the asynchronous one a
batch is planned before the last is known, which is not told apart here, so nothing is recorded and the log
says so. Sequences that fork from one request are not told of their own.
"""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from batchspec.replay.adapters.recording import BackgroundWriter, Settings, Source, folder_of, log
from batchspec.replay.adapters.transformers import Watch, parts
from batchspec.spec.events import Event
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.traces.columns import Columns
from batchspec.traces.header import Header
from batchspec.traces.pseudonyms import Pseudonyms


class Pages(Source):
    """Notes are lists of events, or a tuple of those that say what is live."""

    def __init__(self, names: Pseudonyms | None = None) -> None:
        """`names` hashes ids."""
        self._names = names
        self._columns = Columns()

    def take(self, note: Any) -> pa.RecordBatch | None:
        """Take one note in."""
        columns = Columns() if isinstance(note, tuple) else self._columns
        for event in note:
            columns.add(self._called(event))
        return columns.take() if isinstance(note, tuple) else None

    def rows(self) -> pa.RecordBatch | None:
        """The rows since the last call."""
        return self._columns.take() if self._columns.rows else None

    def _called(self, event: Event) -> Event:
        if self._names is None or event.request is None:
            return event
        return event._replace(request=self._names.word(str(event.request)))


class Recorder:
    """Tells a writer what a batch processor does, step by step."""

    def __init__(
        self, processor: Any, writer: BackgroundWriter, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """From now on."""
        self._watch = Watch(processor)
        self._writer = writer
        self._clock = clock
        self._scheduler = processor.scheduler
        self._step = 0
        self._open = False
        scheduler = processor.scheduler
        scheduler.add_waiting_request = self._around_add(scheduler.add_waiting_request)
        scheduler.set_request_cancellation = self._around_cancel(scheduler.set_request_cancellation)
        processor.prepare_next_batch = self._around_plan(processor.prepare_next_batch)
        processor.update_batch = self._around_update(processor.update_batch)

    def _tell(self, rows: Iterable[Event]) -> None:
        now, step = self._clock(), self._step if self._open else self._step + 1
        self._writer.note([row._replace(step=step, time_ns=now) for row in rows])

    def _around_add(self, add: Any) -> Any:
        def added(state: Any) -> None:
            name = state.request_id
            if name not in self._watch.names:  # else it is put back after a preemption
                self._watch.names[name] = name
                prompt, most = len(state.initial_tokens), state.max_new_tokens
                self._tell([Event(0, "arrive", name, prompt_tokens=prompt, max_tokens=most)])
            add(state)

        return added

    def _around_cancel(self, cancel: Any) -> Any:
        def cancelled(name: str) -> None:
            if name in self._watch.names:
                self._tell([Event(0, "cancel", name)])
            cancel(name)

        return cancelled

    def _around_plan(self, prepare: Any) -> Any:
        def planned() -> bool:
            self._watch.rows = []
            goes_on = bool(prepare())
            # Requests are taken in by this call too: they came before its decisions.
            self._step, self._open = self._step + 1, True
            self._tell(self._watch.rows)
            if not goes_on:
                self._end()
            return goes_on

        return planned

    def _around_update(self, update: Any) -> Any:
        def updated() -> None:
            self._watch.rows = []
            update()
            self._tell(self._watch.rows)
            self._end()

        return updated

    def _end(self) -> None:
        counters = self._watch.counters()
        row = Event(
            0,
            "step",
            free_blocks=counters["free_blocks"],
            waiting=counters["waiting"],
            running=counters["running"],
            shared_blocks=counters.get("shared_blocks"),
        )
        self._tell([row])
        self._open = False
        if self._writer.wanted:
            self._writer.wanted = False
            self._writer.note(tuple(self._live()))

    def _live(self) -> Iterable[Event]:
        now, scheduler = self._clock(), self._scheduler
        waiting = (scheduler.waiting_requests[name] for name in scheduler.waiting_requests_order)
        for state in (*scheduler.active_requests.values(), *waiting):
            name, first = state.request_id, state._true_initial_tokens
            # After a reset the prompt holds what was emitted, and the limit is what is left of it.
            emitted = len(state.initial_tokens) - first if first else 0
            most = state.max_new_tokens
            runs = name in scheduler.active_requests
            table = self._watch.table(name)
            yield Event(
                self._step + 1,
                "live",
                name,
                time_ns=now,
                prompt_tokens=first or len(state.initial_tokens),
                max_tokens=None if most is None else most + emitted,
                start=state.position_offset if runs else None,
                blocks=len(table) if runs else None,
                block_ids=tuple(table) if runs and not self._watch.shares else None,
                output_tokens=emitted + len(state.generated_tokens),
                reason="running" if runs else "preempted" if first else "waiting",
            )


def header_of(processor: Any, version: str) -> Header:
    """The header of a deployment's trace: the profile and the sizes."""
    cache = processor.cache
    limits = {
        "max_seqs": processor.scheduler.max_requests_per_batch,
        "token_budget": processor.max_batch_tokens,
    }
    if len(cache.cache_allocators) == 1:
        size = next(iter(cache.cache_allocators.values())).tokens_per_page
        limits |= {"kv_blocks": cache.num_blocks, "block_size": size}
    said = {"limits": limits, "reuse": {"prefix": bool(cache.use_prefix_sharing)}}
    profile = load_profile("transformers").merged(Profile.from_dict(said, "transformers"))
    config = {name: table for name, table in profile.to_dict().items() if isinstance(table, dict)}
    return Header(
        producer_name="transformers continuous batching",
        producer_version=version,
        clock="monotonic",
        profile=profile.name,
        config=config,
        outputs="derived",
    )


def recorded(manager: Any) -> Any:
    """The manager, recorded from its start on. Raises `HarnessError` for a version that is not known."""
    release = parts().version
    settings = Settings.of(os.environ)
    create = manager._create_batch_processor

    def created() -> Any:
        processor = create()
        if processor.use_async_batching or len(processor.cache.cache_allocators) > 1:
            log.warning("not recording: only the synchronous loop with one kind of attention is told")
            return processor
        folder = folder_of(settings, "transformers")
        try:
            pages = Pages(settings.names)
            writer = BackgroundWriter(folder, header_of(processor, release), pages, settings.keep)
        except Exception as error:
            log.error("not recording: %s; the server goes on", error)
            return processor
        log.warning("recording into %s", folder)
        manager.recording = writer
        Recorder(processor, writer)
        return processor

    manager._create_batch_processor = created
    return manager
