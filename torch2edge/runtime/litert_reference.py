"""The LiteRT interpreter with its plain reference kernels: what the file itself computes."""

from __future__ import annotations

from torch2edge.runtime._litert import available as available
from torch2edge.runtime._litert import open_with
from torch2edge.runtime._runner import Runner
from torch2edge.stages import Opened

TARGETS = ("litert",)
STAGE = "conversion to .tflite"
TOLERANCE = "float"


def open(bundle: Opened, *, time_limit: float = 600.0) -> Runner:
    """A runner for a litert bundle."""
    return open_with(
        "litert-reference", bundle, resolver="BUILTIN_REF", preserve=False, time_limit=time_limit
    )
