"""Export for the Perfetto viewer: a track a slot, counters, and arrows from each preemption to its resume.

    trace                                   -> Perfetto
    stay of a request in a slot             -> slice on the slot's track, named after the request
    run of prefill, decode, recompute, idle -> slice inside it, with its tokens and steps
    preempt, and the resume that follows    -> instant with a flow, and the slice that ends the flow
    step                                    -> slice on the track "steps", with members and tokens
    free_blocks (or blocks), waiting, running, tokens, limits -> counter tracks

The file is a Perfetto trace in protobuf: packets of `TrackDescriptor` and `TrackEvent`. Times are those of
the rows, from the first one on; a trace without a clock gets a millisecond a step. Two requests that share a
slot (a broken trace) are drawn on two tracks of that slot.

Source: perfetto/protos/perfetto/trace/track_event/{track_event,track_descriptor,counter_descriptor}.proto.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.traces.seats import KIND_NAMES, Run, Seats
from batchspec.traces.text import one_line
from batchspec.traces.wire import fixed64, message, text, varint

STEP_NS: Final = 1_000_000
"""How long a step lasts in the export of a trace that has no times."""

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_SEQUENCE: Final = 1
_CLEARED: Final = 1  # SEQ_INCREMENTAL_STATE_CLEARED, on the first packet
_ROOT, _STEPS, _SLOTS, _FIRST_COUNTER, _FIRST_SLOT = 1, 2, 3, 10, 1000
_LONGEST: Final = 80
_MANY: Final = 256 * 1024

COUNTERS: Final = ("KV blocks in use", "KV pool", "waiting", "running", "tokens", "token budget")


# Field numbers of TracePacket, TrackEvent, DebugAnnotation and TrackDescriptor.
_TIMESTAMP, _SEQUENCE_ID, _EVENT, _FLAGS, _DESCRIPTOR = 8, 10, 11, 13, 60
_ANNOTATION, _TYPE, _TRACK, _NAME, _VALUE, _FLOW, _FLOW_ENDS = 4, 9, 11, 23, 30, 47, 48
_FACT_INT, _FACT_NAME = 4, 10
_UUID, _TRACK_NAME, _PARENT, _COUNTED, _ORDERING, _RANK = 1, 2, 5, 8, 11, 12
_EXPLICIT: Final = 3


@dataclass(slots=True)
class _Slot:
    """The tracks of one slot: in general one, more where requests share it."""

    open: dict[int, int] = field(default_factory=dict)
    """Track by number of the stay that it draws now."""
    ends: dict[int, int] = field(default_factory=dict)
    """When the last slice of each track ended."""


class Perfetto:
    """Turns events into the bytes of a Perfetto trace, piece by piece.

    Memory: the live requests, and the packets of the step at hand.
    """

    def __init__(self, profile: Profile, *, has_time: bool, has_blocks: bool) -> None:
        """For a trace under the claims of `profile`; `has_time` says that its rows have times."""
        self._limits = profile.limits
        self._has_time = has_time
        self._has_blocks = has_blocks
        self._seats = Seats(self._run, barrier=profile.batching.mode in ("static", "dynamic"))
        self._slots: dict[int, _Slot] = {}
        self._out: list[bytes] = []
        self._size = 0
        self._tracks = _FIRST_SLOT
        self._flows = 0
        self._waiting_flows: dict[RequestId, int] = {}
        self._base: int | None = None
        self._now = 0
        self._step: int | None = None
        self._step_began = 0
        self._held: dict[RequestId, int] = {}
        self._held_sum = 0
        self._free: int | None = None
        self._told: dict[int, int] = {}

    def pieces(self, events: Iterable[Event]) -> Iterator[bytes]:
        """The file, in pieces of a few hundred kilobytes."""
        self._describe()
        for event in events:
            self._add(event)
            if self._size > _MANY:
                yield self._taken()
        self._close_step()
        self._seats.over()
        for slot in self._slots.values():
            for stay in list(slot.open):
                self._end_stay(slot, stay, slot.ends[slot.open[stay]])
        yield self._taken()

    # -- rows --------------------------------------------------------------------------------------

    def _add(self, event: Event) -> None:
        if event.step != self._step:
            self._close_step()
            self._step = event.step
            if not self._has_time:
                self._now = (self._seats.ordinal + 1) * STEP_NS
            self._step_began = self._now
        kind = event.event
        if self._has_time and event.time_ns is not None and kind not in ("arrive", "cancel"):
            if self._base is None:
                self._base = event.time_ns
            # A clock that runs backwards is a finding of the check; slices must not.
            self._now = max(self._now, event.time_ns - self._base)
        self._seats.add(event)
        if event.request is not None:
            self._hold(event)
            if kind in ("reject", "abort"):
                name = f"{kind} {_name(event.request)}"
                self._track_event(_STEPS, self._now, _INSTANT, text(_NAME, name))
        elif kind == "step" and event.free_blocks is not None:
            self._free = event.free_blocks

    def _hold(self, event: Event) -> None:
        blocks = event.blocks
        if blocks is None and event.event in ("preempt", "finish", "abort"):
            blocks = 0
        if blocks is not None:
            self._held_sum += blocks - self._held.pop(event.subject, 0)
            if blocks:
                self._held[event.subject] = blocks

    def _close_step(self) -> None:
        if self._step is None:
            return
        seats = self._seats
        end = self._now if self._has_time else self._step_began + STEP_NS
        pool, tokens = self._limits.kv_blocks, sum(seats.tokens)
        facts = (_fact("members", seats.members), _fact("tokens", tokens))
        self._slice(_STEPS, f"step {self._step}", self._step_began, end, *facts)
        used = self._held_sum if self._free is None or pool is None else pool - self._free
        values = (
            used if self._has_blocks else None,
            pool,
            max(0, seats.live - len(seats.stays)),
            len(seats.stays),
            tokens,
            self._limits.token_budget,
        )
        for place, value in enumerate(values):
            # A counter holds its value until it is told another.
            if value is not None and self._told.get(place) != value:
                self._told[place] = value
                self._track_event(_FIRST_COUNTER + place, self._step_began, _COUNTER, varint(_VALUE, value))
        self._step = None

    # -- slices ------------------------------------------------------------------------------------

    def _run(self, run: Run) -> None:
        began, ended = self._times(run)
        slot = self._slots.setdefault(run.seat, _Slot())
        track = slot.open.get(run.stay)
        if track is None:
            track = self._track_of(slot, run.seat, began)
            slot.open[run.stay] = track
            flow = self._waiting_flows.pop(run.request, None)
            ends = () if flow is None else (fixed64(_FLOW_ENDS, flow),)
            began = max(began, slot.ends.get(track, 0))
            self._track_event(track, began, _BEGIN, text(_NAME, _name(run.request)), *ends)
        began = max(began, slot.ends.get(track, 0))
        ended = max(ended, began)
        facts = [_fact("steps before it", run.first), _fact("steps", run.last - run.first + 1)]
        if run.tokens:
            facts.append(_fact("tokens", run.tokens))
        self._slice(track, KIND_NAMES[run.kind], began, ended, *facts)
        slot.ends[track] = ended
        if run.end:
            self._end_stay(slot, run.stay, ended)
            if run.end == "preempt":
                self._flows += 1
                self._waiting_flows[run.request] = self._flows
                self._track_event(
                    track, ended, _INSTANT, text(_NAME, "preempted"), fixed64(_FLOW, self._flows)
                )

    def _end_stay(self, slot: _Slot, stay: int, at: int) -> None:
        self._track_event(slot.open.pop(stay), at, _END)

    def _times(self, run: Run) -> tuple[int, int]:
        """When a run began and ended, nanoseconds from the first row with a time."""
        if not self._has_time:
            return run.first * STEP_NS, (run.last + 1) * STEP_NS
        base = self._base or 0
        began = self._now if run.began_ns is None else run.began_ns - base
        ended = self._now if run.ended_ns is None else run.ended_ns - base
        return max(0, began), max(0, began, ended)

    def _track_of(self, slot: _Slot, seat: int, began: int) -> int:
        """A track of the slot that draws nothing now; a second one where two requests are in it."""
        taken = set(slot.open.values())
        free = [track for track in slot.ends if track not in taken]
        if free:
            return free[0]
        self._tracks += 1
        name = f"slot {seat}" if not slot.ends else f"slot {seat}, shared"
        self._track(self._tracks, name, _SLOTS, varint(_RANK, min(seat, (1 << 31) - 1)))
        slot.ends[self._tracks] = began
        return self._tracks

    # -- packets -----------------------------------------------------------------------------------

    def _describe(self) -> None:
        first = (varint(_FLAGS, _CLEARED),)
        self._track(_ROOT, "batchspec", None, varint(_ORDERING, _EXPLICIT), packet=first)
        self._track(_STEPS, "steps", _ROOT, varint(_RANK, 0))
        for place, name in enumerate(COUNTERS):
            told = message(_COUNTED)
            self._track(_FIRST_COUNTER + place, name, _ROOT, varint(_RANK, 1 + place), told)
        slots = (varint(_RANK, 1 + len(COUNTERS)), varint(_ORDERING, _EXPLICIT))
        self._track(_SLOTS, "slots", _ROOT, *slots)

    def _track(
        self, uuid: int, name: str, parent: int | None, *more: bytes, packet: tuple[bytes, ...] = ()
    ) -> None:
        under = () if parent is None else (varint(_PARENT, parent),)
        described = message(_DESCRIPTOR, varint(_UUID, uuid), text(_TRACK_NAME, name), *under, *more)
        self._packet(described, *packet)

    def _slice(self, track: int, name: str, began: int, ended: int, *facts: bytes) -> None:
        self._track_event(track, began, _BEGIN, text(_NAME, name), *facts)
        self._track_event(track, ended, _END)

    def _track_event(self, track: int, at: int, kind: int, *more: bytes) -> None:
        event = message(_EVENT, varint(_TYPE, kind), varint(_TRACK, track), *more)
        self._packet(varint(_TIMESTAMP, at), event)

    def _packet(self, *fields: bytes) -> None:
        made = message(1, *fields, varint(_SEQUENCE_ID, _SEQUENCE))
        self._out.append(made)
        self._size += len(made)

    def _taken(self) -> bytes:
        made = b"".join(self._out)
        self._out, self._size = [], 0
        return made


def perfetto(
    events: Iterable[Event], profile: Profile, *, has_time: bool, has_blocks: bool
) -> Iterator[bytes]:
    """A trace as a Perfetto trace, in pieces to be written one behind the other. Arguments as `Perfetto`."""
    return Perfetto(profile, has_time=has_time, has_blocks=has_blocks).pieces(events)


def _fact(name: str, value: int) -> bytes:
    return message(_ANNOTATION, text(_FACT_NAME, name), varint(_FACT_INT, value))


def _name(request: RequestId) -> str:
    return one_line(request, _LONGEST)
