"""What runs in the conversion worker: decompose once, then lower for each target.

Importing litert_torch flips process-wide flags and native code may crash; both stay in this process.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import litert_torch  # noqa: F401 - imported at start, while the caller still captures
import torch
from litert_torch import fx_infra

from torch2edge import program as programs
from torch2edge.blame_source import failing_line
from torch2edge.converters import blockers, isolate, litert, ops, stablehlo
from torch2edge.errors import ConversionError, Torch2EdgeError

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
    program = _decomposed(program)
    missing = blockers.find(program)
    blockers.refuse({t: missing for t in body["out"]})
    # StableHLO first: the LiteRT lowering clamps infinities in place (in this process's private pages).
    order = sorted(body["out"], key=list(_LOWER).index)
    results, failures = {}, {}
    for target in order:
        print(f"lowering for {target}", file=sys.stderr, flush=True)
        try:
            results[target] = _LOWER[target](program, Path(body["out"][target]), body["signature"])
        except Torch2EdgeError:
            raise
        except Exception as error:  # the converter raises whatever its native code threw
            traceback.print_exc()
            failures[target] = error
    if failures:
        _explain(Path(body["folder"]), failures, order)
    return results, {}


def _decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    made: torch.export.ExportedProgram = fx_infra.safe_run_decompositions(
        program, ops.decompositions(), can_skip=False
    )
    return made


def _explain(folder: Path, failures: dict[str, Exception], targets: list[str]) -> None:
    """Raise what says most: every operator that fails alone, or else what the converter itself said."""
    program = _decomposed(programs.load(folder))  # the failed lowering left its own half rewritten
    found: dict[str, list[str]] = {t: [] for t in targets}
    for target in failures:
        print(f"looking for what {target} cannot take", file=sys.stderr, flush=True)
        found[target] = isolate.culprits(program, _LOWER[target])
    blockers.refuse(found)
    raise ConversionError(
        f"lowering failed for {', '.join(failures)}, though every operator can be lowered alone",
        details=[f"{t}: {type(e).__name__}: {isolate.reason(e)}" for t, e in failures.items()],
        where=", ".join(dict.fromkeys(filter(None, map(failing_line, failures.values()))))
        or ", ".join(failures),
        next_step="run with --debug for the converter's own log, and report this",
    ) from next(iter(failures.values()))


OPS = {"lower": _lower}
