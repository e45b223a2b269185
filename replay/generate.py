"""Random runs: small profiles and workloads under pressure, for property tests and conformance suites.

Sizes are small on purpose: a few requests on a few blocks meet every corner (preemption, misfits,
full queues, shared prefixes) within a few dozen steps. Everything is drawn from the `Random` that is
passed in, so the same one gives the same run, and a Hypothesis one shrinks.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from batchspec.replay.cost import CostModel
from batchspec.replay.simulate import trace_of
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.trace import Trace

STEP_NS = 10
"""About what one step takes in these runs."""

_NEEDS = (
    ("step", "step"),
    ("step", "step"),
    ("known", "step"),
    ("known", "step"),
    ("known", "known"),
    ("known+2", "known+2"),
    ("peak", "step"),
    ("full", "full"),
)
_VICTIMS = ("latest-admitted", "latest-admitted", "latest-arrived", "fewest-outputs", "newest-denied", "self")


@dataclass(frozen=True, slots=True)
class Run:
    """A profile and what happens under it."""

    profile: Profile
    records: tuple[Record, ...]
    aborts: dict[RequestId, int] = field(default_factory=dict)
    parks: dict[RequestId, tuple[str, int]] = field(default_factory=dict)
    drafts: int = 0
    seed: int = 0

    def events(self, level: str = "L3") -> list[Event]:
        """The reference scheduler's rows."""
        return list(self.trace(level).events())

    def trace(self, level: str = "L3") -> Trace:
        """The reference scheduler's rows, with the header that says how they were made."""
        return trace_of(
            self.records,
            self.profile,
            seed=self.seed,
            cost=CostModel(STEP_NS, 0, 0, 1),
            level=level,
            aborts=self.aborts,
            parks=self.parks,
            drafts=self.drafts,
        )


def random_run(random: Random, mode: str | None = None, order: str | None = None) -> Run:
    """A run in a mode and order, drawn where they are not given."""
    mode = mode or random.choice(("continuous", "continuous", "continuous", "static", "dynamic"))
    claims = random_claims(random, mode, order)
    profile = Profile.from_dict(claims)
    records = random_records(random, profile)
    names = [record.request for record in records]
    aborts = {name: random.randint(0, 20 * STEP_NS) for name in names if random.random() < 0.1}
    parks = {}
    if random.random() < 0.2:
        for name in names:
            if random.random() < 0.3:
                parks[name] = (random.choice(("remote_kv", "grammar")), random.randint(1, 8 * STEP_NS))
    overlaps = profile.value("reuse.depth") > 1
    drafts = 0 if overlaps else profile.batching.lookahead or 0
    return Run(profile, records, aborts, parks, drafts, random.randint(0, 1 << 30))


def random_records(random: Random, profile: Profile) -> tuple[Record, ...]:
    """Up to a dozen requests, most of which fit."""
    now = 0
    records = []
    templates = [tuple(random.randint(1, 1 << 40) for _ in range(12)) for _ in range(2)]
    for number in range(random.randint(1, 12)):
        now += random.choice((0, 0, 0, 0, 1, STEP_NS, 3 * STEP_NS))
        outputs = random.randint(1, 16)
        template = random.choice(templates)
        own = random.randint(0, 12)
        records.append(
            Record(
                request=f"r{number}",
                arrival_ns=now,
                prompt_tokens=random.randint(1, 20),
                output_tokens=outputs,
                max_tokens=outputs + random.choice((0, 0, 0, 1, 5)),
                tenant=random.choice("abc"),
                priority=random.randint(0, 3),
                prefix_hashes=(*template[:own], *(number + 1000 + i for i in range(12 - own))),
            )
        )
    return tuple(records)


def random_claims(random: Random, mode: str, order: str | None = None) -> dict[str, Any]:
    """The claims of a profile that do not contradict each other."""
    order = order or random.choice(("fcfs", "fcfs", "sjf", "priority", "fair"))
    chunked = random.random() < 0.7
    limits: dict[str, Any] = {
        "max_seqs": random.randint(1, 6),
        "token_budget": random.randint(1, 16) if chunked else random.randint(12, 40),
        "block_size": random.choice((1, 2, 4, 4, 8)),
    }
    limits["kv_blocks"] = max(2, random.randint(20, 64) // limits["block_size"])
    if random.random() < 0.2:
        limits["max_model_len"] = random.randint(8, 32)
    if random.random() < 0.15:
        limits["max_waiting"] = random.randint(0, 4)
    batching: dict[str, Any] = {"mode": mode, "chunked_prefill": chunked}
    if mode == "dynamic":
        batching["window_ns"] = random.choice((0, STEP_NS, 7 * STEP_NS))
        if random.random() < 0.5:
            batching["preferred_sizes"] = sorted({random.randint(1, limits["max_seqs"]) for _ in range(2)})
    admission: dict[str, Any] = {"order": order, "urgent": random.choice(("low", "high"))}
    admission["misfit"] = "stop" if random.random() < 0.7 else "skip"
    if admission["misfit"] == "skip":
        admission["skip_ahead"] = random.randint(0, 3)
    tests = (
        ("step", "step"),
        ("known", "step"),
        ("known", "known"),
        ("known+2", "known+2"),
        ("full", "full"),
    )
    admission["test"], admission["reserve"] = random.choice(tests)
    admission["watermark_blocks"] = random.choice((0, 0, 0, 1, 2))
    admission["work_conserving"] = random.random() < 0.8
    claims: dict[str, Any] = {"limits": limits, "batching": batching, "admission": admission}
    claims["preemption"] = _preemption(random, mode, order, limits)
    claims["reuse"] = _reuse(random, mode, claims["preemption"])
    # A request that resumes on a step's blocks alone may lose them again and again before it emits.
    claims["patience"] = {"K": random.choice((4, 4, 6)), "rules": {}}
    if admission["reserve"] == "step":
        claims["patience"]["rules"]["preemption/thrash"] = 1000
    if isinstance(claims["reuse"].get("block_lag"), int):
        # A member may wait for blocks that are on their way back.
        claims["patience"]["rules"]["liveness/starved-member"] = 12
    _phases(random, batching, claims)
    if order == "fair":
        claims["fairness"] = {"w_p": 1, "w_q": random.choice((1, 2)), "weights": {"a": random.choice((1, 2))}}
    if random.random() < 0.1:
        claims.setdefault("fairness", {})["delivery"] = "arrival"
    if random.random() < 0.1:
        quota = {"requests": random.randint(1, 3), "per_ns": random.randint(1, 20 * STEP_NS)}
        claims.setdefault("fairness", {})["rate_limits"] = {random.choice("abc*"): quota}
    return claims


def _preemption(random: Random, mode: str, order: str, limits: dict[str, Any]) -> dict[str, Any]:
    how = random.choice(("recompute", "recompute", "swap", "none"))
    claims: dict[str, Any] = {"mode": how}
    if how == "none":
        return claims
    if how == "swap":
        limits["host_blocks"] = random.randint(0, 24)
    victims = (
        "latest-admitted",
        "latest-admitted",
        "latest-arrived",
        "fewest-outputs",
        "newest-denied",
        "self",
    )
    claims["victim"] = "least-urgent" if order == "priority" else random.choice(victims)
    claims["resume"] = random.choice(("front", "front", "back", "arrival"))
    claims["admit_in_same_step"] = random.random() < 0.2
    if order == "priority" and mode == "continuous" and random.random() < 0.5:
        claims["for_waiting"] = True
        claims["admit_in_same_step"] = True
    if how == "recompute" and claims["victim"] == "self" and random.random() < 0.5:
        claims["keeps_blocks"] = True
    if random.random() < 0.15:
        claims["headroom_blocks"] = random.randint(1, 3)
    return claims


def _reuse(random: Random, mode: str, preemption: dict[str, Any]) -> dict[str, Any]:
    claims: dict[str, Any] = {"prefix": random.random() < 0.4}
    if claims["prefix"]:
        claims["same_pass"] = random.random() < 0.5
    if mode != "continuous":
        return claims
    kind = random.random()
    if kind < 0.15:
        claims |= {"slot_lag": 1, "depth": 2, "overlap_member": 1, "ordered_passes": True}
        if preemption["mode"] == "swap":
            preemption["mode"] = "recompute"
        claims["block_lag"] = random.choice((0, 1))
    elif kind < 0.25:
        claims |= {"block_lag": random.choice((1, 2, "release")), "slot_lag": random.choice((0, 1))}
    return claims


def _phases(random: Random, batching: dict[str, Any], claims: dict[str, Any]) -> None:
    kind = random.random()
    batching["mixed"] = True
    if kind < 0.15:
        batching["prefill_first"] = True
        batching["mixed"] = random.random() < 0.5
        claims["patience"]["rules"]["liveness/starved-member"] = 16
    elif kind < 0.5:
        batching["stall_free"] = True
    if random.random() < 0.15:
        batching["lookahead"] = random.randint(1, 3)
    if claims["preemption"].get("for_waiting"):
        claims["reuse"]["slot_lag"] = 0
        if claims["reuse"].get("depth"):
            claims["reuse"] = {"prefix": claims["reuse"]["prefix"]}
