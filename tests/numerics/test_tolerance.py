"""Limits follow the floor, the dtype and the class; none of them is ever loose enough to excuse anything."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch2edge import errors
from torch2edge.numerics import tolerance
from torch2edge.numerics.tolerance import GRAINS, limits
from torch2edge.stages import Floor

MEASURED = Floor(1e-6, 3e-7, 1.0, "float64")
positive = st.floats(0, 1e30)


def test_the_floor_counts_sixteen_times() -> None:
    found = limits("float", Floor(1e-4, 1e-5, 1.0, "float64"))
    assert found.max_abs == pytest.approx(16e-4)
    assert found.rmse == pytest.approx(16e-5)
    assert found.sqnr_db is None and found.cosine is None


def test_a_small_floor_gives_way_to_steps_of_the_largest_value() -> None:
    found = limits("float", Floor(0.0, 0.0, 8.0, "float64"))
    assert found.max_abs == found.rmse == pytest.approx(16 * 8 * 2.0**-23)


def test_an_assumed_floor_counts_64_steps() -> None:
    assert limits("float", Floor(0.0, 0.0, 1.0, "assumed")).max_abs == pytest.approx(64 * 2.0**-23)


def test_steps_and_grids_are_those_of_the_dtypes() -> None:
    for dtype in (np.float16, np.float32):
        info = np.finfo(dtype)
        assert GRAINS[info.dtype.name].step == info.eps
    assert GRAINS["float64"] == GRAINS["float32"]  # no target computes in more
    one = np.array([1, 1 + GRAINS["bfloat16"].step, 1 + GRAINS["bfloat16"].step / 2], ml_dtypes.bfloat16)
    assert one[1] > one[0] == one[2]  # the next value, and nothing between
    assert GRAINS["float32"].tiny == np.finfo(np.float32).tiny
    assert GRAINS["float16"].tiny == 16 * float(np.finfo(np.float16).smallest_subnormal)


@pytest.mark.parametrize(
    ("dtype", "step"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7), ("float32", 2.0**-23)]
)
def test_the_step_is_that_of_the_output(dtype: str, step: float) -> None:
    assert limits("float", Floor(0.0, 0.0, 1.0, "float64"), dtype).max_abs == pytest.approx(
        16 * step, rel=1e-3
    )


def test_what_the_artifact_stores_counts_where_it_is_coarser() -> None:
    floor = Floor(0.0, 0.0, 1.0, "float64")
    assert limits("float", floor, "float64", stored="float32").max_abs == pytest.approx(64 * 2.0**-23)
    assert limits("float", floor, "float64") == limits("float", floor, "float64", stored="float32")
    assert limits("float", floor, "float64", stored="float16").max_abs == pytest.approx(
        64 * 2.0**-10, rel=1e-3
    )
    assert limits("float", floor, "float32", stored="float16") == limits("float", floor, "float16")
    assert limits("float", floor, "float16", stored="float32") == limits("float", floor, "float16")
    assert limits("float", floor, "float32", stored="int8") == limits("float", floor, "float32")


@given(positive, positive, positive, st.sampled_from(tuple(GRAINS)), st.sampled_from(("float64", "assumed")))
def test_float_limits_are_finite_positive_and_monotone(
    a: float, b: float, scale: float, dtype: str, source: str
) -> None:
    low, high = sorted((a, b))
    made = [Floor(v, v, scale, "float64" if source == "float64" else "assumed") for v in (low, high)]
    small, large = (limits("float", f, dtype) for f in made)
    for name in ("max_abs", "rmse"):
        one, other = getattr(small, name), getattr(large, name)
        assert 0 < one <= other < math.inf
    assert limits("float", Floor(low, low, scale, "float64"), dtype) != tolerance.Limits()


@given(positive, st.floats(1e-3, 1e6), st.sampled_from(tuple(GRAINS)))
def test_no_floor_lifts_a_limit_above_the_ceiling(floor: float, scale: float, dtype: str) -> None:
    found = limits("float", Floor(floor, floor, scale, "float64"), dtype).max_abs
    most = max(GRAINS[dtype].ceiling, 16 * GRAINS[dtype].step) * scale + GRAINS[dtype].tiny
    assert found is not None and found <= most * (1 + 1e-12)


def test_a_floor_is_believed_when_it_is_small_beside_what_goes_in_or_comes_out() -> None:
    assert tolerance.believed(MEASURED)
    assert not tolerance.believed(Floor(0.5, 0.5, 1.0, "float64"))
    cancelled = Floor(1e-5, 1e-5, 1e-12, "float64")  # x - x in another order of summation
    assert not tolerance.believed(cancelled)
    assert tolerance.believed(cancelled, inputs=1.0)
    assert limits("float", cancelled, inputs=1.0).max_abs == pytest.approx(16e-5)
    assert tolerance.believed(Floor(2e-7, 2e-7, 0.0, "float64"))


def test_the_floor_does_not_excuse_the_captured_program() -> None:
    wrong = Floor(1e-2, 1e-2, 1.0, "float64")
    loose, tight = limits("float", wrong).max_abs, limits("captured", wrong).max_abs
    assert loose is not None and tight is not None
    assert tight == pytest.approx(64 * 2.0**-23) and tight < loose / 1000


def test_noisy_classes_are_judged_by_ratio() -> None:
    quantized, bfloat16 = limits("quantized", MEASURED), limits("bfloat16", MEASURED)
    for found in (quantized, bfloat16):
        assert found.max_abs is None and found.rmse is None
        assert found.sqnr_db is not None and found.cosine is not None
    assert bfloat16.sqnr_db and quantized.sqnr_db and bfloat16.sqnr_db > quantized.sqnr_db
    assert bfloat16.cosine and quantized.cosine and bfloat16.cosine > quantized.cosine


def test_unknown_classes_and_dtypes_name_the_known_ones() -> None:
    with pytest.raises(errors.UsageError) as caught:
        limits("flaot", MEASURED)
    assert caught.value.got == "flaot"
    assert all(k in caught.value.expected for k in tolerance.KINDS)
    with pytest.raises(errors.UsageError, match="'int32'"):
        limits("float", MEASURED, "int32")
    for kind in tolerance.KINDS:
        assert limits(kind, MEASURED) != tolerance.Limits()


def test_the_docstring_holds_the_constants() -> None:
    text = tolerance.__doc__ or ""
    for number in (f"{tolerance.MULTIPLE:.0f} x the noise floor", f"{tolerance.ASSUMED_MULTIPLE:.0f} steps"):
        assert number in text
    for kind in ("quantized", "bfloat16"):
        found = limits(kind, MEASURED)
        assert f"SQNR >= {found.sqnr_db:.0f} dB, cosine >= {found.cosine}" in text
