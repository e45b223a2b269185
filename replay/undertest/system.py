"""A scheduler under test as a system to be explored: every choice of its clients, step by step.

Open are when requests arrive, who stops at which token and, where it is asked for, who is cancelled. The
scheduler decides the rest, so an action is a whole step:

    arrive …, cancel …, the rows of `plan`, the rows of `commit`, step

A state is a copy of the scheduler with what its clients know of it. One that cannot be copied (capability
`copies`) is made anew and asked the same again, which takes a scheduler that answers alike. Two states are
equal if everything in them is (`fingerprint`), or where it was asked anew, if it was asked the same. A
scheduler that counts steps or keeps a clock is never in one state twice: its space is a tree, and one that
goes nowhere is told by `PATIENCE` steps without news. Each state is judged by all rules of kind *always* over
the trace that first led there. `depth` above 1 and drafts have no model here.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.drive import header_of
from batchspec.replay.harness import Factory, HarnessError
from batchspec.replay.undertest.copies import Asked, fingerprint
from batchspec.replay.undertest.turn import Client, Moment, Turn, copied
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import Event, RequestId
from batchspec.spec.frame import Job
from batchspec.spec.invariants import Invariant
from batchspec.spec.naming import Rows
from batchspec.spec.profile import Profile
from batchspec.spec.sights import Sight
from batchspec.traces.trace import Trace

PATIENCE: Final = 30
"""Steps without a token, an end or an arrival after which a scheduler goes nowhere."""


class UnderTest:
    """The system. Raises `HarnessError` for a scheduler that plans ahead or drafts."""

    eager: bool = True
    symmetry: bool = False
    sights: Sequence[Sight] = ()
    crash: str | None = None
    """What the scheduler raised first, in one line."""

    def __init__(
        self,
        factory: Factory,
        profile: Profile,
        jobs: Sequence[Job],
        stops: bool = True,
        aborts: bool = False,
    ) -> None:
        """Requests arrive in the order of `jobs`."""
        self.profile, self.jobs, self.stops, self.aborts = profile, tuple(jobs), stops, aborts
        scheduler = factory(profile)
        self.shows = scheduler.capabilities
        if not self.shows.copies:
            scheduler = Asked(factory, profile)
        if self.shows.depth != 1 or self.shows.drafts:
            raise HarnessError(f"{self.shows.name} plans ahead or drafts, of which exploration has no model")
        self.start = self._settled(Moment(scheduler, {}))
        self.header = header_of(profile, self.shows, complete=False)

    @property
    def says(self) -> str:
        """What is gone through."""
        return f"{self.shows.name}, every choice of its clients"

    def over(self, moment: Moment) -> bool:
        """Everybody has come and gone."""
        return moment.arrived == len(self.jobs) and not moment.clients and moment.crash is None

    def tell(self, path: Iterable[Rows]) -> Iterator[Event]:
        """The rows are a trace as they stand."""
        for rows in path:
            yield from rows

    def label(self, moment: Moment) -> str:
        """Who lives, with c and the tokens emitted."""
        live = (f"{name} c={one.computed} o={one.emitted}" for name, one in moment.clients.items())
        return ", ".join(live) or f"nobody, {moment.arrived} arrived"

    def enabled(self, moment: Moment) -> Iterator[Rows]:
        """One step for each choice of the clients; none after a crash, or where nothing goes on."""
        if moment.crash is not None or moment.quiet >= PATIENCE:
            return
        least = 0 if moment.clients else 1
        for more in range(least, len(self.jobs) - moment.arrived + 1):
            leavers: list[RequestId | None] = [None]
            if self.aborts and self.shows.abort:
                leavers += list(moment.clients)
            for leaver in leavers:
                for after in self._steps(moment, more, leaver):
                    rows = after.rows[len(moment.rows) :]
                    moment.after[rows] = after
                    yield rows

    def apply(self, moment: Moment, rows: Rows) -> Moment:
        """Where a step leads that `enabled` gave."""
        return moment.after.pop(rows)

    # -- one step ----------------------------------------------------------------------------------

    def _steps(self, before: Moment, more: int, leaver: RequestId | None) -> Iterator[Moment]:
        planned = copied(before)
        planned.step += 1
        turn = Turn(planned)
        try:
            turn.arrive(self.jobs[before.arrived : before.arrived + more])
            if leaver is not None:
                turn.cancel(leaver)
            turn.decide()
        except Exception as error:  # somebody else's code may fail in any way
            yield self._settled(turn.crashed(error))
            return
        may = [name for name in turn.emits if self._may_stop(planned.clients[name])]
        for count in range(len(may) + 1):
            for some in combinations(may, count):
                ending = Turn(copied(planned), copy.deepcopy(turn.plan), list(turn.emits))
                try:
                    ending.commit(frozenset(some))
                except Exception as error:
                    ending.crashed(error)
                yield self._settled(ending.moment)

    def _may_stop(self, client: Client) -> bool:
        return self.stops and client.emitted + 1 < client.most

    def _settled(self, moment: Moment) -> Moment:
        known = tuple((name, one) for name, one in moment.clients.items())
        if moment.crash is not None and self.crash is None:
            self.crash = moment.crash
        moment.key = (moment.arrived, moment.crash, known, fingerprint(moment.scheduler))
        return moment

    # -- what must hold ----------------------------------------------------------------------------

    def broken(self, moment: Moment) -> frozenset[str]:
        """The rules of kind *always* that the trace of a state breaks."""
        if moment.broken is None:
            header = replace(self.header, complete=self.over(moment))
            trace = Trace.from_events(moment.rows, header, self.shows.name)
            report = check(trace, claimed(profile=self.profile))
            found = {finding.rule for finding in report.findings}
            moment.broken = frozenset(rule for rule in found if RULES[rule].kind == "always")
        return moment.broken

    def invariants(self) -> tuple[Invariant, ...]:
        """Every rule of kind *always*, and that each call is answered."""
        rules = [
            Invariant(rule.id, rule.sentence, _keeps(rule.id))
            for rule in RULES.values()
            if rule.kind == "always"
        ]
        return (
            Invariant("answers", "Every call is answered.", lambda _, moment: moment.crash is None),
            *rules,
        )


def _keeps(rule: str) -> Any:
    return lambda system, moment: rule not in system.broken(moment)
