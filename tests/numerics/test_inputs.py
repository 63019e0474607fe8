"""Generated inputs fit the model, reach where they should, and never repeat themselves by accident."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from torch2edge import errors
from torch2edge.numerics import inputs
from torch2edge.numerics.dtypes import largest, numpy_dtype
from torch2edge.stages import TensorSpec

FLOATS = ("float16", "bfloat16", "float32", "float64")
Values = dict[str, Any]
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint64")
NARROWER = {"int64": "int32", "float64": "float32"}


def spec(name: str, array: Any, stored: str = "") -> TensorSpec:
    return TensorSpec(name, array.shape, array.dtype.name, stored or array.dtype.name)


def made(samples: Values, vocab: dict[str, int] | None = None, seed: int = 0) -> dict[str, Values]:
    specs = [spec(n, a) for n, a in samples.items()]
    return dict(inputs.generate(specs, samples, vocab=vocab or {}, seed=seed))


@st.composite
def samples_of(draw: Any) -> Any:
    """A sample array of any dtype, and what the artifact stores."""
    dtype = draw(st.sampled_from((*FLOATS, *INTEGERS, "bool")))
    shape = draw(array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    if dtype == "bool":
        return draw(arrays(np.bool_, shape)), "bool"
    stored = draw(st.sampled_from((dtype, NARROWER.get(dtype, dtype))))
    if dtype in INTEGERS:
        info: Any = np.iinfo(stored)
        return draw(arrays(dtype, shape, elements=st.integers(int(info.min), int(info.max)))), stored
    most = min(largest(dtype), largest(stored))
    wide = draw(arrays(np.float64, shape, elements=st.floats(-most, most)))
    return wide.astype(numpy_dtype(dtype)), stored


@settings(max_examples=200)
@given(samples_of(), st.integers(0, 2**31))
def test_every_kind_fits_the_spec(sample: tuple[Any, str], seed: int) -> None:
    array, stored = sample
    one = spec("x", array, stored)
    again = inputs.generate([one], {"x": array}, vocab={}, seed=seed)
    kinds = inputs.generate([one], {"x": array.copy()}, vocab={}, seed=seed)
    assert [k for k, _ in kinds] == list(inputs.KINDS)
    for (kind, values), (_, same) in zip(kinds, again, strict=True):
        x = values["x"]
        assert (x.shape, x.dtype.name) == (one.shape, one.dtype)
        np.testing.assert_array_equal(x, same["x"], err_msg=f"{kind} is not the same for the same seed")
        if array.dtype.kind in "iu" and array.size:
            mask = array.size > 1 and bool(np.isin(array, (0, 1)).all())
            low, high = (0, 1) if mask else (int(array.min()), int(array.max()))
            assert low <= int(x.min()) and int(x.max()) <= high
        elif array.dtype.kind not in "iub":
            assert np.isfinite(x.astype(np.float64)).all()
            assert np.isfinite(x.astype(numpy_dtype(stored)).astype(np.float64)).all()


@given(st.integers(1, 2**40), st.sampled_from(("int32", "int64")), st.integers(0, 99))
def test_ids_stay_within_the_vocabulary(size: int, dtype: str, seed: int) -> None:
    sample = np.zeros((2, 9), dtype)
    specs = [TensorSpec("ids", sample.shape, dtype, "int32")]
    for _, values in inputs.generate(specs, {"ids": sample}, vocab={"ids": size}, seed=seed):
        ids = values["ids"].astype(np.int64)
        assert ids.min() >= 0 and ids.max() < min(size, 2**31)


def test_ids_reach_both_ends_of_the_vocabulary() -> None:
    ids = made({"ids": np.full((1, 8), 7, np.int64)}, {"ids": 30522})
    assert {0, 30521} == set(ids["outliers"]["ids"].flat)
    assert len(set(ids["random"]["ids"].flat)) > 4
    assert not ids["zeros"]["ids"].any()


def test_integers_without_a_table_keep_the_range_of_the_sample() -> None:
    for values in made({"at": np.array([5, 9, 7], np.int32)}).values():
        assert values["at"].min() >= 5 and values["at"].max() <= 9


@pytest.mark.parametrize("dtype", FLOATS)
def test_outliers_lie_ten_times_outside_with_both_signs(dtype: str) -> None:
    sample = np.linspace(-2.0, 4.0, 300).astype(numpy_dtype(dtype))
    kinds = made({"x": sample})
    outliers, random = (kinds[k]["x"].astype(np.float64) for k in ("outliers", "random"))
    assert 35 < outliers.max() < 45
    assert -23 < outliers.min() < -17
    inside = (outliers >= -2) & (outliers <= 4)
    assert 0.98 <= inside.mean() < 1.0
    assert random.min() >= -2 and random.max() <= 4  # the control: only outliers lie outside


@pytest.mark.parametrize(
    ("low", "high", "sign"), [(0.0, 1.0, 1), (5.0, 6.0, 1), (-6.0, -5.0, -1), (-1.0, 0.0, -1)]
)
def test_outliers_keep_the_sign_of_a_range_with_one_sign(low: float, high: float, sign: int) -> None:
    outliers = made({"x": np.linspace(low, high, 100, dtype=np.float32)})["outliers"]["x"]
    assert (outliers * sign).min() >= 0
    assert (outliers * sign).max() > 8 * max(abs(low), abs(high))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_arrays_have_outliers_too(size: int) -> None:
    sample = np.linspace(-1.0, 1.0, size, dtype=np.float32) + np.float32(0.01)
    outliers = made({"x": sample})["outliers"]["x"]
    assert np.abs(outliers).max() > 5 * np.abs(sample).max()


@pytest.mark.parametrize("dtype", FLOATS)
def test_outliers_of_large_samples_are_clamped_not_infinite(dtype: str) -> None:
    most = largest(dtype)
    sample = (np.linspace(-1.0, 1.0, 50) * (most / 8)).astype(numpy_dtype(dtype))
    outliers = made({"x": sample})["outliers"]["x"].astype(np.float64)
    assert np.isfinite(outliers).all()
    assert np.abs(outliers).max() == pytest.approx(most / 4, rel=0.01)
    with np.errstate(over="ignore"):
        assert (
            np.isinf((np.array(most / 8 * 10)).astype(numpy_dtype(dtype)).astype(np.float64))
            or dtype == "float64"
        )


def test_outliers_stay_finite_in_what_the_artifact_stores() -> None:
    sample = np.array([-1e38, 1e38])
    narrow = TensorSpec("x", (2,), "float64", "float32")
    wide = TensorSpec("x", (2,), "float64", "float64")
    one, other = (
        dict(inputs.generate([s], {"x": sample}, vocab={}))["outliers"]["x"] for s in (narrow, wide)
    )
    assert np.abs(one).max() < 3.4e38 < np.abs(other).max()


@pytest.mark.parametrize("constant", [0.0, 1.0, -1.0])
def test_a_placeholder_sample_still_gets_a_spread(constant: float) -> None:
    kinds = made({"x": np.full((3, 4), constant, np.float32)})
    for kind in ("random", "ramp", "outliers"):
        assert np.ptp(kinds[kind]["x"]) > 1, kind


@pytest.mark.parametrize("value", [0.5, -2.0, 900.0])
def test_a_scalar_keeps_its_sign(value: float) -> None:
    kinds = made({"t": np.array(value, np.float32)})
    for kind in ("random", "ramp", "outliers"):
        assert kinds[kind]["t"].shape == ()
        assert np.sign(kinds[kind]["t"]) == np.sign(value), kind


def test_infinities_and_nan_in_the_sample_do_not_spread() -> None:
    sample = np.array([np.nan, -np.inf, 1.0, 2.0, np.inf], np.float32)
    for kind, values in made({"x": sample}).items():
        assert np.isfinite(values["x"]).all(), kind
    assert made({"x": sample})["random"]["x"].max() <= 2


def test_masks_keep_the_sample_and_never_hide_everything() -> None:
    mask = np.array([[1, 1, 0, 0]], np.int64)
    kinds = made({"mask": mask, "open": np.ones((2, 3), np.bool_)})
    for kind in ("ramp", "outliers", "zeros"):
        np.testing.assert_array_equal(kinds[kind]["mask"], mask)
    for values in kinds.values():
        assert values["mask"][..., 0].all() and values["open"][..., 0].all()
        assert values["open"].dtype == np.bool_


ARGUMENTS = {
    "float32": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "a scalar": np.array(0.5, np.float32),
    "constant": np.ones((3, 4), np.float32),
    "int64": np.arange(12).reshape(3, 4),
    "a mask": np.arange(12).reshape(3, 4) % 2,
}


@pytest.mark.parametrize("sample", ARGUMENTS.values(), ids=ARGUMENTS.keys())
@pytest.mark.parametrize("count", [2, 5])
def test_arguments_are_distinct(sample: Any, count: int) -> None:
    kinds = made({f"x{i}": sample for i in range(count)})
    mask = bool(np.isin(sample, (0, 1)).all()) and sample.dtype.kind in "iu"
    for kind in ("random",) if mask else ("random", "ramp", "outliers"):
        seen = {a.tobytes() for a in kinds[kind].values()}
        assert len(seen) == count, kind
    assert len({a.tobytes() for a in kinds["zeros"].values()}) == 1  # the control: equal arrays do look equal


@pytest.mark.parametrize("seed", range(20))
def test_arguments_are_distinct_even_where_chance_would_repeat_them(seed: int) -> None:
    ids = {n: np.zeros(1, np.int64) for n in ("a", "b", "c")}
    for kind, values in made(ids, dict.fromkeys(ids, 8), seed).items():
        if kind in ("random", "ramp"):
            assert len({int(v[0]) for v in values.values()}) == 3, kind


def test_two_arguments_that_can_hold_one_value_only_are_accepted_as_equal() -> None:
    kinds = made({"a": np.full(1, 3, np.int64), "b": np.full(1, 3, np.int64)})
    assert all(v["a"] == v["b"] == 3 for v in kinds.values())


def test_another_seed_is_another_draw_and_kinds_differ() -> None:
    sample = {"x": np.linspace(-1, 1, 20, dtype=np.float32)}
    one, other = made(sample, seed=1), made(sample, seed=2)
    assert not np.array_equal(one["random"]["x"], other["random"]["x"])
    assert len({values["x"].tobytes() for values in one.values()}) == len(inputs.KINDS)


def test_the_ramp_is_smooth() -> None:
    ramp = made({"x": np.linspace(-1, 1, 1000, dtype=np.float32)})["ramp"]["x"]
    noise = made({"x": np.linspace(-1, 1, 1000, dtype=np.float32)})["random"]["x"]
    assert np.abs(np.diff(ramp)).max() < 0.01 < np.abs(np.diff(noise)).max()


def test_a_sample_that_does_not_fit_is_refused_with_all_its_faults() -> None:
    specs = [TensorSpec(n, (2,), "float32", "float32") for n in ("a", "b", "c")]
    good = np.ones(2, np.float32)
    with pytest.raises(errors.InputError) as caught:
        inputs.generate(specs, {"a": np.ones((2, 1), np.float32), "c": good}, vocab={})
    assert len(caught.value.details) == 2
    assert "a: shape [2, 1]" in str(caught.value) and "b: missing" in str(caught.value)
    assert inputs.generate(specs, {"a": good, "b": good, "c": good}, vocab={})
