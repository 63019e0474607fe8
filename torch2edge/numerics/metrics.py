"""Measures of error.

All take arrays of equal shape (nothing broadcasts) and compute in float64.  Elements that are not finite in
either array are left out: whether NaN and infinities stand in the same places is a check of its own, which
`compare` makes first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torch2edge.numerics.dtypes import widened
from torch2edge.stages import Array


def _both(reference: Array, got: Array) -> tuple[Any, Any]:
    if reference.shape != got.shape:
        raise ValueError(f"shapes differ: {reference.shape} and {got.shape}")
    a, b = widened(reference), widened(got)
    finite = np.isfinite(a) & np.isfinite(b)
    return a[finite], b[finite]


def _apart(a: Any, b: Any) -> Any:
    """|a - b|; infinite where two float64 values are further apart than float64 reaches."""
    with np.errstate(over="ignore"):
        return np.abs(a - b)


def _norm(values: Any) -> tuple[float, float]:
    """(largest magnitude m, norm of values / m): the norm itself could leave float64's range when squared."""
    largest = float(np.abs(values).max()) if values.size else 0.0
    if not largest or math.isinf(largest):
        return largest, 1.0
    return largest, float(np.sqrt(np.sum((values / largest) ** 2)))


def max_abs(reference: Array, got: Array) -> float:
    """Largest absolute difference (0 for empty arrays)."""
    a, b = _both(reference, got)
    return float(_apart(a, b).max()) if a.size else 0.0


def max_rel(reference: Array, got: Array) -> float | None:
    """Largest difference relative to |reference|, where that is not 0; None where it is 0 everywhere."""
    a, b = _both(reference, got)
    there = a != 0
    if not there.any():
        return None
    with np.errstate(over="ignore"):
        return float((_apart(a, b)[there] / np.abs(a[there])).max())


def mean_abs(reference: Array, got: Array) -> float:
    """Mean absolute difference (0 for empty arrays)."""
    a, b = _both(reference, got)
    if not a.size:
        return 0.0
    error = _apart(a, b)
    largest = float(error.max())
    return largest * float(np.mean(error / largest)) if largest and math.isfinite(largest) else largest


def rmse(reference: Array, got: Array) -> float:
    """Root mean square of the difference (0 for empty arrays)."""
    a, b = _both(reference, got)
    if not a.size:
        return 0.0
    largest, norm = _norm(_apart(a, b))
    return largest * norm / math.sqrt(a.size)


def sqnr_db(reference: Array, got: Array) -> float:
    """Signal to quantization noise, 10 log10(sum r^2 / sum (r - g)^2), in dB.

    Equal arrays have no noise: inf, all-zero and empty ones included.  A reference of zeros against anything
    else has no signal: -inf.
    """
    a, b = _both(reference, got)
    noise_size, noise = _norm(_apart(a, b))
    signal_size, signal = _norm(a)
    if not noise_size:
        return math.inf
    if not signal_size or math.isinf(noise_size):
        return -math.inf
    return 20.0 * (math.log10(signal_size) - math.log10(noise_size) + math.log10(signal) - math.log10(noise))


def cosine(reference: Array, got: Array) -> float | None:
    """Cosine of the angle between the two as vectors, from -1 to 1; None where either is 0."""
    a, b = _both(reference, got)
    if not a.size or not np.abs(a).max() or not np.abs(b).max():
        return None
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip(np.sum(a * b) / np.sqrt(np.sum(a * a) * np.sum(b * b)), -1.0, 1.0))


def top1(reference: Array, got: Array) -> float | None:
    """Share of rows (last axis) whose largest element is the same; None for less than two classes.

    A tie in the reference is met by any of its largest elements.
    """
    if reference.shape != got.shape:
        raise ValueError(f"shapes differ: {reference.shape} and {got.shape}")
    if reference.ndim == 0 or reference.shape[-1] < 2 or reference.size == 0:
        return None
    a, b = widened(reference), widened(got)
    chosen = np.take_along_axis(a, b.argmax(-1)[..., None], -1)[..., 0]
    best = np.take_along_axis(a, a.argmax(-1)[..., None], -1)[..., 0]
    return float(np.mean((chosen == best) | (np.isnan(chosen) & np.isnan(best))))


def integer_gap(reference: Array, got: Array) -> float:
    """Largest difference of integers or booleans, exact until it is made a float (0 for empty arrays)."""
    if reference.shape != got.shape or reference.dtype != got.dtype:
        raise ValueError(f"{reference.dtype} {reference.shape} and {got.dtype} {got.shape}")
    if not reference.size:
        return 0.0
    if reference.dtype == np.bool_:
        return float((reference != got).any())
    # High minus low in unsigned arithmetic: right also where the signed difference would overflow.
    high: Any = np.maximum(reference, got).reshape(-1)
    low: Any = np.minimum(reference, got).reshape(-1)
    return float((high.astype(np.uint64) - low.astype(np.uint64)).max())
