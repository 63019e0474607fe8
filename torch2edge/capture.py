"""Capture: one torch.export program per model, flat at the boundary and free of any target.

The user's module is wrapped so that the program takes flat positional tensors and returns flat tensors; how
they nest is kept beside it in the Signature.  That is what lets dataclasses, None, keyword inputs and any
nesting pass through converters that know only lists.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from torch2edge import state, tree
from torch2edge.blame_source import user_line, whole_traces
from torch2edge.errors import CaptureError, InputError, UnsupportedError
from torch2edge.program import in_place_of
from torch2edge.stages import Captured, Parameter, Signature, Source, TensorSpec

NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
"""What no phone kernel and no TPU register holds is narrowed at the boundary (checked on the way in)."""

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


def dtype_name(dtype: torch.dtype) -> str:
    """ "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


def is_tensor(value: Any) -> bool:
    """Whether a value is a leaf of inputs and outputs."""
    return isinstance(value, torch.Tensor)


def bind(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[torch.Tensor], list[Parameter], list[str]]:
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
    for name, value in bound.arguments.items():
        kind = _KINDS[signature.parameters[name].kind]
        value = list(value) if kind == "var_positional" else value
        leaves, shape = tree.flatten(value, is_tensor)
        parameters.append(Parameter(name, kind, _shift(shape, len(tensors))))  # type: ignore[arg-type]
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


def rebuild(parameters: list[Parameter] | tuple[Parameter, ...], leaves: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The inverse of bind: positional and keyword arguments for forward."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_keyword = False
    for position, parameter in enumerate(parameters):
        value = tree.unflatten(parameter.tree, leaves)
        if parameter.kind == "var_positional":
            args += value
        elif parameter.kind == "var_keyword":
            kwargs.update(value)
        elif parameter.kind == "keyword" or by_keyword:
            kwargs[parameter.name] = value
        else:
            args.append(value)
        del position
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


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Eval mode, no grad, contiguous weights, fused attention path off; all of it undone at the end.

    The fused path of nn.TransformerEncoder computes with nested tensors, which no exporter takes; and a
    converter that keys constants by address confuses copies of non-contiguous views.
    """
    training = {m: m.training for m in module.modules()}
    strided = [t for t in (*module.parameters(), *module.buffers()) if t.layout == torch.strided and not t.is_contiguous()]
    before = [t.data for t in strided]
    fast = torch.backends.mha.get_fastpath_enabled()
    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    for tensor in strided:
        tensor.data = tensor.data.contiguous()
    try:
        with torch.no_grad():
            yield
    finally:
        for tensor, data in zip(strided, before, strict=True):
            tensor.data = data
        torch.backends.mha.set_fastpath_enabled(fast)
        for part, mode in training.items():
            part.training = mode


def check_devices(module: nn.Module, tensors: list[torch.Tensor], names: list[str]) -> None:
    """Everything must lie on the CPU, dense.

    Raises:
        InputError: lists every tensor that does not.
    """
    wrong = [f"input {n} on {t.device}" for n, t in zip(names, tensors, strict=True) if t.device.type != "cpu"]
    wrong += [f"{n} on {t.device}" for n, t in module.state_dict(keep_vars=True).items() if is_tensor(t) and t.device.type != "cpu"]
    wrong += [f"input {n} is {t.layout}" for n, t in zip(names, tensors, strict=True) if t.layout != torch.strided]
    if wrong:
        raise InputError(
            f"{len(wrong)} tensor(s) are not dense CPU tensors",
            details=wrong,
            expected="module and inputs on the CPU",
            next_step="call module.cpu() and x.cpu() before the export",
        )


def capture(source: Source) -> Captured:
    """Capture a module once, for all targets.

    Raises:
        InputError: inputs that do not bind, or lie on another device.
        CaptureError: torch.export failed in both modes; both reasons and the user's line are in it.
        UnsupportedError: complex tensors at the boundary, or no tensor in the result.
    """
    module = source.module
    tensors, parameters, names = bind(module, source.args, source.kwargs)
    check_devices(module, tensors, names)
    dtypes = [t.dtype for t in tensors]
    flat = Flat(module, parameters, dtypes)
    narrow = tuple(t.detach().to(NARROW.get(t.dtype, t.dtype)).contiguous() for t in tensors)
    with frozen(module):
        program, strict = _export(flat, narrow)
        program._state_dict = {k: in_place_of(v, v.detach()) for k, v in program.state_dict.items()}
        if flat.seen.tree is None:  # strict mode traces bytecode and drops what forward leaves behind
            flat(*narrow)
    output_tree = flat.seen.tree
    assert output_tree is not None
    outputs = _outputs(program, output_tree)
    inputs = tuple(
        TensorSpec(n, tuple(t.shape), dtype_name(t.dtype), dtype_name(s.dtype))
        for n, t, s in zip(names, tensors, narrow, strict=True)
    )
    foreign = [f"{s.name}: {s.dtype}" for s in (*inputs, *outputs) if s.dtype.startswith("complex")]
    if foreign:
        raise UnsupportedError(
            "complex tensors at the boundary",
            details=foreign,
            next_step="pass real and imaginary parts as two real tensors (torch.view_as_real)",
        )
    if not outputs:
        raise UnsupportedError("the module returns no tensor", where=source.origin, got=str(output_tree))
    program, states, notes = state.explicit(program, names)
    return Captured(program, Signature(inputs, outputs, tuple(parameters), output_tree, states), strict, notes)


def _outputs(program: torch.export.ExportedProgram, output_tree: dict[str, Any]) -> tuple[TensorSpec, ...]:
    node = next(n for n in program.graph.nodes if n.op == "output")
    kinds = [spec.kind.name for spec in program.graph_signature.output_specs]
    metas = [a.meta["val"] for a, k in zip(node.args[0], kinds, strict=True) if k == "USER_OUTPUT"]
    names = tree.names(output_tree, prefix="output", single="output_0")
    return tuple(
        TensorSpec(n, tuple(int(s) for s in v.shape), dtype_name(v.dtype), dtype_name(v.dtype))
        for n, v in zip(names, metas, strict=True)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """torch.export logs and prints whole graphs when it fails; the reason is in the error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


def _export(flat: Flat, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.export.ExportedProgram, bool]:
    failures: list[str] = []
    lines: list[str] = []
    for strict in (False, True):
        try:
            with _quiet(), whole_traces():
                return torch.export.export(flat, inputs, strict=strict), strict
        except InputError:
            raise
        except Exception as error:  # torch.export raises dozens of unrelated types
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            failures.append(f"{'strict' if strict else 'non-strict'}: {type(error).__name__}: {first.strip()[:300]}")
            line = user_line(error)
            if line:
                lines.append(line)
            cause = error
    raise CaptureError(
        "torch.export could not capture the module",
        details=failures,
        where=lines[0] if lines else type(flat.module).__name__,
        next_step=(
            "a branch or shape that depends on a tensor's value must become torch.where or torch.cond; "
            "otherwise see the reason of each mode above"
        ),
    ) from cause
