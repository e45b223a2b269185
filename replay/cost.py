"""The cost model: how long a step takes, from what its pass computes.

A step reads every weight once, whatever the batch (`base_ns`); each token adds arithmetic
(`per_token_ns`), each resident position that attention reads adds memory traffic
(`per_kv_position_ns`), each member some bookkeeping (`per_member_ns`). The model is linear: good
enough to compare schedules with each other, not to predict a device.

"""

from dataclasses import dataclass

from batchspec.spec.reference import StepShape


@dataclass(frozen=True, slots=True)
class CostModel:
    """Nanoseconds of a step: base + per_token · tokens + per_kv_position · positions + per_member · members.

    The defaults are of the order of an 8-billion-parameter model on one accelerator of today:
    a decode of one sequence takes 8 ms, 2,000 prompt tokens about 60 ms more.
    """

    base_ns: int = 8_000_000
    per_token_ns: int = 30_000
    per_kv_position_ns: int = 40
    per_member_ns: int = 10_000

    def __call__(self, shape: StepShape) -> int:
        """What a pass of this shape takes; a step without a pass takes nothing."""
        if not shape.members:
            return 0
        return (
            self.base_ns
            + self.per_token_ns * shape.tokens
            + self.per_kv_position_ns * shape.kv_positions
            + self.per_member_ns * shape.members
        )
