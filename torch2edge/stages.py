"""The types that a model passes through.  Their names, in order, are how the pipeline works.

    Source -> Captured -> Lowered -> Bundle -> Outputs -> Report

Arrays cross rooms as numpy (bfloat16 through ml_dtypes); nothing here imports torch or jax.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Array = NDArray[np.generic]
    Arrays = dict[str, Array]
else:  # the names can be imported without numpy
    Array, Arrays = Any, dict

Tree = dict[str, Any]
"""A JSON description of a nested value; see tree.py."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor at the boundary.

    Attributes:
        name: unique among the inputs (or outputs) of its signature.
        shape: static sizes, outermost first.
        dtype: what the module takes or returns ("float32", "int64", "bool", "bfloat16", ...).
        stored: what the artifact takes or returns; narrower than `dtype` where a target asks for it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored: str


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A buffer that forward changes, made explicit: an extra input and an extra output of the artifact.

    Attributes:
        buffer: the buffer's path in the user's module; also the name of its start value in the weights.
        input: the artifact's input that takes the value before the call.
        output: the artifact's output that holds the value after the call.
    """

    buffer: str
    input: TensorSpec
    output: TensorSpec


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of forward and how it was filled at capture.

    Attributes:
        name: the parameter's name.
        kind: "positional_only", "positional" (also by name), "keyword", "var_positional" or "var_keyword".
        tree: nesting of its value; leaves are indices into Signature.inputs, the rest are constants.
        optional: it holds forward's own default, so a caller may leave it out.
    """

    name: str
    kind: Literal["positional_only", "positional", "keyword", "var_positional", "var_keyword"]
    tree: Tree
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """The contract of an exported model: what a caller gives and gets.

    Attributes:
        inputs: flat tensors in the artifact's order (after the weights, before the state).
        outputs: flat tensors in the artifact's order (before the new state).
        parameters: forward's parameters, in order; they hold how inputs are nested.
        output_tree: nesting of the result; leaves are indices into `outputs`.
        state: mutated buffers, in the artifact's order.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[Parameter, ...]
    output_tree: Tree
    state: tuple[StateSpec, ...] = ()

    def with_stored(self, inputs: dict[str, str], outputs: dict[str, str]) -> Signature:
        """The same signature with the artifact's own dtypes (by tensor name, state included)."""

        def put(spec: TensorSpec, stored: dict[str, str]) -> TensorSpec:
            return replace(spec, stored=stored.get(spec.name, spec.stored))

        return replace(
            self,
            inputs=tuple(put(s, inputs) for s in self.inputs),
            outputs=tuple(put(s, outputs) for s in self.outputs),
            state=tuple(
                StateSpec(s.buffer, put(s.input, inputs), put(s.output, outputs)) for s in self.state
            ),
        )


@dataclass(frozen=True, slots=True)
class Source:
    """A module and example inputs.

    Attributes:
        module: in eval mode, on the CPU.
        args: positional example inputs.
        kwargs: keyword example inputs.
        origin: what the user wrote (path or class name), for messages and the manifest.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    origin: str


@dataclass(frozen=True, slots=True)
class Captured:
    """A torch.export program with flat positional inputs and outputs; free of any target.

    Attributes:
        program: takes (*inputs, *state before) and returns (*outputs, *state after).
        signature: names and nesting of those.
        strict: whether torch.export's strict mode made it.
        notes: things a user should know (a mutated input that is not written back, ...).
    """

    program: torch.export.ExportedProgram
    signature: Signature
    strict: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lowered:
    """A target's artifact on disk, checked against the signature.

    Attributes:
        target: "litert" or "cloud-tpu".
        files: role -> file in the staging folder ("model", ...).
        signature: with the artifact's own dtypes.
        arguments: weight names in the order of the artifact's leading arguments (cloud-tpu).
        versions: every tool that took part, name -> version.
    """

    target: str
    files: dict[str, str]
    signature: Signature
    arguments: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Floor:
    """How far eager float32 itself is from float64, for one output of one case.

    Attributes:
        max_abs: max |float32 - float64|, absolute units of the output.
        rms: root mean square of the same.
        scale: max |float64| of the output (finite values).
        source: "float64" when measured; "assumed" where the module does not run in float64.
    """

    max_abs: float
    rms: float
    scale: float
    source: Literal["float64", "assumed"]


@dataclass(frozen=True, slots=True)
class Golden:
    """One set of inputs and what eager PyTorch answers.

    Attributes:
        name: unique ("sample", "random", ...).
        kind: "sample", "random", "ramp", "outliers", "zeros" or "user".
        inputs: input name -> array with the spec's `dtype`.
        outputs: output name -> array with the spec's `dtype`.
        floors: output name -> Floor (float outputs only).
        undecided: output name -> bool array, True where float32 and float64 disagree (integers, bools).
        reset: False when state goes on from the golden before.
    """

    name: str
    kind: str
    inputs: Arrays
    outputs: Arrays
    floors: dict[str, Floor] = field(default_factory=dict)
    undecided: Arrays = field(default_factory=dict)
    reset: bool = True


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One output of one case by one runtime against the reference.

    A metric is None where it is not defined (never a default): `reason` then says why the record failed, or
    the dtype is not a float.
    """

    runtime: str
    case: str
    output: str
    passed: bool
    reason: str
    max_abs: float | None = None
    max_rel: float | None = None
    mean_abs: float | None = None
    rmse: float | None = None
    sqnr_db: float | None = None
    cosine: float | None = None
    top1: float | None = None
    limit: float | None = None
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class RuntimeRecord:
    """What one runtime did.

    Attributes:
        runtime: its public name.
        stage: what its failure would accuse ("capture", "lowering to StableHLO", ...).
        status: "passed", "failed" or "not run".
        why: reason of "not run", or of a failure outside the numbers (crash, time limit).
        seconds: wall time of all cases, start-up excluded; None when not run.
    """

    runtime: str
    stage: str
    status: Literal["passed", "failed", "not run"]
    why: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """Where a verified bundle lies and what it holds (the part of Bundle that runtimes need)."""

    path: Path
    target: str
    signature: Signature
    arguments: tuple[str, ...]
