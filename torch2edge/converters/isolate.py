"""After a failed lowering: which operators fail on their own?  Each distinct one is lowered alone.

before:  one exception out of native code, about whichever operator came first
after:   one line per operator that the target cannot take, with module path, source line and reason
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from torch2edge.converters import blockers

BUDGET = 120.0
"""Seconds for the whole search: 100 ms an operator covers a thousand distinct ones."""

_WAY_OUT = "write it with operators that the target takes"
_NOISE = re.compile(r"^(?:Failed to run converter passes: )?(?:\S*/)?(?:(\S+\.py:\d+):\d+: )?(?:error: )?")


def culprits(program: ExportedProgram, lower: Callable[..., Any]) -> list[str]:
    """One line for each distinct operator that `lower` cannot take by itself.

    Args:
        program: decomposed, as the failed lowering had it.
        lower: the lowering of one target, as in converters/litert.py.

    Returns:
        lines in the order of the graph; empty when every operator passes alone.
    """
    constants = _constants(program)
    tried: dict[str, str] = {}
    lines: list[str] = []
    until = time.monotonic() + BUDGET
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        key = _key(node, constants)
        if key not in tried:
            if time.monotonic() > until:
                lines.append(f"(the search stopped after {BUDGET:g} s; later operators were not tried)")
                break
            tried[key] = _alone(node, constants, lower)
        if tried[key]:
            line = blockers.line([node], tried[key], _WAY_OUT)
            lines += [line] if line not in lines else []
    return lines


def _constants(program: ExportedProgram) -> dict[Any, torch.Tensor]:
    held: dict[str, Any] = {**program.state_dict, **program.constants}
    by_name = {
        s.arg.name: held[s.target]
        for s in program.graph_signature.input_specs
        if s.kind != InputKind.USER_INPUT and s.target in held and hasattr(s.arg, "name")
    }
    return {n: by_name[n.name] for n in program.graph.nodes if n.op == "placeholder" and n.name in by_name}


def _key(node: Any, constants: dict[Any, torch.Tensor]) -> str:
    """Equal for nodes that a lowering cannot tell apart."""

    def text(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            held = value.meta.get("val")
            shape = f"{held.dtype}{list(held.shape)}" if isinstance(held, torch.Tensor) else str(held)
            return f"{'const' if value in constants else 'tensor'} {shape}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(text, value))}]"
        return repr(value)

    return f"{node.target} {text(node.args)} {sorted((k, text(v)) for k, v in node.kwargs.items())}"


class _One(nn.Module):
    """A single operator; weights stay constants, everything else becomes an input."""

    def __init__(self, node: Any, constants: dict[Any, torch.Tensor]) -> None:
        super().__init__()
        self.node = node
        self.slots: dict[Any, str | int] = {}
        self.examples: list[Any] = []
        for parent in node.all_input_nodes:
            if parent in constants:
                self.slots[parent] = f"constant_{len(self.slots)}"
                self.register_buffer(f"constant_{len(self.slots) - 1}", constants[parent].detach())
            else:
                self.slots[parent] = len(self.examples)
                held = parent.meta["val"]
                self.examples.append(
                    torch.zeros(held.shape, dtype=held.dtype) if isinstance(held, torch.Tensor) else held
                )

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def fill(parent: torch.fx.Node) -> Any:
            slot = self.slots[parent]
            return tensors[slot] if isinstance(slot, int) else getattr(self, slot)

        args = torch.fx.node.map_arg(self.node.args, fill)
        kwargs = torch.fx.node.map_arg(self.node.kwargs, fill)
        result = self.node.target(*args, **kwargs)
        return (
            (result,)
            if isinstance(result, torch.Tensor)
            else tuple(r for r in result if isinstance(r, torch.Tensor))
        )


def _alone(node: Any, constants: dict[Any, torch.Tensor], lower: Callable[..., Any]) -> str:
    """Why one operator cannot be lowered, or ""."""
    from litert_torch import fx_infra

    from torch2edge.converters import ops

    try:
        one = _One(node, constants)
        program = torch.export.export(one, tuple(one.examples), strict=False)
        program = fx_infra.safe_run_decompositions(program, ops.decompositions(), can_skip=False)
    except Exception:  # an operator that cannot be taken out of its graph is not accused
        return ""
    outputs = len(program.graph_signature.user_outputs)
    names = {
        "inputs": [f"x{i}" for i in range(len(one.examples))],
        "outputs": [f"y{i}" for i in range(outputs)],
    }
    with tempfile.TemporaryDirectory() as scratch:
        try:
            lower(program, Path(scratch), names)
        except Exception as error:
            return reason(error)
    return ""


def reason(error: BaseException) -> str:
    """The first line that says something, without the converter's own paths."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = " ".join(lines[:2]) if lines and lines[0].endswith(":") else lines[0] if lines else ""
    first = _NOISE.sub(lambda m: f"{m[1]}: " if m[1] else "", first, count=1) or type(error).__name__
    return re.sub(r": %\S+ = .*", "", first)[:200]
