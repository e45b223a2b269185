"""The cost model: how long a step takes, from what its pass computes.

A step reads every weight once, whatever the batch (`base_ns`); each token adds arithmetic
(`per_token_ns`), each resident position that attention reads adds memory traffic
(`per_kv_position_ns`), each member some bookkeeping (`per_member_ns`). The model is linear: good
enough to compare schedules with each other, not to predict a device. `calibrate` fits it to the
durations of a recorded trace; any function from a `StepShape` to nanoseconds does in its place.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np

from batchspec.replay.plugins import PluginError, own_object
from batchspec.spec.errors import BatchspecError
from batchspec.spec.passes import Pass
from batchspec.spec.reference import StepShape
from batchspec.traces.text import one_line

Cost = Callable[[StepShape], int]
_LARGEST_FILE: Final = 1 << 16
_TRIMMED: Final = 0.02
"""Share of the passes, those farthest off, that a fit leaves out: a pause of the machine is no cost."""


class CostError(BatchspecError):
    """A cost model that cannot be read, or a trace that none can be fitted to."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Nanoseconds of a step: base + per_token · tokens + per_kv_position · positions + per_member · members.

    The defaults are of the order of an 8-billion-parameter model on one accelerator of today:
    a decode of one sequence takes 8 ms, 2,000 prompt tokens about 60 ms more.
    """

    base_ns: float = 8_000_000
    per_token_ns: float = 30_000
    per_kv_position_ns: float = 40
    per_member_ns: float = 10_000

    def __call__(self, shape: StepShape) -> int:
        """What a pass of this shape takes; a step without a pass takes nothing."""
        if not shape.members:
            return 0
        return round(
            self.base_ns
            + self.per_token_ns * shape.tokens
            + self.per_kv_position_ns * shape.kv_positions
            + self.per_member_ns * shape.members
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted cost model, the passes it was fitted to, and how far off it is for them.

    `median_error` and `p95_error` are shares of the measured durations, `explained` is R².
    """

    model: CostModel
    passes: int
    median_error: float
    p95_error: float
    explained: float

    def to_json(self) -> str:
        """The file that `named_cost` reads."""
        figures = {name: getattr(self, name) for name in ("passes", "median_error", "p95_error", "explained")}
        return json.dumps({"cost": asdict(self.model), "fit": figures}, indent=2) + "\n"


def calibrate(measured: Iterable[Pass], *, warmup: int = 0) -> Calibration:
    """Fit the cost model to the durations of recorded passes, the first `warmup` of them left out.

    Least squares with no coefficient below zero. Raises `CostError` where fewer than eight passes
    have a duration above zero.
    """
    timed = [made for made in measured if made.duration_ns is not None][warmup:]
    timed = [made for made in timed if made.duration_ns]
    if len(timed) < 8:
        raise CostError(
            f"only {len(timed)} passes have a duration; record with a wall clock (record --clock wall),"
            " and at least 8 of them"
        )
    shapes = np.array([(1, made.tokens, made.kv_positions, made.members) for made in timed], float)
    taken = np.array([made.duration_ns for made in timed], float)
    weights = _non_negative(shapes, taken)
    off = np.abs(shapes @ weights - taken)
    kept = off <= np.quantile(off, 1 - _TRIMMED)
    weights = _non_negative(shapes[kept], taken[kept])
    off = np.abs(shapes @ weights - taken)
    spread = float(((taken - taken.mean()) ** 2).sum())
    return Calibration(
        model=CostModel(*(float(value) for value in weights)),
        passes=len(timed),
        median_error=float(np.median(off / taken)),
        p95_error=float(np.quantile(off / taken, 0.95)),
        explained=1 - float((off**2).sum()) / spread if spread else 1.0,
    )


def _non_negative(shapes: Any, taken: Any) -> Any:
    """Exact non-negative least squares: of all subsets of the few columns the best one that is allowed."""
    scale = np.abs(shapes).max(axis=0)
    scale[scale == 0] = 1
    columns = shapes.shape[1]
    best, least = np.zeros(columns), np.inf
    for size in range(1, columns + 1):
        for chosen in map(list, combinations(range(columns), size)):
            found, _, rank, _ = np.linalg.lstsq(shapes[:, chosen] / scale[chosen], taken, rcond=None)
            if rank < size or (found < 0).any():
                continue
            rest = float(((shapes[:, chosen] / scale[chosen] @ found - taken) ** 2).sum())
            # Fewer parts win where more of them explain nothing further but rounding.
            if rest < least - 1e-18 * float((taken**2).sum()):
                best, least = np.zeros(columns), rest
                best[chosen] = found / scale[chosen]
    return best


def named_cost(name: str) -> Cost:
    """The cost model that `--cost` names: a file that `batchspec calibrate` wrote, or `module:name`.

    Raises `CostError` and `PluginError`. A function of the user's own must give whole nanoseconds.
    """
    if name.endswith(".json"):
        return _of_file(Path(name))
    own = own_object(name)
    if not callable(own):
        raise PluginError(f"{one_line(name, 60)} is no cost model: it cannot be called with a step's shape")

    def cost(shape: StepShape) -> int:
        taken = own(shape)
        if isinstance(taken, bool) or not isinstance(taken, int) or taken < 0:
            raise PluginError(
                f"{one_line(name, 60)} must return whole nanoseconds of at least 0,"
                f" not {one_line(repr(taken), 60)}"
            )
        return taken

    return cost


def _of_file(path: Path) -> CostModel:
    shown = one_line(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
        data = json.loads(raw) if len(raw) <= _LARGEST_FILE else None
    except OSError as error:
        raise CostError(f"{shown}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError):
        raise CostError(f"{shown}: not valid JSON; `batchspec calibrate` writes such a file") from None
    table = data.get("cost") if isinstance(data, dict) else None
    known = [item.name for item in fields(CostModel)]
    if not isinstance(table, dict) or set(table) - set(known) or not table:
        raise CostError(f"{shown}: must be an object with `cost`, and in it some of {', '.join(known)}")
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
            raise CostError(f"{shown}: cost.{key} must be a number of at least 0")
    return CostModel(**table)
