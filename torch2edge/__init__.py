"""torch2edge: one export pipeline from PyTorch to Cloud TPU and LiteRT, with parity proven on the way.

Importing it loads none of torch, jax or litert_torch; each function imports what it needs.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the 6 ms of importing typing for `--help`
__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from torch2edge import errors as errors
    from torch2edge.pipeline import export as export
    from torch2edge.pipeline import load as load
    from torch2edge.pipeline import parity as parity
    from torch2edge.pipeline import runtimes as runtimes

__all__ = ["errors", "export", "load", "parity", "runtimes"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("torch2edge.errors")
    if name in __all__:
        return getattr(import_module("torch2edge.pipeline"), name)
    raise AttributeError(f"module 'torch2edge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
