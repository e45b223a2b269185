"""Policies, rules and cost models of the user's own: by `module:name`, or installed as entry points.

| option | entry points of | what it is |
| --- | --- | --- |
| `--policy` | `batchspec.policies` | an order of admission: (candidate, profile) to its rank, least first |
| `--victim` | `batchspec.victims` | a victim rule: (candidate, profile) to its rank, the least goes |
| `--use` | `batchspec.rules` | a subclass of `batchspec.spec.rule.Rule` |
| `--cost` | | a cost model: the shape of a pass to nanoseconds |

Code is loaded only where the user names it or has installed it. A trace, a profile or a config can say
the name of a policy, but not bring it in: an unknown name is refused there like any other wrong word.
"""

import importlib
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from batchspec.spec.catalogue import register_rule
from batchspec.spec.errors import BatchspecError
from batchspec.spec.policies import ORDERS, VICTIMS, Candidate, Rank, register_order, register_victim
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.traces.text import nearest, one_line

POLICIES: Final = "batchspec.policies"
VICTIM_RULES: Final = "batchspec.victims"
RULES_OF: Final = "batchspec.rules"
Ranking = Callable[[Candidate, Profile], Rank]
_PLAIN: Final = Path(__file__).resolve().parent.parent
_LOADED: Final[dict[str, str]] = {}
"""The file of each module that was loaded for a name, and that name."""


class PluginError(BatchspecError):
    """Code of the user's own that cannot be used: mend what it names."""


def own_object(name: str) -> Any:
    """What `module:name` stands for; `name` may have dots. Modules are found as by `python -m`.

    Raises `PluginError` where the module cannot be imported or has no such name.
    """
    where, colon, attribute = name.partition(":")
    if not colon or not where or not attribute:
        raise PluginError(f"write it as module:name, not {one_line(name, 60)!r}")
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(where)
    except Exception as error:  # a module of the user's may fail in any way
        raise PluginError(f"{one_line(where, 60)} cannot be imported ({_said(error)})") from error
    if (file := getattr(found, "__file__", None)) is not None:
        _LOADED[str(Path(file).resolve())] = name
    for part in attribute.split("."):
        if not hasattr(found, part):
            hint = nearest(part, [word for word in vars(found) if not word.startswith("_")])
            raise PluginError(f"{one_line(where, 60)} has no {one_line(part, 60)!r}{hint}")
        found = getattr(found, part)
    return found


def order_named(name: str) -> str:
    """The word for `admission.order`; one of the form `module:name` is loaded and registered first."""
    if ":" in name and name not in ORDERS:
        register_order(name, _ranking(name, lambda: own_object(name)))
    return name


def victim_named(name: str) -> str:
    """The word for `preemption.victim`; one of the form `module:name` is loaded and registered first."""
    if ":" in name and name not in VICTIMS:
        register_victim(name, _ranking(name, lambda: own_object(name)))
    return name


def rule_named(name: str) -> str:
    """The id of a rule given as `module:name`, which is loaded and registered."""
    return _rule(own_object(name), name)


def announce() -> None:
    """Make the installed policies known by their names. Nothing is imported until one is asked."""
    for entry in entry_points(group=POLICIES):
        if entry.name not in ORDERS:
            register_order(entry.name, _late(entry))
    for entry in entry_points(group=VICTIM_RULES):
        if entry.name not in VICTIMS and entry.name != "self":
            register_victim(entry.name, _late(entry))


def install_rules() -> None:
    """Load the installed rules into the catalogue. Raises `PluginError` for one that cannot be."""
    for entry in entry_points(group=RULES_OF):
        _rule(_loaded(entry), entry.name)


def blamed(error: BaseException) -> str | None:
    """The line for an exception that code of the user's own raised; None where it was not that code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if (name := _LOADED.get(str(path))) is not None:
            return f"{one_line(name, 60)} failed: {_said(error)} ({path.name}, line {frame.lineno})"
        if path.is_relative_to(_PLAIN):
            return None
    return None


def _rule(found: Any, name: str) -> str:
    if not (isinstance(found, type) and issubclass(found, Rule)):
        raise PluginError(f"{one_line(name, 60)} is no rule: derive a class from batchspec.spec.rule.Rule")
    register_rule(found)
    return found.id


def _late(entry: EntryPoint) -> Ranking:
    """A ranking that is loaded when it is first asked."""
    kept: list[Ranking] = []

    def rank(request: Candidate, profile: Profile) -> Rank:
        if not kept:
            kept.append(_ranking(entry.name, lambda: _loaded(entry)))
        return kept[0](request, profile)

    return rank


def _loaded(entry: EntryPoint) -> Any:
    package = entry.dist.name if entry.dist is not None else entry.value
    try:
        found = entry.load()
        module = sys.modules[entry.module]
    except Exception as error:
        raise PluginError(
            f"{one_line(entry.name, 60)} of the package {package} cannot be loaded ({_said(error)}):"
            " mend or remove that package"
        ) from error
    if (file := getattr(module, "__file__", None)) is not None:
        _LOADED[str(Path(file).resolve())] = entry.name
    return found


def _ranking(name: str, load: Callable[[], Any]) -> Ranking:
    """The user's ranking, with each rank looked at: a wrong one would only show in a sort far from here."""
    own = load()
    if not callable(own):
        raise PluginError(f"{one_line(name, 60)} is no policy: it cannot be called with (request, profile)")

    def rank(request: Candidate, profile: Profile) -> Rank:
        found = own(request, profile)
        # A NaN (unequal to itself) has no place in any order.
        if not isinstance(found, tuple) or not all(
            isinstance(part, int | float) and part == part for part in found
        ):
            raise PluginError(
                f"{one_line(name, 60)} must return a tuple of numbers, not {one_line(repr(found), 60)}"
            )
        return found

    return rank


def _said(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}", 200)
