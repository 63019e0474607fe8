"""The worker protocol, without a process: round trips, and that no bytes but a frame are taken for one."""

from __future__ import annotations

import io
import json
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.bundles import DTYPES
from torch2edge import frames

NAMES = [*DTYPES, "complex128"]
KINDS = [
    *map(np.dtype, NAMES),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e5m2),
    np.dtype(ml_dtypes.int4),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def arrays(draw: Any) -> Any:
    """An array of any dtype that passes; raw bytes, so that NaN payloads count too."""
    dtype = draw(st.sampled_from(KINDS))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    count = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=count, max_size=count))
    return np.frombuffer(raw, dtype).reshape(shape)


def reader(raw: bytes) -> Any:
    stream = io.BytesIO(raw)

    def read(count: int) -> bytes:
        data = stream.read(count)
        if len(data) != count:
            raise EOFError
        return data

    return read


def joined(parts: list[Any]) -> bytes:
    return b"".join(bytes(p) for p in parts)


@settings(deadline=None)
@given(
    st.text(), st.dictionaries(st.text(), JSON, max_size=3), st.dictionaries(st.text(), arrays(), max_size=3)
)
def test_round_trip(op: str, body: dict[str, Any], given_: dict[str, Any]) -> None:
    got_op, got_body, got = frames.decode(reader(joined(frames.encode(op, body, given_))))
    assert (got_op, got_body, list(got)) == (op, body, list(given_))
    for name, array in given_.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape)
        assert got[name].tobytes() == array.tobytes()


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(["<", ">"]))
def test_byte_order_does_not_change_the_numbers(name: str, order: Literal["<", ">"]) -> None:
    array = np.arange(5).astype(np.dtype(name).newbyteorder(order))
    got = frames.decode(reader(joined(frames.encode("x", {}, {"a": array}))))[2]["a"]
    assert np.array_equal(got, array)


@settings(deadline=None)
@given(st.data())
def test_every_truncation_is_an_end_of_file(data: st.DataObject) -> None:
    raw = joined(frames.encode("op", {"a": 1}, {"x": np.arange(3), "y": np.ones(2, "f2")}))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(EOFError):
        frames.decode(reader(raw[:cut]))
    frames.decode(reader(raw))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    with pytest.raises((EOFError, frames.FrameError)):
        frames.decode(reader(raw))


def test_a_huge_length_is_refused_before_anything_is_read() -> None:
    asked: list[int] = []

    def read(count: int) -> bytes:
        asked.append(count)
        return frames.LENGTH.pack(2**62)

    with pytest.raises(frames.FrameError, match="no header"):
        frames.decode(read)
    assert asked == [8]


GOOD: dict[str, Any] = {
    "op": "o",
    "body": {},
    "arrays": [{"name": "x", "dtype": "int16", "shape": [2, 3], "nbytes": 12}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"op": 3}, {"body": []}, {"body": None}, {"arrays": None}, {"arrays": [3]}, {"arrays": [{}]},
        {"arrays": [{**GOOD["arrays"][0], "dtype": "object"}]},
        {"arrays": [{**GOOD["arrays"][0], "dtype": "V2"}]},
        {"arrays": [{**GOOD["arrays"][0], "dtype": "finfo"}]},
        {"arrays": [{**GOOD["arrays"][0], "dtype": None}]},
        {"arrays": [{**GOOD["arrays"][0], "nbytes": 11}]},
        {"arrays": [{**GOOD["arrays"][0], "nbytes": 2**40}]},
        {"arrays": [{**GOOD["arrays"][0], "shape": [-2, -3]}]},
        {"arrays": [{**GOOD["arrays"][0], "shape": ["2", 3]}]},
        {"arrays": [{**GOOD["arrays"][0], "shape": 6}]},
        {"arrays": GOOD["arrays"] * 2},
    ],
)  # fmt: skip
def test_a_header_that_makes_no_sense_is_a_frame_error(change: dict[str, Any]) -> None:
    def framed(header: dict[str, Any]) -> Any:
        text = json.dumps(header).encode()
        return reader(frames.LENGTH.pack(len(text)) + text + b"\0" * 24)

    assert frames.decode(framed(GOOD))[2]["x"].shape == (2, 3)
    with pytest.raises(frames.FrameError):
        frames.decode(framed({**GOOD, **change}))


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.array(["t"]),
        np.zeros(1, "M8[s]"),
        np.zeros(1, [("a", "i4")]),
        np.zeros(1, "V4"),
    ],
)
def test_what_is_no_number_is_refused_by_name(array: Any) -> None:
    with pytest.raises(frames.FrameError, match=r"bad: .*, worse: "):
        frames.encode("o", {}, {"bad": array, "good": np.ones(1), "worse": array})


def test_a_body_that_is_no_json_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), b"raw", endless, {1, 2}):
        with pytest.raises(frames.FrameError, match="no JSON"):
            frames.encode("o", {"v": value}, {})
