"""PyTorch itself, running the captured program: what torch.export kept of the module."""

from __future__ import annotations

from typing import Any

from torch2edge.runtime._runner import Runner, start_values
from torch2edge.stages import Arrays, Opened, Signature

TARGETS = ("litert", "cloud-tpu")
STAGE = "capture by torch.export"
TOLERANCE = "captured"


class _Session:
    def __init__(self, program: Any, signature: Signature) -> None:
        self.program, self.signature = program, signature
        self.names = [s.name for s in signature.inputs] + [s.input.name for s in signature.state]
        self.results = [s.name for s in signature.outputs] + [s.output.name for s in signature.state]

    def invoke(self, arrays: Arrays) -> Arrays:
        import torch
        from torch import fx

        from torch2edge.reference import to_numpy, to_torch

        with torch.no_grad():
            flat = self.program._graph_module_flat_inputs(tuple(to_torch(arrays[n]) for n in self.names), {})
            values = fx.Interpreter(self.program.graph_module).run(*flat)
        return {n: to_numpy(v).copy() for n, v in zip(self.results, values, strict=True)}

    def close(self) -> None:
        self.program = None


def available() -> str | None:
    """PyTorch is a requirement: always there."""
    return None


def open(bundle: Opened, *, time_limit: float = 600.0) -> Runner:
    """A runner for any bundle; runs in this process, so `time_limit` does not apply."""
    from dataclasses import replace

    from torch2edge import program

    signature = bundle.signature
    loaded = program.load(bundle.path)
    # The program has the narrowed inputs of the capture whatever an artifact stores.
    stored = {
        s.name: {"int64": "int32", "float64": "float32"}.get(s.dtype, s.dtype) for s in signature.inputs
    }
    own = {s.name: s.dtype for s in signature.outputs}
    states = {s.input.name: s.input.dtype for s in signature.state} | {
        s.output.name: s.output.dtype for s in signature.state
    }
    signature = signature.with_stored(stored | states, own | states)
    return Runner("eager", replace(signature), _Session(loaded, signature), start_values(bundle))
