"""Aims: for each rule of the catalogue a mutation of a good trace after which this rule speaks first.

A good trace of a run in which the rule is checkable gets one fault, and another, until the first finding
is the rule's. Many rules fall to any random run; an aim adds the claims that make its rule checkable, and
says which kinds of faults go for what it states. One wrong row cannot break a bounded rule, nor one of
order and progress: these fall to the faults of a stretch (stretches.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from batchspec.replay.generate import STEP_NS, Run, random_claims, random_records
from batchspec.replay.mutation.faults import FAULTS, Mutant, mutant
from batchspec.replay.mutation.goods import EVENT_LEVELS, Good, GoodTable, good_of, table_of, without
from batchspec.replay.mutation.stretches import STRETCHES, stretched, uncounted
from batchspec.replay.mutation.tables import table_mutant
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import BatchspecError
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report

MOST_RUNS: Final = 600
"""Good traces that are tried before a rule counts as out of reach."""

_TRIES: Final = 3
"""Faults of each kind that are put into one good trace."""


@dataclass(frozen=True, slots=True)
class Aim:
    """How to get at a rule. `claims`: `group.option` to a value, None: not claimed. `blank`: columns that
    the good trace leaves out. `parks`: how likely a request is set aside on arrival."""

    kinds: tuple[str, ...] = ()
    levels: tuple[str, ...] = EVENT_LEVELS
    mode: str | None = None
    order: str | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    blank: tuple[str, ...] = ()
    parks: float = 0.1


@dataclass(frozen=True, slots=True)
class Hit:
    """A mutation after which a rule speaks first; `text` is the fault, `message` what the rule says."""

    rule: str
    seed: int
    level: str
    mode: str
    kind: str
    text: str
    message: str


def aimed(rule: str, seed: int = 0, most: int = MOST_RUNS) -> Hit | None:
    """The first mutation after which this rule speaks first, or None where none of so many runs has one."""
    if rule in OUT_OF_REACH:
        return None
    aim = AIMS.get(rule, Aim())
    for number in range(most):
        random = Random((seed << 20) + number)
        level = aim.levels[number % len(aim.levels)]
        good = _good(aim, random, level)
        if good is None or not _fertile(rule, good):
            continue
        for kind, text, report in _mutants(rule, good, aim.kinds, random):
            if report.findings and report.findings[0].rule == rule:
                return Hit(
                    rule, (seed << 20) + number, level, good.mode, kind, text, report.findings[0].message
                )
    return None


def _good(aim: Aim, random: Random, level: str) -> Good | GoodTable | None:
    mode = aim.mode or random.choice(("continuous", "continuous", "continuous", "static", "dynamic"))
    claims = random_claims(random, mode, aim.order)
    for path, value in aim.claims.items():
        group, _, name = path.partition(".")
        table = claims.setdefault(group, {})
        if value is None:
            table.pop(name, None)
        else:
            table[name] = deepcopy(value)
    try:
        run = _run(Profile.from_dict(claims), random, aim.parks)
        if level != "L0":
            return without(good_of(run, level), *aim.blank)
        table = table_of(run)
        nothing: dict[str, Any] = dict.fromkeys(aim.blank)
        return replace(table, records=[record._replace(**nothing) for record in table.records])
    except BatchspecError:
        return None  # the drawn claims and the aim's contradict each other


def _run(profile: Profile, random: Random, parks: float) -> Run:
    records = random_records(random, profile)
    names = [record.request for record in records]
    aborts = {name: random.randint(0, 20 * STEP_NS) for name in names if random.random() < 0.1}
    parked = {
        name: (random.choice(("remote_kv", "grammar")), random.randint(1, 8 * STEP_NS))
        for name in names
        if random.random() < parks
    }
    drafts = 0 if profile.value("reuse.depth") > 1 else profile.batching.lookahead or 0
    return Run(profile, records, aborts, parked, drafts, random.randint(0, 1 << 30))


def _rules(rule: str) -> Sequence[str] | None:
    """Which rules are judged: one that must be asked for is judged beside all others."""
    return [*(name for name, kind in RULES.items() if not kind.opt_in), rule] if RULES[rule].opt_in else None


def _fertile(rule: str, good: Good | GoodTable) -> bool:
    """Whether the trace is a good one in which the rule is checkable."""
    report = (
        good.judge(good.records) if isinstance(good, GoodTable) else good.judge(good.events, _rules(rule))
    )
    return not report.findings and all(
        one.verdict != "not checkable" for one in report.rules if one.id == rule
    )


def _mutants(
    rule: str, good: Good | GoodTable, kinds: Sequence[str], random: Random
) -> Iterator[tuple[str, str, Report]]:
    if isinstance(good, GoodTable):
        for kind in kinds or FAULTS:
            for _ in range(_TRIES):
                table = table_mutant(good.records, kind, random)
                if table is not None:
                    yield kind, table.fault.text, good.judge(table.records)
        return
    rules = _rules(rule)
    quiet = uncounted(good.events)
    silent = replace(good, events=quiet)
    for kind in kinds or (*FAULTS, *STRETCHES):
        for _ in range(_TRIES):
            source = silent if kind in STRETCHES else good
            found: Mutant | None = (stretched if kind in STRETCHES else mutant)(source.events, kind, random)
            if found is not None:
                yield kind, found.fault.text, source.judge(found.events, rules)


# -- the aims --------------------------------------------------------------------------------------

_TIGHT: Final = {
    "preemption.mode": "recompute",
    "preemption.victim": "latest-admitted",
    "preemption.resume": "front",
    "admission.test": "step",
    "admission.reserve": "step",
}
"""Claims under which requests grow until they are in each other's way."""

_URGENT: Final = {
    "preemption.mode": "recompute",
    "preemption.victim": "least-urgent",
    "preemption.for_waiting": True,
    "preemption.admit_in_same_step": True,
    "admission.work_conserving": True,
}
_PATIENT: Final = {"patience.rules": {"preemption/thrash": 1000}}

AIMS: Final[dict[str, Aim]] = {
    "lifecycle/unfinished": Aim(("drop", "erase")),
    "lifecycle/abort-ignored": Aim(("starve", "erase", "late")),
    "lifecycle/abort-target": Aim(("drop", "request", "order")),
    "time/causality": Aim(("shift",)),
    "batch/capacity": Aim(("starve", "late", "erase")),
    "batch/token-budget": Aim(
        ("count",), mode="continuous", claims={"limits.token_budget": 4, "batching.chunked_prefill": True}
    ),
    "batch/static-barrier": Aim(("starve", "late"), mode="static"),
    "batch/dynamic-window": Aim(("starve", "late", "stall"), mode="dynamic"),
    "batch/no-stall": Aim(("omit", "drop"), mode="continuous", claims={"batching.stall_free": True}),
    "batch/mixed": Aim(
        ("shift", "count", "late", "starve"),
        ("L1",),
        claims={"batching.prefill_first": True, "batching.mixed": False},
    ),
    "slots/early-reuse": Aim(("shift",), claims={"reuse.slot_lag": 1}, mode="continuous"),
    "slots/reuse": Aim(("starve", "stall"), claims={"admission.work_conserving": True}),
    "tokens/lost": Aim(
        ("duplicate",), ("L1", "L2"), mode="continuous", claims={"batching.lookahead": 2}, blank=("pass_",)
    ),
    "tokens/chunking": Aim(("count",), claims={"batching.chunked_prefill": False, "limits.token_budget": 30}),
    "tokens/in-flight": Aim(("duplicate", "request"), mode="continuous", claims={"batching.lookahead": 2}),
    "memory/bound": Aim(("late", "starve", "kind", "drop"), ("L1", "L2", "L3")),
    "memory/coverage": Aim(("count",), ("L2", "L3")),
    "memory/waste": Aim(("count",), ("L2",)),
    "memory/conservation": Aim(("count",), ("L2", "L3")),
    "memory/release": Aim(("block", "kind"), ("L3",)),
    "memory/leak": Aim(("count", "drop"), ("L2", "L3")),
    "memory/host-bound": Aim(
        ("kind",),
        ("L1", "L2"),
        mode="continuous",
        claims={**_TIGHT, "preemption.mode": "swap", "limits.host_blocks": 1, "admission.test": "known"},
    ),
    "memory/exclusive": Aim(("block",), ("L3",)),
    "memory/release-once": Aim(("block", "kind"), ("L3",)),
    "memory/use-after-release": Aim(("drop", "kind"), ("L4",)),
    "memory/unwritten": Aim(("block", "count"), ("L3",), claims={"reuse.prefix": True}),
    "admission/order": Aim(("exchange", "order")),
    "admission/head-of-line": Aim(
        ("starve", "exchange"), ("L2", "L3"), claims={"admission.test": "known", "admission.reserve": "known"}
    ),
    "admission/fit": Aim(("starve", "kind", "late"), ("L2", "L3")),
    "admission/never-fit": Aim(
        ("late", "erase", "starve"), ("L1", "L2"), claims={"limits.max_model_len": 12}
    ),
    "admission/needless-wait": Aim(("starve", "stall"), claims={"admission.work_conserving": True}),
    "admission/parked": Aim(
        ("late", "starve"),
        mode="continuous",
        claims={"patience.rules": {"admission/parked": 1, "preemption/thrash": 1000}},
        parks=0.7,
    ),
    "preemption/forbidden": Aim(("kind",), claims={"preemption.mode": "none"}),
    "preemption/cause": Aim(("omit", "starve", "kind"), ("L2", "L3"), mode="continuous", claims=_TIGHT),
    "preemption/victim": Aim(("exchange",), ("L1",), mode="continuous", claims=_TIGHT),
    "preemption/useful": Aim(("omit", "request"), ("L1",), mode="continuous", claims=_TIGHT),
    "preemption/resume-first": Aim(
        ("order", "starve", "erase", "late"), ("L1",), mode="continuous", claims=_TIGHT
    ),
    "preemption/no-admission": Aim(
        ("shift", "order"),
        ("L1",),
        mode="continuous",
        claims={**_TIGHT, "preemption.admit_in_same_step": False},
    ),
    "preemption/thrash": Aim(
        ("thrash",),
        ("L1",),
        mode="continuous",
        order="fcfs",
        claims={
            "preemption.mode": "recompute",
            "preemption.victim": None,
            "preemption.resume": "front",
            "admission.test": "known",
            "admission.reserve": "known",
            "patience.rules": {"preemption/thrash": 1},
        },
    ),
    "preemption/swap": Aim(
        ("count",), ("L1",), mode="continuous", claims={**_TIGHT, "preemption.mode": "swap"}
    ),
    "fairness/overtaking": Aim(
        ("exchange", "starve"),
        ("L1",),
        mode="continuous",
        order="fcfs",
        claims={"admission.misfit": "skip", "admission.skip_ahead": 0, "admission.test": None},
    ),
    "fairness/priority-inversion": Aim(
        ("cling",), ("L1", "L2"), mode="continuous", order="priority", claims={**_URGENT, **_PATIENT}
    ),
    "fairness/service-gap": Aim(
        ("count",),
        ("L0",),
        mode="continuous",
        order="fair",
        claims={
            "admission.misfit": "stop",
            "preemption.mode": "none",
            "reuse.prefix": False,
            "limits.max_seqs": 2,
        },
        blank=("max_tokens",),
    ),
    "fairness/starvation": Aim(("starve", "erase"), ("L1", "L2"), claims={"fairness.starvation_steps": 3}),
    "fairness/rate-limit": Aim(
        ("request", "kind", "shift"),
        ("L1",),
        claims={"fairness.rate_limits": {"*": {"requests": 1, "per_ns": 60}}},
    ),
    "fairness/delivery-order": Aim(("exchange", "order", "late"), claims={"fairness.delivery": "arrival"}),
    "liveness/idle-stall": Aim(("stall",)),
    "liveness/starved-member": Aim(("omit",), mode="continuous"),
    "liveness/livelock": Aim(
        ("duel",),
        ("L1",),
        mode="continuous",
        order="fcfs",
        claims={**_TIGHT, **_PATIENT, "preemption.victim": None},
    ),
    "plan/reference": Aim(("exchange", "omit"), ("L1",), claims={"reuse.prefix": False}),
}
"""What a rule needs beyond a random run and all kinds of faults."""

OUT_OF_REACH: Final = {
    "outputs/invariant": "token values are in no trace: judged by running the engine again (record --follow)",
}
"""Rules that no mutation of a trace can break, and why."""
