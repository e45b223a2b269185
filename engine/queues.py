"""Who is next: the waiting and the preempted requests, in the order of the policy.

Every queue keeps its order incrementally: a push, a pop or a removal costs the logarithm of its
length. A removed request stays in the heap as a dead entry and is passed over when it comes up.

| order | next is |
| --- | --- |
| `fcfs` | the earliest arrival |
| `sjf` | the least prompt + max_tokens, then the earliest arrival |
| `priority` | the most urgent, then the earliest arrival |
| `fair` | the earliest arrival of the tenant that was served least (virtual token counter, OSDI 2024) |

A sequence's `place` is that of its arrival. Preempted requests come back before new ones (`front`), at
that place (`arrival`), or as if they had just arrived (`back`). Urgency goes before all of that.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any, Protocol

from batchspec.engine.options import Options
from batchspec.engine.sequence import Sequence, Status

Key = tuple[Any, ...]


class Queue(Protocol):
    """What the scheduler needs of a queue."""

    def push(self, sequence: Sequence) -> None:
        """Add a waiting or preempted sequence at the place its policy gives it."""

    def peek(self) -> Sequence | None:
        """The policy's next, or None."""

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""

    def set_aside(self, sequence: Sequence) -> Key:
        """Take a sequence out for a moment, to look at those behind it; returns its place."""

    def put_back(self, sequence: Sequence, place: Key) -> None:
        """Undo `set_aside`: as if the sequence had never been out."""

    def served(self, sequence: Sequence, prompt: int, outputs: int) -> None:
        """Note service given: prompt tokens at the first admission, tokens emitted in a step."""

    def __len__(self) -> int:
        """Sequences in the queue."""


class _Heap:
    """A heap of sequences with lazy removal. An entry is alive while its sequence points to it."""

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, Sequence]] = []
        self._pushed = 0
        self.alive = 0

    def push(self, key: Key, sequence: Sequence) -> None:
        self._pushed += 1
        entry = (key, self._pushed, sequence)
        sequence.entry = entry
        self.alive += 1
        heappush(self._heap, entry)

    def peek(self) -> Sequence | None:
        heap = self._heap
        while heap:
            entry = heap[0]
            sequence = entry[2]
            if sequence.entry is entry:
                return sequence
            heappop(heap)
        return None

    def head_key(self) -> Key:
        return self._heap[0][0]

    def remove(self, sequence: Sequence) -> Key:
        key: Key = sequence.entry[0]
        sequence.entry = None
        self.alive -= 1
        if len(self._heap) > 64 + 4 * self.alive:
            # Many dead entries: keep the heap's memory bounded by what is alive.
            self._heap = sorted(entry for entry in self._heap if entry[2].entry is entry)
        return key


class OrderedQueue:
    """fcfs, sjf and priority: one heap, one key."""

    def __init__(self, options: Options) -> None:
        """The key follows from `order` and `resume`."""
        self._heap = _Heap()
        self._key = _key_of(options)

    def push(self, sequence: Sequence) -> None:
        """See `Queue`."""
        self._heap.push(self._key(sequence), sequence)

    def peek(self) -> Sequence | None:
        """See `Queue`."""
        return self._heap.peek()

    def remove(self, sequence: Sequence) -> None:
        """See `Queue`."""
        self._heap.remove(sequence)

    def set_aside(self, sequence: Sequence) -> Key:
        """See `Queue`."""
        return self._heap.remove(sequence)

    def put_back(self, sequence: Sequence, place: Key) -> None:
        """See `Queue`."""
        self._heap.push(place, sequence)

    def served(self, sequence: Sequence, prompt: int, outputs: int) -> None:
        """Nothing: these orders do not look at service."""

    def __len__(self) -> int:
        """See `Queue`."""
        return self._heap.alive


def urgency(options: Options) -> Callable[[Sequence], int]:
    """A number that is lower for a more urgent request; a request without priority counts as 0."""
    sign = -1 if options.urgent_high else 1
    return lambda sequence: sign * (sequence.request.priority or 0)


def _key_of(options: Options) -> Callable[[Sequence], Key]:
    urgent = urgency(options)
    front, order = options.resume == "front", options.order

    def key(sequence: Sequence) -> Key:
        rank = urgent(sequence) if order == "priority" else 0
        if front and sequence.status is Status.PREEMPTED:
            return (rank, 0, sequence.first_admitted)
        work = sequence.prompt_len + sequence.limit if order == "sjf" else 0
        return (rank, 1, work, sequence.place)

    return key


class FairQueue:
    """fair: one queue a tenant, and a counter of the service that each tenant has received.

    A tenant's counter grows by w_p a prompt token at admission and by w_q an emitted token, over the
    tenant's weight. A tenant that wakes is lifted to the least counter among those waiting, or, where
    nobody waits, to that of the tenant that left the queue last: idleness earns no credit. Waiting here
    means not yet admitted: a preempted request neither wakes its tenant nor keeps it awake.
    """

    def __init__(self, options: Options) -> None:
        """Charges and weights come from the profile's fairness group."""
        value = options.profile.value
        self._prompt_charge, self._output_charge = value("fairness.w_p"), value("fairness.w_q")
        self._weights: Mapping[str, float] = value("fairness.weights") or {}
        self._lift: bool = value("fairness.lift")
        self._front = options.resume == "front"
        self._returned = _Heap()
        self._tenants: dict[str, _Heap] = {}
        self._counters: dict[str, float] = {}
        self._order: list[tuple[float, int, str]] = []
        self._offered: dict[str, tuple[float, int]] = {}
        self._new: dict[str, int] = {}
        self._last: str | None = None
        self._waiting = 0

    def push(self, sequence: Sequence) -> None:
        """See `Queue`."""
        if self._comes_back(sequence):
            self._returned.push((sequence.first_admitted,), sequence)
            return
        tenant = sequence.request.tenant or ""
        heap = self._tenants.setdefault(tenant, _Heap())
        if sequence.status is Status.WAITING:
            if tenant not in self._new:
                self._wake(tenant)
            self._new[tenant] = self._new.get(tenant, 0) + 1
        heap.push((sequence.place,), sequence)
        self._waiting += 1
        self._offer(tenant)

    def peek(self) -> Sequence | None:
        """See `Queue`."""
        returned = self._returned.peek()
        if returned is not None:
            return returned
        tenant = self._least()
        return None if tenant is None else self._tenants[tenant].peek()

    def remove(self, sequence: Sequence) -> None:
        """See `Queue`."""
        self.set_aside(sequence)
        if sequence.status is Status.WAITING:
            tenant = self._last = sequence.request.tenant or ""
            self._new[tenant] -= 1
            if not self._new[tenant]:
                del self._new[tenant]

    def set_aside(self, sequence: Sequence) -> Key:
        """See `Queue`."""
        if self._comes_back(sequence):
            return self._returned.remove(sequence)
        self._waiting -= 1
        return self._tenants[sequence.request.tenant or ""].remove(sequence)

    def put_back(self, sequence: Sequence, place: Key) -> None:
        """See `Queue`."""
        if self._comes_back(sequence):
            self._returned.push(place, sequence)
            return
        tenant = sequence.request.tenant or ""
        self._tenants[tenant].push(place, sequence)
        self._waiting += 1
        self._offer(tenant)

    def served(self, sequence: Sequence, prompt: int, outputs: int) -> None:
        """See `Queue`."""
        tenant = sequence.request.tenant or ""
        charge = self._prompt_charge * prompt + self._output_charge * outputs
        weight = self._weights.get(tenant, self._weights.get("*", 1))
        self._counters[tenant] = self._counters.get(tenant, 0) + charge / weight

    def __len__(self) -> int:
        """See `Queue`."""
        return self._waiting + self._returned.alive

    def _comes_back(self, sequence: Sequence) -> bool:
        return self._front and sequence.status is Status.PREEMPTED

    def _wake(self, tenant: str) -> None:
        mine = self._counters.setdefault(tenant, 0)
        if not self._lift:
            return
        if not self._new:
            least = self._last
        elif self._front:
            least = self._least()
        else:  # the order then also holds preempted requests, whose tenants need not be waiting
            least = min(self._new, key=self._counters.__getitem__)
        if least is not None:
            self._counters[tenant] = max(mine, self._counters[least])

    def _least(self) -> str | None:
        """The waiting tenant with the least counter; ties go to the earliest head."""
        while self._order:
            counter, place, tenant = self._order[0]
            if self._offered.get(tenant) != (counter, place):
                heappop(self._order)  # a better place was offered since
                continue
            if self._place(tenant) == (counter, place):
                return tenant
            # Stale: counters only grow and heads only get later, so the true place is further down.
            heappop(self._order)
            del self._offered[tenant]
            self._offer(tenant)
        return None

    def _place(self, tenant: str) -> tuple[float, int] | None:
        heap = self._tenants[tenant]
        if heap.peek() is None:
            return None
        return self._counters[tenant], heap.head_key()[0]

    def _offer(self, tenant: str) -> None:
        place = self._place(tenant)
        if place is not None and self._offered.get(tenant) != place:
            self._offered[tenant] = place
            heappush(self._order, (*place, tenant))


def make_queue(options: Options) -> Queue:
    """The queue of the profile's admission order."""
    return FairQueue(options) if options.order == "fair" else OrderedQueue(options)
