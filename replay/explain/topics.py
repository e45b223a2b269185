"""The topics: a few requests, two ways to schedule them, and what to see in it.

Every picture comes from a run of the reference scheduler; nothing in it is drawn by hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from batchspec.replay.cost import CostModel
from batchspec.replay.explain.grid import Grid, grid_of
from batchspec.replay.simulate import simulate
from batchspec.spec.events import Event, RequestId
from batchspec.spec.metrics import measure
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record

_TICK: Final = CostModel(10, 0, 0, 0)
_PLENTY: Final = {"token_budget": 64, "kv_blocks": 64, "block_size": 4}


@dataclass(frozen=True)
class Act:
    """One way to schedule the requests: its run and what is to be seen in it."""

    title: str
    says: str
    grid: Grid
    figures: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Topic:
    """One thing explained: two or more acts over the same requests, and the rules that speak of it."""

    name: str
    title: str
    says: str
    acts: tuple[Act, ...]
    rules: tuple[str, ...]


def batching() -> Topic:
    """Static against continuous batching: the worked example of eight requests on four slots."""
    lengths = (6, 2, 8, 3, 5, 2, 7, 3)
    records = [Record(name, 0, 1, length) for name, length in zip("ABCDEFGH", lengths, strict=True)]
    return Topic(
        "batching",
        "Static and continuous batching",
        "Eight requests, all there at the start, need 6, 2, 8, 3, 5, 2, 7 and 3 steps and share four slots. "
        "Reading the weights costs a step the same for one request or four, so an empty slot is waste.",
        (
            _act(
                "static batching",
                "The first four run until the longest of them has ended; only then may the next four start. "
                "A slot whose request has ended is held idle (/).",
                records,
                4,
                {"batching": {"mode": "static"}},
            ),
            _act(
                "continuous batching",
                "The batch is rebuilt in every step: a slot is given on in the step after its request ends.",
                records,
                4,
                {"batching": {"mode": "continuous"}},
            ),
        ),
        ("batch/static-barrier", "slots/reuse", "batch/no-stall"),
    )


def admission() -> Topic:
    """Head of line blocking: who passes a request that does not fit."""
    sizes = (("A", 8, 8), ("B", 20, 4), ("C", 4, 3), ("D", 4, 3), ("E", 4, 3))
    records = [Record(name, 0, prompt, outputs) for name, prompt, outputs in sizes]
    common = {
        "limits": {"token_budget": 64, "kv_blocks": 8, "block_size": 4},
        "batching": {"mode": "continuous"},
        "preemption": {"mode": "none"},
    }
    full = {"order": "fcfs", "test": "full", "reserve": "full"}
    return Topic(
        "admission",
        "Who may start",
        "A request starts when a seat and the KV blocks that its admission asks for are free. B, with a long "
        "prompt, is second in line and does not fit while A runs; C, D and E behind it would.",
        (
            _act(
                "stop at the first that does not fit",
                "The order of arrival is kept: nobody passes B, and seats stay empty although small "
                "requests wait.",
                records,
                4,
                {**common, "admission": {**full, "misfit": "stop"}},
            ),
            _act(
                "skip who does not fit",
                "C and those behind it pass B. The batch is fuller, and B starts only when enough blocks "
                "come together, which under steady load may be never: hence bounds such as skip_ahead and "
                "patience.",
                records,
                4,
                {**common, "admission": {**full, "misfit": "skip"}},
            ),
        ),
        ("admission/head-of-line", "admission/order", "admission/needless-wait", "fairness/starvation"),
    )


def preemption() -> Topic:
    """Growth without reservation: who is interrupted, and what that costs."""
    records = [Record(name, 0, 7, 10) for name in "ABC"]
    limits = {"token_budget": 32, "kv_blocks": 9, "block_size": 4}
    return Topic(
        "preemption",
        "Interrupting a request",
        "Three requests of 7 prompt tokens want 10 tokens each; the pool has 9 blocks of 4 positions. Nobody "
        "knows beforehand how long an answer becomes.",
        (
            _act(
                "room for everything is set aside",
                "Each is admitted with the blocks of its prompt and all tokens that it may emit: nobody is "
                "ever interrupted, and most of the pool waits for tokens that are not there yet.",
                records,
                3,
                {
                    "limits": limits,
                    "batching": {"mode": "continuous", "chunked_prefill": True},
                    "admission": {"order": "fcfs", "misfit": "stop", "test": "full", "reserve": "full"},
                    "preemption": {"mode": "none"},
                },
            ),
            _act(
                "blocks one by one, recompute when they run out",
                "All three start at once. When a decode finds no block, the latest admitted is interrupted "
                "(x), its KV is dropped, and it computes prompt and outputs again when it returns "
                "(capitals).",
                records,
                3,
                {
                    "limits": limits,
                    "batching": {"mode": "continuous", "chunked_prefill": True},
                    "admission": {"order": "fcfs", "misfit": "stop", "test": "known", "reserve": "step"},
                    "preemption": {"mode": "recompute", "victim": "latest-admitted", "resume": "front"},
                },
            ),
        ),
        ("preemption/cause", "preemption/victim", "preemption/resume-first", "preemption/thrash"),
    )


def fairness() -> Topic:
    """One tenant floods the queue: first come first served against the virtual token counter."""
    flood = [Record(name, 0, 4, 6, tenant="flood") for name in "ABCDEF"]
    guest = [Record(name, 1, 4, 6, tenant="guest") for name in "GH"]
    records = [*flood, *guest]
    common = {"limits": {**_PLENTY}, "batching": {"mode": "continuous"}, "preemption": {"mode": "none"}}
    place = {"misfit": "stop", "test": "known", "reserve": "step"}
    return Topic(
        "fairness",
        "Fair shares between tenants",
        "Tenant flood sends six requests (A to F), tenant guest two (G, H) a moment later; two slots.",
        (
            _act(
                "first come, first served",
                "Guest waits until all of flood's requests have started.",
                records,
                2,
                {**common, "admission": {"order": "fcfs", **place}},
            ),
            _act(
                "virtual token counter",
                "Served tokens are counted for each tenant, and the least served one's earliest request is "
                "next. While both have work, their services differ by a bounded amount, whatever one of "
                "them sends.",
                records,
                2,
                {**common, "admission": {"order": "fair", **place}},
            ),
        ),
        ("fairness/service-gap", "fairness/overtaking", "admission/order"),
    )


TOPICS: Final[dict[str, Callable[[], Topic]]] = {
    "batching": batching,
    "admission": admission,
    "preemption": preemption,
    "fairness": fairness,
}
"""Every topic by its name."""


def _act(title: str, says: str, records: list[Record], seats: int, claims: dict[str, Any]) -> Act:
    limits = {**_PLENTY, **claims.get("limits", {}), "max_seqs": seats}
    profile = Profile.from_dict({**claims, "limits": limits})
    events = list(simulate(records, profile, cost=_TICK))
    grid = grid_of(events, seats, static=profile.batching.mode == "static")
    return Act(title, says, grid, _figures(grid, events, profile, records))


def _figures(
    grid: Grid, events: list[Event], profile: Profile, records: list[Record]
) -> tuple[tuple[str, str], ...]:
    slots = len(grid.cells) * grid.steps
    figures = [
        ("steps until all have ended", str(grid.steps)),
        ("slot-steps with work", f"{grid.busy} of {slots} ({grid.utilisation:.0%})"),
        ("mean end of a request", f"step {grid.mean_finish:.3g}"),
    ]
    metrics = measure(events, max_seqs=profile.limits.max_seqs)
    if metrics.preemptions:
        figures.append(("preemptions", str(metrics.preemptions)))
        figures.append(("positions computed again", f"{metrics.recomputed_share:.0%} of all"))
    tenants = {record.request: record.tenant for record in records}
    if any(tenants.values()):
        figures += [
            (f"mean end of {tenant}'s requests", f"step {mean:.3g}")
            for tenant, mean in _ends(grid, tenants).items()
        ]
    return tuple(figures)


def _ends(grid: Grid, tenants: dict[RequestId, str | None]) -> dict[str, float]:
    ends: dict[str, list[int]] = {}
    for name, step in grid.finished.items():
        ends.setdefault(tenants[name] or "", []).append(step)
    return {tenant: sum(steps) / len(steps) for tenant, steps in sorted(ends.items())}
