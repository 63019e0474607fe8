"""The worker protocol: one frame is a length, a JSON header and raw arrays.  Nothing is pickled.

    8 bytes     little-endian length of the header
    header      {"op", "body", "arrays": [{"name", "dtype", "shape", "nbytes"}]}
    arrays      their bytes, C order, one after the other

numpy only: the same file serves an emulated core or a phone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

LENGTH = struct.Struct("<Q")


def encode(op: str, body: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[Any]:
    """Buffers to write one after the other."""
    solid = {n: np.asarray(a, order="C") for n, a in arrays.items()}
    listed = [
        {"name": n, "dtype": a.dtype.name, "shape": list(a.shape), "nbytes": a.nbytes} for n, a in solid.items()
    ]
    header = json.dumps({"op": op, "body": dict(body), "arrays": listed}).encode()
    views = [a.reshape(-1).view(np.uint8).data for a in solid.values() if a.nbytes]
    return [LENGTH.pack(len(header)), header, *views]


def decode(read: Callable[[int], Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """One frame; `read(n)` returns exactly n bytes or raises EOFError."""
    (length,) = LENGTH.unpack(read(LENGTH.size))
    header = json.loads(bytes(read(length)))
    arrays = {}
    for spec in header["arrays"]:
        raw = read(spec["nbytes"]) if spec["nbytes"] else b""
        arrays[spec["name"]] = np.frombuffer(raw, dtype=_dtype(spec["dtype"])).reshape(spec["shape"])
    return header["op"], header["body"], arrays


def _dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
