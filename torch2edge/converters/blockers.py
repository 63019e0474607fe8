"""All blockers at once: operators that a target cannot take, found before any lowering starts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch.export import ExportedProgram

from torch2edge.blame_source import module_path, node_line
from torch2edge.errors import UnsupportedError

_RANDOM_WAY_OUT = (
    "make the noise a seeded buffer, pass it as an input, or remove it for inference (module.eval(), no dropout)"
)
_MISSING_WAY_OUT = "write it with operators that the target takes"
_INT32 = range(-(2**31), 2**31)


def refuse_before(program: ExportedProgram, targets: list[str]) -> None:
    """Refuse what must not even be decomposed: randomness, and control flow that a lowering would freeze.

    Raises:
        UnsupportedError: every finding, whatever the target.
    """
    found = {t: _random(program) + _control_flow(program) + (_wide(program) if t == "litert" else []) for t in targets}
    refuse(found)


def find(program: ExportedProgram, target: str) -> list[str]:
    """Operators of a decomposed program without a lowering, one line per operator and module."""
    from litert_torch.backend import lowerings

    # The lowering decomposes once more; what this table still takes apart is no blocker.
    from litert_torch.fx_infra import decomp

    later = decomp.pre_lower_decomp()
    missing: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for node in _nodes(program):
        if isinstance(node.target, torch._ops.OpOverload):
            if node.target in later or node.target is torch.ops.aten.multinomial.default:
                continue
            if lowerings.lookup(node.target) is None:
                missing[str(node.target), module_path(node)].append(node)
    lines = [_line(op, path, nodes, f"no lowering for {target}", _MISSING_WAY_OUT) for (op, path), nodes in missing.items()]
    for node in _nodes(program):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype.is_complex:
            lines.append(_line(str(node.target), module_path(node), [node], "complex numbers", "compute with real and imaginary parts"))
    return lines


def refuse(found: dict[str, list[str]]) -> None:
    """Raise when any target has a blocker.

    Raises:
        UnsupportedError: one line for each blocker; the targets are in `where`.
    """
    lines: dict[str, list[str]] = defaultdict(list)
    for target, blockers in found.items():
        for line in blockers:
            lines[line].append(target)
    if lines:
        targets = sorted({t for ts in lines.values() for t in ts})
        raise UnsupportedError(
            f"{len(lines)} blocker(s): the model cannot go to {', '.join(targets)}",
            details=list(lines),
            where=", ".join(targets),
            next_step="change the lines named above; each says a way out",
        )


def _nodes(program: ExportedProgram) -> list[Any]:
    return [
        n
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for n in module.graph.nodes
        if n.op == "call_function"
    ]


def _line(op: str, path: str, nodes: list[Any], why: str, way_out: str) -> str:
    count = f" x{len(nodes)}" if len(nodes) > 1 else ""
    place = f" in {path}" if path else ""
    line = node_line(nodes[0])
    return f"{op}{count}{place}{' at ' + line if line else ''}: {why}; {way_out}"


def _random(program: ExportedProgram) -> list[str]:
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for node in _nodes(program):
        tags = getattr(node.target, "tags", ())
        drops = "dropout" in str(node.target) and not _trains(node)
        if torch.Tag.nondeterministic_seeded in tags and not drops and not _attention(node):
            groups[str(node.target), module_path(node)].append(node)
    return [_line(op, path, nodes, "randomness inside forward", _RANDOM_WAY_OUT) for (op, path), nodes in groups.items()]


def _trains(node: Any) -> bool:
    return bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("train", False)) and float(node.args[1]) > 0


def _attention(node: Any) -> bool:
    """Attention and recurrent operators are tagged random for their dropout, which inference leaves at 0."""
    schema = node.target._schema
    values = dict(zip([a.name for a in schema.arguments], node.args, strict=False)) | dict(node.kwargs)
    rates = [a for a in schema.arguments if a.name in ("dropout_p", "dropout", "p")]
    if not rates or "train" in values and "dropout" in str(node.target):
        return False
    if values.get("train") is False:
        return True
    return all(float(values.get(a.name, a.default_value or 0.0)) == 0.0 for a in rates)


def _control_flow(program: ExportedProgram) -> list[str]:
    lines = []
    for node in _nodes(program):
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            name = str(node.target.name() if callable(getattr(node.target, "name", None)) else node.target)
            if name in ("wrap_with_set_grad_enabled", "wrap_with_autocast"):
                continue
            lines.append(_line(name, module_path(node), [node], "control flow on tensor values", "compute both branches and select with torch.where"))
    return lines


def _wide(program: ExportedProgram) -> list[str]:
    """int64 constants that an int32 file cannot hold: the converter would wrap them in silence."""
    lines = []
    for name, tensor in {**program.state_dict, **program.constants}.items():
        if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64 and tensor.numel():
            low, high = int(tensor.min()), int(tensor.max())
            if low not in _INT32 or high not in _INT32:
                lines.append(f"{name.removeprefix('module.')}: int64 constant {low} .. {high} does not fit int32; rescale it")
    for node in _nodes(program):
        wide = [a for a in node.args if isinstance(a, int) and not isinstance(a, bool) and a not in _INT32]
        if wide and "slice" not in str(node.target):
            lines.append(_line(str(node.target), module_path(node), [node], f"the integer {wide[0]} does not fit int32", "use float32"))
    return lines
