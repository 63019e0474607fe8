"""The worker's side of the LiteRT CPU runtimes.  Imports numpy and ai_edge_litert only."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

_open: dict[str, Any] = {}


def _open_model(body: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    interpreter = Interpreter(
        model_path=body["model"],
        num_threads=os.cpu_count(),
        experimental_op_resolver_type=OpResolverType[body["resolver"]],
        experimental_preserve_all_tensors=body["preserve"],
    )
    (key,) = interpreter.get_signature_list()
    _open.update(
        interpreter=interpreter, runner=interpreter.get_signature_runner(key), outputs=body["outputs"]
    )
    return {}, {}


def _invoke(body: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    results = _open["runner"](**arrays)
    return {}, {n: np.array(results[n], copy=True) for n in _open["outputs"] if n in results}


OPS = {"open": _open_model, "invoke": _invoke}
