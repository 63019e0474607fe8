"""The worker's side of the XLA runtimes: compile the portable StableHLO for the CPU and call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from torch2edge.runtime import _exported

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]  # the artifact decides its dtypes, not a default of jax

_open: dict[str, Any] = {}


def _weights(path: str, names: list[str]) -> list[Any]:
    from safetensors import safe_open

    with safe_open(path, framework="flax") as file:
        tied = json.loads((file.metadata() or {}).get("tied", "{}"))
        held: dict[str, Any] = {}
        for name in names:
            stored = tied.get(name, name)
            if stored not in held:
                held[stored] = file.get_tensor(stored)
        return [held[tied.get(n, n)] for n in names]


def _open_model(body: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    exported = _exported.from_stablehlo(Path(body["model"]).read_bytes())
    weights = _weights(body["weights"], body["arguments"])
    shapes = list(exported.in_avals)
    call = jax.jit(exported.call).lower(*shapes).compile()
    _open.update(call=call, weights=weights, inputs=body["inputs"], outputs=body["outputs"])
    return {}, {}


def _invoke(body: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    results = _open["call"](*_open["weights"], *(arrays[n] for n in _open["inputs"]))
    return {}, {n: np.asarray(r) for n, r in zip(_open["outputs"], results, strict=True)}


OPS = {"open": _open_model, "invoke": _invoke}
