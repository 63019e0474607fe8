"""Every way an answer can be wrong is caught, and next to each stands an honest answer that passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch2edge import errors
from torch2edge.numerics.compare import compare, floors
from torch2edge.stages import Arrays, Floor, Golden, OutputRecord, TensorSpec

F32 = np.float32
RNG = np.random.default_rng(0)
WIDE: dict[str, Any] = {
    "logits": RNG.standard_normal((3, 10)),
    "score": RNG.standard_normal(3),
    "twin": RNG.standard_normal(3),
    "ids": np.arange(6).reshape(2, 3),
    "flags": np.array([True, False, True]),
}


def specs_of(arrays: Arrays) -> list[TensorSpec]:
    return [TensorSpec(n, a.shape, a.dtype.name, a.dtype.name) for n, a in arrays.items()]


def golden_of(wide: dict[str, Any], dtype: Any = F32, measured: bool = True, **inputs: Any) -> Golden:
    """What eager answers: float64 rounded to `dtype`, with floors and undecided elements measured as in a export."""
    own = {n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in wide.items()}
    found, undecided = floors(own, wide if measured else None, specs_of(own))
    return Golden("sample", "sample", inputs, own, found, undecided)


GOLDEN = golden_of(WIDE)
SPECS = specs_of(GOLDEN.outputs)


def honest(golden: Golden = GOLDEN) -> Arrays:
    """An answer one rounding away from eager's, as another order of summation gives it."""
    answers = {}
    for name, array in golden.outputs.items():
        answers[name] = (
            array.copy() if array.dtype.kind in "iub" else np.nextafter(array, array.dtype.type(9))
        )
    return answers


def failures(got: Arrays, golden: Golden = GOLDEN, kind: str = "float") -> dict[str, str]:
    records = compare("it", golden, got, specs_of(golden.outputs), kind=kind)
    assert all(bool(r.reason) != r.passed for r in records)
    return {r.output: r.reason for r in records if not r.passed}


def test_an_honest_answer_passes_with_all_its_numbers() -> None:
    records = {r.output: r for r in compare("it", GOLDEN, honest(), SPECS)}
    assert list(records) == list(WIDE)
    assert all(r.passed and (r.runtime, r.case) == ("it", "sample") for r in records.values())
    logits = records["logits"]
    for name in ("max_abs", "max_rel", "mean_abs", "rmse", "sqnr_db", "cosine", "top1", "limit", "floor"):
        assert getattr(logits, name) is not None, name
    assert logits.max_abs is not None and logits.limit is not None and 0 < logits.max_abs < logits.limit
    assert logits.sqnr_db is not None and logits.sqnr_db > 120
    assert records["ids"].max_abs == 0.0 and records["ids"].cosine is None


def put(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays], Arrays]:
    return lambda got: got | {name: change(got[name])}


def one(place: Any, value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array = array.copy()
        array[place] = value
        return array

    return change


def swapped(got: Arrays) -> Arrays:
    return got | {"score": got["twin"], "twin": got["score"]}


def disordered(got: Arrays) -> Arrays:
    return {n: got[n] for n in ("score", "logits", "twin", "ids", "flags")}


WRONG: dict[str, tuple[Callable[[Arrays], Arrays], dict[str, str]]] = {
    "perturbed value": (put("logits", lambda a: a + F32(1e-4)), {"logits": "max_abs"}),
    "one perturbed value": (put("logits", one((1, 2), F32(0.1))), {"logits": "max_abs"}),
    "weight error of 1 %": (put("logits", lambda a: a * F32(1.01)), {"logits": "max_abs"}),
    "swapped outputs": (swapped, {"score": "max_abs", "twin": "max_abs"}),
    "renamed": (
        lambda got: {("point" if n == "score" else n): a for n, a in got.items()},
        {"score": "missing", "point": "unexpected"},
    ),
    "disordered": (disordered, dict.fromkeys(WIDE, "out of order")),
    "dropped output": (lambda got: {n: a for n, a in got.items() if n != "twin"}, {"twin": "missing"}),
    "everything dropped": (lambda got: {}, dict.fromkeys(WIDE, "missing")),
    "extra output": (lambda got: got | {"more": np.zeros(1)}, {"more": "unexpected"}),
    "broadcastable shape": (
        put("score", lambda a: a.reshape(3, 1)),
        {"score": "shape: expected [3], got [3, 1]"},
    ),
    "added axis": (put("score", lambda a: a[None]), {"score": "shape"}),
    "transposed": (put("logits", lambda a: a.T), {"logits": "shape: expected [3, 10], got [10, 3]"}),
    "shape to broadcast": (put("score", lambda a: a[:1]), {"score": "shape"}),
    "scalar": (put("score", lambda a: a[0]), {"score": "shape: expected [3], got []"}),
    "wider dtype": (
        put("score", lambda a: a.astype(np.float64)),
        {"score": "dtype: expected float32, got float64"},
    ),
    "narrower dtype": (put("score", lambda a: a.astype(np.float16)), {"score": "dtype"}),
    "narrower integers": (
        put("ids", lambda a: a.astype(np.int32)),
        {"ids": "dtype: expected int64, got int32"},
    ),
    "bools as integers": (put("flags", lambda a: a.astype(np.int8)), {"flags": "dtype"}),
    "a list": (put("score", lambda a: a.tolist()), {"score": "not a numpy array: list"}),
    "NaN": (
        put("logits", one((0, 0), np.nan)),
        {"logits": "NaN in other places than eager PyTorch: 1 of 30"},
    ),
    "all NaN": (put("logits", lambda a: a * F32(np.nan)), {"logits": "NaN in other places"}),
    "inf": (put("logits", one((0, 0), np.inf)), {"logits": "+inf in other places"}),
    "-inf": (put("logits", one((0, 0), -np.inf)), {"logits": "-inf in other places"}),
    "all zeros": (put("logits", np.zeros_like), {"logits": "all zeros"}),
    "constant": (put("logits", lambda a: np.full_like(a, a.mean())), {"logits": "one value everywhere"}),
    "wrong id": (put("ids", one((0, 0), 7)), {"ids": "1 of 6 elements differ"}),
    "wrong flag": (put("flags", np.logical_not), {"flags": "3 of 3 elements differ"}),
}


@pytest.mark.parametrize(("spoil", "wanted"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_answer_fails_where_it_is_wrong_and_nowhere_else(
    spoil: Callable[[Arrays], Arrays], wanted: dict[str, str]
) -> None:
    assert failures(honest()) == {}
    found = failures(spoil(honest()))
    assert set(found) == set(wanted)
    for name, text in wanted.items():
        assert text in found[name]


NOISY = [n for n in WRONG if n not in ("perturbed value", "weight error of 1 %")]


@pytest.mark.parametrize("kind", ["quantized", "bfloat16", "captured"])
@pytest.mark.parametrize("name", NOISY)
def test_looser_classes_catch_everything_but_small_noise(kind: str, name: str) -> None:
    spoil, wanted = WRONG[name]
    if name == "one perturbed value":  # a single element is noise to a ratio: spoil a row
        spoil, wanted = put("logits", lambda a: a * np.array([[1], [-1], [1]], F32)), {"logits": ""}
    assert failures(honest(), kind=kind) == {}
    assert set(failures(spoil(honest()), kind=kind)) == set(wanted)


@pytest.mark.parametrize(("kind", "bits"), [("quantized", 6), ("bfloat16", 8)])
def test_noisy_classes_take_the_noise_they_are_for(kind: str, bits: int) -> None:
    noisy = {n: a if a.dtype.kind != "f" else a * (1 + F32(2.0**-bits)) for n, a in GOLDEN.outputs.items()}
    assert failures(noisy, kind=kind) == {}
    assert set(failures(noisy)) == {"logits", "score", "twin"}
    worse = {n: a if a.dtype.kind != "f" else a[..., ::-1].copy() for n, a in GOLDEN.outputs.items()}
    assert set(failures(worse, kind=kind)) == {"logits", "score", "twin"}


def test_one_record_for_each_output_wanted_or_not() -> None:
    records = compare("it", GOLDEN, {"more": np.zeros(1), "ids": WIDE["ids"]}, SPECS)
    assert [r.output for r in records] == [*WIDE, "more"]
    assert [r.output for r in records if r.passed] == ["ids"]


def test_a_golden_that_does_not_fit_fails_instead_of_passing() -> None:
    assert failures(honest()) == {}
    less = replace(GOLDEN, outputs={n: a for n, a in GOLDEN.outputs.items() if n != "twin"})
    found = {r.output: r for r in compare("it", less, honest(), SPECS)}
    assert not found["twin"].passed and "missing from the golden" in found["twin"].reason
    assert all(r.passed for n, r in found.items() if n != "twin")
    for array, text in (
        (GOLDEN.outputs["score"].reshape(3, 1), "golden's shape"),
        (WIDE["score"], "golden's dtype"),
    ):
        other = replace(GOLDEN, outputs=GOLDEN.outputs | {"score": array})
        reasons = [r.reason for r in compare("it", other, honest(), SPECS) if r.output == "score"]
        assert len(reasons) == 1 and text in reasons[0]


def test_a_missing_floor_fails() -> None:
    bare = replace(GOLDEN, floors={n: f for n, f in GOLDEN.floors.items() if n != "score"})
    assert failures(honest(), bare) == {"score": "the golden has no noise floor for this output"}


def test_an_unknown_class_is_refused_even_without_float_outputs() -> None:
    for golden in (GOLDEN, golden_of({"ids": WIDE["ids"]})):
        with pytest.raises(errors.UsageError, match="flaot") as caught:
            compare("it", golden, dict(golden.outputs), specs_of(golden.outputs), kind="flaot")
        assert "quantized" in caught.value.expected
        assert compare("it", golden, dict(golden.outputs), specs_of(golden.outputs), kind="quantized")


def single(values: Any, dtype: Any = F32, **inputs: Any) -> Golden:
    return golden_of({"y": np.asarray(values, np.float64)}, dtype, **inputs)


def verdict(golden: Golden, got: Any, kind: str = "float", stored: str = "") -> OutputRecord:
    (spec,) = specs_of(golden.outputs)
    spec = replace(spec, stored=stored or spec.stored)
    (record,) = compare("it", golden, {"y": got}, [spec], kind=kind)
    return record


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
    wide = {"y": np.zeros(8)}
    own = {"y": np.linspace(-1e-8, 1e-8, 8, dtype=F32)}
    found, _ = floors(own, wide, specs_of(own))
    golden = Golden("sample", "sample", {"x": np.ones(8, F32)}, own, found)
    assert verdict(golden, np.zeros(8, F32)).passed
    assert verdict(golden, own["y"][::-1].copy()).passed
    assert not verdict(golden, own["y"] + F32(1e-5)).passed


def test_infinities_are_compared_by_sign_and_place() -> None:
    golden = single([-np.inf, np.inf, -np.inf])
    record = verdict(golden, golden.outputs["y"].copy())
    assert (
        record.passed and record.max_abs is None and record.sqnr_db is None
    )  # no number, rather than a default
    assert not verdict(golden, -golden.outputs["y"]).passed
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
    step = float(ml_dtypes.finfo(dtype).eps)
    got = (wide + step * np.sign(wide)).astype(dtype)  # about one step of the dtype off
    assert verdict(golden, got).passed
    assert not verdict(golden, (wide + 200 * step).astype(dtype)).passed
    assert not verdict(golden, np.roll(got, 1, -1)).passed
    same = golden_of({"y": wide}, F32, measured)
    assert not verdict(same, got.astype(F32)).passed  # the control: the same error is too large for float32


def test_the_limit_follows_what_the_artifact_stores() -> None:
    wide = RNG.standard_normal(16)
    golden = golden_of({"y": wide}, np.float64)
    narrow = wide.astype(F32).astype(np.float64)
    assert verdict(golden, narrow, stored="float32").passed
    assert not verdict(golden, narrow, stored="float64").passed  # precision dropped in silence


@pytest.mark.parametrize("fill", [-1e9, float(np.finfo(F32).min), 1e5])
@pytest.mark.parametrize("kind", ["float", "quantized", "bfloat16"])
def test_a_masks_fill_does_not_blind_the_comparison(fill: float, kind: str) -> None:
    wide = RNG.standard_normal((4, 8))
    wide[:, 4:] = fill
    golden = single(wide)
    right = golden.outputs["y"]
    near = right.copy()
    near[:, :4] = np.nextafter(near[:, :4], F32(9))
    assert verdict(golden, near, kind).passed
    zeroed, moved, lower = right.copy(), right.copy(), right.copy()
    zeroed[:, :4] = 0
    moved[0, 3:5] = right[0, 4:2:-1]
    lower[:, 4:] /= 2
    for wrong in (zeroed, moved, lower):
        assert not verdict(golden, wrong, kind).passed
    assert "fill value" in verdict(golden, lower, kind).reason


def test_a_saturated_softmax_is_no_mask() -> None:
    golden = single([1.0, 1e-12, 1e-30])
    assert verdict(golden, np.array([1.0, 1.001e-12, 1.1e-30], F32)).passed
    assert not verdict(golden, np.array([1.0, 1e-4, 1e-30], F32)).passed


def test_a_captured_program_cannot_hide_in_its_own_floor() -> None:
    own = {"y": RNG.standard_normal(16).astype(F32)}
    other = {"y": own["y"].astype(np.float64) * 1.1}  # what a wrong capture computes, in float64
    found, _ = floors(own, other, specs_of(own))
    golden = Golden("sample", "sample", {}, own, found)
    assert found["y"].max_abs * 16 > 1.5  # the control: sixteen such floors would excuse anything
    for kind in ("float", "captured"):
        assert not verdict(golden, other["y"].astype(F32), kind).passed
        assert verdict(golden, own["y"].copy(), kind).passed


def test_integers_leave_out_what_float32_cannot_decide() -> None:
    own = {"y": np.array([1, 2, 3])}
    _, undecided = floors(own, {"y": np.array([1, 2, 4])}, specs_of(own))
    golden = Golden("sample", "sample", {}, own, {}, undecided)
    assert verdict(golden, np.array([1, 2, 3])).passed
    assert verdict(golden, np.array([1, 2, 4])).passed
    record = verdict(golden, np.array([1, 9, 4]))
    assert not record.passed and "1 of 3 elements differ (1 that float32" in record.reason
    assert not verdict(replace(golden, undecided={}), np.array([1, 2, 4])).passed


def test_undecided_everywhere_is_no_licence() -> None:
    own = {"y": np.array([1, 2])}
    golden = Golden("sample", "sample", {}, own, {}, {"y": np.array([True, True])})
    assert verdict(golden, np.array([1, 2])).passed
    assert "cannot decide any" in verdict(golden, np.array([5, 6])).reason


@pytest.mark.parametrize("mask", [np.array([True]), np.array([[True], [True]]), np.array([1, 1])])
def test_undecided_of_another_shape_or_dtype_fails(mask: Any) -> None:
    own = {"y": np.array([1, 2])}
    assert (
        "undecided" in verdict(Golden("sample", "sample", {}, own, {}, {"y": mask}), np.array([1, 2])).reason
    )
    assert verdict(
        Golden("sample", "sample", {}, own, {}, {"y": np.zeros(2, np.bool_)}), np.array([1, 2])
    ).passed


def test_floors_are_measured_against_float64_and_scaled_by_it() -> None:
    own, wide = {"y": np.array([1.0, 100.0], F32)}, {"y": np.array([1.5, 102.0])}
    found, undecided = floors(own, wide, specs_of(own))
    assert found["y"].max_abs == 2.0 and found["y"].scale == 102.0 and found["y"].source == "float64"
    assert found["y"].rms == pytest.approx(np.sqrt((0.25 + 4) / 2))
    assert undecided == {}
    assumed, _ = floors(own, None, specs_of(own))
    assert assumed["y"] == Floor(0.0, 0.0, 100.0, "assumed")


def test_floors_refuse_to_broadcast_and_list_all_mismatches() -> None:
    specs = [TensorSpec(n, (3,), "float32", "float32") for n in ("a", "b", "c", "d")]
    own = {n: np.ones(3, F32) for n in "abcd"}
    wide: Arrays = {"a": np.ones((3, 1)), "b": np.ones(1), "c": np.ones(3)}
    with pytest.raises(errors.CaptureError) as caught:
        floors(own, wide, specs)
    assert [d.partition(":")[0] for d in caught.value.details] == ["a", "b", "d"]
    floors(own, {n: np.ones(3) for n in "abcd"}, specs)
    with pytest.raises(errors.CaptureError, match="same outputs"):
        floors(own | {"a": np.ones((1, 3), F32)}, None, specs)


def test_floors_of_integers_list_what_float32_cannot_decide() -> None:
    own = {"i": np.array([1, 2]), "b": np.array(True)}
    found, undecided = floors(own, {"i": np.array([1, 3]), "b": np.array(True)}, specs_of(own))
    assert found == {}
    assert undecided["i"].tolist() == [False, True]
    assert undecided["b"].shape == () and undecided["b"].dtype == np.bool_
    assert floors(own, None, specs_of(own)) == ({}, {})


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
