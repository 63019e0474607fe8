"""Load: every form of MODEL becomes a module in eval mode on the CPU, with example inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch2edge import script
from torch2edge.errors import InputError, SourceError
from torch2edge.example_inputs import bind, parse
from torch2edge.program_file import Program, tolerate_modes
from torch2edge.stages import Source
from torch2edge.weights import apply

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, its positional and its keyword example inputs."""

FORMS = "file.py:factory, package.module:factory, file.pt2, or a folder with config.json"
_RETURNS = "a torch.nn.Module, (module, args) or (module, args, kwargs)"
_CHECKPOINTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


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
        kwargs: keyword example inputs; without `args` they win over the factory's keyword inputs.
        weights: state dict to load, strictly.
        inputs: "name=1x3x224x224:float32" or "name=file.npy"; wins over all others, name by name.

    Raises:
        SourceError: the model could not be found or made.
        WeightsError: the state dict does not fit.
        InputError: the inputs cannot be read, or do not fit forward; all findings are listed.
    """
    given = parse(inputs)
    found_args: tuple[Any, ...] = ()
    found_kwargs: dict[str, Any] = {}
    if isinstance(model, nn.Module):
        module, origin = model, type(model).__qualname__
    elif isinstance(model, (str, os.PathLike)):
        origin = os.fspath(model)
        own = args is not None or kwargs is not None
        module, found_args, found_kwargs = _by_name(origin, None if own else frozenset(given))
    else:
        raise _no_model(model)
    module = _inner(module)
    if weights is not None:
        apply(module, Path(weights))
    if args is not None:
        found_args, found_kwargs = _as_tuple(args), {}
    if kwargs is not None:
        found_kwargs = dict(kwargs)
    tolerate_modes(module)
    found_args, found_kwargs = bind(module, found_args, found_kwargs, given, origin)
    if isinstance(module, Program) and (found_args or found_kwargs):
        _fit_program(module, found_args, found_kwargs, origin)
    if not isinstance(model, nn.Module):
        _settle(module, origin)
    return Source(module, found_args, found_kwargs, origin)


def _inner(module: nn.Module) -> nn.Module:
    """The module inside torch.compile and DataParallel, whose wrappers hide forward's parameters."""
    compiled = getattr(module, "_orig_mod", None)  # torch.compile's class lies behind a slow import
    if isinstance(compiled, nn.Module):
        return _inner(compiled)
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return _inner(module.module)
    return module


def _settle(module: nn.Module, origin: str) -> None:
    """CPU, eval mode, no gradients: the module was made here, so nobody else sees the change."""
    tensors = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    empty = [n for n, t in tensors if t.is_meta]
    if empty:
        raise SourceError(
            f"{len(empty)} tensor(s) of the module have no values (meta device)",
            where=origin,
            details=empty,
            expected="a module with weights",
            got="a module built under torch.device('meta')",
            next_step="build it on the CPU, or give all of them with --weights",
        )
    module.cpu().requires_grad_(False).eval()


def _as_tuple(args: Any) -> tuple[Any, ...]:
    if args is None:
        return ()
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)


def _fit_program(module: Program, args: tuple[Any, ...], kwargs: dict[str, Any], origin: str) -> None:
    wrong = module.mismatches(args, kwargs)
    if wrong:
        raise InputError(
            f"the inputs are not those that the program was exported with: {len(wrong)} finding(s)",
            where=origin,
            details=wrong,
            expected="the shapes and dtypes of torch.export",
            got=f"{len(wrong)} finding(s) above",
            next_step="give inputs of those shapes, or export the program again with the new ones",
        )


def _by_name(model: str, given: frozenset[str] | None) -> Made:
    """`given`: names of --input, or None when the caller brings args or kwargs."""
    path = Path(model)
    if model.endswith(".pt2"):
        from torch2edge.program_file import read

        return read(path)
    if model and path.is_dir():
        from torch2edge.hugging_face import read as read_folder

        return read_folder(path, given)
    if model.endswith(".py"):
        return _unpack(script.pair(path), model)
    head, colon, factory = model.rpartition(":")
    if not colon or not head or not factory:
        raise _neither(model, path)
    return _unpack(script.call(head, factory), model)


def _neither(model: str, path: Path) -> SourceError:
    if path.is_file() and path.suffix in _CHECKPOINTS:
        return SourceError(
            f"{model} is a checkpoint: it holds weights, and no module to put them in",
            where=model,
            expected=FORMS,
            got=f"a {path.suffix} file",
            next_step=f"torch2edge export my_model.py:make_model --weights {model} ...",
        )
    return SourceError(
        f"MODEL {model!r} is neither a file nor a factory"
        if not path.is_file()
        else f"{model} is of no known form",
        where=model or "MODEL",
        expected=FORMS,
        got=f"a {path.suffix or 'nameless'} file"
        if path.is_file()
        else f"{model!r} (no such file or folder)",
        next_step="name the factory: torch2edge export my_model.py:make_model ...",
    )


def _no_model(model: Any) -> SourceError:
    hint = "pass an instance of the module or a path"
    if isinstance(model, type) and issubclass(model, nn.Module):
        hint = f"pass an instance: {model.__name__}(...)"
    elif isinstance(model, torch.export.ExportedProgram):
        hint = "pass program.module(), or save it with torch.export.save and pass the .pt2 file"
    elif isinstance(model, dict):
        hint = "pass the module, and the state dict's file as weights="
    return SourceError(
        "the model is no module",
        where="model",
        expected=f"a torch.nn.Module, or {FORMS}",
        got=_called(model),
        next_step=hint,
    )


def _unpack(made: Any, model: str) -> Made:
    parts = list(made) if isinstance(made, tuple) and 1 <= len(made) <= 3 else [made]
    module, args, kwargs = parts + [(), {}][len(parts) - 1 :]
    if not isinstance(module, nn.Module):
        raise SourceError(
            f"the factory of {model!r} returns no module",
            where=model,
            expected=_RETURNS,
            got=f"a tuple of {', '.join(map(_called, made)) or 'nothing'}"
            if isinstance(made, tuple)
            else _called(made),
            next_step="return the module itself, not its class or its state dict",
        )
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(kwargs, dict) or not all(isinstance(k, str) for k in kwargs):
        raise SourceError(
            f"the factory of {model!r} returns no dict of keyword inputs as its third value",
            where=model,
            expected=_RETURNS,
            got=_called(kwargs),
            next_step="return (module, args, {'name': tensor})",
        )
    return module, _as_tuple(args), kwargs


def _called(value: Any) -> str:
    """ "the class Net", "a dict of 4 tensors (a state dict)", "None", "int"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, dict) and value and all(isinstance(v, torch.Tensor) for v in value.values()):
        return f"a dict of {len(value)} tensors (a state dict)"
    return type(value).__name__
