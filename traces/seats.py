"""Seats: who sits in which slot, step by step, as runs of equal steps.

A *run* is a stretch of steps in which one request sits in one seat and does one thing. Steps are counted
by their place in the trace (the first step with a row is 0), so that gaps in the numbers do not matter. Seats
are the trace's slots; where it names none, a request takes the lowest seat that nobody has.

This describes what the rows say, also of a trace that breaks every rule: two requests may share a slot.
"""

import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from batchspec.spec.events import Event, RequestId

DECODE, PREFILL, AGAIN, IDLE = range(4)
"""What a run does: decodes; computes prompt positions; computes positions that it had before a preemption;
or nothing, while it keeps the seat."""

KIND_NAMES: Final = ("decode", "prefill", "recompute", "idle")

_ENDS: Final = frozenset({"finish", "preempt", "abort", "reject"})


class Run(NamedTuple):
    """One run: steps `first` to `last` (ordinals, both included) of `stay`, the n-th sitting of the trace.

    `tokens` were computed in it. `end` is how the stay ended behind this run (`finish`, `preempt`, `abort`,
    or `` where it goes on) and `end_at` the step of that. `began_ns` and `ended_ns` are times of rows.
    """

    seat: int
    request: RequestId
    stay: int
    kind: int
    first: int
    last: int
    tokens: int
    began_ns: int | None
    ended_ns: int | None
    end: str = ""
    end_at: int = -1


class _Stay:
    """One request from joining the batch to leaving it, and the run that it is in."""

    __slots__ = ("began", "ended", "first", "joined", "joined_ns", "kind", "last", "number", "seat", "tokens")

    def __init__(self, seat: int, number: int, joined: int, joined_ns: int | None) -> None:
        self.seat, self.number = seat, number
        self.joined, self.joined_ns = joined, joined_ns
        self.kind = -1
        self.first = self.last = joined - 1
        self.tokens = 0
        self.began: int | None = joined_ns
        self.ended: int | None = joined_ns


class Seats:
    """Follows the rows of a trace and hands each run to `sink` as soon as it is over.

    Memory: the live requests. `barrier` says that a seat stays taken until the last member of its batch has
    ended (modes `static` and `dynamic`).
    """

    def __init__(self, sink: Callable[[Run], object], *, barrier: bool = False) -> None:
        """Nobody sits anywhere."""
        self._sink = sink
        self._barrier = barrier
        self.ordinal = -1
        self.step: int | None = None
        self.stays: dict[RequestId, _Stay] = {}
        self.named = False
        """Whether any row named a slot."""
        self._count = 0
        self._prompts: dict[RequestId, int] = {}
        self._reached: dict[RequestId, int] = {}
        self._members: dict[RequestId, tuple[int, int, int]] = {}
        self.tokens = [0, 0, 0]
        """Tokens of this step's members so far, by kind."""
        self.members = 0
        self._free: list[int] = []
        self._seats = 0
        self._taken: dict[int, int] = {}
        self._kept: list[tuple[RequestId, _Stay, int]] = []
        self._began_ns: int | None = None
        self._now_ns: int | None = None

    def add(self, event: Event) -> None:
        """Take in the next row."""
        if event.step != self.step:
            self._turn(event.step)
        kind = event.event
        if event.time_ns is not None and kind not in ("arrive", "cancel"):
            self._now_ns = event.time_ns
            if self._began_ns is None:
                self._began_ns = event.time_ns
        request = event.request
        if request is None:
            if kind == "step":
                self._commit()
            return
        if kind == "schedule":
            if request not in self.stays:
                self._sit(request, None)
            if request in self._members:
                self._drop(request)
            tokens, does = event.tokens or 0, self._kind(request, event)
            self._members[request] = (does, tokens, (event.start or 0) + tokens - (event.drafts or 0))
            self.tokens[does] += tokens
            self.members += 1
        elif kind in ("admit", "resume"):
            self._sit(request, event.slot)
        elif kind in ("arrive", "live"):
            self._prompts[request] = event.prompt_tokens or 0
            if kind == "live" and event.reason == "running":
                self._sit(request, event.slot)
        elif kind in _ENDS:
            self._leave(request, kind)

    @property
    def live(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self._prompts)

    def over(self) -> None:
        """The trace is over: whoever still sits, sat until now."""
        self._commit()
        for request, stay in list(self.stays.items()):
            self._rest(request, stay, self.ordinal)
            self._close(request, stay)
        self._rise()

    # -- parts -------------------------------------------------------------------------------------

    def _turn(self, step: int) -> None:
        self._commit()
        if self._kept and not self.stays:
            self._rise()
        self.step = step
        self.ordinal += 1
        self.tokens, self.members = [0, 0, 0], 0
        self._began_ns = None

    def _kind(self, request: RequestId, event: Event) -> int:
        tokens, start = event.tokens or 0, event.start
        if start is not None and start < self._reached.get(request, 0):
            return AGAIN
        prefill = tokens - (event.drafts or 0) > 1 or (
            start is not None and start < self._prompts.get(request, 0)
        )
        return PREFILL if prefill else DECODE

    def _sit(self, request: RequestId, slot: int | None) -> None:
        old = self.stays.pop(request, None)
        if old is not None:
            self._close(request, old)
            self._vacate(old.seat)
        if slot is not None and slot >= 0:
            self.named = True
            seat = slot
        else:
            seat = self._lowest()
        self._taken[seat] = self._taken.get(seat, 0) + 1
        self.stays[request] = _Stay(seat, self._count, self.ordinal, self._now_ns)
        self._count += 1

    def _lowest(self) -> int:
        while self._free:
            seat = heapq.heappop(self._free)
            if seat not in self._taken:
                return seat
        while self._seats in self._taken:
            self._seats += 1
        self._seats += 1
        return self._seats - 1

    def _vacate(self, seat: int) -> None:
        left = self._taken.get(seat, 0) - 1
        if left > 0:
            self._taken[seat] = left
            return
        self._taken.pop(seat, None)
        if seat < self._seats:
            heapq.heappush(self._free, seat)

    def _commit(self) -> None:
        """The members of the step are final."""
        for request, (kind, tokens, end) in self._members.items():
            self._member(request, kind, tokens, end)
        self._members = {}

    def _drop(self, request: RequestId) -> tuple[int, int, int] | None:
        """Not a member of this step after all."""
        member = self._members.pop(request, None)
        if member is not None:
            self.tokens[member[0]] -= member[1]
            self.members -= 1
        return member

    def _member(self, request: RequestId, kind: int, tokens: int, end: int) -> None:
        stay = self.stays.get(request)
        if stay is None:
            return
        now = self.ordinal
        if end > self._reached.get(request, 0):
            self._reached[request] = end
        if stay.kind == kind and stay.last == now - 1:
            stay.last = now
            stay.tokens += tokens
            stay.ended = self._now_ns
            return
        if stay.last < now - 1:
            self._rest(request, stay, now - 1)
        self._close(request, stay)
        stay.kind, stay.first, stay.last, stay.tokens = kind, now, now, tokens
        stay.began, stay.ended = self._began_ns, self._now_ns

    def _rest(self, request: RequestId, stay: _Stay, last: int) -> None:
        """Nothing was computed from behind the last run up to step `last`."""
        if last <= stay.last:
            return
        if stay.kind == IDLE:
            stay.last = last
        else:
            first = stay.last + 1
            self._close(request, stay)
            stay.kind, stay.first, stay.last, stay.tokens = IDLE, first, last, 0
            stay.began = stay.ended if stay.ended is not None else stay.joined_ns
        stay.ended = self._began_ns if last < self.ordinal else self._now_ns

    def _close(self, request: RequestId, stay: _Stay, end: str = "", end_at: int = -1) -> None:
        """Hand on the run that a stay is in, if it is in one."""
        if stay.kind < 0:
            if not end:
                return
            # It joined and left without a step of its own: a seat taken for nothing, in this step.
            stay.kind, stay.first, stay.last = IDLE, stay.joined, max(stay.joined, self.ordinal)
        self._sink(
            Run(
                stay.seat, request, stay.number, stay.kind, stay.first, stay.last, stay.tokens,
                stay.began, stay.ended, end, end_at,
            )
        )  # fmt: skip
        stay.kind = -1

    def _leave(self, request: RequestId, how: str) -> None:
        member = self._members.pop(request, None) if how == "finish" else self._drop(request)
        stay = self.stays.get(request)
        if how != "preempt":
            self._prompts.pop(request, None)
        if stay is None:
            if how != "preempt":
                self._reached.pop(request, None)
            return
        if how == "finish" and member is not None:
            self._member(request, *member)
        self._rest(request, stay, self.ordinal - 1)
        self._close(request, stay, how, self.ordinal)
        del self.stays[request]
        if how != "preempt":
            self._reached.pop(request, None)
        if self._barrier and how == "finish" and self.stays:
            self._kept.append((request, stay, self.ordinal))
        else:
            self._vacate(stay.seat)

    def _rise(self) -> None:
        """The batch is over: the seats of its finished members come back."""
        for request, stay, ended in self._kept:
            if ended < self.ordinal:
                stay.kind, stay.first, stay.last, stay.tokens = IDLE, ended + 1, self.ordinal, 0
                stay.began, stay.ended = stay.ended, self._now_ns
                self._close(request, stay)
            self._vacate(stay.seat)
        self._kept = []
