"""The simulator: the reference scheduler over a workload, with a virtual clock and a cost model.

A request arrives in the first step that starts at or after its arrival; its `arrive` row bears its own
time. A step takes what the cost model says; time in which nothing could happen is jumped over, so that
no empty step is written while nobody is live. Same records, profile, seed and cost: the same rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Final

from batchspec.replay.cost import Cost, CostModel
from batchspec.spec.errors import SpecError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference import ReferenceScheduler
from batchspec.spec.reference.pool import mix
from batchspec.spec.reference.scheduler import Predictor
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace

DEFAULT_COST: Final = CostModel()
_CANCEL, _READY = "cancel", "ready"
_TOIL: Final = frozenset(
    {"admit", "resume", "preempt", "schedule", "skip", "release", "dispatch", "complete", "step"}
    | {"transfer_begin", "transfer_end"}
)
"""Steps with no other row bring nobody further, unless a token comes out."""
_CHECKED_EVERY: Final = 4096
_IDLE: Final = frozenset({"arrive", "cancel", "park", "ready", "skip", "step"})
"""A step with no other row changes nothing: the next one would do as little."""


def simulate(
    records: Iterable[Record],
    profile: Profile,
    *,
    seed: int = 0,
    cost: Cost | None = None,
    level: str = "L3",
    speed: float = 1.0,
    concurrency: int | None = None,
    aborts: Mapping[RequestId, int] | None = None,
    parks: Mapping[RequestId, tuple[str, int]] | None = None,
    drafts: int = 0,
    accept: float = 0.7,
    predictor: Predictor | None = None,
    hash_block: int | None = None,
    outputs: str = "derived",
) -> Iterator[Event]:
    """The events of a run, one by one.

    `records` come in order of arrival; those that arrive at the same time keep their order.
    `speed` 2 lets them arrive twice as fast. With `concurrency` their times are left aside: that many
    clients each send the next one as soon as their last one has ended. `aborts` says after how many
    nanoseconds a client cancels its request, `parks` for what reason and how long a request is set
    aside on arrival.
    `drafts` tokens are proposed at each decode and each of them is accepted, one after the other,
    with probability `accept` (drawn from `seed`). `predictor` foretells output tokens where admission
    rests on predictions; without it max_tokens. `hash_block`: tokens behind one prefix hash.
    Raises `ProfileError` where claims contradict each other and `SpecError` for bad records.
    """
    if speed <= 0:
        raise SpecError(f"speed must be above 0, not {speed}")
    drafter = _Drafter(seed, drafts, accept) if drafts else None
    scheduler = ReferenceScheduler(
        profile,
        level=level,
        cost=DEFAULT_COST if cost is None else cost,
        drafter=drafter,
        predictor=predictor,
        outputs=outputs,
        hash_block=hash_block,
    )
    news = _News(iter(records), speed, aborts or {}, parks or {})
    if concurrency is not None:
        if concurrency < 1:
            raise SpecError(f"concurrency must be at least 1, not {concurrency}")
        news = _Clients(iter(records), concurrency, aborts or {}, parks or {})
    return _run(scheduler, news)


def trace_of(
    records: Iterable[Record], profile: Profile, *, path: str = "<simulated>", **options: object
) -> Trace:
    """A whole run in memory, with the header that says under which claims. Options as `simulate`."""
    events = list(simulate(records, profile, **options))  # type: ignore[arg-type]
    overlaps = profile.value("reuse.depth") > 1
    recorded = overlaps or bool(options.get("drafts")) or options.get("outputs") == "recorded"
    return Trace.from_events(events, header_of(profile, recorded=recorded, complete=True), path)


def header_of(profile: Profile, *, recorded: bool = False, complete: bool = False) -> Header:
    """The header of a trace that the reference scheduler makes under these claims."""
    return Header(
        producer_name="batchspec simulate",
        clock="virtual",
        profile=profile.name,
        config=profile.to_dict(),
        outputs="recorded" if recorded else "derived",
        complete=complete,
    )


def _run(scheduler: ReferenceScheduler, news: "_News") -> Iterator[Event]:
    now = 0
    watch = _Watch()
    while True:
        news.tell(scheduler, now)
        if scheduler.idle:
            if (coming := news.next_ns()) is None:
                return
            now = max(now, coming)
            continue
        settled = not scheduler.settles
        rows = scheduler.step(now)
        yield from rows
        now = scheduler.now_ns
        watch.over(scheduler, rows)
        settled = settled and not scheduler.settles
        if scheduler.idle or not settled or not _IDLE.issuperset(row.event for row in rows):
            continue
        # Nothing could be done: wait for news, or for a window to end.
        times = [time for time in (scheduler.wake_ns(), news.next_ns()) if time is not None]
        if not times:
            raise SpecError(f"step {rows[0].step}: live requests can neither run nor wait for anything")
        now = max(now, min(times))


class _Watch:
    """Ends a run that gets nowhere: some claims together let requests interrupt each other for ever."""

    def __init__(self) -> None:
        self._emitted = -1
        self._steps = 0

    def over(self, scheduler: ReferenceScheduler, rows: list[Event]) -> None:
        """A step is over. Raises `SpecError` after many steps without a token, an arrival or an end."""
        self._steps += 1
        if scheduler.emitted != self._emitted or not _TOIL.issuperset(row.event for row in rows):
            self._emitted, self._steps = scheduler.emitted, 0
        elif self._steps % _CHECKED_EVERY == 0 and self._steps > 8 * scheduler.known_tokens:
            raise SpecError(
                f"step {rows[0].step}: no output token in {self._steps} steps; under these claims requests "
                f"interrupt each other for ever (give more limits.kv_blocks, or set admission.test to known)"
            )


class _News:
    """What happens to the scheduler from outside, in order of time."""

    def __init__(
        self,
        records: Iterator[Record],
        speed: float,
        aborts: Mapping[RequestId, int],
        parks: Mapping[RequestId, tuple[str, int]],
    ) -> None:
        self._records = records
        self._speed = speed
        self._aborts = aborts
        self._parks = parks
        self._script: list[tuple[int, int, str, RequestId]] = []
        self._ordinals = count()
        self._last_ns = 0
        self._following = next(records, None)

    def next_ns(self) -> int | None:
        """When the next thing happens; None where nothing more does."""
        times = [self._script[0][0]] if self._script else []
        if self._following is not None:
            times.append(self._arrival_ns(self._following))
        return min(times, default=None)

    def tell(self, scheduler: ReferenceScheduler, now: int) -> None:
        """Let everything happen that is due by now."""
        while self._following is not None and (arrival := self._arrival_ns(self._following)) <= now:
            record = self._following
            if arrival < self._last_ns:
                raise SpecError(f"request {record.request!r} arrives before the one above it: sort them")
            self._last_ns = arrival
            self._arrive(scheduler, record, arrival)
        self._tell_script(scheduler, now)

    def _arrive(self, scheduler: ReferenceScheduler, record: Record, arrival: int) -> None:
        scheduler.add(record, arrival)
        if (delay := self._aborts.get(record.request)) is not None:
            self._later(arrival + delay, _CANCEL, record.request)
        if (parked := self._parks.get(record.request)) is not None:
            scheduler.park(record.request, parked[0])
            self._later(arrival + parked[1], _READY, record.request)
        self._following = next(self._records, None)

    def _tell_script(self, scheduler: ReferenceScheduler, now: int) -> None:
        while self._script and self._script[0][0] <= now:
            _, _, what, request = heappop(self._script)
            if scheduler.is_live(request):
                (scheduler.cancel if what == _CANCEL else scheduler.ready)(request)

    def _later(self, time: int, what: str, request: RequestId) -> None:
        heappush(self._script, (time, next(self._ordinals), what, request))

    def _arrival_ns(self, record: Record) -> int:
        return record.arrival_ns if self._speed == 1 else int(record.arrival_ns / self._speed)


class _Clients(_News):
    """A closed loop: so many clients, each of whom sends its next request when its last one has ended."""

    def __init__(
        self,
        records: Iterator[Record],
        concurrency: int,
        aborts: Mapping[RequestId, int],
        parks: Mapping[RequestId, tuple[str, int]],
    ) -> None:
        super().__init__(records, 1.0, aborts, parks)
        self._concurrency = concurrency
        self._live = 0

    def tell(self, scheduler: ReferenceScheduler, now: int) -> None:
        while self._following is not None and scheduler.live < self._concurrency:
            self._arrive(scheduler, self._following, now)
        self._live = scheduler.live
        self._tell_script(scheduler, now)

    def next_ns(self) -> int | None:
        times = [self._script[0][0]] if self._script else []
        if self._following is not None and self._live < self._concurrency:
            times.append(0)
        return min(times, default=None)


class _Drafter:
    """Drafts whose acceptance is drawn from the seed, the request and its place in the output."""

    def __init__(self, seed: int, drafts: int, accept: float) -> None:
        self._seed = seed
        self._drafts = drafts
        self._most = int(accept * (1 << 20))

    def __call__(self, request: RequestId, outputs: int) -> tuple[int, int]:
        name = request if isinstance(request, int) else int.from_bytes(str(request).encode()[:64], "big")
        accepted = 0
        while accepted < self._drafts:
            if mix(self._seed, name, outputs, accepted) >> 20 & 0xFFFFF >= self._most:
                break
            accepted += 1
        return self._drafts, accepted
