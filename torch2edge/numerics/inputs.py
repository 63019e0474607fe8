"""Inputs for parity, never noise alone: random, a smooth ramp, outliers and zeros beside the sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from torch2edge.errors import InputError
from torch2edge.numerics.dtypes import FLOATS, largest, numpy_dtype, widened
from torch2edge.stages import Array, Arrays, TensorSpec

KINDS = ("random", "ramp", "outliers", "zeros")
OUTLIER_FACTOR = 10.0
"""Outliers reach ten times the sample's range: what window attention and int8 scales stumble over."""
TRIES = 8
"""Draws before two equal arguments are accepted: a range of one or two values has no room for more."""


def generate(
    specs: Sequence[TensorSpec], sample: Arrays, *, vocab: Mapping[str, int], seed: int = 0
) -> list[tuple[str, Arrays]]:
    """Inputs of each kind, distinct for each argument (but for zeros, and masks, which keep the sample's).

    Args:
        specs: of the inputs.
        sample: the user's own inputs; their range bounds the generated ones.
        vocab: input name -> number of valid ids, for integer inputs that index a table.
        seed: mixed with each input's name.

    Returns:
        (kind, inputs by name) for each of KINDS, each array with its spec's shape and dtype, finite in that
        and in the dtype that the artifact stores.

    Raises:
        InputError: the sample lacks inputs or has other shapes; all are listed.
    """
    _fits(specs, sample)
    made: list[tuple[str, Arrays]] = []
    for kind in KINDS:
        arrays: Arrays = {}
        for index, spec in enumerate(specs):
            for attempt in range(TRIES):
                array = _one(kind, spec, sample[spec.name], vocab, seed, index + attempt * len(specs))
                if kind == "zeros" or not any(_same(array, other) for other in arrays.values()):
                    break
            arrays[spec.name] = array
        made.append((kind, arrays))
    return made


def _fits(specs: Sequence[TensorSpec], sample: Arrays) -> None:
    wrong = []
    for spec in specs:
        if spec.name not in sample:
            wrong.append(f"{spec.name}: missing")
        elif (shape := np.shape(sample[spec.name])) != spec.shape:
            wrong.append(f"{spec.name}: shape {list(shape)}, expected {list(spec.shape)}")
    if wrong:
        raise InputError(
            "the sample does not fit the model's inputs", details=wrong,
            expected=", ".join(s.name for s in specs), got=", ".join(sample) or "nothing",
            next_step="give one array for each input, in its shape",
        )  # fmt: skip


def _one(kind: str, spec: TensorSpec, sample: Array, vocab: Mapping[str, int], seed: int, turn: int) -> Array:
    """One argument; `turn` differs from argument to argument, and from try to try."""
    rng = np.random.default_rng([seed, crc32(spec.name.encode()), crc32(kind.encode()), turn])
    own = np.asarray(sample).astype(numpy_dtype(spec.dtype))
    if _is_mask(spec, own, vocab):
        return _mask(kind, own, rng)
    if own.dtype.kind in "iu":
        return _ids(kind, spec, own, vocab.get(spec.name), rng, turn)
    return _floats(kind, spec, own, rng, turn)


def _same(one: Array, other: Array) -> bool:
    alike = one.size > 0 and one.shape == other.shape and one.dtype == other.dtype
    return alike and bool((one == other).all())


def _is_mask(spec: TensorSpec, own: Array, vocab: Mapping[str, int]) -> bool:
    if own.dtype == np.bool_:
        return True
    whole = own.dtype.kind in "iu" and spec.name not in vocab
    return whole and own.size > 1 and bool(np.isin(own, (0, 1)).all())


def _mask(kind: str, own: Array, rng: np.random.Generator) -> Array:
    """A mask that hides everything makes softmax meaningless: keep the sample's, or its first entry."""
    if kind != "random" or own.size == 0:
        return own.copy()
    drawn: Any = rng.integers(0, 2, own.shape)
    drawn = np.asarray(drawn).astype(own.dtype)
    if own.ndim:
        drawn[..., 0] = own[..., 0]
    return np.asarray(drawn)


def _ids(
    kind: str, spec: TensorSpec, own: Array, size: int | None, rng: np.random.Generator, turn: int
) -> Array:
    if own.size == 0:
        return own.copy()
    low, high = (0, size - 1) if size else (int(own.min()), int(own.max()))
    for name in (spec.dtype, spec.stored):
        if name.startswith(("int", "uint")):
            bounds: Any = np.iinfo(name)
            low, high = max(low, int(bounds.min)), min(high, int(bounds.max))
    wide: Any = np.uint64 if own.dtype.kind == "u" else np.int64
    place: Any = np.arange(own.size)
    if kind == "random":
        values: Any = rng.integers(low, high, own.size, dtype=wide, endpoint=True)
    elif kind == "ramp":
        span = min(high - low + 1, 2**62)
        steps = (place + turn) % span
        values = steps.astype(wide) + np.full(own.size, low, wide)
    elif kind == "outliers":  # the ends of the range, both of them where there is room
        ends = np.asarray([high, low], wide)
        values = ends[(place + turn) % 2 if turn < 2 else rng.integers(0, 2, own.size)]
    else:
        values = np.full(own.size, min(max(0, low), high), wide)
    return np.asarray(values).reshape(own.shape).astype(own.dtype)


def _floats(kind: str, spec: TensorSpec, own: Array, rng: np.random.Generator, turn: int) -> Array:
    # A quarter of the largest value: sums of two and a rounding up must stay finite as well.
    most = min(largest(n) for n in (spec.dtype, spec.stored) if n in FLOATS) / 4
    low, high = (min(max(v, -most), most) for v in _range(own))
    size = own.size
    if kind == "zeros":
        values: Any = np.zeros(size)
    elif kind == "ramp":
        # A sine over a ramp: smooth, and no two axes alike.  Multiples of the golden ratio never meet.
        phase = np.linspace(-1.0, 1.0, max(size, 1))[:size] + turn * 0.6180339887498949 % 1.0
        wave = np.sin(3.0 * phase) * 0.9 + np.linspace(-0.1, 0.1, max(size, 1))[:size]
        values = (low + high) / 2 + (high - low) / 2 * wave
    else:
        values = rng.uniform(low, high, size)
        if kind == "outliers" and size:
            _put_outliers(values, low, high, rng)
            values = np.clip(values, -most, most)
    return np.asarray(values).reshape(own.shape).astype(own.dtype)


def _put_outliers(values: Any, low: float, high: float, rng: np.random.Generator) -> None:
    """Put about ten times the range's ends into 1 % of the places; both signs where the range has both."""
    ends = [e for e in (max(high, 0.0), min(low, 0.0)) if e] or [1.0]
    count = min(values.size, max(len(ends), values.size // 100))
    where = rng.choice(values.size, count, replace=False)
    for place, index in enumerate(where):
        values[index] = ends[place % len(ends)] * OUTLIER_FACTOR * rng.uniform(0.9, 1.1)


def _range(own: Array) -> tuple[float, float]:
    """The sample's range; where it is a single value, one around it, or about that of a normal variable."""
    wide = widened(own)
    finite = wide[np.isfinite(wide)]
    if finite.size == 0:
        return -3.0, 3.0
    low, high = float(finite.min()), float(finite.max())
    if low < high:
        return low, high
    if own.size > 1 and abs(low) <= 3.0:
        return -3.0, 3.0  # torch.ones or torch.zeros: a placeholder that says nothing of the range
    # A scalar (a temperature, a time step), or a large constant, keeps its sign.
    return (min(0.5 * low, 1.5 * low), max(0.5 * low, 1.5 * low)) if low else (0.0, 1.0)
