"""--input name=1x3x224x224:float32 and --input name=file.npy, and how inputs meet forward's parameters."""

from __future__ import annotations

import inspect
import math
import re
import zipfile
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import nn

from torch2edge.errors import InputError

_SHAPE = re.compile(r"^(scalar|[0-9]+(?:x[0-9]+)*)(?::([^:]+))?$")
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
MOST = 2**31 - 1
"""Elements in one made-up input; neither target addresses more in one tensor."""


def parse(texts: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tensors by forward's parameter name.

    A shape gives seeded normal noise for floats, 0 and 1 in turn for integers and booleans.

    Raises:
        InputError: lists every text that cannot be read.
    """
    tensors: dict[str, torch.Tensor] = {}
    wrong: list[str] = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            wrong.append(f"{text!r}: expected name=SHAPE:DTYPE or name=file.npy")
        elif name in tensors:
            wrong.append(f"{name}: given twice")
        else:
            try:
                from_file = value.endswith((".npy", ".npz"))
                tensors[name] = _checked(_from_file(Path(value)) if from_file else _from_shape(name, value))
            except _Unreadable as error:
                wrong.append(f"{name}: {error}")
    if wrong:
        raise InputError(
            f"{len(wrong)} --input could not be read",
            details=wrong,
            where="--input",
            expected="name=1x3x224x224:float32 or name=file.npy",
            got=", ".join(map(repr, texts)),
            next_step=f"dtypes: {', '.join(DTYPES)}",
        )
    return tensors


class _Unreadable(Exception):
    """Why one text cannot be read."""


def _checked(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.numel():
        shape = "x".join(map(str, tensor.shape))
        raise _Unreadable(f"shape {shape} has no element, so there is nothing to compare")
    return tensor


def _from_file(path: Path) -> torch.Tensor:
    try:
        with path.open("rb") as file:  # numpy leaves a damaged .npz open
            array = _only(np.load(file, allow_pickle=False), path)
    except FileNotFoundError as error:
        raise _Unreadable(f"{path} does not exist") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _Unreadable(f"{path} is no array of numbers: {_reason(path, error)}") from error
    if array.dtype.name not in DTYPES:
        hint = " (np.save cannot keep bfloat16; save float32)" if array.dtype.kind == "V" else ""
        raise _Unreadable(f"{path} holds {array.dtype}, which is none of the dtypes below{hint}")
    native: torch.Tensor = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    return native


def _only(loaded: Any, path: Path) -> Any:
    """The array of a .npy, or the one of a .npz."""
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        return loaded
    if len(loaded.files) != 1:
        names = ", ".join(loaded.files[:5])
        raise _Unreadable(f"{path} holds {len(loaded.files)} arrays ({names}); give one .npy")
    return loaded[loaded.files[0]]


def _reason(path: Path, error: Exception) -> str:
    """numpy says "pickled data" of every file whose first bytes it does not know."""
    if path.is_dir():
        return "it is a folder"
    head = path.read_bytes()[:6] if path.is_file() else b""
    if not head:
        return "it is empty"
    if head[:1] == b"\x80" or (head == b"\x93NUMPY" and "allow_pickle" in str(error)):
        return "it holds pickled objects, which are never read"
    if head != b"\x93NUMPY" and head[:2] != b"PK":
        return "it is no .npy file"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"it is damaged ({lines[0][:120]})"


def _from_shape(name: str, value: str) -> torch.Tensor:
    match = _SHAPE.match(value)
    if not match:
        raise _Unreadable(f"{value!r} is no shape; write 1x3x224x224:float32, scalar:int64 or file.npy")
    dtype = match[2] or "float32"
    if dtype not in DTYPES:
        close = get_close_matches(dtype, DTYPES, 1)
        raise _Unreadable(f"{dtype!r} is no dtype" + (f"; did you mean {close[0]}?" if close else ""))
    shape = [] if match[1] == "scalar" else [int(n) for n in match[1].split("x")]
    if math.prod(shape) > MOST:
        raise _Unreadable(f"{match[1]} has {math.prod(shape):,} elements, more than {MOST:,}")
    kind: torch.dtype = getattr(torch, dtype)
    try:
        if kind.is_floating_point:
            generator = torch.Generator().manual_seed(crc32(name.encode()))
            return torch.randn(shape, generator=generator).to(kind)
        return torch.arange(math.prod(shape)).remainder(2).reshape(shape).to(kind)
    except (RuntimeError, MemoryError) as error:
        raise _Unreadable(f"{match[1]}:{dtype} does not fit into memory") from error


def bind(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: dict[str, torch.Tensor],
    origin: str,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs as forward takes them; `given` (from --input) wins over args and kwargs.

    Raises:
        InputError: names that forward does not know and parameters without a value, all in one.
    """
    try:
        signature = inspect.signature(module.forward)
    except (ValueError, TypeError):  # traced TorchScript has none; capture refuses such a module by name
        return args, {**kwargs, **given}
    parameters = signature.parameters
    takes = f"forward{_plain(signature)}"
    try:
        bound = signature.bind_partial(*args, **{k: v for k, v in kwargs.items() if k not in given})
    except TypeError as error:
        raise InputError(
            f"the example inputs do not fit forward: {error}",
            where=origin,
            expected=takes,
            got=f"{len(args)} positional, keywords {sorted(kwargs)}",
            next_step="return (module, args) or (module, args, kwargs) as the module is called",
        ) from error
    extra = next((n for n, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
    named = {n for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    wrong = []
    for name, tensor in given.items():
        if name in named:
            bound.arguments[name] = tensor
        elif extra is not None:
            bound.arguments[extra] = {**bound.arguments.get(extra, {}), name: tensor}
        else:
            close = get_close_matches(name, named, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            wrong.append(f"{name}: forward has no such parameter{hint}")
    # With nothing given at all only the module may be wanted (as a reference); capture asks then.
    wanted = named if args or kwargs or given else set()
    missing = [
        n for n, p in parameters.items() if n in wanted and n not in bound.arguments and p.default is p.empty
    ]
    wrong += [f"{n}: no value given" for n in missing]
    if wrong:
        need = missing[0] if missing else next((n for n in parameters if n in named), "NAME")
        raise InputError(
            f"the inputs do not fit forward: {len(wrong)} finding(s)",
            where=origin,
            details=wrong,
            expected=takes,
            got=", ".join(sorted(bound.arguments.keys() | given.keys())) or "no inputs",
            next_step=f"give --input {need}=SHAPE:DTYPE (or {need}=file.npy), or args and kwargs",
        )
    if any(n in named and parameters[n].kind is inspect.Parameter.POSITIONAL_ONLY for n in given):
        return bound.args, bound.kwargs
    by_position = [n for n, p in parameters.items() if p.kind in _BY_POSITION][: len(args)]
    replaced = tuple(given.get(n, a) for n, a in zip(by_position, args, strict=False))
    by_name = {n: t for n, t in given.items() if n not in by_position}
    return (*replaced, *args[len(replaced) :]), {**kwargs, **by_name}


def _plain(signature: inspect.Signature) -> str:
    """A signature without annotations, which for a Hugging Face model fill a page."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
