"""What can be judged from records alone (level L0): one row a request, with its times.

The same rule ids as for events, under the same premises. A rule that has no judgement here needs events
(level L1) and is not checkable. Times are nanoseconds of one clock; where an engine's clock and its
client's meet, `patience.tolerance_ns` is the slack.

Sources: trace format, "Levels of observability"; rules, `fairness/*`; VTC (OSDI'24) Theorem 4.4.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from batchspec.spec.need import never_fits
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.rule import claimed


class Broken(NamedTuple):
    """One broken rule: the rows at fault (the first is where the finding stands), and what to say."""

    rows: tuple[int, ...]
    message: str
    expected: str
    observed: str


class Judgement(NamedTuple):
    """What a rule found in a table: instances judged, instances that a null kept out, violations."""

    checked: int
    skipped: int
    broken: list[Broken]


class RecordRule(NamedTuple):
    """One rule at level L0: what it needs, and the judgement."""

    premise: tuple[str, ...]
    columns: tuple[str, ...]
    judge: Callable[[Sequence[Record], Profile], Judgement]


REFUSED: Final = frozenset({"rejected", "refused"})
"""`status` words that say: refused at the door, never served."""


def refused(record: Record) -> bool:
    """Whether the record says that the request was refused."""
    return record.status in REFUSED


def responds(record: Record) -> bool:
    """Whether a response is owed: the request was neither refused nor aborted."""
    return not refused(record) and record.status != "aborted"


def started(record: Record, whole_prompts: bool) -> int | None:
    """When a request was first scheduled; with whole prompts the first token will do instead."""
    if record.admitted_ns is not None:
        return record.admitted_ns
    return record.first_token_ns if whole_prompts else None


# -- the judgements --------------------------------------------------------------------------------


def causality(records: Sequence[Record], profile: Profile) -> Judgement:
    """Arrival ≤ admit ≤ first output ≤ end."""
    checked, broken = 0, []
    for row, record in enumerate(records):
        names = ("arrival_ns", "admitted_ns", "first_token_ns", "finish_ns")
        times = [(name, time) for name in names if (time := getattr(record, name)) is not None]
        if len(times) < 2:
            continue
        checked += 1
        for (earlier, before), (later, after) in pairwise(times):
            if after < before:
                broken.append(
                    Broken(
                        (row,),
                        f"{record.request} has {later} {before - after} ns before {earlier}",
                        f"{later} of at least {before}",
                        f"{later} {after}",
                    )
                )
                break
    return Judgement(checked, 0, broken)


def duplicate_id(records: Sequence[Record], profile: Profile) -> Judgement:
    """No request arrives under an id that a live request has."""
    ends: dict[object, tuple[int, int | None]] = {}
    order = sorted(range(len(records)), key=lambda row: records[row].arrival_ns)
    checked, skipped, broken = 0, 0, []
    for row in order:
        record = records[row]
        before = ends.get(record.request)
        if before is not None:
            end = before[1]
            if end is None:
                skipped += 1
            else:
                checked += 1
                if record.arrival_ns < end:
                    broken.append(
                        Broken(
                            (row, before[0]),
                            f"{record.request} arrives while a request of that id is live",
                            "a new id, or the end of the earlier request first",
                            f"arrival {record.arrival_ns}, end of the earlier one {end}",
                        )
                    )
        else:
            checked += 1
        ends[record.request] = (row, record.arrival_ns if refused(record) else record.finish_ns)
    return Judgement(checked, skipped, broken)


def capacity(records: Sequence[Record], profile: Profile) -> Judgement:
    """At most max_seqs requests run at one time."""
    most = profile.limits.max_seqs or 0
    changes: list[tuple[int, int, int]] = []
    skipped = 0
    for row, record in enumerate(records):
        begin = record.admitted_ns if record.admitted_ns is not None else record.first_token_ns
        if begin is None or record.finish_ns is None:
            skipped += 1
        elif record.finish_ns > begin:
            # An end comes before a beginning at the same time.
            changes += [(begin, 1, row), (record.finish_ns, 0, row)]
    running, broken, above = 0, [], False
    for time, begins, row in sorted(changes):
        running += 1 if begins else -1
        if running > most and not above:
            broken.append(
                Broken(
                    (row,),
                    f"{running} requests run at {time} ns, {most} may",
                    f"at most {most} running",
                    f"{running} running when {records[row].request} begins",
                )
            )
        above = running > most
    return Judgement(len(changes) // 2, skipped, broken)


def output_count(records: Sequence[Record], profile: Profile) -> Judgement:
    """No request emits more than its max_tokens."""
    checked, skipped, broken = 0, 0, []
    for row, record in enumerate(records):
        if record.max_tokens is None or record.output_tokens is None:
            skipped += 1
            continue
        checked += 1
        if record.output_tokens > record.max_tokens:
            broken.append(
                Broken(
                    (row,),
                    f"{record.request} ends with {record.output_tokens} output tokens, "
                    f"{record.max_tokens} were allowed",
                    f"at most {record.max_tokens}",
                    f"{record.output_tokens} output tokens",
                )
            )
    return Judgement(checked, skipped, broken)


def overtaking(records: Sequence[Record], profile: Profile) -> Judgement:
    """Nobody who arrived later begins earlier, beyond the tolerance (and skip_ahead)."""
    whole = profile.batching.chunked_prefill is False
    tolerance: int = profile.value("patience.tolerance_ns")
    most = profile.admission.skip_ahead or 0 if profile.admission.misfit == "skip" else 0
    rows = [row for row, record in enumerate(records) if not refused(record)]
    rows.sort(key=lambda row: records[row].arrival_ns)
    begins = {row: begin for row in rows if (begin := started(records[row], whole)) is not None}
    served = [row for row in rows if row in begins]
    later = _LaterBegins([begins[row] for row in served])
    broken = []
    place = len(served) - 1
    while place >= 0:
        group = place
        arrival = records[served[place]].arrival_ns
        while group >= 0 and records[served[group]].arrival_ns == arrival:
            group -= 1
        # Requests of one instant have no order between them.
        for index in range(place, group, -1):
            row = served[index]
            count, first = later.before(begins[row] - tolerance)
            if count > most:
                other = served[first]
                broken.append(
                    Broken(
                        (other, row),
                        f"{records[other].request} overtakes {records[row].request} by "
                        f"{begins[row] - begins[other]} ns",
                        f"the earlier arrival first (tolerance {tolerance} ns)",
                        f"arrivals {arrival} and {records[other].arrival_ns}, begins {begins[row]} and "
                        f"{begins[other]}; overtaken {count} times",
                    )
                )
        for index in range(place, group, -1):
            later.add(index)
        place = group
    broken.reverse()
    return Judgement(len(served), len(rows) - len(served), broken)


class _LaterBegins:
    """Begins of later arrivals: how many lie before a time, and which is the earliest (Fenwick tree)."""

    def __init__(self, begins: Sequence[int]) -> None:
        self._begins = begins
        self._sorted = sorted(set(begins))
        self._tree = [0] * (len(self._sorted) + 1)
        self._first = -1

    def add(self, index: int) -> None:
        begin = self._begins[index]
        if self._first < 0 or begin <= self._begins[self._first]:
            self._first = index
        place = bisect_left(self._sorted, begin) + 1
        while place < len(self._tree):
            self._tree[place] += 1
            place += place & -place

    def before(self, time: int) -> tuple[int, int]:
        if self._first < 0 or self._begins[self._first] >= time:
            return 0, -1
        place, count = bisect_left(self._sorted, time), 0
        while place:
            count += self._tree[place]
            place -= place & -place
        return count, self._first


def rate_limit(records: Sequence[Record], profile: Profile) -> Judgement:
    """Refusals match the quotas, but for decisions within the tolerance of the window's edge."""
    limits = profile.fairness.rate_limits or {}
    tolerance: int = profile.value("patience.tolerance_ns")
    accepted: dict[str | None, deque[int]] = {}
    checked, broken = 0, []
    for row in sorted(range(len(records)), key=lambda row: records[row].arrival_ns):
        record = records[row]
        quota = limits.get(record.tenant or "", limits.get("*"))
        if quota is None:
            continue
        checked += 1
        now, allowed, period = record.arrival_ns, quota["requests"], quota["per_ns"]
        window = accepted.setdefault(record.tenant, deque())
        while window and window[0] <= now - period - tolerance:
            window.popleft()
        certain = len(window) - bisect_right(window, now - period + tolerance)
        possible = len(window)
        if refused(record):
            if possible < allowed and not _refusable(record, profile):
                broken.append(_quota(row, record, "is refused", possible, allowed))
        else:
            if certain >= allowed:
                broken.append(_quota(row, record, "is accepted beyond its quota", certain, allowed))
            window.append(now)
    return Judgement(checked, 0, broken)


def _refusable(record: Record, profile: Profile) -> bool:
    """Whether a request may have been refused for something else than its rate: no record says for what."""
    limits, prompt, most = profile.limits, record.prompt_tokens, record.max_tokens
    if limits.max_waiting is not None:
        return True
    if prompt is None:
        return limits.max_model_len is not None or limits.kv_blocks is not None
    longest = prompt + (most or 1)
    too_long = limits.max_model_len is not None and longest > limits.max_model_len
    return too_long or never_fits(profile, prompt, most) is not None


def _quota(row: int, record: Record, what: str, used: int, allowed: int) -> Broken:
    return Broken(
        (row,),
        f"{record.request} of {record.tenant} {what} with {used} of {allowed} requests used",
        "a refusal exactly where the quota is used up",
        f"{used} accepted in the last period, {allowed} allowed",
    )


def delivery_order(records: Sequence[Record], profile: Profile) -> Judgement:
    """Responses leave in the order of arrival; whoever was refused or gave up is owed none."""
    tolerance: int = profile.value("patience.tolerance_ns")
    rows = [row for row, record in enumerate(records) if record.finish_ns is not None and responds(record)]
    rows.sort(key=lambda row: (records[row].arrival_ns, row))
    broken = []
    latest: int | None = None
    for row in rows:
        finish = records[row].finish_ns or 0
        if latest is not None and finish < (records[latest].finish_ns or 0) - tolerance:
            broken.append(
                Broken(
                    (row, latest),
                    f"the response of {records[row].request} leaves before that of "
                    f"{records[latest].request}, which arrived earlier",
                    f"{records[latest].request} first",
                    f"{finish} ns against {records[latest].finish_ns} ns",
                )
            )
        if latest is None or finish > (records[latest].finish_ns or 0):
            latest = row
    return Judgement(len(rows), len(records) - len(rows), broken)


def idle_stall(records: Sequence[Record], profile: Profile) -> Judgement:
    """Nobody waits for longer than `patience.wall_ns` while nobody runs."""
    wall = profile.patience.wall_ns or 0
    changes: list[tuple[int, int, int, int]] = []
    skipped = 0
    for row, record in enumerate(records):
        if refused(record):
            continue
        begin, end = record.admitted_ns, record.finish_ns
        if begin is None or end is None:
            skipped += 1
            continue
        changes += [(record.arrival_ns, row, 1, 0), (begin, row, -1, 1), (end, row, 0, -1)]
    if skipped:
        return Judgement(0, skipped, [])  # whoever has no times may have run meanwhile
    waiting = running = 0
    idle_since: int | None = None
    checked, broken = 0, []
    for time, row, more_waiting, more_running in sorted(changes):
        if idle_since is not None and time - idle_since > wall:
            broken.append(
                Broken(
                    (row,),
                    f"{waiting} requests wait for {time - idle_since} ns while nobody runs",
                    f"service within {wall} ns",
                    f"nobody runs from {idle_since} ns to {time} ns",
                )
            )
            idle_since = time
        waiting += more_waiting
        running += more_running
        if waiting > 0 and running <= 0:
            checked += idle_since is None
            idle_since = time if idle_since is None else idle_since
        else:
            idle_since = None
    return Judgement(checked, 0, broken)


# -- fair shares -----------------------------------------------------------------------------------


class Spread(NamedTuple):
    """The largest drift of two tenants' services while both are backlogged: value, row, tenants."""

    units: float
    row: int
    tenants: tuple[str | None, str | None]


def service_spreads(records: Sequence[Record], profile: Profile) -> Iterator[Spread]:
    """Each new largest spread of W_f - W_g over stretches in which both tenants are backlogged.

    W counts w_p a prompt token when the request begins (admitted, else first token) and w_q an output
    token, outputs spread evenly from first token to finish, divided by the tenant's weight. A tenant is
    backlogged while one of its requests has arrived and has no first token yet.
    """
    w_p: float = profile.value("fairness.w_p")
    w_q: float = profile.value("fairness.w_q")
    weights = profile.fairness.weights or {}
    # (time, kind, row): 0 slope begins, 1 slope ends, 2 arrival, 3 begins waiting no more
    moments: list[tuple[int, int, int]] = []
    for row, record in enumerate(records):
        if refused(record) or record.first_token_ns is None:
            continue
        moments += [(record.arrival_ns, 2, row), (record.first_token_ns, 3, row)]
        if record.finish_ns is not None and record.output_tokens:
            moments += [(record.first_token_ns, 0, row), (record.finish_ns, 1, row)]
    service: dict[str | None, float] = {}
    slope: dict[str | None, float] = {}
    waiting: dict[str | None, int] = {}
    extremes: dict[tuple[str | None, str | None], list[float]] = {}
    last, top = 0, -1.0
    for time, kind, row in sorted(moments):
        record = records[row]
        tenant = record.tenant
        if time > last:
            for name, rate in slope.items():
                service[name] = service.get(name, 0.0) + rate * (time - last)
            last = time
            for spread in _follow(service, waiting, extremes, row):
                if spread.units > top:
                    top = spread.units
                    yield spread
        weight = weights.get(tenant or "", weights.get("*", 1.0))
        if kind in (0, 1):
            length = max(1, (record.finish_ns or 0) - (record.first_token_ns or 0))
            rate = w_q * (record.output_tokens or 0) / length / weight
            slope[tenant] = slope.get(tenant, 0.0) + (rate if kind == 0 else -rate)
        elif kind == 2:
            waiting[tenant] = waiting.get(tenant, 0) + 1
        else:
            service[tenant] = service.get(tenant, 0.0) + w_p * (record.prompt_tokens or 0) / weight
            waiting[tenant] = waiting.get(tenant, 0) - 1
            for spread in _follow(service, waiting, extremes, row):
                if spread.units > top:
                    top = spread.units
                    yield spread


def _follow(
    service: dict[str | None, float],
    waiting: dict[str | None, int],
    extremes: dict[tuple[str | None, str | None], list[float]],
    row: int,
) -> Iterator[Spread]:
    """Keep least and most of each backlogged pair's difference; forget pairs that are not."""
    names = sorted((name for name, count in waiting.items() if count > 0), key=str)
    backlogged = set(names)
    for pair in [pair for pair in extremes if not (pair[0] in backlogged and pair[1] in backlogged)]:
        del extremes[pair]
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            gap = service.get(one, 0.0) - service.get(other, 0.0)
            found = extremes.setdefault((one, other), [gap, gap])
            found[0], found[1] = min(found[0], gap), max(found[1], gap)
            yield Spread(found[1] - found[0], row, (one, other))


def service_gap(records: Sequence[Record], profile: Profile) -> Judgement:
    """|W_f - W_g| ≤ 2U while both are backlogged."""
    limits = profile.limits
    longest = max((record.prompt_tokens or 0 for record in records), default=0)
    tokens = (limits.kv_blocks or 0) * (limits.block_size or 0)
    unit = max(profile.value("fairness.w_p") * longest, profile.value("fairness.w_q") * tokens)
    # A charge is divided by its tenant's weight: light tenants move in longer strides.
    unit /= min([1.0, *(profile.fairness.weights or {}).values()])
    spreads = list(service_spreads(records, profile))
    over = next((spread for spread in spreads if spread.units > 2 * unit), None)
    broken = []
    if over is not None:
        one, other = over.tenants
        broken.append(
            Broken(
                (over.row,),
                f"the services of {one} and {other} drift {over.units:.0f} apart while both wait",
                f"at most 2U = {2 * unit:g}",
                f"{over.units:.0f}, at most {spreads[-1].units:.0f} later on",
            )
        )
    return Judgement(len(spreads), 0, broken)


RECORD_RULES: Final[dict[str, RecordRule]] = {
    "lifecycle/duplicate-id": RecordRule((), (), duplicate_id),
    "time/causality": RecordRule((), (), causality),
    # Who is out of the batch between two times of its record, preempted, no record says.
    "batch/capacity": RecordRule(("limits.max_seqs", "preemption.mode=none"), ("finish_ns",), capacity),
    "tokens/output-count": RecordRule((), ("max_tokens", "output_tokens"), output_count),
    "fairness/overtaking": RecordRule(("admission.order=fcfs", "admission.misfit"), (), overtaking),
    "fairness/service-gap": RecordRule(
        (
            "admission.order=fair",
            "admission.misfit=stop",
            "preemption.mode=none",
            "limits.kv_blocks",
            "limits.block_size",
        ),
        ("tenant", "prompt_tokens", "output_tokens", "first_token_ns", "finish_ns"),
        service_gap,
    ),
    "fairness/rate-limit": RecordRule(("fairness.rate_limits",), ("tenant", "status"), rate_limit),
    "fairness/delivery-order": RecordRule(("fairness.delivery=arrival",), ("finish_ns",), delivery_order),
    "liveness/idle-stall": RecordRule(("patience.wall_ns",), ("admitted_ns", "finish_ns"), idle_stall),
}
"""The rules that records alone can put to the test."""


def record_missing(rule: str, profile: Profile, columns: frozenset[str]) -> tuple[str, ...]:
    """What a rule lacks at level L0: options, columns, or events altogether."""
    entry = RECORD_RULES.get(rule)
    if entry is None:
        return ("events (level L1)",)
    lacking = [item for item in entry.premise if not claimed(profile, item)]
    lacking += [name for name in entry.columns if name not in columns]
    if rule == "time/causality" and not {"admitted_ns", "first_token_ns", "finish_ns"} & columns:
        lacking.append("finish_ns")
    if rule == "batch/capacity" and profile.value("limits.seqs_cap") == "per-step":
        lacking.append("limits.seqs_cap=resident")
    if rule == "fairness/service-gap" and profile.reuse.prefix:
        lacking.append("reuse.prefix=false")
    if rule == "fairness/overtaking":
        if "admitted_ns" not in columns and (
            profile.batching.chunked_prefill is not False or "first_token_ns" not in columns
        ):
            lacking.append("admitted_ns")
        if profile.admission.misfit == "skip" and profile.admission.skip_ahead is None:
            lacking.append("admission.skip_ahead")
    return tuple(lacking)
