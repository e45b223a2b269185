"""The list of broken schedulers, and what each of them says of itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchspec.replay.loading import load_file

base = load_file(Path(__file__).with_name("base.py"))
Scheduler: Any = base.Scheduler

SYNC, ASYNC, PRIORITY, ORCA, STATIC = "vllm-v1", "vllm-v1-async", "vllm-v1-priority", "orca", "static"
PREFIX = {"reuse": {"prefix": True}}


@dataclass(frozen=True)
class Fault:
    """A broken scheduler: what makes it, the profile it claims, and the rule that it breaks."""

    name: str
    make: Any
    profile: str
    overlay: Mapping[str, Any]
    rule: str


FAULTS: list[Fault] = []


def fault(rule: str, profile: str = SYNC, overlay: Mapping[str, Any] | None = None) -> Callable[[Any], Any]:
    """Enter a broken scheduler in the list."""

    def enter(made: Any) -> Any:
        FAULTS.append(Fault(made.__name__, made, profile, overlay or {}, rule))
        return made

    return enter
