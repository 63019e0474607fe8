"""Mutated buffers become explicit state.

    before:  (weights, buffer; x) -> (buffer', y)     buffer' is written back behind the caller's back
    after:   (weights; x, buffer) -> (y, buffer')     the runner carries it from call to call

Converters drop write-backs in silence; an extra input and an extra output cannot be dropped unseen.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec
from torch.utils import _pytree as pytree

from torch2edge.errors import UnsupportedError
from torch2edge.stages import StateSpec, TensorSpec

PREFIX = "module."
"""The wrapper's own attribute in front of every weight's path."""


def explicit(
    program: ExportedProgram, names: list[str]
) -> tuple[ExportedProgram, tuple[StateSpec, ...], tuple[str, ...]]:
    """Turn each buffer that forward changes into an input and an output.

    Args:
        program: of the flat wrapper.
        names: of the inputs, to name a mutated one in a note.

    Returns:
        the program without hidden writes, its state, and notes on inputs that forward overwrites.
    """
    if not _writes(program):
        return program, (), ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own tree specs
        program = program.run_decompositions({})
    signature = program.graph_signature
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    user_inputs = [s.arg.name for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
    notes = tuple(
        f"forward overwrites its input {names[user_inputs.index(target)]!r}; the exported model does not"
        for target in signature.user_inputs_to_mutate.values()
    )
    if signature.parameters_to_mutate:
        raise UnsupportedError(
            "forward changes parameters",
            details=[n.removeprefix(PREFIX) for n in signature.parameters_to_mutate.values()],
            next_step="register what changes from call to call as a buffer",
        )
    mutated = signature.buffers_to_mutate  # output name -> buffer path
    node = next(n for n in program.graph.nodes if n.op == "output")
    by_spec = list(zip(signature.output_specs, node.args[0], strict=True))
    results = [a for s, a in by_spec if s.kind == OutputKind.USER_OUTPUT]
    after = {s.target: a for s, a in by_spec if s.kind == OutputKind.BUFFER_MUTATION}
    state_specs = [s for s in signature.input_specs if s.kind == InputKind.BUFFER and s.target in after]
    others = [s for s in signature.input_specs if s not in state_specs]
    last = [placeholders[s.arg.name] for s in others][-1:] or None
    states, start, inputs_after = [], [], []
    for spec in state_specs:
        assert spec.target is not None
        placeholder = placeholders[spec.arg.name]
        if last:
            last[0].append(placeholder)
        last = [placeholder]
        value = _value(program, spec.target)
        start.append(value)
        inputs_after.append(InputSpec(kind=InputKind.USER_INPUT, arg=spec.arg, target=None))
        buffer = spec.target.removeprefix(PREFIX)
        shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
        states.append(
            StateSpec(
                buffer,
                TensorSpec(f"state.{buffer}", shape, dtype, dtype),
                TensorSpec(f"next.{buffer}", shape, dtype, dtype),
            )
        )
    outputs = [*results, *(after[s.target] for s in state_specs)]
    node.args = (tuple(outputs),)
    assert len(mutated) == len(state_specs)
    signature.input_specs[:] = [*others, *inputs_after]
    signature.output_specs[:] = [
        OutputSpec(
            kind=OutputKind.USER_OUTPUT, arg=type(signature.output_specs[0].arg)(name=a.name), target=None
        )
        for a in outputs
    ]
    examples = (*program.example_inputs[0], *start)
    return _rebuilt(program, examples, len(outputs)), tuple(states), notes


def _writes(program: ExportedProgram) -> bool:
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate or signature.parameters_to_mutate:
        return True
    targets = (n.target for n in program.graph.nodes if n.op == "call_function")
    return any(isinstance(t, torch._ops.OpOverload) and t._schema.is_mutable for t in targets)


def _value(program: ExportedProgram, name: str) -> torch.Tensor:
    held: Any = program.state_dict[name] if name in program.state_dict else program.constants[name]
    assert isinstance(held, torch.Tensor)
    return held.detach().contiguous().clone()


def _rebuilt(program: ExportedProgram, examples: tuple[torch.Tensor, ...], outputs: int) -> ExportedProgram:
    program.graph.lint()
    program.graph_module.recompile()
    used = {s.target for s in program.graph_signature.input_specs}
    call = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_flatten((examples, {}))[1],
        out_spec=pytree.tree_flatten(tuple(range(outputs)))[1],
    )
    return ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=program.graph_signature,
        state_dict={k: v for k, v in program.state_dict.items() if k in used},
        range_constraints=program.range_constraints,
        module_call_graph=[ModuleCallEntry(fqn="", signature=call)],
        example_inputs=(examples, {}),
        constants={k: v for k, v in program.constants.items() if k in used},
        verifiers=program.verifiers,
    )
