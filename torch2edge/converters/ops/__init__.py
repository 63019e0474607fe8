"""Operators that the converter lacks or gets wrong, defined once for both targets.

A file here holds DECOMPOSITIONS: ATen overload -> function of the same arguments in other ATen operators.  It
returns NotImplemented for the arguments that the converter handles well, which leaves the operator as it is.
Adding one is adding a file, or an entry with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from litert_torch.fx_infra import decomp

Decompositions = dict[torch._ops.OperatorBase, Callable[..., Any]]


def decompositions() -> Decompositions:
    """The converter's own table with this room's entries over it."""
    table: Decompositions = decomp.pre_convert_decomp()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith("_"):
            table.update(import_module(f"{__name__}.{path.stem}").DECOMPOSITIONS)
    return table
