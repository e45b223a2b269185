"""A busy replica as columns: a trace of any length at level L2, made by a compiled scheduler of its own.

It plays vLLM V1's game (profile `vllm-v1`): who runs goes first, the latest admitted makes room, who was
preempted comes back first, then those that wait in their order, while seats, tokens and blocks last. The
mix is that of a replica under pressure: prompts in chunks, mostly decodes, now and then a preemption.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.schema import TRACE_SCHEMA, with_ids
from batchspec.traces.writer import Writer

SEATS, BUDGET, BLOCKS, SIZE, QUEUE = 128, 2048, 2800, 16, 24
LIMITS = {"max_seqs": SEATS, "token_budget": BUDGET, "kv_blocks": BLOCKS, "block_size": SIZE}
KINDS = ("arrive", "admit", "schedule", "preempt", "resume", "finish", "step")
REASONS = ("recompute", "stop", "length")
NULL = -1
COLUMNS = (
    ("step", np.int64),
    ("event", np.int32),
    ("request", np.int64),
    ("time_ns", np.int64),
    ("prompt_tokens", np.int32),
    ("max_tokens", np.int32),
    ("slot", np.int32),
    ("cached", np.int32),
    ("start", np.int32),
    ("tokens", np.int32),
    ("blocks", np.int32),
    ("free_blocks", np.int32),
    ("waiting", np.int32),
    ("running", np.int32),
    ("output_tokens", np.int32),
    ("reason", np.int32),
    ("cause", np.int64),
)


def profile() -> Profile:
    """The sizes of this replica, as a config."""
    return Profile.from_dict({"limits": LIMITS})


@numba.njit(cache=True)
def _put(out, n, step, kind, request, now):  # type: ignore[no-untyped-def]
    for column in range(17):
        out[column, n] = NULL
    out[0, n] = step
    out[1, n] = kind
    out[2, n] = request
    out[3, n] = now


@numba.njit(cache=True)
def _run(out, facts, table, runs, queue, pres, slots):  # type: ignore[no-untyped-def]
    """Whole steps until `out` is nearly full. Rows of `table`: id, prompt, target, max, computed, outputs,
    blocks, slot, first admission, tokens of this step. Returns the rows written."""
    n = 0
    while n + 4 * SEATS + 4 * QUEUE < out.shape[1]:
        facts[0] += 1
        step = facts[0]
        facts[1] += 18_000_000 + np.random.randint(0, 9_000_000)
        now = facts[1]
        while facts[4] < QUEUE:
            place = facts[7]
            facts[7] = table[place, 0]
            request = facts[2]
            facts[2] += 1
            prompt = min(1800, 8 + int(np.random.exponential(280.0)))
            most = 16 + int(np.random.exponential(180.0))
            table[place, 0] = request
            table[place, 1] = prompt
            table[place, 3] = most
            table[place, 2] = most if np.random.random() < 0.3 else np.random.randint(1, most + 1)
            table[place, 4] = table[place, 5] = table[place, 6] = 0
            table[place, 8] = -1
            queue[(facts[3] + facts[4]) % queue.size] = place
            facts[4] += 1
            _put(out, n, step, 0, request, now)
            out[4, n] = prompt
            out[5, n] = most
            n += 1
        budget = BUDGET
        at = 0
        preempted = 0
        while at < facts[5] and budget > 0:
            r = runs[at]
            tokens = min(table[r, 1] + table[r, 5] - table[r, 4], budget)
            need = -(-(table[r, 4] + tokens) // SIZE) - table[r, 6]
            alive = True
            while need > facts[6]:
                facts[5] -= 1
                v = runs[facts[5]]
                preempted += 1
                _put(out, n, step, 3, table[v, 0], now)
                out[15, n] = 0
                out[16, n] = table[r, 0]
                n += 1
                facts[6] += table[v, 6]
                slots[facts[8]] = table[v, 7]
                facts[8] += 1
                table[v, 4] = table[v, 6] = 0
                pres[facts[9]] = v
                facts[9] += 1
                if v == r:
                    alive = False
                    break
            if not alive:
                break
            facts[6] -= need
            table[r, 6] += need
            _put(out, n, step, 2, table[r, 0], now)
            out[8, n] = table[r, 4]
            out[9, n] = tokens
            out[10, n] = table[r, 6]
            n += 1
            table[r, 4] += tokens
            budget -= tokens
            at += 1
        while preempted == 0 and facts[5] < SEATS and budget > 0:
            back = facts[9] > 0
            if back:
                best = 0
                for place in range(facts[9]):
                    if table[pres[place], 8] < table[pres[best], 8]:
                        best = place
                r = pres[best]
            elif facts[4] > 0:
                r = queue[facts[3] % queue.size]
            else:
                break
            known = table[r, 1] + table[r, 5]
            if -(-known // SIZE) > facts[6]:
                break
            tokens = min(known, budget)
            need = -(-tokens // SIZE)
            facts[6] -= need
            table[r, 6] = need
            facts[8] -= 1
            table[r, 7] = slots[facts[8]]
            if back:
                for place in range(best, facts[9] - 1):
                    pres[place] = pres[place + 1]
                facts[9] -= 1
            else:
                facts[3] += 1
                facts[4] -= 1
                table[r, 8] = facts[10]
                facts[10] += 1
            _put(out, n, step, 4 if back else 1, table[r, 0], now)
            out[6, n] = table[r, 7]
            out[7, n] = 0
            out[10, n] = need
            n += 1
            _put(out, n, step, 2, table[r, 0], now)
            out[8, n] = 0
            out[9, n] = tokens
            out[10, n] = need
            n += 1
            table[r, 4] = tokens
            budget -= tokens
            runs[facts[5]] = r
            facts[5] += 1
            at += 1
        kept = 0
        for place in range(facts[5]):
            r = runs[place]
            if place < at and table[r, 4] == table[r, 1] + table[r, 5]:
                table[r, 5] += 1
                if table[r, 5] == table[r, 2]:
                    _put(out, n, step, 5, table[r, 0], now)
                    out[14, n] = table[r, 5]
                    out[15, n] = 2 if table[r, 5] == table[r, 3] else 1
                    n += 1
                    facts[6] += table[r, 6]
                    slots[facts[8]] = table[r, 7]
                    facts[8] += 1
                    table[r, 0] = facts[7]
                    facts[7] = r
                    continue
            runs[kept] = r
            kept += 1
        facts[5] = kept
        _put(out, n, step, 6, NULL, now)
        out[11, n] = facts[6]
        out[12, n] = facts[4] + facts[9]
        out[13, n] = facts[5]
        n += 1
    return n


@numba.njit(cache=True)
def _seed(seed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)


def batches(events: int, seed: int = 1, group: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """At least so many events, in batches of `group` rows but for the last."""
    _seed(seed)
    size = SEATS * 2 + QUEUE * 2
    table = np.zeros((size, 10), np.int64)
    table[:, 0] = np.arange(1, size + 1)
    facts = np.array([0, 0, 0, 0, 0, 0, BLOCKS, 0, SEATS, 0, 0], np.int64)
    room = [np.zeros(size, np.int64) for _ in range(3)]
    slots = np.arange(SEATS - 1, -1, -1, dtype=np.int64)
    out = np.empty((len(COLUMNS), group + 8 * SEATS), np.int64)
    rest = np.empty((len(COLUMNS), 0), np.int64)
    done = 0
    while done < events:
        n = _run(out, facts, table, *room, slots)
        rest = np.concatenate([rest, out[:, :n]], axis=1)
        while rest.shape[1] >= group:
            yield _batch(rest[:, :group])
            rest = rest[:, group:]
        done += n
    if rest.shape[1]:
        yield _batch(rest)


def schema() -> pa.Schema:
    """The columns of this trace in the types of the format."""
    whole = with_ids(TRACE_SCHEMA, int)
    return pa.schema([whole.field(name) for name, _ in COLUMNS])


def _batch(rows: Any) -> pa.RecordBatch:
    arrays = []
    for place, (name, kind) in enumerate(COLUMNS):
        values = rows[place].astype(kind)
        mask = values == NULL if name not in ("step", "event", "time_ns") else None
        array = pa.array(values, mask=mask)
        if name in ("event", "reason"):
            array = pa.DictionaryArray.from_arrays(array, list(KINDS if name == "event" else REASONS))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def write(path: Path, events: int, seed: int = 1) -> int:
    """Write a trace of at least so many events as a recorder does. Returns their number."""
    writer = Writer(path, schema())
    for batch in batches(events, seed):
        writer.append(batch)
    header = Header(
        producer_name="bench",
        clock="monotonic",
        profile="vllm-v1",
        config=profile().to_dict(),
        complete=False,
    )
    writer.close(header)
    return writer.rows
