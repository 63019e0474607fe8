"""One comparison for everything: count, names, order, shapes, dtypes, finiteness, and only then values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torch2edge.errors import CaptureError
from torch2edge.numerics import metrics, values
from torch2edge.numerics.dtypes import is_float, widened
from torch2edge.numerics.tolerance import KINDS, limits
from torch2edge.stages import Array, Arrays, Floor, Golden, OutputRecord, TensorSpec


def compare(
    runtime: str, golden: Golden, got: Arrays, specs: Sequence[TensorSpec], *, kind: str = "float"
) -> list[OutputRecord]:
    """One record for each output, wanted or unexpected.  Nothing broadcasts and nothing is cast.

    Args:
        runtime: public name, for the records.
        golden: inputs and what eager answers.
        got: output name -> array, in the order of the signature.
        specs: of the outputs.
        kind: class of tolerance, see tolerance.py.

    Raises:
        UsageError: an unknown class of tolerance.
    """
    if kind not in KINDS:
        limits(kind, Floor(0.0, 0.0, 0.0, "assumed"))  # raises, and names the known classes

    def failed(output: str, reason: str) -> OutputRecord:
        return OutputRecord(runtime, golden.name, output, False, reason)

    records = []
    wanted = [s.name for s in specs]
    shared = [n for n in got if n in wanted]
    disordered = shared != [n for n in wanted if n in got]
    for spec in specs:
        if spec.name not in got:
            records.append(failed(spec.name, f"missing; the runtime returned {list(got)}"))
        elif spec.name not in golden.outputs:
            records.append(failed(spec.name, f"missing from the golden, which holds {list(golden.outputs)}"))
        elif disordered:
            records.append(failed(spec.name, f"outputs out of order: expected {wanted}, got {list(got)}"))
        else:
            array = got[spec.name]
            reason = _outside(spec, golden.outputs[spec.name], array)
            records.append(
                failed(spec.name, reason) if reason else values.judge(runtime, golden, spec, array, kind)
            )
    return records + [failed(n, "unexpected output") for n in got if n not in wanted]


def _outside(spec: TensorSpec, reference: Array, got: Array) -> str:
    """What is wrong before any value is looked at; "" when nothing."""
    for whose, array in (("", got), ("the golden's ", reference)):
        if not isinstance(array, np.ndarray | np.generic):
            return f"{whose or 'the '}value is not a numpy array: {type(array).__name__}"
        if array.shape != spec.shape:
            return f"{whose}shape: expected {list(spec.shape)}, got {list(array.shape)}"
        if array.dtype.name != spec.dtype:
            return f"{whose}dtype: expected {spec.dtype}, got {array.dtype.name}"
    if not is_float(got):
        return ""
    a, b = widened(reference), widened(got)
    if a.size and np.isnan(a).all():
        return "eager PyTorch's own answer is NaN everywhere: nothing can be compared"
    found = []
    for what, test in (("NaN", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        apart = int((test(a) != test(b)).sum())
        if apart:
            found.append(f"{what} in other places than eager PyTorch: {apart} of {a.size}")
    return "; ".join(found)


def floors(
    reference: Arrays, exact: Arrays | None, specs: Sequence[TensorSpec]
) -> tuple[dict[str, Floor], Arrays]:
    """How far float32 itself is off, for each output.

    Args:
        reference: eager's answers.
        exact: the same in float64, or None where the module does not run in it.
        specs: of the outputs.

    Returns:
        a Floor for each float output, and for each other output the elements that float32 cannot decide.

    Raises:
        CaptureError: the two differ in names or shapes; all differences are listed.
    """
    _alike(reference, exact, specs)
    found: dict[str, Floor] = {}
    undecided: Arrays = {}
    for spec in specs:
        own = reference[spec.name]
        wide = None if exact is None else exact[spec.name]
        if not is_float(own):
            if wide is not None:
                undecided[spec.name] = np.asarray(own != wide)
        elif wide is None:
            found[spec.name] = Floor(0.0, 0.0, values.scale(own), "assumed")
        else:
            found[spec.name] = Floor(
                metrics.max_abs(wide, own), metrics.rmse(wide, own), values.scale(wide), "float64"
            )
    return found, undecided


def _alike(reference: Arrays, exact: Arrays | None, specs: Sequence[TensorSpec]) -> None:
    wrong = []
    for whose, arrays in (("eager PyTorch", reference), ("the captured program in float64", exact)):
        for spec in specs if arrays is not None else ():
            if arrays is None or spec.name not in arrays:
                wrong.append(f"{spec.name}: missing from {whose}")
            elif (shape := arrays[spec.name].shape) != spec.shape:
                wrong.append(f"{spec.name}: {whose} has shape {list(shape)}, expected {list(spec.shape)}")
    if wrong:
        raise CaptureError(
            "eager PyTorch and its captured program do not give the same outputs", details=wrong,
            expected=", ".join(f"{s.name} {list(s.shape)}" for s in specs),
            next_step="does forward return other shapes from call to call?  Otherwise report this as a bug",
        )  # fmt: skip
