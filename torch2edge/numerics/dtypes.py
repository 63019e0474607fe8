"""What the numerics need to know of a dtype by name; bfloat16 (ml_dtypes) is imported only when it is met."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch2edge.stages import Array

FLOATS = ("float64", "float32", "float16", "bfloat16")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """A numpy dtype by name, bfloat16 included."""
    if name == "bfloat16":
        import ml_dtypes

        made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return made
    return np.dtype(name)


def is_float(array: Array) -> bool:
    """Whether an array holds floats; numpy files bfloat16 under "void", so its name decides."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def largest(name: str) -> float:
    """Largest finite value of a float dtype."""
    if name == "bfloat16":
        return (2.0 - 2.0**-7) * 2.0**127
    return float(np.finfo(np.dtype(name)).max)


def widened(array: Array) -> Any:
    """The same values in float64."""
    return array.astype(np.float64)
