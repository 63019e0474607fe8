"""The last question of a comparison: are the values right?  Names, shapes and dtypes are settled before."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from torch2edge.numerics import metrics
from torch2edge.numerics.dtypes import is_float, widened
from torch2edge.numerics.tolerance import Grain, Limits, grain, limits
from torch2edge.stages import Array, Floor, Golden, OutputRecord, TensorSpec

FILL_SIZE = 2.0**10
FILL_RATIO = 2.0**12
"""A mask's fill (-1e4, -1e9, the lowest float32) is one value, large, and far larger than all the rest."""


def judge(runtime: str, golden: Golden, spec: TensorSpec, got: Array, kind: str) -> OutputRecord:
    """The record of one output whose shape, dtype and places of NaN and infinities are right.

    Args:
        runtime: public name, for the record.
        golden: holds the reference, its noise floor and what float32 cannot decide.
        spec: of the output.
        got: what the runtime answered.
        kind: class of tolerance.
    """
    reference = golden.outputs[spec.name]
    if not is_float(got):
        return _exact(runtime, golden, spec, got)
    record = OutputRecord(runtime, golden.name, spec.name, True, "")
    floor = golden.floors.get(spec.name)
    if floor is None:
        reason = "the golden has no noise floor for this output"
        return dataclasses.replace(record, passed=False, reason=reason)
    if got.size and not np.isfinite(widened(reference)).any():
        return record  # the right infinities in the right places: no number is defined, and none is wrong
    reference, got, filled = _without_fill(reference, got)
    # The smaller of both scales: neither a fill nor a captured program that computes other values widens it.
    own = scale(reference)
    floor = dataclasses.replace(floor, scale=own if kind == "captured" else min(floor.scale, own))
    inputs = max((scale(a) for a in golden.inputs.values() if is_float(a)), default=0.0)
    limit = limits(kind, floor, spec.dtype, stored=spec.stored, inputs=inputs)
    near = limits("float", floor, spec.dtype, stored=spec.stored, inputs=inputs)
    measured = {
        "max_abs": metrics.max_abs(reference, got),
        "max_rel": metrics.max_rel(reference, got),
        "mean_abs": metrics.mean_abs(reference, got),
        "rmse": metrics.rmse(reference, got),
        "sqnr_db": metrics.sqnr_db(reference, got),
        "cosine": metrics.cosine(reference, got),
        "top1": None if filled else metrics.top1(reference, got),
    }
    fine = grain(spec.dtype, spec.stored)
    reasons = [_degenerate(reference, got, floor, fine) or _beyond(measured, limit, near)]
    if filled and filled[1] > _fill_limit(filled[0], fine, limit):
        reasons.append(f"the fill value {filled[0]:.6g} is off by {filled[1]:.3g}")
    reason = ", ".join(r for r in reasons if r)
    return OutputRecord(
        runtime,
        golden.name,
        spec.name,
        not reason,
        reason,
        limit=limit.max_abs,
        floor=floor.max_abs,
        **measured,
    )


def scale(array: Array) -> float:
    """Largest finite magnitude (0 when there is none)."""
    wide = widened(array)
    finite = wide[np.isfinite(wide)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _without_fill(reference: Array, got: Array) -> tuple[Array, Array, tuple[float, float] | None]:
    """Both without the places that a mask filled, and (the fill, its largest error) where there is one.

    Beside a fill of -1e9 a limit relative to the largest value would let everything else pass.
    """
    a = widened(reference)
    size = np.where(np.isfinite(a), np.abs(a), 0.0)
    largest = size.max() if size.size else 0.0
    there = size == largest
    if largest < FILL_SIZE or there.all() or np.unique(a[there]).size > 1:
        return reference, got, None
    rest = size[~there].max()
    if not rest or largest < FILL_RATIO * rest:
        return reference, got, None
    error = metrics.max_abs(reference[there], got[there])
    return reference[~there], got[~there], (float(a[there].flat[0]), error)


def _fill_limit(fill: float, fine: Grain, limit: Limits) -> float:
    share = fine.step * 16.0 if limit.sqnr_db is None else 10.0 ** (-limit.sqnr_db / 20.0)
    return abs(fill) * share


def _degenerate(reference: Array, got: Array, floor: Floor, fine: Grain) -> str:
    """All zeros, or one value everywhere, where eager's answer has a spread: named as such.

    What is within eager's own noise is no spread: where everything cancels, 0 is as right as 1e-8.
    """
    a, b = widened(reference), widened(got)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    if not a.size:
        return ""
    noise = 2.0 * floor.max_abs
    largest = float(np.abs(a).max())
    if not b.any() and largest > noise + fine.tiny:
        return "all zeros, which eager PyTorch's answer is not"
    spread = float(a.max()) - float(a.min())
    if a.size > 1 and bool((b == b[0]).all()) and spread > max(noise, 8.0 * fine.step * largest, fine.tiny):
        return "one value everywhere, which eager PyTorch's answer is not"
    return ""


def _beyond(measured: Mapping[str, float | None], limit: Limits, near: Limits) -> str:
    """What breaks its limit (an undefined measure does); what a float runtime may do is always right."""
    broken = _above(measured, limit)
    if limit.sqnr_db is None and limit.cosine is None:
        return ", ".join(broken)
    if not _above(measured, near):
        return ""
    for name, least, value in (
        ("sqnr_db", limit.sqnr_db, measured["sqnr_db"]),
        ("cosine", limit.cosine, measured["cosine"]),
    ):
        if least is not None and not (value is not None and value >= least):
            broken.append(f"{name} is not defined" if value is None else f"{name} {value:.4g} < {least:.4g}")
    return ", ".join(broken)


def _above(measured: Mapping[str, float | None], limit: Limits) -> list[str]:
    broken = []
    for name, most, value in (
        ("max_abs", limit.max_abs, measured["max_abs"]),
        ("rmse", limit.rmse, measured["rmse"]),
    ):
        if most is not None and not (value is not None and value <= most):
            broken.append(f"{name} is not defined" if value is None else f"{name} {value:.3g} > {most:.3g}")
    return broken


def _exact(runtime: str, golden: Golden, spec: TensorSpec, got: Array) -> OutputRecord:
    """Integers and booleans are equal or wrong, but where float32 itself cannot decide."""
    reference = golden.outputs[spec.name]
    record = OutputRecord(runtime, golden.name, spec.name, True, "", limit=0.0, floor=0.0)
    apart = np.asarray(reference != got)
    undecided = golden.undecided.get(spec.name)
    if undecided is None:
        undecided = np.zeros(spec.shape, np.bool_)
    if undecided.shape != spec.shape or undecided.dtype != np.bool_:
        found = f"{undecided.dtype} {list(undecided.shape)}"
        reason = f"the golden's undecided elements: expected bool {list(spec.shape)}, got {found}"
        return dataclasses.replace(record, passed=False, reason=reason)
    open_, wrong = int(undecided.sum()), int(np.logical_and(apart, np.logical_not(undecided)).sum())
    reason = ""
    if wrong:
        note = f" ({open_} that float32 cannot decide left out)" if open_ else ""
        reason = f"{wrong} of {got.size} elements differ{note}"
    elif apart.any() and open_ == got.size:
        # Leaving out every element would be a comparison that cannot fail.
        reason = f"{int(apart.sum())} of {got.size} elements differ, and float32 cannot decide any of them"
    return dataclasses.replace(
        record, passed=not reason, reason=reason, max_abs=metrics.integer_gap(reference, got)
    )
