"""Exploration: every state that a small configuration can reach, breadth first, and what is wrong in it.

    invariants     judged in each state (invariants.py)
    sometimes      what must be reachable: a spec that allows nothing is wrong too
    stuck          a state without an action though somebody lives or is still to come
    livelock       a cycle. Arrivals, outputs and ends only ever grow in number, so whatever comes round
                   again has made no progress: every cycle is one, and there is no other kind

Breadth first: the path to the first state that breaks an invariant is the shortest there is.

What is explored is a `System`: the space of a profile (space.py), an engine with passes in flight
(overlap.py), or a scheduler under test. Its states are values, its actions rows of a trace.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import networkx as nx

from batchspec.spec.errors import SpecError
from batchspec.spec.events import Event
from batchspec.spec.invariants import INVARIANTS, Invariant
from batchspec.spec.sights import Sight

Rows = tuple[Event, ...]
Progress = Callable[[int], None]

MOST_STATES: Final = 2_000_000
_PROGRESS_EVERY: Final = 1000


class System(Protocol):
    """A transition system: states are hashable values, equal if nothing later can tell them apart."""

    @property
    def start(self) -> Any:
        """The state in which nobody has arrived."""

    @property
    def eager(self) -> bool:
        """Whether a cycle is a livelock: nobody is left out at will."""

    @property
    def sights(self) -> Sequence[Sight]:
        """What must be reached."""

    def enabled(self, state: Any) -> Iterator[Rows]:
        """The actions of a state, in a fixed order."""

    def apply(self, state: Any, rows: Rows) -> Any:
        """Where one of its actions leads."""

    def over(self, state: Any) -> bool:
        """Whether everybody has come and gone."""

    def tell(self, path: Iterable[Rows]) -> Iterable[Event]:
        """The rows of a path from the start as a trace."""

    def label(self, state: Any) -> str:
        """A state in words."""


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold, and the shortest path to where it does not."""

    invariant: Invariant
    path: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Livelock:
    """A cycle: the way to it, and once round."""

    path: tuple[Event, ...]
    cycle: tuple[Event, ...]


@dataclass(slots=True)
class Exploration:
    """What was found. `whole` is false where the search was cut at its limit of states.

    `depth` is the number of actions to the farthest state. `ends` counts the states in which every
    request of the script has ended.
    """

    states: int = 0
    transitions: int = 0
    depth: int = 0
    ends: int = 0
    whole: bool = True
    broken: tuple[Broken, ...] = ()
    stuck: tuple[tuple[Event, ...], ...] = ()
    livelocks: tuple[Livelock, ...] = ()
    reached: Mapping[str, bool] = field(default_factory=dict)
    graph: "nx.MultiDiGraph[int] | None" = None

    @property
    def holds(self) -> bool:
        """Nothing is broken, stuck or going round."""
        return not (self.broken or self.stuck or self.livelocks)


class _Search:
    """The states seen so far: number by frame, and how each was first reached."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.number: dict[Any, int] = {system.start: 0}
        self.states: list[Any] = [system.start]
        self.parent: list[tuple[int, Rows]] = [(0, ())]
        self.depth: list[int] = [0]
        self.edges: list[list[tuple[int, Rows]]] = []

    def path(self, state: int) -> list[Rows]:
        """The actions that first led there."""
        actions = []
        while state:
            state, rows = self.parent[state]
            actions.append(rows)
        return actions[::-1]

    def told(self, state: int) -> tuple[Event, ...]:
        """The trace of the path that first led there."""
        return tuple(self.system.tell(self.path(state)))


def explore(
    system: System,
    *,
    invariants: Sequence[Invariant] = INVARIANTS,
    most: int = MOST_STATES,
    cycles: bool | None = None,
    graph: bool = False,
    progress: Progress | None = None,
) -> Exploration:
    """Visit every reachable state once, and at most `most` of them.

    `cycles` looks for livelocks; None: where the scheduler is eager, for one that may always leave
    somebody out can go round as it likes, which the bounded rules forbid and the space does not know.
    `graph` keeps the graph of states. Of each invariant only the first state that breaks it is told, and
    one livelock of each strongly connected part of the graph.
    """
    if most < 1:
        raise SpecError(f"the limit of states must be at least 1, not {most}")
    search, found = _Search(system), Exploration()
    broken: dict[str, Broken] = {}
    stuck: list[int] = []
    sights = list(system.sights)
    seen: dict[str, bool] = {sight.id: False for sight in sights}
    queue = deque([0])
    while queue:
        here = queue.popleft()
        state = search.states[here]
        for invariant in invariants:
            if invariant.id not in broken and not invariant.holds(system, state):
                broken[invariant.id] = Broken(invariant, search.told(here))
        edges: list[tuple[int, Rows]] = []
        search.edges.append(edges)
        for rows in system.enabled(state):
            after = system.apply(state, rows)
            found.transitions += 1
            there = search.number.get(after)
            if there is None:
                if len(search.states) >= most:
                    found.whole = False
                    continue
                there = search.number[after] = len(search.states)
                search.states.append(after)
                search.parent.append((here, rows))
                search.depth.append(search.depth[here] + 1)
                queue.append(there)
            edges.append((there, rows))
            sights = _look(sights, seen, state, rows)
        if not edges and found.whole:
            if system.over(state):
                found.ends += 1
            else:
                stuck.append(here)
        if progress is not None and here % _PROGRESS_EVERY == 0:
            progress(here)
    found.states, found.depth = len(search.states), search.depth[-1]
    found.broken = tuple(broken.values())
    found.stuck = tuple(search.told(number) for number in stuck[:1])
    found.reached = seen
    if found.whole and (system.eager if cycles is None else cycles):
        found.livelocks = tuple(_livelocks(search))
    if graph:
        found.graph = _graph(search)
    return found


def _look(sights: list[Sight], seen: dict[str, bool], state: Any, rows: Rows) -> list[Sight]:
    left = [sight for sight in sights if not sight.seen(state, rows)]
    if len(left) < len(sights):
        for sight in sights:
            seen[sight.id] = sight not in left
    return left


def _livelocks(search: _Search) -> Iterator[Livelock]:
    """One cycle of each strongly connected part that has one, the part that is reached first first."""
    whole: nx.DiGraph[int] = nx.DiGraph()
    for here, edges in enumerate(search.edges):
        whole.add_edges_from((here, there) for there, _ in edges)
    parts = [part for part in nx.strongly_connected_components(whole) if len(part) > 1]
    loops = [here for here, edges in enumerate(search.edges) if any(there == here for there, _ in edges)]
    parts += [{here} for here in loops if not any(here in part for part in parts)]
    for part in sorted(parts, key=min):
        first = min(part)
        way = _round(search, first, part)
        path = search.path(first)
        rows = list(search.system.tell([*path, *way]))
        length = sum(1 for _ in search.system.tell(path))
        yield Livelock(tuple(rows[:length]), tuple(rows[length:]))


def _round(search: _Search, first: int, part: set[int]) -> list[Rows]:
    """The shortest way from a state back to itself, inside its part."""
    came: dict[int, tuple[int, Rows]] = {}
    queue = deque([first])
    while queue:
        here = queue.popleft()
        for there, rows in search.edges[here]:
            if there == first:
                way = [rows]
                while here != first:
                    here, rows = came[here]
                    way.append(rows)
                return way[::-1]
            if there in part and there not in came:
                came[there] = (here, rows)
                queue.append(there)
    return []


def _graph(search: _Search) -> "nx.MultiDiGraph[int]":
    """States with their depth, actions as their rows in words."""
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    for state, value in enumerate(search.states):
        graph.add_node(state, depth=search.depth[state], label=search.system.label(value))
    for here, edges in enumerate(search.edges):
        for there, rows in edges:
            graph.add_edge(here, there, label=action_of(rows))
    return graph


def action_of(rows: Rows) -> str:
    """An action in words: its rows, requests by position."""
    words = []
    for event in rows:
        parts = [event.event, "" if event.request is None else str(event.request), event.reason or ""]
        if event.event == "schedule":
            parts.append(str(event.tokens))
        words.append(" ".join(part for part in parts if part))
    return "; ".join(words)
