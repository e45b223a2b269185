"""Copies of a scheduler under test, and when two of them are the same."""

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from types import ModuleType
from typing import Any, Final

from batchspec.replay.harness import Factory, HarnessError, Outcome, Plan, Refused, Request, Results
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile

_DEEPEST: Final = 60


class Asked:
    """A scheduler that is copied by being made anew and asked the same again."""

    def __init__(self, factory: Factory, profile: Profile) -> None:
        """It has not been asked anything."""
        self._factory, self._profile = factory, profile
        self._scheduler = factory(profile)
        self._asked: tuple[tuple[str, Any], ...] = ()
        self._plan = Plan()
        self.capabilities = self._scheduler.capabilities

    def add(self, request: Request) -> None:
        """A request arrives."""
        self._asked += (("add", request),)
        self._scheduler.add(request)

    def abort(self, request: RequestId) -> Iterable[Event]:
        """A client goes away."""
        self._asked += (("abort", request),)
        return tuple(self._scheduler.abort(request))

    def plan(self) -> Plan:
        """The next iteration."""
        self._asked += (("plan", None),)
        self._plan = self._scheduler.plan()
        return self._plan

    def commit(self, results: Results) -> Outcome:
        """The results of the last plan; the plan is the one that this very scheduler made."""
        tokens = tuple(sorted(results.tokens.items(), key=repr))
        self._asked += (("commit", (results.pass_, tokens)),)
        return self._scheduler.commit(replace(results, plan=self._plan))

    def fingerprint(self) -> object:
        """What it was asked."""
        return self._asked

    def __deepcopy__(self, memo: Any) -> "Asked":
        """Another one, asked the same."""
        other = Asked(self._factory, self._profile)
        for call, about in self._asked:
            if call == "add":
                with suppress(Refused):
                    other.add(about)
            elif call == "abort":
                other.abort(about)
            elif call == "plan":
                other.plan()
            else:
                step, tokens = about
                other.commit(Results(other._plan, step, dict(tokens)))
        return other


def fingerprint(value: Any) -> object:
    """A hashable value that is equal for objects with equal contents, whatever their classes.

    A scheduler that has a method `fingerprint` says itself what its later decisions depend on.
    """
    own = getattr(value, "fingerprint", None)
    if callable(own):
        return own()
    return _contents(value, {}, _DEEPEST)


def _contents(value: Any, met: dict[int, tuple[int, Any]], left: int) -> object:
    """`met` keeps what was met alive: an address is a name only as long as its object is there."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | Enum):
        return value
    if id(value) in met:
        return ("again", met[id(value)][0])
    met[id(value)] = (len(met), value)
    if left < 1:
        raise HarnessError("a scheduler whose parts lie so deep cannot be compared; give it a `fingerprint`")
    if isinstance(value, Mapping):
        return tuple(
            (_contents(key, met, left - 1), _contents(one, met, left - 1)) for key, one in value.items()
        )
    if isinstance(value, list | tuple | deque):
        return tuple(_contents(one, met, left - 1) for one in value)
    if isinstance(value, set | frozenset):
        return frozenset(_contents(one, met, left - 1) for one in value)
    if isinstance(value, type | ModuleType):
        return value.__name__
    if callable(value) and hasattr(value, "__qualname__"):
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        inside = _contents([getattr(value, "__self__", None), *cells], met, left - 1)
        return (value.__qualname__, inside)
    fields = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    parts = {name: getattr(value, name) for name in fields if hasattr(value, name)}
    parts.update(getattr(value, "__dict__", {}))
    return (type(value).__qualname__, _contents(parts, met, left - 1) if parts else repr(value))
