"""A small bundle made by hand, without torch: for tests of the folder itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from torch2edge import bundle, manifest
from torch2edge.stages import Floor, Golden, Parameter, Signature, StateSpec, TensorSpec

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
]
"""Every numpy dtype that crosses files and workers."""

LEAF = {"kind": "leaf", "index": 0}
SIGNATURE = Signature(
    inputs=(TensorSpec("x", (2, 3), "float32", "float32"), TensorSpec("ids", (), "int64", "int32")),
    outputs=(TensorSpec("y", (2,), "bfloat16", "bfloat16"), TensorSpec("none", (0, 3), "bool", "bool")),
    parameters=(
        Parameter("x", "positional", LEAF),
        Parameter(
            "ids", "keyword", {"kind": "list", "items": [{"kind": "leaf", "index": 1}, {"kind": "none"}]}
        ),
    ),
    output_tree={
        "kind": "dataclass",
        "type": "Result",
        "fields": ["y", "rest"],
        "items": [
            LEAF,
            {"kind": "dict", "keys": ["none", 3], "items": [{"kind": "leaf", "index": 1}, {"kind": "none"}]},
        ],
    },
    state=(
        StateSpec(
            "cell.memory",
            TensorSpec("state_cell_memory", (4,), "float32", "float32"),
            TensorSpec("new_cell_memory", (4,), "float32", "float32"),
        ),
    ),
)
GOLDENS = [
    Golden(
        "sample",
        "sample",
        {"x": np.arange(6, dtype=np.float32).reshape(2, 3).T.copy().T, "ids": np.array(2**40, np.int64)},
        {"y": np.array([1.5, -np.inf], ml_dtypes.bfloat16), "none": np.zeros((0, 3), bool)},
        {"y": Floor(1e-7, 5e-8, 3.0, "float64")},
        {"none": np.zeros((0, 3), bool)},
    ),
    Golden(
        "random 1/2",
        "random",
        {"x": np.full((2, 3), np.nan, np.float32), "ids": np.array(-1, np.int64)},
        {"y": np.zeros(2, ml_dtypes.bfloat16), "none": np.ones((0, 3), bool)},
        reset=False,
    ),
]


def fill(staging: bundle.Staging, content: bytes = b"a model") -> dict[str, Any]:
    """Write the payload; returns what commit takes."""
    (staging.path / "model.tflite").write_bytes(content)
    (staging.path / "executables" / "v5e").mkdir(parents=True)
    (staging.path / "executables" / "v5e" / "empty.bin").write_bytes(b"")
    return {
        "target": "litert",
        "signature": bundle.signature_to_json(SIGNATURE),
        "arguments": ["weight", "bias"],
        "model": "model.tflite",
        "options": {"strict": False},
        "origin": "net.py:model",
        "versions": {"torch": "2.13.0"},
        "created": "2026-01-01T00:00:00+00:00",
        "parity": "not checked",
        "goldens": bundle.write_goldens(staging.path, GOLDENS),
        "notes": ["é: a note"],
    }


def make(output: Path, content: bytes = b"a model", *, force: bool = False) -> Path:
    """A whole bundle at `output`."""
    with bundle.staging(output, force=force) as staging:
        staging.commit(fill(staging, content))
    return output


def read(folder: Path) -> dict[str, Any]:
    """The manifest, unchecked."""
    data: dict[str, Any] = json.loads((folder / manifest.MANIFEST).read_text())
    return data


def rewrite(folder: Path, data: Any, *, sealed: bool = True) -> None:
    """Put another manifest there, with a fitting seal: what an attacker can do too."""
    (folder / manifest.MANIFEST).write_text(json.dumps(manifest.seal(data) if sealed else data))


def content(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, for comparisons before and after."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")
    }
