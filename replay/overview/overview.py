"""The overview: everything that a picture of a trace is drawn from, gathered in one pass."""

from collections.abc import Iterable
from typing import Final

from batchspec.replay.overview.buckets import Buckets
from batchspec.replay.overview.detail import Detail
from batchspec.replay.overview.heat import Heat
from batchspec.replay.overview.latencies import Latencies
from batchspec.replay.overview.preemptions import Preemptions
from batchspec.replay.overview.tenants import MOST_TENANTS, Tenants
from batchspec.spec.events import Event, RequestId
from batchspec.spec.metrics import Meter, Metrics
from batchspec.spec.profile import Profile
from batchspec.spec.served import Served
from batchspec.traces.seats import AGAIN, DECODE, PREFILL, Run, Seats

SUMS: Final = (
    "prefill", "decode", "again", "members", "waiting", "running", "arrived", "finished", "preempted",
)  # fmt: skip
PEAKS: Final = (
    "tokens", "members", "waiting", "running", "blocks", "time_ns", "drift",
    *(f"service{number}" for number in range(MOST_TENANTS)),
)  # fmt: skip
MOST_BREAKS: Final = 5000

_COUNTED: Final = frozenset({"arrive", "finish", "preempt"})
_GIVES_ALL: Final = frozenset({"preempt", "finish", "abort", "reject"})
_ENDS: Final = frozenset({"finish", "abort", "reject"})
_LEAVES: Final = _ENDS | {"admit", "park"}


class Overview:
    """Fed with the events of a trace in order, then asked for its parts.

    Memory: the live requests, and figures whose number does not grow with the trace but for 8 bytes a
    latency.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        columns: frozenset[str],
        recorded: bool = False,
        wanted: Iterable[int] = (),
    ) -> None:
        """For a trace with these `columns`, under the claims of `profile`. `wanted` are the steps whose
        surroundings are kept in full, `recorded` says that outputs have rows."""
        self.profile = profile
        self.limits = profile.limits
        barrier = profile.batching.mode in ("static", "dynamic")
        self.heat, self.detail = Heat(), Detail(wanted)
        self.seats = Seats(self._run, barrier=barrier)
        self.buckets = Buckets(SUMS, PEAKS)
        self.tenants = Tenants(profile.fairness.weights)
        self.latencies = Latencies()
        self.preemptions = Preemptions()
        self.served: dict[RequestId, Served] = {}
        """What became of the requests that occur in the runs kept in detail."""
        self.breaks: list[tuple[int, int]] = []
        """(ordinal, step number) wherever the numbers do not go on by one; sorted."""
        self.places: dict[int, int] = {}
        """The ordinal of each wanted step."""
        self.began_ns: int | None = None
        self.metrics: Metrics | None = None
        self.counted_blocks = "free_blocks" in columns and self.limits.kv_blocks is not None
        """Whether the pool's use is the engine's own count; else it is the sum over the rows."""
        self.has_blocks = self.counted_blocks or "blocks" in columns
        self._wanted = frozenset(wanted)
        self._meter = Meter(
            max_seqs=self.limits.max_seqs,
            recorded=recorded,
            w_p=profile.value("fairness.w_p"),
            w_q=profile.value("fairness.w_q"),
            served=self._end,
        )
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._held: dict[RequestId, int] = {}
        self._held_sum = 0
        self._blocks: float | None = None
        self._shared = 0
        self._now_ns: int | None = None
        self._step: int | None = None
        self._tenanted = "tenant" in columns

    def feed(self, events: Iterable[Event]) -> "Overview":
        """Take in a whole trace."""
        for event in events:
            self.add(event)
        self.over()
        return self

    def add(self, event: Event) -> None:
        """Take in the next row."""
        if event.step != self._step:
            self._turn(event.step)
        kind = event.event
        if event.time_ns is not None and kind not in ("arrive", "cancel"):
            self._now_ns = event.time_ns
            if self.began_ns is None:
                self.began_ns = event.time_ns
        self.seats.add(event)
        self._meter.add(event)
        if event.request is not None:
            if self.has_blocks and not self.counted_blocks:
                self._hold(event)
            if self._tenanted and kind != "schedule":
                self._tenant(event)
        elif kind == "step" and self.has_blocks:
            self._count_blocks(event)
        if kind in _COUNTED:
            self._counts[kind] += 1
            if kind == "preempt":
                tenant = self.tenants.of
                self.preemptions.add(event, tenant(event.cause), tenant(event.request))

    def over(self) -> None:
        """Nothing follows."""
        self._close()
        self.seats.over()
        self.metrics = self._meter.result()
        self.served = {name: one for name, one in self.served.items() if name in self.detail.names}

    @property
    def steps(self) -> int:
        """Steps of the trace."""
        return self.buckets.steps

    def step_of(self, ordinal: int) -> int:
        """The step number at a place."""
        found = (0, 0)
        for place, number in self.breaks:
            if place > ordinal:
                break
            found = (place, number)
        return found[1] + ordinal - found[0]

    # -- parts -------------------------------------------------------------------------------------

    def _turn(self, step: int) -> None:
        self._close()
        ordinal = self.buckets.steps
        if (self._step is None or step != self._step + 1) and len(self.breaks) < MOST_BREAKS:
            self.breaks.append((ordinal, step))
        if step in self._wanted:
            self.places.setdefault(step, ordinal)
        self.detail.turn(ordinal, step)
        self._step = step

    def _close(self) -> None:
        """The step that was open is over: its figures go into a bucket."""
        if self._step is None:
            return
        seats, counts = self.seats, self._counts
        running, tokens = len(seats.stays), seats.tokens
        waiting = max(0, seats.live - running)
        blocks = self._blocks
        if not self.counted_blocks and self.has_blocks:
            blocks = max(0, self._held_sum - self._shared)
        time = None if self._now_ns is None or self.began_ns is None else self._now_ns - self.began_ns
        drift = None
        if self._tenanted:
            self.tenants.served(self._meter.service)
            drift = self.tenants.drift()
        self.buckets.add(
            (
                tokens[PREFILL], tokens[DECODE], tokens[AGAIN], seats.members, waiting, running,
                counts["arrive"], counts["finish"], counts["preempt"],
            ),
            (
                sum(tokens), seats.members, waiting, running, blocks, time,
                drift, *self.tenants.service,
            ),
        )  # fmt: skip
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._step = None

    def _run(self, run: Run) -> None:
        self.heat.add(run)
        self.detail.add(run)

    def _hold(self, event: Event) -> None:
        blocks = event.blocks
        if blocks is None and event.event in _GIVES_ALL:
            blocks = 0
        if blocks is not None:
            request = event.subject
            self._held_sum += blocks - self._held.pop(request, 0)
            if blocks:
                self._held[request] = blocks

    def _count_blocks(self, event: Event) -> None:
        self._shared = event.shared_blocks or 0
        if self.counted_blocks and event.free_blocks is not None:
            self._blocks = (self.limits.kv_blocks or 0) - event.free_blocks

    def _tenant(self, event: Event) -> None:
        kind = event.event
        if kind in ("arrive", "live"):
            self.tenants.arrive(event)
        elif kind == "ready":
            self.tenants.wait(event.subject)
        elif kind in _LEAVES:
            self.tenants.leave(event.subject, ended=kind in _ENDS)

    def _end(self, served: Served) -> None:
        self.latencies.add(served)
        if served.request in self.detail.names:
            self.served[served.request] = served
