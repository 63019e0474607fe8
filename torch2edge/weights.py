"""--weights: a state dict from a file, without unpickling code; readable differences when it does not fit."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch2edge.errors import WeightsError

WRAPPERS = ("module.", "_orig_mod.", "model.", "net.")
"""Prefixes that training wrappers put before every key (DataParallel, torch.compile, Lightning)."""

_INSIDE = ("state_dict", "model_state_dict", "model")
_READABLE = "a state dict of tensors, as safetensors or as torch.save(module.state_dict(), ...)"


def apply(module: nn.Module, path: Path) -> None:
    """Load a state dict into a module, strictly; a change of float width is said as a warning.

    Raises:
        WeightsError: unreadable, unsafe, or not the module's: missing, unexpected, misshaped and miscast keys
            are all listed.
    """
    state = _read(path)
    own = module.state_dict(keep_vars=True)
    wrong = _differences(own, state)
    if wrong:
        raise WeightsError(
            f"the weights do not fit the module: {len(wrong)} difference(s)",
            where=str(path),
            details=wrong,
            expected=f"{len(own)} tensors",
            got=f"{len(state)} tensors",
            next_step=_way_out(own, state),
        )
    casts = sorted({f"{_name(v)} to {_name(own[k])}" for k, v in state.items() if _is_other_width(own[k], v)})
    if casts:
        warnings.warn(
            f"{path}: weights are cast from {', '.join(casts)}, the module's own dtype", stacklevel=2
        )
    # a module built on the meta device has no storage to copy into
    module.load_state_dict(state, strict=False, assign=any(_is_tensor(t) and t.is_meta for t in own.values()))


def _differences(own: dict[str, Any], state: dict[str, Any]) -> list[str]:
    groups = _tied(own)
    tied = {name: group for group in groups for name in group}
    wrong = [
        f"missing in the file: {k} {_shape(v)}"
        for k, v in own.items()
        if k not in state and not any(t in state for t in tied.get(k, ()))
    ]
    wrong += [f"not in the module: {k} {_shape(v)}" for k, v in state.items() if k not in own]
    for key in own.keys() & state.keys():
        mine, theirs = own[key], state[key]
        if _is_tensor(mine) != _is_tensor(theirs):
            wrong.append(f"{key}: the module has a {type(mine).__name__}, the file a {type(theirs).__name__}")
        elif not _is_tensor(mine) or _is_lazy(mine):
            continue
        elif mine.shape != theirs.shape:
            wrong.append(f"{key}: the module has {_shape(mine)}, the file {_shape(theirs)}")
        elif _kind(mine) != _kind(theirs):
            wrong.append(f"{key}: the module has {_name(mine)}, the file {_name(theirs)}")
    for group in groups:
        present = [n for n in group if n in state and state[n].shape == own[n].shape]
        for other in present[1:]:
            if not torch.equal(state[present[0]], state[other]):
                wrong.append(f"{present[0]} and {other} are one tensor in the module, and differ in the file")
    return sorted(wrong, key=_order)


def _order(line: str) -> tuple[int, str]:
    return (0 if line.startswith("missing") else 1 if line.startswith("not in") else 2, line)


def _tied(own: dict[str, Any]) -> list[list[str]]:
    """Names that share memory: safetensors files keep only one of them."""
    groups: dict[tuple[int, torch.Size, tuple[int, ...]], list[str]] = {}
    for name, tensor in own.items():
        if not _is_tensor(tensor) or _is_lazy(tensor) or tensor.layout != torch.strided:
            continue
        # empty and meta tensors all have address 0; on meta only the very same object is tied
        address = id(tensor) if tensor.is_meta else tensor.data_ptr()
        if address and tensor.numel():
            groups.setdefault((address, tensor.shape, tensor.stride()), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _way_out(own: dict[str, Any], state: dict[str, Any]) -> str:
    for prefix in WRAPPERS:
        inner = {k.removeprefix(prefix) for k in state if k.startswith(prefix)}
        if len(inner) == len(state) and inner & own.keys():
            return (
                f"every key in the file starts with {prefix!r}: save the state dict of the module inside it"
            )
    if own.keys() - state.keys() and {f"{p}{k}" for p in WRAPPERS for k in state} & own.keys():
        return "the keys in the file lack an outer name: save the state dict of the module that is exported"
    return "build the module with the configuration that the weights were trained with"


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        inside = sorted(path.glob("*.safetensors")) if path.is_dir() else []
        raise WeightsError(
            f"{path} {'is a folder' if path.is_dir() else 'does not exist'}",
            where=str(path.absolute()),
            expected=_READABLE,
            got="a folder" if path.is_dir() else "no such file",
            next_step=f"--weights {inside[0]}" if len(inside) == 1 else "check --weights",
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        damaged = _damaged(path)
        if damaged:  # torch's reader is built without that check and would take another number
            raise ValueError(f"{damaged} fails its checksum")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a torch.jit archive warns before it is refused
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each reader has its own family of errors for a damaged file
        raise _refusal(path, error) from error
    for key in _INSIDE:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
            break
    if not isinstance(state, dict) or not state or not all(_is_entry(k, v) for k, v in state.items()):
        raise WeightsError(
            f"{path} holds no state dict",
            where=str(path),
            expected=f"{_READABLE}, also under one of the keys {', '.join(_INSIDE)}",
            got=_content(state),
            next_step="save it again with torch.save(module.state_dict(), ...)",
        )
    return dict(state)


def _damaged(path: Path) -> str | None:
    """The first record of a zip archive (torch.save since 1.6) whose bytes are not those once written."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        return archive.testzip()


def _refusal(path: Path, error: Exception) -> WeightsError:
    text = str(error)
    asked = re.search(r"(?:GLOBAL|global|class|function) ([\w.]+\.[\w.]+)", text)
    if asked and isinstance(error, pickle.UnpicklingError):
        return WeightsError(
            f"{path} holds more than tensors, and unpickling it could run code",
            where=str(path),
            expected=_READABLE,
            got=f"a pickle that asks for {asked[1].rstrip('.')}",
            next_step="save it again with torch.save(module.state_dict(), ...) or safetensors",
        )
    if "TorchScript" in text:
        return WeightsError(
            f"{path} is a TorchScript archive, which holds code",
            where=str(path),
            expected=_READABLE,
            got="an archive of torch.jit.save",
            next_step="save torch.jit.load(...).state_dict() in a process where you trust the file",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return WeightsError(
        f"{path} is damaged or of another format",
        where=str(path),
        expected=_READABLE,
        got=f"{path.stat().st_size} bytes; {type(error).__name__}: {lines[0][:200]}",
        next_step="copy or download it again",
    )


def _is_entry(key: Any, value: Any) -> bool:
    return isinstance(key, str) and (_is_tensor(value) or key.endswith("_extra_state"))


def _content(state: Any) -> str:
    if not isinstance(state, dict):
        return type(state).__name__
    odd = [f"{k}: {type(v).__name__}" for k, v in state.items() if not _is_entry(k, v)]
    return f"a dict with {', '.join(odd[:5])}" if odd else "an empty dict"


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_lazy(value: Any) -> bool:
    """A parameter of nn.LazyLinear and the like, which takes its shape from the file."""
    return isinstance(value, (nn.UninitializedParameter, nn.UninitializedBuffer))


def _kind(tensor: torch.Tensor) -> str:
    """What copying between two dtypes must not change: 0.5 in a file is not 0 in an integer buffer."""
    return "complex" if tensor.is_complex() else "float" if tensor.is_floating_point() else "whole"


def _is_other_width(mine: Any, theirs: Any) -> bool:
    return _is_tensor(mine) and _is_tensor(theirs) and mine.dtype != theirs.dtype


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shape(value: Any) -> str:
    if _is_lazy(value):
        return "[any shape]"
    return str(list(value.shape)) if _is_tensor(value) else type(value).__name__
