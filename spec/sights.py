"""Sights: what an exploration must come to see. A spec that allows nothing keeps every invariant.

Each looks at one action and the state in which it is taken, so that it can be judged edge by edge.
The properties of whole traces are in sometimes.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

from batchspec.spec.frame import Frame
from batchspec.spec.naming import Rows
from batchspec.spec.profile import Profile
from batchspec.spec.rule import claimed


@dataclass(frozen=True, slots=True)
class Sight:
    """Something that an action may show. `premise` as of a rule: the options under which it must be."""

    id: str
    sentence: str
    seen: Callable[[Frame, Rows], bool]
    premise: tuple[str, ...] = ()

    def applies(self, profile: Profile) -> bool:
        """Whether a profile claims the premise."""
        return all(claimed(profile, item) for item in self.premise)


def _kind(*kinds: str) -> Callable[[Frame, Rows], bool]:
    return lambda frame, rows: any(event.event in kinds for event in rows)


def _joins_others(frame: Frame, rows: Rows) -> bool:
    joins = rows[0].event in ("admit", "resume")
    return joins and any(part.state == "running" for part in frame.parts)


def _ends_alone(frame: Frame, rows: Rows) -> bool:
    ends = sum(event.event == "finish" for event in rows)
    return 0 < ends < sum(part.state == "running" for part in frame.parts)


def _preempts(reason: str) -> Callable[[Frame, Rows], bool]:
    return lambda frame, rows: rows[0].event == "preempt" and rows[0].reason == reason


SIGHTS = (
    Sight("runs together", "Somebody joins while another runs.", _joins_others),
    Sight("leaves early", "Somebody ends while another runs on.", _ends_alone),
    Sight("finishes", "Somebody finishes.", _kind("finish")),
    Sight(
        "recomputes",
        "Somebody is preempted, its KV dropped.",
        _preempts("recompute"),
        ("preemption.mode=recompute",),
    ),
    Sight("swaps", "Somebody is preempted, its KV moved.", _preempts("swap"), ("preemption.mode=swap",)),
    Sight(
        "comes back", "Somebody preempted joins again.", _kind("resume"), ("preemption.mode=recompute|swap",)
    ),
)
"""What is looked for."""
