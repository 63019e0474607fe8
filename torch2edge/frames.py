"""The worker protocol: one frame is a length, a JSON header and raw arrays.  Nothing is pickled.

    8 bytes     little-endian length of the header
    header      {"op", "body", "arrays": [{"name", "dtype", "shape", "nbytes"}]}
    arrays      their bytes, C order, one after the other

numpy only: the same file serves an emulated core or a phone.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

LENGTH = struct.Struct("<Q")
HEADER_LIMIT = 1 << 28
"""Bytes.  Headers are small; a larger length is something else than a frame, and is not waited for."""


class FrameError(ValueError):
    """Bytes that are no frame, or a value that no frame can hold."""


def encode(op: str, body: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[Any]:
    """Buffers to write one after the other.

    Raises:
        FrameError: a body that JSON cannot hold, or dtypes that a frame cannot hold; all of them are named.
    """
    solid = {n: np.asarray(a, order="C") for n, a in arrays.items()}
    # A dtype's name does not tell the byte order, so all go out in the machine's own.
    solid = {n: a.astype(a.dtype.newbyteorder("=")) if not a.dtype.isnative else a for n, a in solid.items()}
    foreign = [f"{n}: {a.dtype}" for n, a in solid.items() if _dtype(a.dtype.name) != a.dtype]
    if foreign:
        raise FrameError(f"arrays of such a dtype cannot pass to a worker: {', '.join(foreign)}")
    listed = [
        {"name": n, "dtype": a.dtype.name, "shape": list(a.shape), "nbytes": a.nbytes}
        for n, a in solid.items()
    ]
    try:
        header = json.dumps({"op": op, "body": dict(body), "arrays": listed}).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"the body is no JSON: {error}") from error
    if len(header) > HEADER_LIMIT:
        raise FrameError(f"a header of {len(header)} bytes; big values must be arrays")
    views = [a.reshape(-1).view(np.uint8).data for a in solid.values() if a.nbytes]
    return [LENGTH.pack(len(header)), header, *views]


def decode(read: Callable[[int], Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """One frame; `read(n)` returns exactly n bytes or raises EOFError.

    Raises:
        EOFError: the stream ended in the middle.
        FrameError: what came is no frame.
    """
    (length,) = LENGTH.unpack(read(LENGTH.size))
    if length > HEADER_LIMIT:
        raise FrameError(f"a header of {length} bytes is no header")
    try:
        header = json.loads(bytes(read(length)))
        op, body = header["op"], header["body"]
        specs = [(s["name"], _dtype(s["dtype"]), tuple(s["shape"]), s["nbytes"]) for s in header["arrays"]]
        if not isinstance(op, str) or not isinstance(body, dict) or len({s[0] for s in specs}) != len(specs):
            raise ValueError("op, body or array names")
        for name, dtype, shape, nbytes in specs:
            if dtype is None or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != nbytes:
                raise ValueError(f"array {name!r}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"the header makes no sense: {error}") from error
    arrays = {}
    for name, dtype, shape, nbytes in specs:
        raw = read(nbytes) if nbytes else b""
        arrays[name] = np.frombuffer(raw, dtype=dtype).reshape(shape)
    return op, body, arrays


def _dtype(name: Any) -> Any:
    """The dtype of a number by its name, bfloat16 and its kin included; None where there is none."""
    import ml_dtypes

    kind: Any = getattr(ml_dtypes, name, None) if isinstance(name, str) else None
    if isinstance(kind, type) and issubclass(kind, np.generic):
        return np.dtype(kind)
    try:
        found = np.dtype(name)
    except TypeError:
        return None
    return found if found.kind in "biufc" and found.name == name else None
