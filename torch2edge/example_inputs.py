"""--input name=1x3x224x224:float32 and --input name=file.npy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import torch

from torch2edge.errors import InputError

_SHAPE = re.compile(r"^(scalar|\d+(?:x\d+)*)(?::(\w+))?$")
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


def parse(texts: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tensors by forward's parameter name.

    A shape gives seeded normal noise for floats, 0 and 1 in turn for integers and booleans.

    Raises:
        InputError: lists every text that cannot be read.
    """
    tensors: dict[str, torch.Tensor] = {}
    wrong: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            wrong.append(f"{text!r}: expected name=SHAPE:DTYPE or name=file.npy")
        elif value.endswith((".npy", ".npz")):
            _from_file(name, Path(value), tensors, wrong)
        else:
            _from_shape(name, value, tensors, wrong)
    if wrong:
        raise InputError(
            f"{len(wrong)} --input could not be read",
            details=wrong,
            expected="name=1x3x224x224:float32 or name=file.npy",
            next_step=f"dtypes: {', '.join(DTYPES)}",
        )
    return tensors


def _from_file(name: str, path: Path, tensors: dict[str, torch.Tensor], wrong: list[str]) -> None:
    if path.suffix == ".npz":
        wrong.append(f"{name}: {path} holds several arrays; give one .npy")
        return
    try:
        tensors[name] = torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError, EOFError) as error:
        wrong.append(f"{name}: {path}: {error}")


def _from_shape(name: str, value: str, tensors: dict[str, torch.Tensor], wrong: list[str]) -> None:
    match = _SHAPE.match(value)
    dtype = (match[2] or "float32") if match else ""
    if not match or dtype not in DTYPES:
        wrong.append(f"{name}: {value!r} is no shape and dtype")
        return
    shape = [] if match[1] == "scalar" else [int(n) for n in match[1].split("x")]
    kind: torch.dtype = getattr(torch, dtype)
    if kind.is_floating_point:
        generator = torch.Generator().manual_seed(crc32(name.encode()))
        tensors[name] = torch.randn(shape, generator=generator).to(kind)
    else:
        tensors[name] = torch.arange(int(np.prod(shape))).remainder(2).reshape(shape).to(kind)
