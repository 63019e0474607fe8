"""The measures obey the laws that make them measures, for any values that float32 and float64 can hold."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from torch2edge.numerics import metrics

SYMMETRIC = (metrics.max_abs, metrics.mean_abs, metrics.rmse)
ALL = (*SYMMETRIC, metrics.max_rel, metrics.sqnr_db, metrics.cosine, metrics.top1)
# Values whose squares stay normal floats, for laws that hold up to rounding.
usual = st.floats(-1e3, 1e3, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3)
anything = st.floats(allow_nan=False, allow_infinity=False, width=64)


@st.composite
def pairs(draw: Any, elements: Any = usual, dtype: type = np.float32) -> tuple[Any, Any]:
    """Two arrays of one shape, empty and zero-dimensional ones included."""
    shape = draw(array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    make = arrays(dtype, shape, elements=elements)
    return draw(make), draw(make)


@given(pairs())
def test_errors_are_ordered(pair: tuple[Any, Any]) -> None:
    largest, root, mean = (f(*pair) for f in (metrics.max_abs, metrics.rmse, metrics.mean_abs))
    assert largest * (1 + 1e-12) >= root >= mean * (1 - 1e-12) >= 0


@given(pairs(anything, np.float64))
def test_errors_are_ordered_and_silent_to_the_ends_of_float64(pair: tuple[Any, Any]) -> None:
    largest, root, mean = (f(*pair) for f in (metrics.max_abs, metrics.rmse, metrics.mean_abs))
    assert not any(math.isnan(v) for v in (largest, root, mean))
    assert largest * (1 + 1e-12) >= root >= mean * (1 - 1e-12) - 5e-324 >= -5e-324
    for metric in ALL:
        value = metric(*pair)
        assert value is None or not math.isnan(value)


@given(pairs(anything, np.float64))
def test_errors_are_symmetric(pair: tuple[Any, Any]) -> None:
    a, b = pair
    for metric in SYMMETRIC:
        assert metric(a, b) == metric(b, a)
    assert metrics.cosine(a, b) == metrics.cosine(b, a)


@given(pairs(anything, np.float64))
def test_equal_arrays_have_no_error(pair: tuple[Any, Any]) -> None:
    a, _ = pair
    assert [f(a, a.copy()) for f in SYMMETRIC] == [0.0, 0.0, 0.0]
    assert metrics.sqnr_db(a, a.copy()) == math.inf
    assert metrics.cosine(a, a.copy()) in (None, pytest.approx(1.0, abs=1e-12))
    assert metrics.top1(a, a.copy()) in (None, 1.0)


@given(pairs(anything, np.float64))
def test_what_is_not_equal_has_an_error(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assume(not np.array_equal(a, b))
    assert metrics.max_abs(a, b) > 0
    assert metrics.sqnr_db(a, b) < math.inf


@given(pairs(), st.integers(-40, 40))
def test_sqnr_and_cosine_do_not_see_the_unit(pair: tuple[Any, Any], power: int) -> None:
    a, b = (x.astype(np.float64) for x in pair)
    for metric in (metrics.sqnr_db, metrics.cosine, metrics.max_rel):
        one, other = metric(a, b), metric(a * 2.0**power, b * 2.0**power)
        assert other == one or other == pytest.approx(one, rel=1e-9, abs=1e-9)
    assert metrics.max_abs(a * 2.0**power, b * 2.0**power) == metrics.max_abs(a, b) * 2.0**power


@given(pairs(), st.floats(0.01, 100))
def test_cosine_does_not_see_a_factor_but_sqnr_does(pair: tuple[Any, Any], factor: float) -> None:
    a = pair[0].astype(np.float64)
    assume(a.any() and abs(factor - 1) > 1e-3)
    assert metrics.cosine(a, a * factor) == pytest.approx(1.0, abs=1e-12)
    assert metrics.cosine(a, -a * factor) == pytest.approx(-1.0, abs=1e-12)
    assert metrics.sqnr_db(a, a * factor) == pytest.approx(-20 * math.log10(abs(factor - 1)), abs=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(1e-5, 0.1))
def test_sqnr_of_added_noise_is_the_noise(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    x, e = rng.standard_normal((2, 500))
    e *= share * math.sqrt(float((x * x).sum() / (e * e).sum()))  # noise of exactly this share of the signal
    wanted = -20 * math.log10(share)
    assert metrics.sqnr_db(x, x + e) == pytest.approx(wanted, abs=1e-6)
    cosine = metrics.cosine(x, x + e)
    assert cosine is not None and 1 - share**2 <= cosine <= 1  # the angle is at most asin(share)
    assert metrics.rmse(x, x + e) == pytest.approx(math.sqrt(float((e * e).mean())), rel=1e-9)


@settings(max_examples=50)
@given(arrays(np.float32, (4, 8), elements=usual), st.floats(1e-3, 1.0))
def test_quantization_stays_within_half_a_step(x: Any, step: float) -> None:
    grid = np.round(x.astype(np.float64) / step) * step
    assert metrics.max_abs(x.astype(np.float64), grid) <= step / 2 * (1 + 1e-9) + 1e-9


def test_zeros_and_empty_arrays_are_defined() -> None:
    zero, one, empty = np.zeros(3), np.ones(3), np.zeros((0, 3))
    assert metrics.sqnr_db(zero, zero) == metrics.sqnr_db(empty, empty) == math.inf
    assert metrics.sqnr_db(zero, one) == -math.inf
    assert metrics.sqnr_db(one, zero) == 0.0
    assert metrics.cosine(zero, one) is metrics.cosine(one, zero) is metrics.cosine(empty, empty) is None
    assert metrics.max_rel(zero, one) is metrics.max_rel(empty, empty) is None
    assert metrics.max_rel(one, zero) == 1.0
    assert [f(empty, empty) for f in SYMMETRIC] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("metric", ALL)
def test_nothing_broadcasts(metric: Any) -> None:
    with pytest.raises(ValueError, match=r"shapes differ: \(3, 1\) and \(3,\)"):
        metric(np.ones((3, 1)), np.ones(3))
    metric(np.ones((3, 1)), np.ones((3, 1)))


def test_places_that_are_not_finite_are_left_out() -> None:
    a = np.array([1.0, np.nan, np.inf, 2.0], np.float32)
    b = np.array([1.5, np.nan, np.inf, 2.0], np.float32)
    assert metrics.max_abs(a, b) == 0.5
    assert metrics.mean_abs(a, b) == 0.25
    assert metrics.max_rel(a, b) == 0.5


def test_bfloat16_is_measured_in_float64() -> None:
    a = np.array([1.0, 256.0], ml_dtypes.bfloat16)
    b = np.array([1.0078125, 258.0], ml_dtypes.bfloat16)
    assert metrics.max_abs(a, b) == 2.0
    assert metrics.max_rel(a, b) == 2.0**-7


def test_top1_counts_rows() -> None:
    a = np.array([[1.0, 2.0, 3.0], [9.0, 2.0, 3.0], [0.0, 5.0, 1.0], [7.0, 1.0, 2.0]])
    b = a.copy()
    b[0] = [5.0, 2.0, 3.0]
    assert metrics.top1(a, a * 10) == 1.0
    assert metrics.top1(a, b) == 0.75
    assert metrics.top1(a, -a) == 0.0
    assert metrics.top1(np.ones((3, 1)), np.ones((3, 1))) is None
    assert metrics.top1(np.array(1.0), np.array(1.0)) is None


def test_top1_takes_any_of_a_tie_but_no_other() -> None:
    tie = np.array([[1.0, 3.0, 3.0]])
    assert metrics.top1(tie, np.array([[1.0, 2.9, 3.0]])) == 1.0
    assert metrics.top1(tie, np.array([[3.1, 2.9, 3.0]])) == 0.0


@given(pairs(st.integers(-(2**63), 2**63 - 1), np.int64))
def test_integer_gap_is_exact(pair: tuple[Any, Any]) -> None:
    a, b = pair
    gaps = [abs(int(x) - int(y)) for x, y in zip(a.flat, b.flat, strict=True)]
    assert metrics.integer_gap(a, b) == float(max(gaps, default=0))


def test_integer_gap_of_other_kinds() -> None:
    assert metrics.integer_gap(np.array([True]), np.array([False])) == 1.0
    assert metrics.integer_gap(np.array([True]), np.array([True])) == 0.0
    assert metrics.integer_gap(np.array(255, np.uint8), np.array(0, np.uint8)) == 255.0
    with pytest.raises(ValueError, match="int8"):
        metrics.integer_gap(np.array([1], np.int8), np.array([1], np.int16))
