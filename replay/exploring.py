"""Which engine explores: the readable space, or its packed form where numba and such a form are there."""

from enum import StrEnum
from typing import Final

from batchspec.replay.undertest.system import UnderTest
from batchspec.spec.errors import SpecError
from batchspec.spec.explore import Exploration, Progress, explore
from batchspec.spec.space import Space

_SMALL: Final = 20_000


class Engine(StrEnum):
    """What goes through the states; counts and verdicts are the same."""

    auto = "auto"
    readable = "readable"
    packed = "packed"


def explore_with(
    engine: Engine, space: Space, *, most: int, graph: bool = False, progress: Progress | None = None
) -> tuple[Exploration, Engine]:
    """Explore, and say which engine did.

    `auto` is readable up to 20,000 states, and where the graph is asked for; then packed where there is a
    packed form. Raises `SpecError` where `packed` is asked for and cannot be had.
    """
    if engine is Engine.readable or (engine is Engine.auto and graph):
        return explore(space, most=most, graph=graph, progress=progress), Engine.readable
    if graph:
        raise SpecError("the packed engine keeps no graph of states: use the readable engine for it")
    if engine is Engine.auto:
        found = explore(space, most=min(most, _SMALL), progress=progress)
        if found.whole or most <= _SMALL:
            return found, Engine.readable
    # Only here: numba takes a while to load, and a small space does without it.
    from batchspec.replay.packed.search import Packed, explore_packed

    try:
        packed = Packed(space)
    except SpecError:  # no numba, or claims that the packed form does not have
        if engine is Engine.packed:
            raise
        return explore(space, most=most, progress=progress), Engine.readable
    return explore_packed(packed, most=most, progress=progress), Engine.packed


def explore_scheduler(
    engine: Engine, system: UnderTest, *, most: int, graph: bool = False, progress: Progress | None = None
) -> Exploration:
    """Explore a scheduler under test. Raises `SpecError` where the packed engine is asked for."""
    if engine is Engine.packed:
        raise SpecError("a scheduler under test has no packed form: use the readable engine")
    return explore(system, invariants=system.invariants(), most=most, graph=graph, progress=progress)
