"""The LiteRT interpreter as phones run it on the CPU: XNNPACK, buffers reused."""

from __future__ import annotations

from torch2edge.runtime._litert import available as available
from torch2edge.runtime._litert import open_with
from torch2edge.runtime._runner import Runner
from torch2edge.stages import Opened

TARGETS = ("litert",)
STAGE = "buffer reuse by the LiteRT runtime"
TOLERANCE = "float"


def open(bundle: Opened, *, time_limit: float = 600.0) -> Runner:
    """A runner for a litert bundle."""
    return open_with("litert-cpu", bundle, resolver="AUTO", preserve=False, time_limit=time_limit)
