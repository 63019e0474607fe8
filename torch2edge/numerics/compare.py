"""One comparison for everything: count, names, order, shapes, dtypes, finiteness, and only then values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torch2edge.numerics import metrics
from torch2edge.numerics.tolerance import limits
from torch2edge.stages import Array, Arrays, Floor, Golden, OutputRecord, TensorSpec


def compare(
    runtime: str, golden: Golden, got: Arrays, specs: Sequence[TensorSpec], *, kind: str = "float"
) -> list[OutputRecord]:
    """One record for each output, wanted or unexpected.

    Args:
        runtime: public name, for the records.
        golden: inputs and what eager answers.
        got: output name -> array, in the order of the signature.
        specs: of the outputs.
        kind: class of tolerance.
    """

    def failed(output: str, reason: str) -> OutputRecord:
        return OutputRecord(runtime, golden.name, output, False, reason)

    records = []
    wanted = [s.name for s in specs]
    shared = [n for n in got if n in wanted]
    disordered = shared != [n for n in wanted if n in got]
    for spec in specs:
        if spec.name not in got:
            records.append(failed(spec.name, f"missing; the runtime returned {list(got)}"))
        elif disordered:
            records.append(failed(spec.name, f"outputs out of order: expected {wanted}, got {list(got)}"))
        else:
            reason = _outside(spec, golden.outputs[spec.name], got[spec.name])
            records.append(
                failed(spec.name, reason) if reason else _values(runtime, golden, spec, got[spec.name], kind)
            )
    return records + [failed(n, "unexpected output") for n in got if n not in wanted]


def _outside(spec: TensorSpec, reference: Array, got: Array) -> str:
    """What is wrong before any value is looked at; "" when nothing."""
    if got.shape != spec.shape or reference.shape != spec.shape:
        return f"shape: expected {list(spec.shape)}, got {list(got.shape)}"
    if got.dtype.name != spec.dtype:
        return f"dtype: expected {spec.dtype}, got {got.dtype.name}"
    if not _is_float(got):
        return ""
    a: Any = reference.astype(np.float64)
    b: Any = got.astype(np.float64)
    for what, test in (("NaN", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        apart = int((test(a) != test(b)).sum())
        if apart:
            return f"{what} in other places than eager PyTorch: {apart} of {a.size}"
    return ""


def _values(runtime: str, golden: Golden, spec: TensorSpec, got: Array, kind: str) -> OutputRecord:
    reference = golden.outputs[spec.name]
    if not _is_float(got):
        return _exact(runtime, golden, spec, got)
    floor = golden.floors.get(spec.name)
    if floor is None:
        return OutputRecord(runtime, golden.name, spec.name, False, "the golden has no noise floor for this output")
    limit = limits(kind, floor)
    measured = {
        "max_abs": metrics.max_abs(reference, got),
        "max_rel": metrics.max_rel(reference, got),
        "mean_abs": metrics.mean_abs(reference, got),
        "rmse": metrics.rmse(reference, got),
        "sqnr_db": metrics.sqnr_db(reference, got),
        "cosine": metrics.cosine(reference, got),
        "top1": metrics.top1(reference, got),
    }
    reason = _degenerate(reference, got) or _beyond(measured, limit)
    return OutputRecord(
        runtime, golden.name, spec.name, not reason, reason, limit=limit.max_abs, floor=floor.max_abs, **measured
    )


def _degenerate(reference: Array, got: Array) -> str:
    """All zeros, or one value everywhere, where eager's answer has a spread: named as such."""
    a: Any = reference.astype(np.float64)
    b: Any = got.astype(np.float64)
    if a.size and a.any() and not b.any() and np.abs(a).max() > 2.0**-126:
        return "all zeros, which eager PyTorch's answer is not"
    if a.size > 1 and (b == b.flat[0]).all() and np.ptp(a) > 2.0**-20 * np.abs(a).max():
        return "one value everywhere, which eager PyTorch's answer is not"
    return ""


def _beyond(measured: Mapping[str, float | None], limit: Any) -> str:
    broken = []
    for name in ("max_abs", "rmse"):
        most, value = getattr(limit, name), measured[name]
        if most is not None and not (value is not None and value <= most):
            broken.append(f"{name} {value:.3g} > {most:.3g}" if value is not None else f"{name} is not defined")
    for name in ("sqnr_db", "cosine"):
        least, value = getattr(limit, name), measured[name]
        if least is not None and measured["max_abs"] != 0.0 and not (value is not None and value >= least):
            broken.append(f"{name} {value:.4g} < {least:.4g}" if value is not None else f"{name} is not defined")
    return ", ".join(broken)


def _exact(runtime: str, golden: Golden, spec: TensorSpec, got: Array) -> OutputRecord:
    """Integers and booleans are equal or wrong, but where float32 itself cannot decide."""
    reference = golden.outputs[spec.name]
    apart = reference != got
    undecided = golden.undecided.get(spec.name)
    open_ = int(undecided.sum()) if undecided is not None else 0
    wrong = int((apart & ~undecided).sum()) if undecided is not None else int(apart.sum())
    reason = f"{wrong} of {got.size} elements differ" if wrong else ""
    note = f" ({open_} that float32 cannot decide left out)" if open_ and wrong else ""
    size = metrics.max_abs(reference, got)
    return OutputRecord(runtime, golden.name, spec.name, not wrong, reason + note, max_abs=size, limit=0.0, floor=0.0)


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float16")


def floors(reference: Arrays, exact: Arrays | None, specs: Sequence[TensorSpec]) -> tuple[dict[str, Floor], Arrays]:
    """How far float32 itself is off, for each output.

    Args:
        reference: eager's answers.
        exact: the same in float64, or None where the module does not run in it.
        specs: of the outputs.

    Returns:
        a Floor for each float output, and for each other output the elements that float32 cannot decide.
    """
    found: dict[str, Floor] = {}
    undecided: Arrays = {}
    for spec in specs:
        own = reference[spec.name]
        wide = None if exact is None else exact[spec.name]
        if not _is_float(own):
            if wide is not None:
                undecided[spec.name] = np.asarray(own != wide)
            continue
        values: Any = own.astype(np.float64)
        finite = values[np.isfinite(values)]
        scale = float(np.abs(finite).max()) if finite.size else 0.0
        if wide is None:
            found[spec.name] = Floor(0.0, 0.0, scale, "assumed")
        else:
            found[spec.name] = Floor(metrics.max_abs(wide, own), metrics.rmse(wide, own), scale, "float64")
    return found, undecided
