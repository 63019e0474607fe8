"""Small goldens made from float64 arrays, and their comparison with an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from torch2edge.numerics.compare import compare, floors
from torch2edge.stages import Golden, OutputRecord, TensorSpec

F32 = np.float32
Values = dict[str, Any]


def specs_of(arrays: Values) -> list[TensorSpec]:
    return [TensorSpec(n, a.shape, a.dtype.name, a.dtype.name) for n, a in arrays.items()]


def golden_of(wide: dict[str, Any], dtype: Any = F32, measured: bool = True, **inputs: Any) -> Golden:
    """What eager answers: float64 rounded to `dtype`, with its floors and undecided elements."""
    own: Values = {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in wide.items()}
    found, undecided = floors(own, wide if measured else None, specs_of(own))
    return Golden("sample", "sample", inputs, own, found, undecided)


def single(values: Any, dtype: Any = F32, **inputs: Any) -> Golden:
    return golden_of({"y": np.asarray(values, np.float64)}, dtype, **inputs)


def verdict(golden: Golden, got: Any, kind: str = "float", stored: str = "") -> OutputRecord:
    (spec,) = specs_of(golden.outputs)
    spec = replace(spec, stored=stored or spec.stored)
    (record,) = compare("it", golden, {"y": got}, [spec], kind=kind)
    return record
