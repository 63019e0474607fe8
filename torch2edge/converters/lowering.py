"""The host's side of conversion: one worker lowers a saved program for every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch2edge.errors import ConversionError
from torch2edge.stages import Lowered, Signature
from torch2edge.workers import Worker

SERVICE = "torch2edge.converters._service"


def start(time_limit: float) -> Worker:
    """Start the worker early: it imports the converter while the caller still loads and captures."""
    return Worker(SERVICE, stage="conversion", time_limit=time_limit)


def lower(
    folder: Path,
    signature: Signature,
    out: dict[str, Path],
    *,
    time_limit: float,
    worker: Worker | None = None,
) -> dict[str, Lowered]:
    """Lower the program in `folder` for each target into its own folder.

    Returns:
        target -> Lowered, its signature holding the artifact's own dtypes.

    Raises:
        UnsupportedError: everything that a target cannot take.
        ConversionError, WorkerCrashed, WorkerTimeout: the converter failed.
    """
    names = {
        "inputs": [s.name for s in signature.inputs] + [s.input.name for s in signature.state],
        "outputs": [s.name for s in signature.outputs] + [s.output.name for s in signature.state],
    }
    body = {"folder": str(folder), "signature": names, "out": {t: str(p) for t, p in out.items()}}
    own = worker or start(time_limit)
    try:
        results, _ = own.call("lower", body)
    finally:
        own.close()
    return {target: _lowered(target, found, signature) for target, found in results.items()}


def _lowered(target: str, found: dict[str, Any], signature: Signature) -> Lowered:
    wanted = {s.name: s for s in signature.inputs} | {s.input.name: s.input for s in signature.state}
    wrong = _shape_errors("input", found["inputs"], wanted)
    results = {s.name: s for s in signature.outputs} | {s.output.name: s.output for s in signature.state}
    wrong += _shape_errors("output", found["outputs"], results)
    if wrong:
        raise ConversionError(
            f"the {target} artifact has other shapes than the model", where=target, details=wrong,
            next_step="report this: the converter changed the model's boundary",
        )  # fmt: skip
    stored = signature.with_stored(
        {n: s[0] for n, s in found["inputs"].items()}, {n: s[0] for n, s in found["outputs"].items()}
    )
    return Lowered(
        target, {"model": found["file"]}, stored, tuple(found.get("arguments", ())), found["versions"]
    )


def _shape_errors(what: str, found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return [
        f"{what} {name}: expected {list(wanted[name].shape)}, got {shape}"
        for name, (_, shape) in found.items()
        if list(wanted[name].shape) != shape
    ]
