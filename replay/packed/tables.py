"""The tables that the packed form computes with, filled by asking the readable spec.

What a request must hold and what it needs, who never fits, ranks of the order and of victims, urgency: each
is an answer of a function of the spec for every value that can occur. The loops in steps.py only look
them up; what they add is which action exists when, which is held against the space state by state.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final

import numpy as np

from batchspec.replay.packed.memory import (
    ABORTS,
    APART,
    BARRIER,
    BLOCKS,
    BUDGET,
    BY_STEP,
    CHUNKED,
    EAGER,
    ENDS_KEPT,
    ENTRY,
    FOR_WAITING,
    HOLD,
    HOST,
    JOBS,
    LIFT,
    MOST,
    MOST_JOBS,
    NEED,
    NO_HOST_LIMIT,
    ORDER,
    OUTPUTS_KEPT,
    OWES,
    PREEMPTS,
    PROMPT,
    RANK,
    REFUSED,
    RETURNS,
    SEATS,
    SIZE,
    SKIPS,
    STALL_FREE,
    STOPS,
    SYMMETRY,
    TABLES,
    TENANT,
    TIES,
    TIES_NONE,
    URGENCY,
    VICTIM,
    VICTIM_TIES,
    W_P,
    W_Q,
    WATERMARK,
    Memory,
)
from batchspec.spec.frame import START
from batchspec.spec.line import need_blocks
from batchspec.spec.model import RUNNING, Request
from batchspec.spec.policies import ORDERS, VICTIMS, Rank, urgency
from batchspec.spec.profile import parse_need
from batchspec.spec.space import Space

MODES: Final = ("none", "recompute", "swap")
RETURN_WORDS: Final = (None, "front", "back", "arrival")
ORDER_WORDS: Final = ("fcfs", "sjf", "priority", "fair")
_VICTIMS: Final = ("latest-admitted", "latest-arrived", "fewest-outputs", "least-urgent", "self")
_MOST_TABLE: Final = 2_000_000


def outside(space: Space) -> str | None:
    """Why the packed form does not have this space, or None where it has."""
    profile = space.profile
    if type(space) is not Space or space.watches:
        return "only the space itself has a packed form, without what properties count"
    if len(space.jobs) > MOST_JOBS:
        return f"more than {MOST_JOBS} requests"
    if profile.admission.order not in ORDER_WORDS or profile.preemption.victim not in (None, *_VICTIMS):
        return "an order or a victim of your own"
    if profile.preemption.for_waiting and space.preempts == "none":
        return "preemption for waiting requests without a mode of preemption"
    if profile.admission.order == "priority" and profile.admission.urgent is None:
        return "an order by priority without its direction"
    if profile.admission.order == "fair" and not _counts_whole(space):
        return "counters that are no whole numbers, or requests without a tenant"
    longest = max(job.prompt + job.max_tokens for job in space.jobs)
    outputs = max(job.max_tokens for job in space.jobs)
    if len(space.jobs) * outputs * max(longest, len(space.jobs) ** 2) > _MOST_TABLE:
        return "requests too long for its tables"
    return None


def _counts_whole(space: Space) -> bool:
    fairness = space.profile.fairness
    weights = (space.profile.value("fairness.w_p"), space.profile.value("fairness.w_q"))
    whole = all(float(weight).is_integer() and weight < 1000 for weight in weights)
    return whole and not fairness.weights and all(job.tenant is not None for job in space.jobs)


def tenants_of(space: Space) -> list[str]:
    """Names by number; only order `fair` tells tenants apart."""
    return sorted({job.tenant or "" for job in space.jobs}) if space.fresh_shares is not None else [""]


def memory_of(space: Space) -> Memory:
    """The memory for a space: sizes, claims, and the tables, for which the spec is asked."""
    jobs, tenants = space.jobs, tenants_of(space)
    blank = space.press.thaw(START)
    outputs = max(job.max_tokens for job in jobs)
    ends = max(job.prompt + job.max_tokens for job in jobs) + 2
    hold = np.zeros((len(jobs), outputs, ends), np.int64)
    need = np.zeros((len(jobs), outputs), np.int64)
    by_step = parse_need(space.test)[0] == "step"
    records = [_record(space, number) for number in range(len(jobs))]
    for number, job in enumerate(jobs):
        for emitted in range(job.max_tokens):
            record = _record(space, number, outputs=emitted)
            need[number, emitted] = 0 if by_step else need_blocks(blank, record, None) or 0
            hold[number, emitted] = [space.hold(record, end) for end in range(ends)]
    tables = {
        PROMPT: np.array([job.prompt for job in jobs]),
        MOST: np.array([job.max_tokens for job in jobs]),
        URGENCY: np.array([urgency(record, space.profile) for record in records]),
        TENANT: np.array([tenants.index(job.tenant or "") if len(tenants) > 1 else 0 for job in jobs]),
        ENTRY: np.array([space.press.entry(number) for number in range(len(jobs))]),
        REFUSED: np.array([space.rejects(blank, record) for record in records]),
        HOLD: hold,
        NEED: need,
        RANK: _ranks_of_line(space),
        VICTIM: _ranks_of_victims(space, outputs),
    }
    memory = [_sizes(space, by_step)]
    at = TABLES
    for name, table in tables.items():
        memory[0][name] = at
        memory.append(table.astype(np.int64).ravel())
        at += table.size
    memory[0][OUTPUTS_KEPT], memory[0][ENDS_KEPT] = outputs, ends
    return np.concatenate(memory)


def _record(space: Space, number: int, **values: int) -> Request:
    job = space.jobs[number]
    record = Request(number, number, job.prompt, job.max_tokens, job.priority, job.tenant)
    return record._replace(**values)  # type: ignore[arg-type]


def _sizes(space: Space, by_step: bool) -> Memory:
    profile, config = space.profile, np.zeros(TABLES, np.int64)
    limits = profile.limits
    config[JOBS], config[BLOCKS], config[SIZE] = len(space.jobs), space.blocks, space.size
    config[SEATS], config[BUDGET] = limits.max_seqs or 0, space.budget
    config[HOST] = NO_HOST_LIMIT if limits.host_blocks is None else limits.host_blocks
    config[CHUNKED], config[EAGER] = space.chunked, space.eager
    config[STOPS], config[ABORTS], config[SYMMETRY] = space.stops, space.aborts, space.symmetry
    config[OWES], config[STALL_FREE], config[APART] = space.owes, space.stall_free, space.apart
    config[PREEMPTS] = MODES.index(space.preempts)
    config[SKIPS], config[BY_STEP] = space.skips, by_step
    config[WATERMARK] = profile.value("admission.watermark_blocks")
    config[BARRIER] = profile.batching.mode == "static"
    config[RETURNS] = RETURN_WORDS.index(profile.preemption.resume)
    config[FOR_WAITING] = bool(profile.preemption.for_waiting)
    config[ORDER] = ORDER_WORDS.index(profile.admission.order or "fcfs")
    config[TIES] = VICTIM_TIES.get(profile.preemption.victim or "", TIES_NONE)
    config[LIFT] = bool(profile.value("fairness.lift"))
    config[W_P], config[W_Q] = int(profile.value("fairness.w_p")), int(profile.value("fairness.w_q"))
    return config


def _ranks_of_line(space: Space) -> Memory:
    count = len(space.jobs)
    order = ORDERS[space.profile.admission.order or "fcfs"]
    spots = list(product(range(count), range(count)))
    ranks = (order(_record(space, job, place=place), space.profile) for job, place in spots)
    return _dense(ranks).reshape(count, count)


def _ranks_of_victims(space: Space, outputs: int) -> Memory:
    count = len(space.jobs)
    shape = (count, outputs, count, count)
    rule = VICTIMS.get(space.profile.preemption.victim or "")
    if rule is None:
        return np.zeros(shape, np.int64)
    ranks = []
    for job, emitted, number, joined in product(*map(range, shape)):
        record = _record(space, job, outputs=emitted, joined=joined)
        ranks.append(rule(record._replace(number=number, state=RUNNING), space.profile))
    return _dense(ranks).reshape(shape)


def _dense(ranks: Iterable[Rank]) -> Memory:
    given: Sequence[Rank] = list(ranks)
    number = {rank: place for place, rank in enumerate(sorted(set(given)))}
    return np.array([number[rank] for rank in given], np.int64)
