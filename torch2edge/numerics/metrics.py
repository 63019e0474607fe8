"""Measures of error.  All take arrays of equal shape and compute in float64; equal infinities and NaNs are left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch2edge.stages import Array


def _both(reference: Array, got: Array) -> tuple[Any, Any]:
    if reference.shape != got.shape:
        raise ValueError(f"shapes differ: {reference.shape} and {got.shape}")
    a, b = reference.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    return a[finite], b[finite]


def max_abs(reference: Array, got: Array) -> float:
    """Largest absolute difference (0 for empty arrays)."""
    a, b = _both(reference, got)
    return float(np.abs(a - b).max()) if a.size else 0.0


def max_rel(reference: Array, got: Array) -> float | None:
    """Largest difference relative to |reference|, where that is not 0; None where it is 0 everywhere."""
    a, b = _both(reference, got)
    there = a != 0
    return float((np.abs(a - b)[there] / np.abs(a[there])).max()) if there.any() else None


def mean_abs(reference: Array, got: Array) -> float:
    """Mean absolute difference."""
    a, b = _both(reference, got)
    return float(np.abs(a - b).mean()) if a.size else 0.0


def rmse(reference: Array, got: Array) -> float:
    """Root mean square of the difference."""
    a, b = _both(reference, got)
    if not a.size:
        return 0.0
    error = np.abs(a - b)
    largest = float(error.max())
    return largest * float(np.sqrt(np.mean((error / largest) ** 2))) if largest else 0.0


def sqnr_db(reference: Array, got: Array) -> float | None:
    """Signal to quantization noise, 10 log10(sum r^2 / sum (r - g)^2) in dB; inf when equal, None without a signal."""
    a, b = _both(reference, got)
    largest = max(float(np.abs(a).max()), float(np.abs(a - b).max())) if a.size else 0.0
    if not largest:
        return None
    signal, noise = float(((a / largest) ** 2).sum()), float((((a - b) / largest) ** 2).sum())
    if not noise:
        return float("inf")
    return 10.0 * float(np.log10(signal / noise)) if signal else float("-inf")


def cosine(reference: Array, got: Array) -> float | None:
    """Cosine of the angle between the two as vectors; None where either is 0."""
    a, b = _both(reference, got)
    if not a.size or not np.abs(a).max() or not np.abs(b).max():
        return None
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def top1(reference: Array, got: Array) -> float | None:
    """Share of rows (last axis) whose largest element is the same; None for less than two classes."""
    if reference.ndim == 0 or reference.shape[-1] < 2 or reference.size == 0:
        return None
    a, b = reference.astype(np.float64), got.astype(np.float64)
    return float(np.mean(a.argmax(-1) == b.argmax(-1)))
