"""The reference scheduler under test: `batchspec.replay.adapters.reference:make`.

It reads no token: how long an output becomes is scripted before its last pass. Here the results say it
instead, and come after the plan. So an iteration is decided twice, on a copy for `plan`, and for good in
`commit`, when the tokens that the pass has emitted are known.
"""

import copy
from collections.abc import Iterable
from itertools import takewhile
from typing import Final

from batchspec.replay.drive import STEP_NS
from batchspec.replay.harness import Capabilities, HarnessError, Outcome, Plan, Refused, Request, Results
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference import ReferenceScheduler

_RESULTS: Final = frozenset({"dispatch", "complete", "output", "finish", "deliver", "step"})
_NEWS: Final = frozenset({"arrive", "cancel"})


class Adapter:
    """The reference scheduler behind the protocol of the harness."""

    def __init__(self, profile: Profile) -> None:
        """A scheduler without requests. Raises `HarnessError` where claims contradict each other."""
        try:
            # A token is the hash of itself: prompts that begin alike share blocks.
            self._scheduler = ReferenceScheduler(profile, level="L3", hash_block=1)
        except BatchspecError as error:
            raise HarnessError(str(error)) from error
        self._stops: dict[RequestId, int] = {}
        self._emitted: dict[RequestId, int] = {}
        self._late: list[RequestId] = []
        self._now = 0
        self._undone = False
        self.capabilities = Capabilities(
            name="batchspec reference",
            blocks="none" if profile.limits.kv_blocks is None else "ids",
            depth=profile.value("reuse.depth"),
            outputs="recorded" if self._scheduler.recorded else "derived",
            seats=profile.limits.max_seqs is not None,
            priority=True,
            tenants=True,
            prefix=bool(profile.reuse.prefix),
            copies=True,
        )

    def add(self, request: Request) -> None:
        """A request arrives."""
        self._finish_step()
        if request.id in self._emitted:
            raise Refused("error", f"request {request.id!r} is live already")
        if not request.prompt or request.max_tokens < 1:
            raise Refused("error", "a prompt token and max_tokens of at least 1 are needed")
        self._now = max(self._now, request.arrival_ns)
        record = Record(
            request.id,
            request.arrival_ns,
            len(request.prompt),
            request.max_tokens,
            max_tokens=request.max_tokens,
            tenant=request.tenant,
            priority=request.priority,
            prefix_hashes=request.prompt,
        )
        try:
            self._scheduler.add(record, self._now)
        except BatchspecError as error:
            raise Refused("error", str(error)) from error
        self._stops[request.id] = request.stop_token
        self._emitted[request.id] = 0

    def abort(self, request: RequestId) -> Iterable[Event]:
        """Takes effect in the next plan; what has been decided stays."""
        self._late.append(request)
        return ()

    def plan(self) -> Plan:
        """The decisions of the next iteration."""
        self._finish_step()
        for request in self._late:
            self._scheduler.cancel(request)
        self._late.clear()
        self._undone = True
        rows = [row for row in copy.deepcopy(self._scheduler).step(self._now) if row.event not in _NEWS]
        *_, step = rows
        decided = list(takewhile(lambda row: row.event not in _RESULTS, rows))
        return Plan(decided, step.free_blocks, step.waiting, step.running, step.pinned_blocks)

    def commit(self, results: Results) -> Outcome:
        """The same iteration for good."""
        for request, tokens in results.tokens.items():
            if request not in self._emitted:
                continue
            self._emitted[request] += len(tokens)
            if self._stops[request] in tokens:
                self._scheduler.ends_after(request, self._emitted[request])
        return self._finish_step()

    def _finish_step(self) -> Outcome:
        if not self._undone:
            return Outcome()
        self._undone = False
        rows = self._scheduler.step(self._now)
        self._now += STEP_NS
        *done, step = [row for row in rows if row.event in _RESULTS]
        for row in rows:
            if row.event in ("finish", "abort", "reject"):
                self._emitted.pop(row.subject, None)
        kept = [row for row in done if row.event in ("output", "finish", "deliver")]
        return Outcome(
            kept, step.free_blocks, step.waiting, step.running, step.pinned_blocks, step.shared_blocks
        )


def make(profile: Profile) -> Adapter:
    """A reference scheduler that does what the profile claims."""
    return Adapter(profile)
