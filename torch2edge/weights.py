"""--weights: a state dict from a file, without unpickling code, and a readable difference when it does not fit."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import nn

from torch2edge.errors import WeightsError


def apply(module: nn.Module, path: Path) -> None:
    """Load a state dict into a module, strictly.

    Raises:
        WeightsError: unreadable, unsafe, or not the module's: missing, unexpected and misshaped keys are listed.
    """
    state = _read(path)
    own = module.state_dict()
    tied = _tied(own)
    missing = [k for k in own if k not in state and not any(t in state for t in tied.get(k, ()))]
    wrong = [f"missing in the file: {k} {list(own[k].shape)}" for k in missing]
    wrong += [f"not in the module: {k} {list(v.shape)}" for k, v in state.items() if k not in own]
    wrong += [
        f"{k}: the module has {list(own[k].shape)}, the file {list(v.shape)}"
        for k, v in state.items()
        if k in own and own[k].shape != v.shape
    ]
    if wrong:
        raise WeightsError(
            f"the weights do not fit the module: {len(wrong)} difference(s)",
            where=str(path),
            details=wrong,
            expected=f"{len(own)} tensors",
            got=f"{len(state)} tensors",
            next_step="build the module with the configuration that the weights were trained with",
        )
    module.load_state_dict(state, strict=False)


def _tied(own: dict[str, torch.Tensor]) -> dict[str, list[str]]:
    """Names that share memory: safetensors files keep only one of them."""
    groups: dict[tuple[int, torch.Size], list[str]] = {}
    for name, tensor in own.items():
        groups.setdefault((tensor.data_ptr(), tensor.shape), []).append(name)
    return {n: g for g in groups.values() if len(g) > 1 for n in g}


def _read(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise WeightsError(f"{path} does not exist", where=str(path.absolute()), next_step="check --weights")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} holds more than tensors, and unpickling it could run code",
            where=str(path),
            expected="a state dict of tensors",
            got=str(error).strip().splitlines()[0][:200],
            next_step="save it again with torch.save(module.state_dict(), ...) or safetensors",
        ) from error
    except Exception as error:  # each reader has its own family of errors for a damaged file
        raise WeightsError(
            f"{path} cannot be read: {type(error).__name__}: {str(error)[:200]}", where=str(path), next_step="copy or download it again"
        ) from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise WeightsError(f"{path} holds no state dict", where=str(path), expected="name -> tensor", got=type(state).__name__)
    return state
