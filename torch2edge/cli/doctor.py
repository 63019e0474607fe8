"""torch2edge doctor"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the 6 ms of importing typing for `--help`
if TYPE_CHECKING:
    from typing import Any

HELP = "show versions, what works, and the one command that mends what does not"


def add_arguments(parser: Any) -> None:
    """The command takes no arguments of its own."""


def run(arguments: Any) -> int:
    """Call diagnose and print; 3 when a required part does not work."""
    import dataclasses

    from rich.markup import escape

    from torch2edge.cli import _print
    from torch2edge.doctor import diagnose

    with _print.progress() as say:
        findings = diagnose(say)
    if arguments.json:
        _print.document([dataclasses.asdict(f) for f in findings])
    console = _print.console(arguments)
    table = _print.table("part", "version", "", "says")
    colours = {
        "ok": "green",
        "broken": "bold red",
        "missing": "bold red",
        "optional": "dim",
        "note": "yellow",
    }
    for finding in findings:
        colour = colours[finding.status]
        says = escape(finding.says)  # an import's last line may hold brackets
        table.add_row(finding.part, finding.version or "-", f"[{colour}]{finding.status}[/]", says)
    console.print(table)
    for finding in findings:
        if finding.fix:
            console.print(f"{finding.part}: {finding.fix}", markup=False, soft_wrap=True)
    return 3 if any(f.status in ("broken", "missing") for f in findings) else 0
