"""torch2edge runtimes"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the 6 ms of importing typing for `--help`
if TYPE_CHECKING:
    from typing import Any

HELP = "list the runtimes, and why one is not available here"


def add_arguments(parser: Any) -> None:
    """The command takes no arguments of its own."""


def run(arguments: Any) -> int:
    """Call torch2edge.runtimes and print."""
    from rich.markup import escape

    from torch2edge import registry
    from torch2edge.cli import _print
    from torch2edge.pipeline import runtimes

    found = runtimes()
    if arguments.json:
        _print.document(found)
        return 0
    table = _print.table("runtime", "bundles", "here", "a departure accuses")
    for name, why in found.items():
        module = registry.get("runtime", name)
        here = "yes" if why is None else escape(f"no: {why}")
        table.add_row(name, ", ".join(module.TARGETS), here, module.STAGE)
    _print.console(arguments).print(table)
    return 0
