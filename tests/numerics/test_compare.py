"""Every way an answer can be wrong is caught, and next to each stands an honest answer that passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.numerics.goldens import F32, Values, golden_of, specs_of
from torch2edge import errors
from torch2edge.numerics.compare import compare, floors
from torch2edge.stages import Floor, Golden, TensorSpec

RNG = np.random.default_rng(0)
WIDE: dict[str, Any] = {
    "logits": RNG.standard_normal((3, 10)),
    "score": RNG.standard_normal(3),
    "twin": RNG.standard_normal(3),
    "ids": np.arange(6).reshape(2, 3),
    "flags": np.array([True, False, True]),
}


GOLDEN = golden_of(WIDE)
SPECS = specs_of(GOLDEN.outputs)


def honest(golden: Golden = GOLDEN) -> Values:
    """An answer one rounding away from eager's, as another order of summation gives it."""
    answers = {}
    for name, array in golden.outputs.items():
        answers[name] = (
            array.copy() if array.dtype.kind in "iub" else np.nextafter(array, array.dtype.type(9))
        )
    return answers


def failures(got: Values, golden: Golden = GOLDEN, kind: str = "float") -> dict[str, str]:
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


def put(name: str, change: Callable[[Any], Any]) -> Callable[[Values], Values]:
    return lambda got: got | {name: change(got[name])}


def one(place: Any, value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array = array.copy()
        array[place] = value
        return array

    return change


def swapped(got: Values) -> Values:
    return got | {"score": got["twin"], "twin": got["score"]}


def disordered(got: Values) -> Values:
    return {n: got[n] for n in ("score", "logits", "twin", "ids", "flags")}


WRONG: dict[str, tuple[Callable[[Values], Values], dict[str, str]]] = {
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
    spoil: Callable[[Values], Values], wanted: dict[str, str]
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
    outputs: Values = dict(GOLDEN.outputs)
    noisy = {n: a if a.dtype.kind != "f" else a * (1 + F32(2.0**-bits)) for n, a in outputs.items()}
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


def test_floors_are_measured_against_float64_and_scaled_by_it() -> None:
    own: Values = {"y": np.array([1.0, 100.0], F32)}
    wide: Values = {"y": np.array([1.5, 102.0])}
    found, undecided = floors(own, wide, specs_of(own))
    assert found["y"].max_abs == 2.0 and found["y"].scale == 102.0 and found["y"].source == "float64"
    assert found["y"].rms == pytest.approx(np.sqrt((0.25 + 4) / 2))
    assert undecided == {}
    assumed, _ = floors(own, None, specs_of(own))
    assert assumed["y"] == Floor(0.0, 0.0, 100.0, "assumed")


def test_floors_refuse_to_broadcast_and_list_all_mismatches() -> None:
    specs = [TensorSpec(n, (3,), "float32", "float32") for n in ("a", "b", "c", "d")]
    own: Values = {n: np.ones(3, F32) for n in "abcd"}
    wide: Values = {"a": np.ones((3, 1)), "b": np.ones(1), "c": np.ones(3)}
    with pytest.raises(errors.CaptureError) as caught:
        floors(own, wide, specs)
    assert [d.partition(":")[0] for d in caught.value.details] == ["a", "b", "d"]
    floors(own, {n: np.ones(3) for n in "abcd"}, specs)
    with pytest.raises(errors.CaptureError, match="same outputs"):
        floors(own | {"a": np.ones((1, 3), F32)}, None, specs)


def test_floors_of_integers_list_what_float32_cannot_decide() -> None:
    own: Values = {"i": np.array([1, 2]), "b": np.array(True)}
    found, undecided = floors(own, {"i": np.array([1, 3]), "b": np.array(True)}, specs_of(own))
    assert found == {}
    assert undecided["i"].tolist() == [False, True]
    assert undecided["b"].shape == () and undecided["b"].dtype == np.bool_
    assert floors(own, None, specs_of(own)) == ({}, {})
