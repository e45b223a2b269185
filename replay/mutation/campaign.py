"""A campaign: faults in good traces of every mode and level, how many are seen, and why others are not."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from batchspec.replay.mutation.explain import explained, explained_table
from batchspec.replay.mutation.faults import FAULTS, mutant
from batchspec.replay.mutation.goods import LEVELS, Good, GoodTable, random_good
from batchspec.replay.mutation.reason import Reason
from batchspec.replay.mutation.tables import table_mutant
from batchspec.spec.errors import SpecError
from batchspec.spec.verdict import Report

MODES: Final = ("continuous", "static", "continuous", "dynamic")


@dataclass(frozen=True, slots=True)
class Survivor:
    """A fault that no rule speaks of. `place` is the kind of event and the column, or the fault's kind."""

    seed: int
    level: str
    mode: str
    kind: str
    place: str
    text: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Campaign:
    """Counts of mutants, by kind of fault, level and mode: put to the test, and killed."""

    seed: int
    profile: str | None
    tried: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    killed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    killers: Counter[str] = field(default_factory=Counter)
    survivors: list[Survivor] = field(default_factory=list)

    def by(self, place: int) -> dict[str, tuple[int, int]]:
        """(killed, tried) by kind of fault (0), level (1) or mode (2)."""
        names = dict.fromkeys(key[place] for key in self.tried)
        return {
            name: (
                sum(number for key, number in self.killed.items() if key[place] == name),
                sum(number for key, number in self.tried.items() if key[place] == name),
            )
            for name in names
        }

    def gaps(self) -> list[Survivor]:
        """The survivors that no argument explains."""
        return [one for one in self.survivors if one.reason.argument == "new"]


def campaign(
    number: int,
    *,
    seed: int = 0,
    profile: str | None = None,
    kinds: Sequence[str] = FAULTS,
    levels: Sequence[str] = LEVELS,
    progress: Callable[[int], object] | None = None,
) -> Campaign:
    """Put so many faults into good traces and judge them.

    Each good trace gets one fault of each kind. With `profile` all are of that shipped profile (or file).
    Raises `ProfileError` where there is none of that name, and `SpecError` where a good trace is not good,
    or where nothing can be mutated.
    """
    result = Campaign(seed, profile)
    done = 0
    for place in range(4 * number + 64):
        if done >= number:
            break
        own = (seed << 20) + place
        for kind, killer, survivor, key in _judged(own, place, profile, kinds, levels):
            if done >= number:
                break
            done += 1
            result.tried[kind, *key] += 1
            if killer is not None:
                result.killed[kind, *key] += 1
                result.killers[killer] += 1
            elif survivor is not None:
                result.survivors.append(survivor)
        if progress is not None:
            progress(min(done, number))
    if not done:
        raise SpecError("no row of these traces can have such a fault; give other kinds or levels")
    return result


def _judged(
    seed: int, place: int, profile: str | None, kinds: Sequence[str], levels: Sequence[str]
) -> Iterator[tuple[str, str | None, Survivor | None, tuple[str, str]]]:
    random = Random(seed)
    level = levels[place % len(levels)]
    mode = MODES[place // len(levels) % len(MODES)]
    good = random_good(random, level, profile, mode)
    report = good.judge(good.records) if isinstance(good, GoodTable) else good.judge(good.events)
    if report.findings:
        first = report.findings[0]
        raise SpecError(f"the run of seed {seed} at {level} is no good trace: {first.rule}, {first.message}")
    for kind in kinds:
        judged = _table(good, kind, random) if isinstance(good, GoodTable) else _events(good, kind, random)
        if judged is None:
            continue
        report, where, text, why = judged
        killer = report.findings[0].rule if report.findings else None
        survivor = None
        if killer is None:
            survivor = Survivor(seed, level, good.mode, kind, where, text, why())
        yield kind, killer, survivor, (level, good.mode)


_Judged = tuple[Report, str, str, Callable[[], Reason]]


def _events(good: Good, kind: str, random: Random) -> _Judged | None:
    found = mutant(good.events, kind, random)
    if found is None:
        return None
    fault = found.fault
    where = f"{fault.before[0].event} {fault.column or 'row'}"
    return good.judge(found.events), where, fault.text, lambda: explained(good, found)


def _table(good: GoodTable, kind: str, random: Random) -> _Judged | None:
    found = table_mutant(good.records, kind, random)
    if found is None:
        return None
    where = f"record {found.fault.column or 'row'}"
    return good.judge(found.records), where, found.fault.text, lambda: explained_table(good, found)
