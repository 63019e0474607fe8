"""Embedding: the lowering to StableHLO zeroes the row of padding_idx; PyTorch only its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """embedding(w, i, padding_idx=p) -> embedding(w, i)."""
    if padding_idx == -1:
        return NotImplemented
    return aten.embedding.default(weight, indices)


DECOMPOSITIONS = {aten.embedding.default: _embedding}
