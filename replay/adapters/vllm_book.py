"""The recorder's book: notes of vLLM's scheduler become rows, in the writer's thread.

Runs of members, which are nearly all that there is, become columns at once; everything else goes through
`vllm_rows`, as it does for the adapter.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from batchspec.replay.adapters.recording import Source
from batchspec.replay.adapters.vllm_notes import Counters, Decisions, Joined, Left, LiveRequest
from batchspec.replay.adapters.vllm_rows import Rows, Run
from batchspec.spec.events import Event
from batchspec.traces.columns import Columns
from batchspec.traces.pseudonyms import Pseudonyms


class Book(Source):
    """Turns the tuples of a `Desk` into rows of a trace."""

    def __init__(self, block_size: int, names: Pseudonyms | None = None) -> None:
        """`names` hashes ids and contents."""
        self._size = block_size
        self._names = names
        self._columns = Columns()
        self._rows = Rows()

    def take(self, note: Any) -> pa.RecordBatch | None:
        """Take one note in; that of what is live comes back as rows of its own."""
        kind, step, now, *told = note
        if kind == "live":
            return self._live(step, now, *told)
        getattr(self, f"_{kind}")(step, now, *told)
        return None

    def rows(self) -> pa.RecordBatch | None:
        """The rows since the last call."""
        return self._columns.take() if self._columns.rows else None

    # -- one method a kind of note -----------------------------------------------------------------

    def _arrived(self, step: int, now: int, request: Any, parked: str | None) -> None:
        self._add(
            step,
            now,
            Event(
                step,
                "arrive",
                request.request_id,
                prompt_tokens=request.num_prompt_tokens,
                max_tokens=request.max_tokens,
                priority=request.priority,
            ),
        )
        if parked is not None:
            self._parked = {*self._parked, request.request_id}
            self._add(step, now, Event(step, "park", request.request_id, reason=parked))

    _parked: frozenset[str] | set[str] = frozenset()

    def _cancelled(self, step: int, now: int, request: Any) -> None:
        self._add(step, now, Event(step, "cancel", request.request_id))

    def _preempted(self, step: int, now: int, left: Left) -> None:
        self._add(step, now, self._rows.preempted(left))

    def _planned(self, step: int, now: int, decisions: Decisions) -> None:
        for part in self._rows.in_order(decisions):
            if isinstance(part, Run):
                self._members(step, now, part, decisions.drafts)
                continue
            if isinstance(part, Joined) and part.request.request_id in self._parked:
                self._parked = self._parked - {part.request.request_id}
                self._add(step, now, Event(step, "ready", part.request.request_id))
            for row in self._rows.other(part, decisions.drafts):
                self._add(step, now, self._hashed(row, part.request))

    def _members(self, step: int, now: int, run: Run, drafts: Mapping[str, int]) -> None:
        """The running requests' shares of a step: rows of one kind, a column at a time."""
        requests, tokens, grants, starts = run
        names = [request.request_id for request in requests]
        columns: dict[str, Sequence[int]] = {"start": starts, "tokens": tokens}
        cells: dict[str, Iterable[tuple[int, Any]]] = {}
        if len(grants[0].blocks) == 1:
            held = self._rows.held
            given = [(index, grant.blocks[0]) for index, grant in enumerate(grants) if grant.blocks[0]]
            for index, blocks in given:
                held[names[index]] = held.get(names[index], 0) + len(blocks)
            cells["block_ids"] = [(index, [block.block_id for block in blocks]) for index, blocks in given]
            columns["blocks"] = [held.get(name, 0) for name in names]
        if drafts:
            cells["drafts"] = [(index, drafts[name]) for index, name in enumerate(names) if name in drafts]
        elif requests[0].block_hashes:
            first = np.array(starts) // self._size
            last = (np.array(starts) + np.array(tokens)) // self._size
            full = np.flatnonzero(last > first).tolist()
            keys = [(index, self._keys(requests[index], first[index], last[index])) for index in full]
            cells["block_hashes"] = [pair for pair in keys if pair[1]]
        if self._names is not None:
            names = [self._names.word(name) for name in names]
        self._columns.add_run("schedule", step, now, names, columns, cells)

    def _emitted(self, step: int, now: int, pass_: int, outputs: list[Any]) -> None:
        told = [(output.request_id, len(output.new_token_ids)) for output in outputs if output.new_token_ids]
        if not told:
            return
        names, tokens = zip(*told, strict=True)
        if self._names is not None:
            names = tuple(self._names.word(name) for name in names)
        self._columns.add_run("output", step, now, names, {"tokens": tokens, "pass": (pass_,) * len(names)})

    def _ended(
        self,
        step: int,
        now: int,
        pass_: int | None,
        request: Any,
        reason: str,
        block_ids: Sequence[int] | None,
    ) -> None:
        self._parked = self._parked - {request.request_id}
        row = self._rows.ended(request, reason, block_ids)
        late = pass_ if pass_ is not None and pass_ != step else None
        self._add(step, now, row._replace(pass_=late if row.event == "finish" else None))

    def _kept(self, step: int, now: int, request: Any, held: int) -> None:
        """Only where block ids are not told."""

    def _released(self, step: int, now: int, request: Any, block_ids: Sequence[int] | None) -> None:
        ids = None if block_ids is None else tuple(block_ids)
        self._add(step, now, Event(step, "release", request.request_id, block_ids=ids))

    def _stepped(self, step: int, now: int, counters: Counters) -> None:
        free, waiting, running = counters
        self._columns.add(
            Event(step, "step", time_ns=now, free_blocks=free, waiting=waiting, running=running)
        )

    def _live(self, step: int, now: int, requests: list[LiveRequest]) -> pa.RecordBatch:
        columns = Columns()
        for live in requests:
            request, blocks = live.request, live.blocks
            ids = None if blocks is None else tuple(block.block_id for block in blocks)
            size = self._size
            full = 0 if ids is None else min(live.computed // size, len(ids))
            row = Event(
                step,
                "live",
                request.request_id,
                time_ns=now,
                prompt_tokens=request.num_prompt_tokens,
                max_tokens=request.max_tokens,
                priority=request.priority,
                start=live.computed if live.state == "running" else None,
                tokens=live.in_flight or None,
                blocks=None if ids is None else len(ids),
                block_ids=ids,
                block_hashes=self._keys(request, 0, full) or None,
                output_tokens=live.outputs,
                reason=live.state,
            )
            columns.add(self._called(row))
        return columns.take()

    # -- names and keys ----------------------------------------------------------------------------

    def _add(self, step: int, now: int, row: Event) -> None:
        self._columns.add(self._called(row)._replace(step=step, time_ns=now))

    def _called(self, row: Event) -> Event:
        names = self._names
        if names is None:
            return row
        cause = None if row.cause is None else names.word(str(row.cause))
        return row._replace(request=names.word(str(row.request)), cause=cause)

    def _hashed(self, row: Event, request: Any) -> Event:
        """With the keys of the blocks that the row takes over or makes full."""
        if row.drafts or row.event not in ("admit", "resume", "schedule"):
            return row
        first = (row.start or 0) // self._size if row.event == "schedule" else 0
        last = (
            (row.start or 0) + (row.tokens or 0) if row.event == "schedule" else row.cached or 0
        ) // self._size
        return row._replace(block_hashes=self._keys(request, first, last) or None)

    def _keys(self, request: Any, first: int, last: int) -> tuple[int, ...]:
        found = request.block_hashes[first:last]
        if self._names is None:
            return tuple(int.from_bytes(key[:8], "little") >> 1 for key in found)
        return tuple(map(self._names.number, found))
