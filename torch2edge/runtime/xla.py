"""The StableHLO on XLA for CPU: what the portable artifact computes, before any TPU is involved."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch2edge.runtime._remote import RemoteSession
from torch2edge.runtime._runner import Runner, start_values
from torch2edge.stages import Opened, Signature

TARGETS = ("cloud-tpu", "litert")
STAGE = "lowering to StableHLO"
TOLERANCE = "float"


def available() -> str | None:
    """None, or why XLA on CPU cannot run here."""
    return None if find_spec("jaxlib") else "needs jax: pip install 'jax==0.10.*'"


def open(bundle: Opened, *, time_limit: float = 600.0) -> Runner:
    """A runner for any bundle; a litert bundle is lowered to StableHLO first, from its captured program."""
    scratch = None
    if bundle.target == "cloud-tpu":
        model, arguments, signature = (
            bundle.path / "model.default.stablehlo",
            bundle.arguments,
            bundle.signature,
        )
    else:
        scratch = tempfile.TemporaryDirectory(prefix="torch2edge-xla-")
        model, arguments, signature = _lower(bundle, Path(scratch.name), time_limit)
    inputs = [s.name for s in signature.inputs] + [s.input.name for s in signature.state]
    outputs = [s.name for s in signature.outputs] + [s.output.name for s in signature.state]
    try:
        session = RemoteSession(
            "torch2edge.runtime._xla_service",
            stage="runtime xla",
            options={
                "model": str(model),
                "weights": str(bundle.path / "weights.safetensors"),
                "arguments": list(arguments),
                "inputs": inputs,
            },
            outputs=outputs,
            time_limit=time_limit,
        )
    finally:
        if scratch:
            scratch.cleanup()
    return Runner("xla", signature, session, start_values(bundle))


def _lower(bundle: Opened, scratch: Path, time_limit: float) -> tuple[Path, tuple[str, ...], Signature]:
    from torch2edge.converters import lowering

    done: Any = lowering.lower(bundle.path, bundle.signature, {"cloud-tpu": scratch}, time_limit=time_limit)[
        "cloud-tpu"
    ]
    return scratch / done.files["model"], done.arguments, done.signature
