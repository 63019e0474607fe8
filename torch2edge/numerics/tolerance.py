"""How far a runtime may be from eager PyTorch: a stated multiple of what eager float32 itself is off.

| class | limit | reason |
|---|---|---|
| float | 16 x the noise floor, or 16 float32 steps of the output's largest value where the floor is smaller | other summation orders, fused multiply-adds and polynomial exp/tanh of XLA and XNNPACK stay within 16 (measured on the samples and cases: at most 8); a 1 % weight error is 1,000 times more |
| float, floor assumed | 64 float32 steps of the output's largest value | the module does not run in float64, so its conditioning is unknown |
| quantized | SQNR >= 15 dB, cosine >= 0.98 | int8 has 48 dB per tensor; networks of 50 layers measured 17 to 40 dB |
| bfloat16 | SQNR >= 30 dB, cosine >= 0.999 | 8 bits of mantissa are 54 dB per tensor |
"""

from __future__ import annotations

from dataclasses import dataclass

from torch2edge.stages import Floor

MULTIPLE = 16.0
ASSUMED_MULTIPLE = 64.0
STEP = 2.0**-23
"""Distance of 1.0 to the next float32."""
TINY = 2.0**-126
"""Smallest normal float32: runtimes flush what is below to zero, so nothing below is an error."""


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


def limits(kind: str, floor: Floor) -> Limits:
    """Limits of a class of runtime ("float", "quantized", "bfloat16") for an output.

    Raises:
        KeyError: an unknown class.
    """
    if kind == "float":
        multiple = MULTIPLE if floor.source == "float64" else ASSUMED_MULTIPLE
        widest = max(floor.max_abs, STEP * floor.scale)
        usual = max(floor.rms, STEP * floor.scale)
        return Limits(max_abs=multiple * widest + TINY, rmse=multiple * usual + TINY)
    return {"quantized": Limits(sqnr_db=15.0, cosine=0.98), "bfloat16": Limits(sqnr_db=30.0, cosine=0.999)}[kind]
