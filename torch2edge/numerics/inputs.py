"""Inputs for parity: never noise alone.  Random, a smooth ramp, outliers and zeros beside the user's sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from torch2edge.stages import Array, Arrays, TensorSpec

KINDS = ("random", "ramp", "outliers", "zeros")
OUTLIER_FACTOR = 10.0
"""Outliers reach ten times the sample's range: what window attention and int8 scales stumble over."""


def generate(
    specs: Sequence[TensorSpec], sample: Arrays, *, vocab: Mapping[str, int], seed: int = 0
) -> list[tuple[str, Arrays]]:
    """Inputs of each kind, distinct for each argument.

    Args:
        specs: of the inputs.
        sample: the user's own inputs; their range bounds the generated ones.
        vocab: input name -> number of valid ids, for integer inputs that index a table.
        seed: mixed with each input's name.

    Returns:
        (kind, inputs by name) for each of KINDS.
    """
    made: list[tuple[str, Arrays]] = []
    for kind in KINDS:
        arrays = {}
        for spec in specs:
            rng = np.random.default_rng([seed, crc32(spec.name.encode()), crc32(kind.encode())])
            own = np.asarray(sample[spec.name])
            if _is_mask(spec, own, vocab):
                arrays[spec.name] = _mask(kind, own, rng)
            elif own.dtype.kind in "iu":
                arrays[spec.name] = _ids(kind, spec, own, vocab.get(spec.name), rng)
            else:
                arrays[spec.name] = _floats(kind, spec, own, rng)
        made.append((kind, arrays))
    return made


def _is_mask(spec: TensorSpec, own: Array, vocab: Mapping[str, int]) -> bool:
    if own.dtype == np.bool_:
        return True
    whole = own.dtype.kind in "iu" and spec.name not in vocab
    return whole and own.size > 1 and bool(np.isin(own, (0, 1)).all())


def _mask(kind: str, own: Array, rng: np.random.Generator) -> Array:
    """A mask that hides everything makes softmax meaningless: keep the sample's, or its first entry."""
    if kind != "random" or own.size == 0:
        return own.copy()
    drawn = rng.integers(0, 2, own.shape).astype(own.dtype)
    if own.ndim:
        drawn[..., 0] = own[..., 0]
    return np.asarray(drawn)


def _ids(kind: str, spec: TensorSpec, own: Array, size: int | None, rng: np.random.Generator) -> Array:
    if own.size == 0:
        return own.copy()
    low, high = (0, size - 1) if size else (int(own.min()), int(own.max()))
    if kind == "random":
        values: Any = rng.integers(low, high, own.shape, endpoint=True)
    elif kind == "ramp":
        values = low + np.arange(own.size).reshape(own.shape) % (high - low + 1)
    elif kind == "outliers":
        values = np.where(np.arange(own.size).reshape(own.shape) % 2, low, high)
    else:
        values = np.full(own.shape, min(max(0, low), high))
    return np.asarray(values).astype(own.dtype)


def _floats(kind: str, spec: TensorSpec, own: Array, rng: np.random.Generator) -> Array:
    low, high = _range(own)
    shape = own.shape
    if kind == "zeros":
        values: Any = np.zeros(shape)
    elif kind == "ramp":
        # A sine over a ramp: smooth, and no two axes alike.
        phase = np.linspace(-1.0, 1.0, max(own.size, 1))[: own.size] + (crc32(spec.name.encode()) % 97) / 97
        wave = np.sin(3.0 * phase) * 0.9 + np.linspace(-0.1, 0.1, max(own.size, 1))[: own.size]
        values = ((low + high) / 2 + (high - low) / 2 * wave).reshape(shape)
    else:
        values = rng.uniform(low, high, shape)
        if kind == "outliers" and own.size:
            flat = np.array(values, copy=True).reshape(-1)
            where = rng.choice(own.size, max(1, own.size // 100), replace=False)
            flat[where] *= OUTLIER_FACTOR
            values = flat.reshape(shape)
    return np.asarray(values).astype(own.dtype)


def _range(own: Array) -> tuple[float, float]:
    """The sample's range; about that of a normal variable where the sample says nothing."""
    wide: Any = own.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size == 0 or finite.min() == finite.max():
        return (-3.0, 3.0) if own.size != 1 or finite.size == 0 else (float(finite.min()) * 0.5, float(finite.max()) * 1.5 + 1e-3)
    return float(finite.min()), float(finite.max())
