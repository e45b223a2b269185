"""The queue: waiting and preempted requests in the policy's order."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from batchspec.spec.policies import FairShares, Rank, admission_rank
from batchspec.spec.profile import Profile
from batchspec.spec.reference.job import PREEMPTED, Job

_FIRST = ""


class Entry(NamedTuple):
    """A job at its rank. `number` settles equal ranks, so that jobs are never compared."""

    rank: Rank
    number: int
    job: Job


class WaitingQueue:
    """Sorted by rank; under `fair` one sorted list a tenant, the least served tenant first.

    Preempted requests under `resume = front` stand in a list before all tenants.
    """

    def __init__(self, profile: Profile, shares: FairShares | None) -> None:
        """Empty. `shares` are the counters of order `fair`, None under every other order."""
        self._profile = profile
        self._shares = shares
        self._front = profile.preemption.resume == "front"
        self._groups: dict[str | None, list[Entry]] = {}
        self._at: dict[Job, tuple[str | None, Entry]] = {}

    def __len__(self) -> int:
        """Jobs in all."""
        return len(self._at)

    def __contains__(self, job: Job) -> bool:
        """Whether the job stands in this queue."""
        return job in self._at

    def add(self, job: Job) -> None:
        """Put a ready job at its rank."""
        preempted = job.state == PREEMPTED
        group = None if self._shares is None or (preempted and self._front) else job.tenant or _FIRST
        entry = Entry(admission_rank(job, preempted, self._profile), job.number, job)
        insort(self._groups.setdefault(group, []), entry)
        self._at[job] = (group, entry)

    def remove(self, job: Job) -> None:
        """Take a job out, wherever it stands; nothing happens where it does not."""
        group, entry = self._at.pop(job, (None, None))
        if entry is not None:
            entries = self._groups[group]
            del entries[bisect_left(entries, entry)]
            if not entries:
                del self._groups[group]

    def in_order(self, shares: FairShares | None = None) -> Iterator[Job]:
        """The jobs, the policy's next first. A job may be removed once it has been given out.

        The counters may move between two steps of the walk: the next tenant is chosen anew each time.
        `shares` are other counters to go by, for a walk that only tries.
        """
        shares = shares or self._shares
        if shares is None:
            yield from self._walk(None)
            return
        at = dict.fromkeys(self._groups, 0)
        while True:
            heads = [
                (-1 if group is None else shares.counter(group), entries[index], group)
                for group, entries in self._groups.items()
                if (index := at.get(group, 0)) < len(entries)
            ]
            if not heads:
                return
            _, entry, group = min(heads, key=lambda head: (head[0], head[1][:2]))
            yield entry.job
            if entry.job in self._at:
                at[group] = at.get(group, 0) + 1

    def _walk(self, group: str | None) -> Iterator[Job]:
        entries = self._groups.get(group, [])
        index = 0
        while index < len(entries):
            entry = entries[index]
            yield entry.job
            if index < len(entries) and entries[index] is entry:
                index += 1
