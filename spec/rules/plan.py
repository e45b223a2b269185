"""The rule of the plan: the same decisions as the reference scheduler, step by step. On request only.

A scheduler may well decide otherwise and break no rule. Whoever ports the reference, or claims to do
exactly what it does, asks for this rule.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from batchspec.spec.errors import BatchspecError, ProfileError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference import ReferenceScheduler
from batchspec.spec.reference.settings import Settings
from batchspec.spec.rule import Rule

Item = tuple[str, RequestId]
"""A decision: its kind of event, and whom it is about."""

_COMPARED: Final = ("admit", "resume", "preempt", "reject", "schedule", "abort")
_DECIDES: Final = frozenset({"admit", "resume", "preempt", "skip", "schedule"})
_NOT_FED: Final = ("live", "take", "release")
_SWAPS: Final = ("swap_out", "swap_in")
_ENDLESS: Final = 1 << 40


class Reference(Rule):
    """The recorded decisions equal those of the reference scheduler."""

    id = "plan/reference"
    sentence = (
        "In every step the recorded decisions (admit, resume, preempt, reject, members and their tokens) "
        "equal those of the reference scheduler, fed the same arrivals, aborts and outputs."
    )
    premise = ("batching.mode", "admission.order", "limits.max_seqs", "limits.token_budget")
    columns = ("prompt_tokens", "tokens")
    source = "spec/reference; trace validation as in CCF's Traceccfraft (one spec action a logged event)"
    opt_in = True

    def __init__(self, *args: Any) -> None:
        """Both begin empty."""
        super().__init__(*args)
        deep = self.profile.value("reuse.depth") > 1
        self._twin: ReferenceScheduler | None = ReferenceScheduler(
            self.profile, level="L1", drafter=None if deep else self._drafted
        )
        self._now = 0
        self._rows: list[tuple[int, Event]] = []
        self._lengths: dict[RequestId, int | None] = {}
        self._next_time: list[Event] = []
        self._drafts: dict[RequestId, int] = {}
        self._emitted: dict[RequestId, int] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """What the reference scheduler cannot be fed."""
        lacking = [f"a trace without {kind} rows" for kind in _NOT_FED if kind in kinds]
        if profile.reuse.prefix:
            lacking.append("reuse.prefix=false")
        wanted = {profile.admission.test, profile.admission.reserve}
        if "max_tokens" not in columns and ("full" in wanted or profile.admission.order == "sjf"):
            lacking.append("max_tokens")
        limits = profile.limits
        timed = profile.batching.mode == "dynamic" or limits.queue_timeout_ns or profile.fairness.rate_limits
        if timed and "time_ns" not in columns:
            lacking.append("time_ns")
        for order in ("priority", "fair"):
            name = "priority" if order == "priority" else "tenant"
            if profile.admission.order == order and name not in columns:
                lacking.append(name)
        try:
            Settings.of(profile)
        except ProfileError as error:
            lacking.append(f"claims that the reference scheduler can keep ({error})")
        return lacking

    # -- what happens in a step --------------------------------------------------------------------

    def before_any(self, event: Event, record: Request | None) -> None:
        """Keep the rows of the step until it is over."""
        if self._twin is not None:
            self._rows.append((self.state.row, event))

    def before_finish(self, event: Event, record: Request | None) -> None:
        """How long the output was is known from here on."""
        if record is not None:
            self._lengths[record.id] = record.outputs

    def closing(self, event: Event | None) -> None:
        """Feed the reference scheduler what came from outside, let it decide, and compare."""
        rows, self._rows = self._rows, []
        lengths, self._lengths = self._lengths, {}
        twin = self._twin
        if twin is None:
            return
        try:
            if not self._feed(twin, [row for _, row in rows], lengths):
                self._give_up()
                return
            self._now = max(self._now, self.state.step_ns or 0)
            theirs = _decisions(twin.step(self._now), self._is_decision)
        except BatchspecError:
            # What the trace does no scheduler can be asked to do: the rules of the life cycle say so.
            self._give_up()
            return
        self.checked += 1
        ours = _decisions((row for _, row in rows), self._is_decision)
        self._compare(rows, ours, theirs)

    def _give_up(self) -> None:
        self.skipped += 1
        self._twin = None

    # -- what the reference scheduler is told ------------------------------------------------------

    def _feed(
        self, twin: ReferenceScheduler, rows: list[Event], lengths: dict[RequestId, int | None]
    ) -> bool:
        """Arrivals, aborts, conditions and lengths of this step. False where one cannot be told."""
        self._drafts = {row.subject: row.drafts for row in rows if row.event == "schedule" and row.drafts}
        self._emitted = {row.subject: row.tokens or 0 for row in rows if row.event == "output"}
        taken_back = {row.subject for row in rows if row.event in ("preempt", "abort")}
        if any(name not in taken_back and not self._emitted.get(name) for name in self._drafts):
            return False  # no token at all from a pass with drafts: the reference scheduler emits one
        if not all(self._tell(twin, row, lengths, set()) for row in self._next_time):
            return False
        self._next_time = []
        members: set[RequestId] = set()
        decided = False
        acted = {row.request for row in rows if row.event in _DECIDES or row.event == "reject"}
        for row in rows:
            decided = decided or row.event in _DECIDES
            if row.event == "schedule":
                members.add(row.subject)
            # What came too late for this step's decisions the reference scheduler hears before the next.
            late = decided and row.event in ("arrive", "ready") and row.request not in acted
            if late or (row.event == "abort" and row.request in members and not self._is_decision(row)):
                self._next_time.append(row)
            elif not self._tell(twin, row, lengths, members):
                return False
        return True

    def _tell(
        self,
        twin: ReferenceScheduler,
        row: Event,
        lengths: dict[RequestId, int | None],
        members: set[RequestId],
    ) -> bool:
        request = row.subject
        if row.event == "arrive":
            length = lengths.get(request, _ENDLESS)
            if length is None or row.prompt_tokens is None:
                return False
            twin.add(_record(row, length), row.time_ns or 0)
        elif row.event == "finish":
            length = lengths.get(request)
            if length is None:
                return False
            if request in members or row.pass_step < row.step:
                twin.ends_after(request, length)
            else:
                twin.cancel(request)
        elif row.event in ("abort", "reject") and not self._is_decision(row):
            twin.cancel(request)
        elif row.event == "park":
            twin.park(request, row.reason or "other")
        elif row.event == "ready":
            twin.ready(request)
        # Neither the operator's evictions nor blocks that the network pins can be told.
        remote = row.event == "transfer_begin" and row.reason not in _SWAPS
        return not remote and not (row.event == "preempt" and row.reason == "operator")

    def _drafted(self, request: RequestId, outputs: int) -> tuple[int, int]:
        """The drafts of the trace's own pass, and how many of them were accepted."""
        return self._drafts.get(request, 0), self._emitted.get(request, 1) - 1

    def _is_decision(self, row: Event) -> bool:
        """Whether a row is the scheduler's own doing, not its client's or operator's."""
        if row.event == "abort":
            overdue = row.reason == "timeout" and self.profile.limits.queue_timeout_ns is not None
            return row.reason == "memory" or overdue
        return row.event in _COMPARED and not (row.event == "reject" and row.reason == "error")

    # -- the comparison ----------------------------------------------------------------------------

    def _compare(
        self, rows: list[tuple[int, Event]], ours: dict[Item, Event], theirs: dict[Item, Event]
    ) -> None:
        gone = {row.request for row in self._next_time if row.event == "abort"}
        extra = [row for item, row in ours.items() if not _same(row, theirs.get(item))]
        lacking = [
            row for item, row in theirs.items() if not _same(ours.get(item), row) and row.request not in gone
        ]
        if not extra and not lacking:
            return
        self._twin = None  # from here on the two are not in the same state
        at = next((place for place, row in rows if row in extra), rows[-1][0])
        self.flag(
            f"the plan of step {self.state.step} is not that of the reference scheduler",
            *dict.fromkeys(row.subject for row in (*extra, *lacking)),
            expected=_said(lacking) or "nothing more",
            observed=_said(extra) or "nothing of this",
            row=at,
        )


def _record(row: Event, length: int) -> Record:
    return Record(
        request=row.subject,
        arrival_ns=row.time_ns or 0,
        prompt_tokens=row.prompt_tokens,
        output_tokens=max(1, length),
        max_tokens=_ENDLESS if row.max_tokens is None else row.max_tokens,
        tenant=row.tenant,
        priority=row.priority,
    )


def _decisions(rows: Iterable[Event], is_decision: Any) -> dict[Item, Event]:
    """The decisions among rows; a membership that a later preempt or abort takes back is none."""
    out: dict[Item, Event] = {}
    for row in rows:
        if row.event in ("preempt", "abort"):
            out.pop(("schedule", row.subject), None)
        if is_decision(row):
            out[row.event, row.subject] = row
    return out


def _same(ours: Event | None, theirs: Event | None) -> bool:
    """Whether two decisions agree, as far as the trace says."""
    if ours is None or theirs is None:
        return False
    if ours.event != "schedule":
        return True
    starts = ours.start is None or ours.start == theirs.start
    return starts and (ours.tokens is None or ours.tokens == theirs.tokens)


def _said(rows: list[Event], most: int = 6) -> str:
    words = []
    for row in rows[:most]:
        part = ""
        if row.event == "schedule" and row.tokens is not None:
            part = f" ({row.tokens} tokens" + (f" from {row.start})" if row.start is not None else ")")
        words.append(f"{row.event} {row.subject}{part}")
    return ", ".join(words) + (f" and {len(rows) - most} more" if len(rows) > most else "")


RULES = (Reference,)
