"""How far a runtime may be from eager PyTorch: a stated multiple of what eager itself is off.

float           16 x the noise floor, or 16 steps of the output's largest value where the floor is smaller.
                An honest runtime sums in another order, fuses multiply-adds and has its own polynomials for
                exp and tanh: its errors are of the kind that eager makes, but they are not the same ones.
floor assumed   64 steps of the output's largest value.  The module does not run in anything wider, so its
                conditioning is unknown.
captured        64 steps of eager's own largest value, whatever the floor.  The same operators run on the same
                kernels, and the floor is measured on the captured program, so it must not excuse it.
quantized       SQNR >= 15 dB, cosine >= 0.98.  int8 has 48 dB per tensor; the noise of every layer adds up.
bfloat16        SQNR >= 30 dB, cosine >= 0.999.  8 bits of mantissa are 54 dB per tensor.

A step is the distance from 1.0 to the next value of the output's dtype, or of the dtype that the artifact
stores where that is coarser: a float16 output cannot be held to the steps of float32.

A floor is believed only up to a ceiling, a share of the largest value that goes in or comes out.  Beyond it
eager itself decides nothing, and a captured program that computes something else would hide in its own floor.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch2edge.errors import UsageError
from torch2edge.stages import Floor

MULTIPLE = 16.0
ASSUMED_MULTIPLE = 64.0
STEP = 2.0**-23
"""Distance of 1.0 to the next float32."""
TINY = 2.0**-126
"""Smallest normal float32: runtimes flush what is below to zero, so nothing below is an error."""
NOTHING = 2.0**-20
"""A floor below this is believed whatever the size of the output: where everything cancels, only rounding
errors of inner values near 1 are left."""


@dataclass(frozen=True, slots=True)
class Grain:
    """How finely a dtype tells values apart.

    Attributes:
        step: distance of 1.0 to the next value.
        tiny: absolute error that is none (flushed to zero, or a few steps of the grid around zero).
        ceiling: largest floor and limit that are believed, relative to the largest value.
    """

    step: float
    tiny: float
    ceiling: float


GRAINS = {
    "float64": Grain(STEP, TINY, 2.0**-6),
    "float32": Grain(STEP, TINY, 2.0**-6),
    "float16": Grain(2.0**-10, 2.0**-20, 2.0**-5),
    "bfloat16": Grain(2.0**-7, TINY, 2.0**-2),
}
"""float64 has the step of float32: artifacts take float32 where the module takes float64 (capture.NARROW),
and the lowering rounds scalars to float32 inside, so no more can be asked of them.

Ceilings are 1.6 % for float32, and 32 of their own steps for float16 and bfloat16, since deep models lose
that many.  float16 keeps its subnormals: around zero, 16 steps of its grid (2**-24) stand for flushing."""

KINDS = ("float", "captured", "quantized", "bfloat16")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one output must keep to; None where a measure does not judge.

    Attributes:
        max_abs: in the output's own unit.
        rmse: in the output's own unit.
        sqnr_db: at least this, in dB.
        cosine: at least this.
    """

    max_abs: float | None = None
    rmse: float | None = None
    sqnr_db: float | None = None
    cosine: float | None = None


def grain(dtype: str, stored: str = "") -> Grain:
    """The coarser of an output's dtype and the one that the artifact stores.

    Raises:
        UsageError: not a float dtype.
    """
    if dtype not in GRAINS:
        raise UsageError(
            f"no tolerance for outputs of dtype {dtype!r}", expected=", ".join(GRAINS), got=dtype,
            next_step="integers and booleans are compared exactly, without limits",
        )  # fmt: skip
    return max((GRAINS[n] for n in (dtype, stored) if n in GRAINS), key=lambda g: g.step)


def limits(
    kind: str, floor: Floor, dtype: str = "float32", *, stored: str = "", inputs: float = 0.0
) -> Limits:
    """Limits of a class of runtime for one output.

    Args:
        kind: one of KINDS.
        floor: how far eager itself is off; for "captured" only its scale counts, which must be eager's own.
        dtype: of the output.
        stored: dtype of the output in the artifact, where it differs.
        inputs: largest magnitude among the inputs: noise that is small beside what goes in is believed, too.

    Raises:
        UsageError: an unknown class or a dtype that is not a float.
    """
    if kind not in KINDS:
        raise UsageError(
            f"unknown class of tolerance {kind!r}", expected=", ".join(KINDS), got=kind,
            next_step="use one of the known classes",
        )  # fmt: skip
    fine = grain(dtype, stored)
    if kind == "quantized":
        return Limits(sqnr_db=15.0, cosine=0.98)
    if kind == "bfloat16":
        return Limits(sqnr_db=30.0, cosine=0.999)
    # A float64 output has no wider reference, so its floor says nothing: as good as assumed.
    assumed = kind == "captured" or floor.source == "assumed" or dtype == "float64"
    least = (ASSUMED_MULTIPLE if assumed else MULTIPLE) * fine.step * floor.scale
    if kind == "captured":
        return Limits(max_abs=least + fine.tiny, rmse=least + fine.tiny)
    most = max(least, _ceiling(floor, fine, inputs))
    return Limits(
        max_abs=min(max(MULTIPLE * floor.max_abs, least), most) + fine.tiny,
        rmse=min(max(MULTIPLE * floor.rms, least), most) + fine.tiny,
    )


def believed(floor: Floor, dtype: str = "float32", *, stored: str = "", inputs: float = 0.0) -> bool:
    """Whether eager itself is exact enough on an output for a comparison to mean something."""
    return floor.max_abs <= _ceiling(floor, grain(dtype, stored), inputs)


def _ceiling(floor: Floor, fine: Grain, inputs: float) -> float:
    return max(fine.ceiling * max(floor.scale, inputs), NOTHING)
