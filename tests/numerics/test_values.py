"""Values are judged by what eager itself can be trusted with: no looser, and no tighter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numerics.goldens import F32, Values, golden_of, single, specs_of, verdict
from torch2edge.numerics.compare import floors
from torch2edge.numerics.tolerance import GRAINS
from torch2edge.stages import Golden

RNG = np.random.default_rng(0)


def test_zeros_are_right_where_eager_has_zeros_and_wrong_where_not() -> None:
    zeros, ones = np.zeros(4, F32), np.ones(4, F32)
    record = verdict(single(zeros), zeros)
    assert record.passed and record.sqnr_db == np.inf and record.cosine is None
    assert not verdict(single(zeros), np.full(4, 1e-6, F32)).passed
    assert verdict(single(ones), ones).passed  # one value everywhere, as eager has it
    assert not verdict(single(ones), zeros).passed
    for kind in ("quantized", "bfloat16"):
        assert verdict(single(zeros), zeros, kind).passed
        assert not verdict(single(zeros), ones, kind).passed


def test_flushed_subnormals_are_no_error() -> None:
    assert verdict(single([1e-40, -1e-39]), np.zeros(2, F32)).passed
    assert not verdict(single([1e-30, -1e-30]), np.zeros(2, F32)).passed


def test_what_cancels_is_noise_not_an_answer() -> None:
    """x - mean(x) of a constant: eager has 1e-8, float64 has 0, and 0 from a runtime is right."""
    wide: Values = {"y": np.zeros(8)}
    own: Values = {"y": np.linspace(-1e-8, 1e-8, 8, dtype=F32)}
    found, _ = floors(own, wide, specs_of(own))
    golden = Golden("sample", "sample", {"x": np.ones(8, F32)}, own, found)
    assert verdict(golden, np.zeros(8, F32)).passed
    assert verdict(golden, own["y"][::-1].copy()).passed
    assert not verdict(golden, own["y"] + F32(1e-5)).passed


def test_infinities_are_compared_by_sign_and_place() -> None:
    golden = single([-np.inf, np.inf, -np.inf])
    eager: Any = golden.outputs["y"]
    record = verdict(golden, eager.copy())
    assert record.passed
    assert record.max_abs is None and record.sqnr_db is None  # no number, rather than a default
    assert not verdict(golden, -eager).passed
    mixed = single([-np.inf, 2.0, np.nan])
    assert verdict(mixed, mixed.outputs["y"].copy()).passed
    assert not verdict(mixed, np.array([-np.inf, 2.1, np.nan], F32)).passed
    assert not verdict(mixed, np.array([-np.inf, np.nan, 2.0], F32)).passed


def test_nan_everywhere_proves_nothing() -> None:
    golden = single([np.nan, np.nan])
    assert "NaN everywhere" in verdict(golden, golden.outputs["y"].copy()).reason
    assert verdict(single([np.nan, 1.0]), np.array([np.nan, 1.0], F32)).passed


def test_empty_outputs_pass_and_keep_their_shape() -> None:
    golden = single(np.zeros((0, 4)))
    assert verdict(golden, np.zeros((0, 4), F32)).passed
    assert not verdict(golden, np.zeros((0, 5), F32)).passed
    assert not verdict(golden, np.zeros((0, 4))).passed


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("measured", [True, False])
def test_the_limit_follows_the_output_dtype(dtype: Any, measured: bool) -> None:
    wide = RNG.standard_normal((4, 16))
    golden = golden_of({"y": wide}, dtype, measured)
    step = GRAINS[np.dtype(dtype).name].step
    got = (wide + step * np.sign(wide)).astype(dtype)  # about one step of the dtype off
    assert verdict(golden, got).passed
    assert not verdict(golden, (wide + 200 * step).astype(dtype)).passed
    assert not verdict(golden, np.roll(got, 1, -1)).passed
    same = golden_of({"y": wide}, F32, measured)
    assert not verdict(same, got.astype(F32)).passed  # the control: the same error is too large for float32


def test_the_limit_follows_what_the_artifact_stores() -> None:
    wide = RNG.standard_normal(16)
    for dtype, stored, coarse in ((np.float64, "float32", F32), (F32, "float16", np.float16)):
        golden = golden_of({"y": wide}, dtype)
        narrow = wide.astype(coarse).astype(dtype)
        assert verdict(golden, narrow, stored=stored).passed
        assert not verdict(golden, wide.astype(np.float16).astype(dtype), stored="float32").passed


@pytest.mark.parametrize("fill", [-1e9, float(np.finfo(F32).min), 1e5])
@pytest.mark.parametrize("kind", ["float", "quantized", "bfloat16"])
def test_a_masks_fill_does_not_blind_the_comparison(fill: float, kind: str) -> None:
    wide = RNG.standard_normal((4, 8))
    wide[:, 4:] = fill
    golden = single(wide)
    right: Any = golden.outputs["y"]
    near = right.copy()
    near[:, :4] = np.nextafter(near[:, :4], F32(9))
    assert verdict(golden, near, kind).passed
    zeroed, moved, lower = right.copy(), right.copy(), right.copy()
    zeroed[:, :4] = 0
    moved[0, 3:5] = right[0, 4:2:-1]
    lower[:, 4:] /= 2
    nudged = right.copy()
    nudged[:, :4] += F32(0.2) * np.sign(right[:, 3::-1])  # far below one step of the fill
    for wrong in (zeroed, moved, lower, nudged) if kind == "float" else (zeroed, moved, lower):
        assert not verdict(golden, wrong, kind).passed
    assert "fill value" in verdict(golden, lower, kind).reason


def test_a_saturated_softmax_is_no_mask() -> None:
    golden = single([1.0, 1e-12, 1e-30])
    assert verdict(golden, np.array([1.0, 1.001e-12, 1.1e-30], F32)).passed
    assert not verdict(golden, np.array([1.0, 1e-4, 1e-30], F32)).passed


@pytest.mark.parametrize("factor", [1.1, -1.0, 0.0, 1e7, 1e-7])
@pytest.mark.parametrize("kind", ["float", "captured"])
def test_a_captured_program_cannot_hide_in_its_own_floor(factor: float, kind: str) -> None:
    """The floor is measured on the captured program: one that computes something else has a huge one."""
    own: Values = {"y": RNG.standard_normal(16).astype(F32)}
    other: Values = {"y": own["y"].astype(np.float64) * factor}
    found, _ = floors(own, other, specs_of(own))
    golden = Golden("sample", "sample", {}, own, found)
    apart = np.abs(other["y"] - own["y"]).max()
    assert found["y"].max_abs * 16 > apart  # sixteen floors would excuse it
    assert not verdict(golden, other["y"].astype(F32), kind).passed
    assert verdict(golden, own["y"].copy(), kind).passed
    near = np.nextafter(own["y"], F32(9))
    assert verdict(golden, near, "captured").passed  # judged by eager's own size, whatever the float64 says


def test_integers_leave_out_what_float32_cannot_decide() -> None:
    own: Values = {"y": np.array([1, 2, 3])}
    _, undecided = floors(own, {"y": np.array([1, 2, 4])}, specs_of(own))
    golden = Golden("sample", "sample", {}, own, {}, undecided)
    assert verdict(golden, np.array([1, 2, 3])).passed
    assert verdict(golden, np.array([1, 2, 4])).passed
    record = verdict(golden, np.array([1, 9, 4]))
    assert not record.passed and "1 of 3 elements differ (1 that float32" in record.reason
    assert not verdict(replace(golden, undecided={}), np.array([1, 2, 4])).passed


def test_undecided_everywhere_is_no_licence() -> None:
    own: Values = {"y": np.array([1, 2])}
    golden = Golden("sample", "sample", {}, own, {}, {"y": np.array([True, True])})
    assert verdict(golden, np.array([1, 2])).passed
    assert "cannot decide any" in verdict(golden, np.array([5, 6])).reason


@pytest.mark.parametrize("mask", [np.array([True]), np.array([[True], [True]]), np.array([1, 1])])
def test_undecided_of_another_shape_or_dtype_fails(mask: Any) -> None:
    own: Values = {"y": np.array([1, 2])}
    assert (
        "undecided" in verdict(Golden("sample", "sample", {}, own, {}, {"y": mask}), np.array([1, 2])).reason
    )
    assert verdict(
        Golden("sample", "sample", {}, own, {}, {"y": np.zeros(2, np.bool_)}), np.array([1, 2])
    ).passed


@settings(max_examples=100)
@given(st.integers(0, 2**31), st.integers(1, 200), st.floats(-4, 4), st.sampled_from(("float", "captured")))
def test_one_element_moved_by_twice_the_limit_is_always_caught(
    seed: int, size: int, unit: float, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    golden = single(rng.standard_normal(size) * 10**unit)
    got = golden.outputs["y"].copy()
    record = verdict(golden, got, kind)
    assert record.passed and record.limit is not None
    at = int(rng.integers(size))
    got[at] += F32(2.1 * record.limit * rng.choice([-1, 1]))
    assert not verdict(golden, got, kind).passed
