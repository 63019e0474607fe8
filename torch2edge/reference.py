"""What is right: eager PyTorch, and the same program in float64 to know how far eager itself is off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from torch2edge.boundary import Flat
from torch2edge.capture import frozen
from torch2edge.runtime._runner import narrowed
from torch2edge.stages import Array, Arrays, Captured, Signature, TensorSpec

_WIDE = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}

_SHAPE_ONLY = {
    "_to_copy", "to", "view", "reshape", "unsqueeze", "squeeze", "expand", "slice", "clone", "contiguous",
    "alias", "permute", "transpose", "flatten", "select", "detach", "_assert_tensor_metadata",
}  # fmt: skip


def to_numpy(tensor: torch.Tensor) -> Array:
    """A numpy array of the same dtype (bfloat16 through ml_dtypes)."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_torch(array: Any) -> torch.Tensor:
    """A torch tensor that owns its memory."""
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array, copy=True))


def sample_of(captured: Captured, tensors: list[torch.Tensor]) -> Arrays:
    """The user's example inputs as the boundary sees them: narrowed, then widened again."""
    return {s.name: rounded(to_numpy(t), s) for s, t in zip(captured.signature.inputs, tensors, strict=True)}


def rounded(array: Array, spec: TensorSpec) -> Array:
    """The nearest value that the artifact can be given, in the module's dtype.

    Raises:
        InputError: a value that does not fit the narrower dtype.
    """
    return narrowed(array, spec).astype(array.dtype)


class Reference:
    """Eager PyTorch behind flat names; keeps the module's own mutated buffers untouched.

    Args:
        module: the user's module.
        signature: of its capture.
    """

    def __init__(self, module: nn.Module, signature: Signature) -> None:
        self.module, self.signature = module, signature
        dtypes = [getattr(torch, s.dtype) for s in signature.inputs]
        self._flat = Flat(module, list(signature.parameters), dtypes)
        self._start = {s.buffer: module.get_buffer(s.buffer).detach().clone() for s in signature.state}

    def reset(self) -> None:
        """Put every mutated buffer back to its start value."""
        for name, value in self._start.items():
            owner, _, leaf = name.rpartition(".")
            part = self.module.get_submodule(owner)
            part._buffers[leaf] = value.clone()

    def __call__(self, inputs: Mapping[str, Array]) -> Arrays:
        """Outputs by name for inputs by name."""
        with frozen(self.module):
            leaves = self._flat(*(to_torch(inputs[s.name]) for s in self.signature.inputs))
        return {s.name: to_numpy(t).copy() for s, t in zip(self.signature.outputs, leaves, strict=True)}


class _Float64(fx.Interpreter):
    """Runs a captured graph with every float widened, an operator at a time (weights are not copied)."""

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        args, kwargs = fx.node.map_aggregate((args, kwargs), _widen)
        return self.call_function(n.target, args, kwargs)


def _widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in _WIDE:
        return value.to(torch.float64)
    if isinstance(value, torch.dtype):
        return _WIDE.get(value, value)
    return value


def exact(
    captured: Captured, inputs: Mapping[str, Array], state: list[torch.Tensor]
) -> tuple[Arrays, list[torch.Tensor]] | None:
    """The captured program in float64, or None where an operator has no float64 form.

    Args:
        captured: the program.
        inputs: input name -> array.
        state: values before the call, in the order of signature.state.

    Returns:
        output name -> float64 array (integers as they are), and the state after the call.
    """
    try:
        results = _interpreted(_Float64, captured, inputs, state)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    specs = captured.signature.outputs
    if [tuple(t.shape) for t in results[: len(specs)]] != [s.shape for s in specs]:
        return None  # an operator that reinterprets bits computes something else in float64
    return _named(captured, results)


def captured_outputs(
    captured: Captured, inputs: Mapping[str, Array], state: list[torch.Tensor]
) -> tuple[Arrays, list[torch.Tensor]]:
    """The captured program itself, run by PyTorch."""
    results = _interpreted(fx.Interpreter, captured, inputs, state)
    return _named(captured, [t.clone() for t in results])  # an output may be a view of an input or a weight


def _interpreted(
    kind: type[fx.Interpreter], captured: Captured, inputs: Mapping[str, Array], state: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Run the captured graph on inputs by name; (*outputs, *state after)."""
    flat = [to_torch(narrowed(np.asarray(inputs[s.name]), s)) for s in captured.signature.inputs]
    with torch.no_grad():
        arguments = captured.program._graph_module_flat_inputs((*flat, *state), {})
        return list(kind(captured.program.graph_module).run(*arguments))


def _named(captured: Captured, results: list[torch.Tensor]) -> tuple[Arrays, list[torch.Tensor]]:
    """Outputs by name, and the state after the call."""
    specs = captured.signature.outputs
    named = {s.name: to_numpy(t) for s, t in zip(specs, results[: len(specs)], strict=True)}
    return named, results[len(specs) :]


def start_state(captured: Captured) -> list[torch.Tensor]:
    """Start values of the mutated buffers."""
    return [t.clone() for t in captured.program.example_inputs[0][len(captured.signature.inputs) :]]


def vocabulary(captured: Captured) -> dict[str, int]:
    """Input name -> number of valid ids, for integer inputs that index a table of known size."""
    graph = captured.program.graph
    user = captured.program.graph_signature.user_inputs
    origin = {node: s.name for node, s in zip(user, captured.signature.inputs, strict=False)}
    sizes: dict[str, int] = {}

    def note(node: Any, size: int) -> None:
        name = origin.get(getattr(node, "name", ""))
        if name is not None:
            sizes[name] = min(size, sizes.get(name, size))

    for node in graph.nodes:
        if node.op != "call_function":
            continue
        kind = getattr(node.target, "__name__", "").split(".")[0]
        if kind in _SHAPE_ONLY and node.args and getattr(node.args[0], "name", None) in origin:
            origin[node.name] = origin[node.args[0].name]
        elif kind == "embedding":
            note(node.args[1], int(node.args[0].meta["val"].shape[0]))
        elif kind in ("gather", "index_select"):
            note(node.args[2], int(node.args[0].meta["val"].shape[node.args[1]]))
        elif kind == "index":
            for axis, index in enumerate(node.args[1]):
                if index is not None:
                    note(index, int(node.args[0].meta["val"].shape[axis]))
    return sizes
