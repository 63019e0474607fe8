"""The boundary of a module: its inputs bound to forward, flattened, named, and put together again."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from torch2edge import tree
from torch2edge.errors import InputError
from torch2edge.stages import Parameter

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional_only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


_PLAIN = (bool, int, float, str)


def dtype_name(dtype: torch.dtype) -> str:
    """ "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


def is_tensor(value: Any) -> bool:
    """Whether a value is a leaf of inputs and outputs."""
    return isinstance(value, torch.Tensor)


def bind(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor], list[Parameter], list[str]]:
    """Flatten example inputs by forward's parameters, in forward's order.

    Returns:
        the tensors, forward's parameters as they were filled, and a unique name for each tensor.

    Raises:
        InputError: the inputs do not bind to forward, or hold something that is no tensor or constant.
    """
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(
            f"the inputs do not fit forward: {error}",
            where=f"{type(module).__name__}.forward",
            expected=str(signature),
            got=f"{len(args)} positional, keywords {sorted(kwargs)}",
            next_step="give args and kwargs as the module is called",
        ) from error
    tensors: list[torch.Tensor] = []
    parameters: list[Parameter] = []
    labelled: dict[str, Any] = {}
    gap = False  # after a parameter that is left out, nothing can be passed by position
    for name, parameter in signature.parameters.items():
        kind = _KINDS[parameter.kind]
        if name in bound.arguments:
            value = bound.arguments[name]
        elif parameter.default is None or type(parameter.default) in _PLAIN:
            value = parameter.default
        else:
            gap = gap or kind in ("positional", "positional_only")
            continue
        if kind == "positional" and gap:
            kind = "keyword"
        value = list(value) if kind == "var_positional" else value
        leaves, shape = tree.flatten(value, is_tensor)
        default = (not leaves and value is parameter.default) or (
            type(value) in _PLAIN and value == parameter.default
        )
        parameters.append(Parameter(name, kind, _shift(shape, len(tensors)), bool(default)))  # type: ignore[arg-type]
        tensors += leaves
        if kind == "var_keyword":
            labelled.update(value)
        else:
            labelled[name] = value
    _, whole = tree.flatten(labelled, is_tensor)
    names = tree.names(whole, prefix="", single="input_0")
    return tensors, parameters, names


def _shift(node: dict[str, Any], by: int) -> dict[str, Any]:
    if node["kind"] == "leaf":
        return {"kind": "leaf", "index": node["index"] + by}
    if "items" in node:
        return {**node, "items": [_shift(item, by) for item in node["items"]]}
    return node


def rebuild(
    parameters: list[Parameter] | tuple[Parameter, ...], leaves: list[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The inverse of bind: positional and keyword arguments for forward.

    Defaults are left out where they can be: decorators around a forward may take a given default for the
    caller's own wish (transformers does).
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_position = ("positional_only", "var_positional")
    pinned = max(
        (i for i, p in enumerate(parameters) if p.kind in by_position and not p.optional), default=-1
    )
    skipped = False
    for index, parameter in enumerate(parameters):
        if parameter.optional and index > pinned:
            skipped = True
            continue
        value = tree.unflatten(parameter.tree, leaves)
        if parameter.kind == "var_positional":
            args += value
        elif parameter.kind == "var_keyword":
            kwargs.update(value)
        elif parameter.kind == "keyword" or (skipped and parameter.kind == "positional"):
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return args, kwargs


class _Seen:
    """How the result nests; an object of its own because torch.export puts a module's attributes back."""

    tree: dict[str, Any] | None = None


class Flat(nn.Module):
    """The user's module with flat, narrowed tensors at its boundary."""

    def __init__(self, module: nn.Module, parameters: list[Parameter], dtypes: list[torch.dtype]) -> None:
        super().__init__()
        self.module = module
        self.parameters_of_forward = parameters
        self.dtypes = dtypes
        self.seen = _Seen()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        widened = [t if t.dtype == d else t.to(d) for t, d in zip(tensors, self.dtypes, strict=True)]
        args, kwargs = rebuild(self.parameters_of_forward, widened)
        leaves, self.seen.tree = tree.flatten(self.module(*args, **kwargs), is_tensor)
        return tuple(leaves)


def check_devices(module: nn.Module, tensors: list[torch.Tensor], names: list[str]) -> None:
    """Everything must lie on the CPU, dense.

    Raises:
        InputError: lists every tensor that does not.
    """
    wrong = [
        f"input {n} on {t.device}" for n, t in zip(names, tensors, strict=True) if t.device.type != "cpu"
    ]
    wrong += [
        f"{n} on {t.device}"
        for n, t in module.state_dict(keep_vars=True).items()
        if is_tensor(t) and t.device.type != "cpu"
    ]
    wrong += [
        f"input {n} is {t.layout}" for n, t in zip(names, tensors, strict=True) if t.layout != torch.strided
    ]
    if wrong:
        raise InputError(
            f"{len(wrong)} tensor(s) are not dense CPU tensors",
            details=wrong,
            expected="module and inputs on the CPU",
            next_step="call module.cpu() and x.cpu() before the export",
        )
