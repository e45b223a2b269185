"""An exploration as a page: counts, verdicts, and the shortest way to what is wrong, as a scenario."""

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

from batchspec.replay.report.json import SCHEMA_VERSION
from batchspec.replay.report.page import Page, count
from batchspec.replay.timeline import collect, timeline_page
from batchspec.replay.undertest.system import UnderTest
from batchspec.spec.events import Event
from batchspec.spec.explore import Exploration
from batchspec.spec.space import Space
from batchspec.traces.header import Header
from batchspec.traces.scenario import format_scenario

Explored = Space | UnderTest


def exploration_page(space: Explored, found: Exploration) -> Page:
    """Verdict first, then the counts, then each thing that is wrong with its path."""
    page = Page()
    verdict = ("holds", "green") if found.holds else ("fails", "red")
    page.add(verdict, f": {space.says}, {count(len(space.jobs), 'request')} (profile {space.profile.name})")
    cut = "" if found.whole else "; CUT at the limit of states, so nothing is proved"
    page.add(
        f"{count(found.states, 'state')}, {count(found.transitions, 'transition')}, depth {found.depth}{cut}"
    )
    seen = [name for name, reached in found.reached.items() if reached]
    unseen = [name for name, reached in found.reached.items() if not reached]
    page.wrap(", ".join(seen) or "nothing", first="reached:      ")
    if unseen:
        page.wrap(", ".join(unseen), first="not reached:  ")
    for title, events, round_ in _wrong(space, found):
        page.gap()
        page.add((title, "bold"))
        rows = [*events, *round_]
        picture = timeline_page(collect(rows, 0))
        page.lines += picture.lines[:-1]  # the last one speaks of findings, and nobody looked for any
        page.add("as a scenario:")
        page.lines += [[(line, "")] for line in scenario_of(space, rows).splitlines()]
    return page


def exploration_object(space: Explored, found: Exploration, engine: str) -> dict[str, Any]:
    """The same as plain data: what is wrong with its path as a scenario, a livelock from `step` on."""
    return {
        "schema": SCHEMA_VERSION,
        "version": version("batchspec"),
        "verdict": "holds" if found.holds else "fails",
        "whole": found.whole,
        "engine": engine,
        "eager": space.eager,
        "symmetry": space.symmetry,
        "profile": space.profile.name,
        "config": space.profile.to_dict(),
        "requests": len(space.jobs),
        "states": found.states,
        "transitions": found.transitions,
        "depth": found.depth,
        "ends": found.ends,
        "reached": dict(found.reached),
        "broken": [
            {
                "invariant": broken.invariant.id,
                "sentence": broken.invariant.sentence,
                "scenario": scenario_of(space, broken.path),
            }
            for broken in found.broken
        ],
        "stuck": [{"scenario": scenario_of(space, path)} for path in found.stuck],
        "livelocks": [
            {"step": one.cycle[0].step, "scenario": scenario_of(space, [*one.path, *one.cycle])}
            for one in found.livelocks
        ],
    }


def _wrong(space: Explored, found: Exploration) -> Iterator[tuple[str, tuple[Event, ...], tuple[Event, ...]]]:
    for broken in found.broken:
        crash = space.crash if isinstance(space, UnderTest) and broken.invariant.id == "answers" else None
        says = crash or broken.invariant.sentence
        yield f"{broken.invariant.id} breaks: {says}", broken.path, ()
    for path in found.stuck:
        yield "stuck: somebody lives, and nothing can be done", path, ()
    for livelock in found.livelocks[:1]:
        others = len(found.livelocks) - 1
        more = f" (and {count(others, 'other')})" if others else ""
        step = livelock.cycle[0].step
        yield f"livelock: from step {step} on it goes round for ever{more}", livelock.path, livelock.cycle


def counterexample(space: Explored, found: Exploration) -> str | None:
    """The first thing that is wrong as a scenario, or None."""
    for _, events, round_ in _wrong(space, found):
        return scenario_of(space, [*events, *round_])
    return None


def scenario_of(space: Explored, events: Iterable[Event]) -> str:
    """A path as a scenario that `batchspec check` takes, with the claims under which it was found."""
    plain = Header(config=space.profile.to_dict(), complete=False)
    return format_scenario(events, space.header if isinstance(space, UnderTest) else plain)
