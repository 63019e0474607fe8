"""Load: every form of MODEL becomes a module in eval mode on the CPU, with example inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch2edge import script
from torch2edge.errors import SourceError
from torch2edge.example_inputs import parse
from torch2edge.stages import Source
from torch2edge.weights import apply


def load(
    model: nn.Module | str | os.PathLike[str],
    *,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    weights: str | os.PathLike[str] | None = None,
    inputs: Sequence[str] = (),
) -> Source:
    """Make a Source of a module, a script's or package's factory, a .pt2 file or a Hugging Face folder.

    Args:
        model: a module, or "file.py:factory", "package.module:factory", "file.py" (get_model and get_args),
            "file.pt2", or a folder with config.json and safetensors.
        args: positional example inputs (a tuple, list, or one tensor); wins over the factory's.
        kwargs: keyword example inputs.
        weights: state dict to load, strictly.
        inputs: "name=1x3x224x224:float32" or "name=file.npy", added to kwargs.

    Raises:
        SourceError: the model could not be found or made.
        WeightsError: the state dict does not fit.
        InputError: the inputs cannot be read.
    """
    if isinstance(model, nn.Module):
        module, found_args, found_kwargs, origin = model, (), {}, type(model).__qualname__
    else:
        module, found_args, found_kwargs = _by_name(os.fspath(model))
        origin = os.fspath(model)
    if weights is not None:
        apply(module, Path(weights))
    if args is not None:
        found_args, found_kwargs = _as_tuple(args), {}
    if kwargs is not None:
        found_kwargs = dict(kwargs)
    found_kwargs = {**found_kwargs, **parse(inputs)}
    if inputs and found_args:
        found_args, found_kwargs = _replaced(module, found_args, found_kwargs)
    if not isinstance(model, nn.Module):
        module.cpu().requires_grad_(False)
        if not isinstance(module, torch.fx.GraphModule):
            module.eval()
    return Source(module, found_args, found_kwargs, origin)


def _as_tuple(args: Any) -> tuple[Any, ...]:
    if isinstance(args, (tuple, list)):
        return tuple(args)
    return (args,)


def _replaced(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """--input names win over the factory's positional inputs."""
    import inspect

    names = list(inspect.signature(module.forward).parameters)
    positional = dict(zip(names, args, strict=False))
    if len(positional) < len(args):
        return args, kwargs
    return (), {**positional, **kwargs}


def _by_name(model: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    path = Path(model)
    if model.endswith(".pt2"):
        from torch2edge.program_file import read

        return read(path)
    if path.is_dir():
        from torch2edge.hugging_face import read as read_folder

        return read_folder(path)
    if model.endswith(".py"):
        return _unpack(script.pair(path), model)
    head, colon, factory = model.rpartition(":")
    if not colon or not head or not factory:
        raise SourceError(
            f"MODEL {model!r} is neither a file nor a factory",
            expected="file.py:factory, package.module:factory, file.pt2, or a folder with config.json",
            got=model if path.exists() else f"{model} (no such file)",
            next_step="name the factory: torch2edge export my_model.py:make_model ...",
        )
    return _unpack(script.call(head, factory), model)


def _unpack(made: Any, model: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    args: Any = ()
    kwargs: dict[str, Any] = {}
    module = made
    if isinstance(made, tuple) and 1 <= len(made) <= 3:
        module, args, kwargs = (*made, *((), {})[len(made) - 1 :])
    if not isinstance(module, nn.Module):
        raise SourceError(
            f"the factory of {model!r} returns no module",
            expected="a torch.nn.Module, (module, args) or (module, args, kwargs)",
            got=type(made).__name__ + (f" of {[type(m).__name__ for m in made]}" if isinstance(made, tuple) else ""),
            next_step="return the module itself, not its class or its state dict",
        )
    if not isinstance(kwargs, dict):
        raise SourceError("the factory's third value is no dict of keyword inputs", got=type(kwargs).__name__, where=model)
    return module, _as_tuple(args), kwargs
