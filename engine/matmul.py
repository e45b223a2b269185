"""A weight and its product. On the CPU large float32 weights are laid out for the matmul kernel once.

oneDNN multiplies few rows with a weight in its own blocked layout up to twice as fast as with a plain
one, since it streams the weight once and in order. PyTorch reaches that through operators that its
compiler uses; where they are missing or refuse, the plain product is taken.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import linear

PACK_FROM: Final = 200_000
"""Smallest weight, in numbers, that gains from being packed: below, the call itself costs more."""


class Matrix:
    """A projection [out, in] with an optional bias [out]; called with rows [T, in]."""

    __slots__ = ("_bias", "_packed", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Pack the weight where that pays."""
        self._weight = weight
        self._bias = bias
        self._packed: Any = _packed(weight) if weight.numel() >= PACK_FROM else None

    def __call__(self, rows: Tensor) -> Tensor:
        """The product [T, out]."""
        if self._packed is None:
            return linear(rows, self._weight, self._bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return product


def _packed(weight: Tensor) -> Any:
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return None
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 16)
        probe = torch.zeros(1, weight.shape[1])
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return None
    return packed
