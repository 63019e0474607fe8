"""What runs in the conversion worker: decompose once, then lower for each target.

Importing litert_torch flips process-wide flags and native code may crash; both stay in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import litert_torch  # noqa: F401 - imported at start, while the caller still captures
import torch
from litert_torch import fx_infra

from torch2edge import program as programs
from torch2edge.converters import blockers, litert, stablehlo

Message = dict[str, Any]

_LOWER: dict[str, Callable[[torch.export.ExportedProgram, Path, Message], Message]] = {
    "cloud-tpu": stablehlo.lower,
    "litert": litert.lower,
}


def _lower(body: Message, arrays: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
    """Lower a saved program for targets, each into its own folder.

    body: {"folder": where program.pt2 lies, "signature": names, "out": {target: folder}}.
    """
    fx_infra.silence_torch_logs()
    program = programs.load(Path(body["folder"]))
    blockers.refuse_before(program, list(body["out"]))
    program = fx_infra.safe_run_decompositions(program, fx_infra.decomp.pre_convert_decomp(), can_skip=False)
    found = {t: blockers.find(program, t) for t in body["out"]}
    blockers.refuse(found)
    # StableHLO first: the LiteRT lowering clamps infinities in place (in this process's private pages).
    order = sorted(body["out"], key=list(_LOWER).index)
    results = {}
    for target in order:
        print(f"lowering for {target}", file=sys.stderr, flush=True)
        results[target] = _LOWER[target](program, Path(body["out"][target]), body["signature"])
    return results, {}


OPS = {"lower": _lower}
