"""Good traces: runs of the reference scheduler in every mode and at every level, and the judge over them.

A good trace is one in which the check finds nothing. Everything is drawn from the seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, Final

from batchspec.replay.checker import check
from batchspec.replay.claims import named_profile
from batchspec.replay.generate import Run, random_records, random_run
from batchspec.replay.records import check_records
from batchspec.spec.events import Event, RequestId
from batchspec.spec.metrics import measure
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.served import Served
from batchspec.spec.verdict import Report
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable

LEVELS: Final = ("L0", "L1", "L2", "L3", "L4")
EVENT_LEVELS: Final = LEVELS[1:]


@dataclass(frozen=True)
class Good:
    """A run at a level of observability, as rows, and under which claims it is judged."""

    run: Run
    level: str
    profile: Profile
    header: Header
    events: list[Event]

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that some row fills."""
        return Trace.from_events(self.events, self.header).columns

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of events, `output` also where the header says that outputs are recorded."""
        trace = Trace.from_events(self.events, self.header)
        return frozenset(trace.kinds) | ({"output"} if trace.outputs_recorded else set())

    @property
    def mode(self) -> str:
        """The mode of batching: `static`, `dynamic` or `continuous`."""
        return self.profile.batching.mode or "continuous"

    def judge(self, events: Sequence[Event], rules: Sequence[str] | None = None) -> Report:
        """What a check says of these rows under the claims and the header of this trace."""
        return check(Trace.from_events(events, self.header, "mutant"), self.profile, rules=rules)


@dataclass(frozen=True, slots=True)
class GoodTable:
    """A run at level L0: one record a request."""

    run: Run
    profile: Profile
    records: list[Record]
    level: str = "L0"

    @property
    def mode(self) -> str:
        """The mode of batching."""
        return self.profile.batching.mode or "continuous"

    def judge(self, records: Sequence[Record]) -> Report:
        """What a check says of these records under the claims of this table."""
        return check_records(RecordTable.from_records(records, path="mutant"), self.profile)


def good_of(run: Run, level: str) -> Good:
    """The rows of a run at a level from L1 to L4."""
    trace = run.trace(level)
    header = trace.header or Header()
    return Good(run, level, run.profile, header, list(trace.events()))


def table_of(run: Run) -> GoodTable:
    """The records of a run, in the order of arrival. Times are exact, so that no tolerance is claimed."""
    trace = run.trace("L1")
    served: list[Served] = []
    measure(trace.events(), recorded=trace.outputs_recorded, served=served.append)
    known = {record.request: record for record in run.records}
    records = [
        one.record()._replace(max_tokens=known[one.request].max_tokens, priority=known[one.request].priority)
        for one in served
    ]
    # A table knows one end of a request: where responses leave apart from it, that is when.
    left = {event.request: event.time_ns for event in trace.events() if event.event == "deliver"}
    records = [one._replace(finish_ns=left.get(one.request, one.finish_ns)) for one in records]
    places = {record.request: place for place, record in enumerate(run.records)}
    records.sort(key=lambda record: places[record.request])
    claims = run.profile.merged(Profile.from_dict({"patience": {"tolerance_ns": 0}})).to_dict()
    if left:
        claims.get("limits", {}).pop("max_seqs", None)  # the seat is given up before the response leaves
    return GoodTable(run, Profile.from_dict(claims), records)


def random_good(
    random: Random, level: str, profile: str | None = None, mode: str | None = None
) -> Good | GoodTable:
    """A good trace (or, at L0, table) under claims that are drawn, or of a profile that is named.

    Raises `ProfileError` where no profile has that name.
    """
    run = random_run(random, mode) if profile is None else profile_run(random, profile)
    # Who was set aside and not ready no record says.
    return table_of(replace(run, parks={})) if level == "L0" else good_of(run, level)


def profile_run(random: Random, name: str) -> Run:
    """A run under the claims of a shipped profile, or one in a file, with limits that are tight."""
    claims = named_profile(name)
    size = random.choice((1, 2, 4))
    limits = {
        "max_seqs": random.randint(1, 6),
        "token_budget": random.randint(2 if claims.batching.chunked_prefill else 20, 32),
        "block_size": size,
        "kv_blocks": max(4, random.randint(20, 64) // size),
        "max_model_len": 48,
    }
    if claims.preemption.mode == "swap":
        limits["host_blocks"] = 12
    profile = claims.merged(Profile.from_dict({"limits": limits}))
    aborts: dict[RequestId, int] = {
        f"r{number}": random.randint(0, 200) for number in range(12) if random.random() < 0.1
    }
    drafts = (profile.batching.lookahead or 0) if profile.value("reuse.depth") == 1 else 0
    return Run(profile, random_records(random, profile), aborts, {}, drafts)


def without(good: Good, *columns: str) -> Good:
    """The same trace, which says nothing in these columns (fields of `Event`)."""
    nothing: dict[str, Any] = dict.fromkeys(columns)
    return replace(good, events=[event._replace(**nothing) for event in good.events])
