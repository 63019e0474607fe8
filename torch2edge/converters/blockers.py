"""All blockers at once: operators that a target cannot take, found before any lowering starts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch.export import ExportedProgram

from torch2edge.blame_source import module_path, module_place, node_line
from torch2edge.errors import UnsupportedError
from torch2edge.state import PREFIX

_RANDOM_WAY_OUT = "make the noise a seeded buffer, pass it as an input, or remove it for inference"
_MISSING_WAY_OUT = "write it with operators that the target takes"
_INT32 = range(-(2**31), 2**31)


def refuse_before(program: ExportedProgram, targets: list[str]) -> None:
    """Refuse what must not even be decomposed: randomness, and control flow that a lowering would freeze.

    Raises:
        UnsupportedError: every finding, whatever the target.
    """
    found = {
        t: _random(program) + _control_flow(program) + (_wide(program) if t == "litert" else [])
        for t in targets
    }
    refuse(found)


def find(program: ExportedProgram) -> list[str]:
    """Operators of a decomposed program without a lowering, one line per operator and module."""
    from litert_torch.backend import lowerings
    from litert_torch.fx_infra import decomp

    later = (
        decomp.pre_lower_decomp()
    )  # the lowering decomposes once more; what that takes apart is no blocker
    missing = _Groups()
    complex_ = _Groups()
    for node in _nodes(program):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype.is_complex:
            complex_.add(node)
        elif isinstance(node.target, torch._ops.OpOverload):
            known = node.target in later or node.target is torch.ops.aten.multinomial.default
            if not known and lowerings.lookup(node.target) is None:
                missing.add(node)
    return missing.lines("the converter has no lowering", _MISSING_WAY_OUT) + complex_.lines(
        "complex numbers", "compute with real and imaginary parts"
    )


def refuse(found: dict[str, list[str]]) -> None:
    """Raise when any target has a blocker.

    Args:
        found: every requested target -> its blockers.

    Raises:
        UnsupportedError: one line for each blocker; the targets are in `where`.
    """
    lines: dict[str, list[str]] = defaultdict(list)
    for target, blocking in found.items():
        for text in blocking:
            lines[text].append(target)
    if not lines:
        return
    blocked = [t for t, blocking in found.items() if blocking]
    free = [t for t, blocking in found.items() if not blocking]
    ways = "change the lines named above; each says a way out"
    if free:
        ways += f" (--target {' --target '.join(free)} alone has no blocker)"
    raise UnsupportedError(
        f"{len(lines)} blocker(s): the model cannot go to {', '.join(blocked)}",
        details=list(lines),
        where=", ".join(blocked),
        next_step=ways,
    )


def _nodes(program: ExportedProgram) -> list[Any]:
    return [
        n
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for n in module.graph.nodes
        if n.op == "call_function"
    ]


class _Groups:
    """Nodes by operator and module: one line for all of a kind in one place."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[str, str], list[Any]] = defaultdict(list)

    def add(self, node: Any) -> None:
        self.nodes[_name(node), module_path(node)].append(node)

    def lines(self, why: str, way_out: str) -> list[str]:
        return [line(nodes, why, way_out) for nodes in self.nodes.values()]


def line(nodes: list[Any], why: str, way_out: str) -> str:
    """ "aten.op x2 in layers.0 (Layer) at file.py:12 in forward: code -- why; way out", nodes of one kind."""
    count = f" x{len(nodes)}" if len(nodes) > 1 else ""
    place = module_place(nodes[0])
    source = node_line(nodes[0])
    parts = [f"{_name(nodes[0])}{count}", f"in {place}" if place else "", f"at {source}" if source else ""]
    return f"{' '.join(filter(None, parts))} -- {why}; {way_out}"


def _name(node: Any) -> str:
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return str(node.target.name())  # type: ignore[no-untyped-call]
    return str(node.target)


def _random(program: ExportedProgram) -> list[str]:
    found = _Groups()
    for node in _nodes(program):
        tags = getattr(node.target, "tags", ())
        drops = "dropout" in str(node.target) and not _trains(node)
        if torch.Tag.nondeterministic_seeded in tags and not drops and not _attention(node):
            found.add(node)
    return found.lines("randomness inside forward", _RANDOM_WAY_OUT)


def _trains(node: Any) -> bool:
    return (
        bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("train", False))
        and float(node.args[1]) > 0
    )


def _attention(node: Any) -> bool:
    """Attention and recurrent operators are tagged random for their dropout, which inference leaves at 0."""
    schema = node.target._schema
    values = dict(zip([a.name for a in schema.arguments], node.args, strict=False)) | dict(node.kwargs)
    rates = [a for a in schema.arguments if a.name in ("dropout_p", "dropout", "p")]
    if not rates or ("train" in values and "dropout" in str(node.target)):
        return False
    if values.get("train") is False:
        return True
    return all(float(values.get(a.name, a.default_value or 0.0)) == 0.0 for a in rates)


_HARMLESS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


def _control_flow(program: ExportedProgram) -> list[str]:
    found = _Groups()
    for node in _nodes(program):
        if isinstance(node.target, torch._ops.HigherOrderOperator) and _name(node) not in _HARMLESS:
            found.add(node)
    return found.lines("control flow on tensor values", "compute both branches and select with torch.where")


def _wide(program: ExportedProgram) -> list[str]:
    """int64 constants that an int32 file cannot hold: the converter would wrap them in silence."""
    lines = []
    for name, tensor in {**program.state_dict, **program.constants}.items():
        if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64 and tensor.numel():
            low, high = int(tensor.min()), int(tensor.max())
            if low not in _INT32 or high not in _INT32:
                lines.append(
                    f"{name.removeprefix(PREFIX)}: int64 constant {low} .. {high} does not fit int32; rescale"
                )
    for node in _nodes(program):
        wide = [a for a in node.args if isinstance(a, int) and not isinstance(a, bool) and a not in _INT32]
        if wide and "slice" not in str(node.target):
            lines.append(line([node], f"the integer {wide[0]} does not fit int32", "use float32"))
    return lines
