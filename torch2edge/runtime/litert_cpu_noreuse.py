"""XNNPACK with every tensor kept: tells a wrong kernel from an overwritten buffer."""

from __future__ import annotations

from torch2edge.runtime._litert import available as available
from torch2edge.runtime._litert import open_with
from torch2edge.runtime._runner import Runner
from torch2edge.stages import Opened

TARGETS = ("litert",)
STAGE = "XNNPACK kernels"
TOLERANCE = "float"


def open(bundle: Opened, *, time_limit: float = 600.0) -> Runner:
    """A runner for a litert bundle."""
    return open_with("litert-cpu-noreuse", bundle, resolver="AUTO", preserve=True, time_limit=time_limit)
