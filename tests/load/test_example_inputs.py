"""--input: shapes, files, and every way to get it wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch2edge.errors import InputError
from torch2edge.example_inputs import DTYPES, MOST, parse


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_by_shape(dtype: str) -> None:
    tensor = parse([f"x=2x3:{dtype}"])["x"]
    assert (tuple(tensor.shape), str(tensor.dtype)) == ((2, 3), f"torch.{dtype}")
    assert len(set(tensor.flatten().tolist())) > 1  # distinct values, or a dropped input goes unseen


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_any_shape_is_read_as_written(shape: list[int]) -> None:
    assert list(parse([f"x={'x'.join(map(str, shape))}"])["x"].shape) == shape


def test_names_differ_in_values_and_repeat_between_runs() -> None:
    first, second = parse(["a=50", "b=50"]), parse(["b=50", "a=50"])
    assert torch.equal(first["a"], second["a"]) and torch.equal(first["b"], second["b"])
    assert not torch.equal(first["a"], first["b"])


def test_scalar_default_dtype_and_spaces() -> None:
    made = parse(["step=scalar:int64", " x = 2x2 "])
    assert made["step"].shape == () and made["x"].dtype == torch.float32


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
def test_a_file_is_taken_as_it_is(tmp_path: Path, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "x.npy", array)
    tensor = parse([f"x={tmp_path / 'x.npy'}"])["x"]
    assert str(tensor.dtype) == f"torch.{dtype}"
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    "array", [np.arange(6.0).astype(">f4"), np.asfortranarray(np.arange(6.0).reshape(2, 3))]
)
def test_other_byte_and_memory_orders(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "x.npy", array)
    tensor = parse([f"x={tmp_path / 'x.npy'}"])["x"]
    assert tensor.is_contiguous()
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_an_npz_with_one_array_is_as_good_as_an_npy(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", any_name=np.ones(3))
    assert parse([f"x={tmp_path / 'one.npz'}"])["x"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected name=SHAPE:DTYPE"),
        ("x", "expected name=SHAPE:DTYPE"),
        ("x=", "expected name=SHAPE:DTYPE"),
        ("=2x3", "expected name=SHAPE:DTYPE"),
        ("x=2x", "is no shape"),
        ("x=axb", "is no shape"),
        ("x=-1x3", "is no shape"),
        ("x=2,3", "is no shape"),
        ("x=2x3:", "is no shape"),
        ("x=2x3:float32:cpu", "is no shape"),
        ("x=\u0662x3", "is no shape"),  # a digit, but none that the shape's grammar has
        ("x=2x3:half", "'half' is no dtype"),
        ("x=2x3:float31", "did you mean float32?"),
        ("x=2x3:complex64", "'complex64' is no dtype"),
        ("x=2x3:__class__", "is no dtype"),
        ("x=0x3", "has no element"),
        ("x=0", "has no element"),
        (f"x={MOST + 1}:int8", "elements, more than"),
        ("x=99999999999999999999x9", "elements, more than"),
        ("x=nothing.npy", "nothing.npy does not exist"),
        ("x=nothing.npz", "nothing.npz does not exist"),
        ("x=folder.npy", "it is a folder"),
        ("x=empty.npy", "it is empty"),
        ("x=garbage.npy", "it is no .npy file"),
        ("x=cut.npy", "it is damaged"),
        ("x=cut.npz", "it is damaged"),
        ("x=objects.npy", "pickled objects, which are never read"),
        ("x=two.npz", "holds 2 arrays (a, b)"),
        ("x=zero.npy", "shape 0x3 has no element"),
        ("x=text.npy", "none of the dtypes"),
        ("x=complex.npy", "none of the dtypes"),
        ("x=unsigned.npy", "none of the dtypes"),
    ],
)
def test_what_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.npy").mkdir()
    Path("empty.npy").write_bytes(b"")
    Path("garbage.npy").write_bytes(b"hello, I am no array")
    np.save("whole.npy", np.arange(1000.0))
    Path("cut.npy").write_bytes(Path("whole.npy").read_bytes()[:300])
    np.savez("two.npz", a=np.ones(1), b=np.ones(1))
    Path("cut.npz").write_bytes(Path("two.npz").read_bytes()[:100])
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save("zero.npy", np.ones((0, 3)))
    np.save("text.npy", np.array(["a"]))
    np.save("complex.npy", np.ones(2, np.complex64))
    np.save("unsigned.npy", np.ones(2, np.uint32))
    error = refused(InputError, lambda: parse([text]), words)
    assert len(error.details) == 1


def test_a_pickled_npy_does_not_run(tmp_path: Path, refused: Any, payload: Any) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([payload], dtype=object), allow_pickle=True)
    refused(InputError, lambda: parse([f"x={path}"]), "never read")
    assert not payload.trace.exists()
    np.load(path, allow_pickle=True)  # the control
    assert payload.trace.exists()


def test_bfloat16_in_an_npy_is_explained(tmp_path: Path, refused: Any) -> None:
    import ml_dtypes

    np.save(tmp_path / "x.npy", np.ones(2, ml_dtypes.bfloat16))
    refused(InputError, lambda: parse([f"x={tmp_path / 'x.npy'}"]), "save float32")


def test_all_findings_come_at_once(refused: Any) -> None:
    error = refused(
        InputError, lambda: parse(["a=2", "b", "c=2x", "d=2:half", "e=no.npy", "a=3", "f=0"]), "6 --input"
    )
    assert [d.partition(":")[0] for d in error.details] == ["'b'", "c", "d", "e", "a", "f"]
    assert "a: given twice" in error.details
