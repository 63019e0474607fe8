"""Golden cases: inputs, what eager PyTorch answers, and how far float32 itself can be trusted there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torch2edge.numerics import compare, inputs, values
from torch2edge.numerics.dtypes import is_float, widened
from torch2edge.numerics.tolerance import believed
from torch2edge.reference import Reference, exact, rounded, sample_of, start_state, vocabulary
from torch2edge.stages import Array, Arrays, Captured, Golden, Source

STATE_CALLS = 5
"""Calls in a row for a model with state: enough that a lost write-back shows."""


def make(
    source: Source, captured: Captured, *, generated: bool = True, seed: int = 0
) -> tuple[list[Golden], list[str]]:
    """Run eager PyTorch on the user's sample and on generated inputs.

    Args:
        source: the module and its example inputs.
        captured: of the same module.
        generated: False leaves only the user's sample.
        seed: of the generated inputs.

    Returns:
        the golden cases, and notes on generated cases left out because eager itself is not finite there.
    """
    from torch2edge.boundary import bind

    tensors, _, _ = bind(source.module, source.args, source.kwargs)
    sample = sample_of(captured, tensors)
    cases: list[tuple[str, str, Arrays]] = [("sample", "sample", sample)]
    if generated:
        made = inputs.generate(captured.signature.inputs, sample, vocab=vocabulary(captured), seed=seed)
        cases += [(kind, kind, arrays) for kind, arrays in made] if captured.signature.inputs else []
    reference = Reference(source.module, captured.signature)
    goldens: list[Golden] = []
    notes: list[str] = []
    for name, kind, arrays in cases:
        arrays = {s.name: rounded(np.asarray(arrays[s.name]), s) for s in captured.signature.inputs}
        try:
            made_here = _case(name, kind, arrays, captured, reference)
        except (RuntimeError, IndexError, ValueError) as error:
            if kind == "sample":
                raise
            notes.append(
                f"{kind} inputs left out: eager PyTorch refuses them ({str(error).splitlines()[0][:120]})"
            )
            continue
        finally:
            reference.reset()
        why = "" if kind == "sample" else _useless(made_here, goldens, captured)
        if why:
            notes.append(f"{kind} inputs left out: eager PyTorch itself is {why}")
            continue
        goldens += made_here
    return goldens, notes


def _case(name: str, kind: str, arrays: Arrays, captured: Captured, reference: Reference) -> list[Golden]:
    reference.reset()
    state: list[Any] | None = start_state(captured)
    made: list[Golden] = []
    for call in range(STATE_CALLS if captured.signature.state else 1):
        outputs = reference(arrays)
        wide = exact(captured, arrays, state) if state is not None else None
        state = wide[1] if wide else None
        floors, undecided = compare.floors(outputs, wide[0] if wide else None, captured.signature.outputs)
        label = name if call == 0 else f"{name}-call-{call + 1}"
        made.append(Golden(label, kind, arrays, outputs, floors, undecided, reset=call == 0))
        arrays = {k: _shifted(v) for k, v in arrays.items()} if captured.signature.state else arrays
    return made


def _shifted(array: Array) -> Array:
    """Another input for the next call of a model with state: the same values, rolled by one."""
    if array.size > 1:
        return np.roll(array, 1)
    return array + np.asarray(1, array.dtype) if is_float(array) else array


def _useless(made: list[Golden], samples: list[Golden], captured: Captured) -> str:
    """Why a generated case proves nothing: eager is not finite there, or not exact enough.  "" when it does.

    Infinities in the places where the user's own sample has them are meant (masks).
    """
    for golden, sample in zip(made, samples, strict=False):
        inputs_ = max((values.scale(a) for a in golden.inputs.values() if is_float(a)), default=0.0)
        for spec in captured.signature.outputs:
            array = golden.outputs[spec.name]
            if not is_float(array):
                continue
            odd = ~np.isfinite(widened(array))
            if (odd & np.isfinite(widened(sample.outputs[spec.name]))).any() or np.isnan(
                widened(array)
            ).any():
                return f"not finite there ({spec.name})"
            if not believed(golden.floors[spec.name], spec.dtype, stored=spec.stored, inputs=inputs_):
                return f"too far from float64 there to judge by ({spec.name})"
    return ""


def of_user(captured_runner: Any, cases: Mapping[str, Arrays], specs: Any) -> list[Golden]:
    """Golden cases for inputs that a user brings to a bundle, answered by `captured_runner`.

    Args:
        captured_runner: anything with reset() and run(inputs) -> outputs.
        cases: case name -> inputs by name.
        specs: output specs.
    """
    made = []
    for name, arrays in cases.items():
        captured_runner.reset()
        outputs = captured_runner.run(arrays)
        floors, undecided = compare.floors(outputs, None, specs)
        made.append(Golden(name, "user", dict(arrays), outputs, floors, undecided))
    return made
