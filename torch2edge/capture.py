"""Capture: one torch.export program per model, flat at the boundary and free of any target.

The user's module is wrapped so that the program takes flat positional tensors and returns flat tensors; how
they nest is kept beside it in the Signature.  That is what lets dataclasses, None, keyword inputs and any
nesting pass through converters that know only lists.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from torch2edge import state, tree
from torch2edge.blame_source import user_line, whole_traces
from torch2edge.boundary import Flat, bind, check_devices, dtype_name
from torch2edge.errors import CaptureError, InputError, UnsupportedError
from torch2edge.program import in_place_of
from torch2edge.stages import Captured, Signature, Source, TensorSpec

NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
"""What no phone kernel and no TPU register holds is narrowed at the boundary (checked on the way in)."""

_ASSIGNED = re.compile(r"The tensor attributes? (.+?) (?:was|were) assigned during export")
"""torch's own warning (torch/_functorch/_aot_autograd/frontend_utils.py, torch 2.13)."""


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Eval mode, no grad, contiguous weights, fused attention path off; all of it undone at the end.

    The fused path of nn.TransformerEncoder computes with nested tensors, which no exporter takes; and a
    converter that keys constants by address confuses copies of non-contiguous views.
    """
    training = {m: m.training for m in module.modules()}
    strided = [
        t
        for t in (*module.parameters(), *module.buffers())
        if t.layout == torch.strided and not t.is_contiguous()
    ]
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


def capture(source: Source) -> Captured:
    """Capture a module once, for all targets.

    Raises:
        InputError: inputs that do not bind, or lie on another device.
        CaptureError: torch.export failed in both modes; both reasons and the user's line are in it.
        UnsupportedError: complex tensors at the boundary, or no tensor in the result.
    """
    module = source.module
    if isinstance(module, torch.jit.ScriptModule):
        raise CaptureError(
            "a TorchScript module cannot be captured",
            where=source.origin,
            expected="a torch.nn.Module in Python",
            next_step="build the original module and load its weights into it (--weights)",
        )
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    tensors, parameters, names = bind(module, source.args, source.kwargs)
    check_devices(module, tensors, names)
    dtypes = [t.dtype for t in tensors]
    flat = Flat(module, parameters, dtypes)
    narrow = tuple(t.detach().to(NARROW.get(t.dtype, t.dtype)).contiguous() for t in tensors)
    with frozen(module):
        program, strict, assigned = _export(flat, narrow)
        kept = _attributes(program, assigned)
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
    return Captured(
        program, Signature(inputs, outputs, tuple(parameters), output_tree, states), strict, (*kept, *notes)
    )


def _attributes(program: torch.export.ExportedProgram, assigned: list[str]) -> tuple[str, ...]:
    """Notes on tensor attributes that forward assigns and never reads.

    Raises:
        CaptureError: forward reads what an earlier call assigned; that would be frozen in silence.
    """
    lost = [n for n in assigned if n in program.constants]
    if lost:
        raise CaptureError(
            "forward keeps state in tensors that are no buffers",
            details=[n.removeprefix(state.PREFIX) for n in lost],
            next_step="register them with self.register_buffer(name, tensor), and they become explicit state",
        )
    return tuple(
        f"forward assigns self.{n.removeprefix(state.PREFIX)}; the exported model does not keep it"
        for n in assigned
    )


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
def _quiet() -> Iterator[list[warnings.WarningMessage]]:
    """torch.export prints whole graphs when it fails; the error has the reason.  Warnings are kept."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        try:
            yield warned
        finally:
            logging.disable(before)


def _export(
    flat: Flat, inputs: tuple[torch.Tensor, ...]
) -> tuple[torch.export.ExportedProgram, bool, list[str]]:
    """The program, whether strict mode made it, and the tensor attributes that forward assigned."""
    failures: list[str] = []
    lines: list[str] = []
    for strict in (False, True):
        try:
            with _quiet() as warned, whole_traces():
                program = torch.export.export(flat, inputs, strict=strict)
            found = [m for w in warned if (m := _ASSIGNED.search(str(w.message)))]
            return program, strict, [n.strip().removeprefix("self.") for m in found for n in m[1].split(",")]
        except InputError:
            raise
        except Exception as error:  # torch.export raises dozens of unrelated types
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            failures.append(
                f"{'strict' if strict else 'non-strict'}: {type(error).__name__}: {first.strip()[:300]}"
            )
            line = user_line(error)
            if line:
                lines.append(line)
            cause = error
    raise CaptureError(
        "torch.export could not capture the module",
        details=failures,
        where=lines[0] if lines else type(flat.module).__name__,
        next_step=(
            "a branch or shape that depends on a tensor's value must become torch.where; "
            "otherwise see the reason of each mode above"
        ),
    ) from cause
