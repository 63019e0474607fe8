"""Arithmetic: the lowerings of add and sub take no alpha."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def _scaled(op: Any) -> Callable[..., Any]:
    def decomposed(x: Any, y: Any, alpha: Any = 1) -> Any:
        """add(x, y, alpha=a) -> add(x, a * y); the product keeps the type that y and alpha have together."""
        if alpha == 1:
            return NotImplemented
        return op(x, y * alpha)

    return decomposed


_WITH_ALPHA = (aten.add.Tensor, aten.sub.Tensor, aten.add.Scalar, aten.sub.Scalar)
DECOMPOSITIONS = {op: _scaled(op) for op in _WITH_ALPHA}
