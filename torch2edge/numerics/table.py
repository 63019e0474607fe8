"""The report as a terminal table that fits 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch2edge.stages import OutputRecord

if TYPE_CHECKING:
    from rich.console import Console

    from torch2edge.numerics.report import Report

MOST = 6
"""Outputs shown per runtime unless asked for all: the worst ones."""


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print one row per runtime and output (its worst case), then the verdict.

    Args:
        report: to print.
        console: of rich.
        verbose: every case instead of the worst.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=f"parity: {report.target}", title_justify="left")
    for name in ("runtime", "output", "worst case" if not verbose else "case"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=20)
    for name in ("max abs", "limit", "SQNR dB", "top-1"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    worst = report.worst()
    for runtime in report.runtimes:
        mine = [r for r in (report.records if verbose else worst.values()) if r.runtime == runtime.runtime]
        mine.sort(key=lambda r: r.passed)
        shown = mine if verbose else mine[:MOST]
        for index, record in enumerate(shown):
            verdict = Text("passed", "green") if record.passed else Text("FAILED", "bold red")
            name = runtime.runtime if index == 0 else ""
            table.add_row(name, record.output, record.case, *_figures(record), verdict)
        if len(shown) < len(mine):
            table.add_row("", f"+{len(mine) - len(shown)} more, all no worse", "", "", "", "", "", "")
        if not mine:
            style = "yellow" if runtime.status == "not run" else "bold red"
            table.add_row(runtime.runtime, "", "", "", "", "", "", Text(runtime.status, style))
    console.print(table)
    for runtime in report.runtimes:
        if runtime.why:
            console.print(f"{runtime.runtime}: {runtime.status}: {runtime.why}", markup=False, highlight=False)
    for (name, output), record in worst.items():
        if not record.passed:
            console.print(f"{name}, {output}, {record.case}: {record.reason}", markup=False, highlight=False)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    ran = [r for r in report.runtimes if r.status != "not run"]
    if report.passed:
        cases = len({r.case for r in report.records})
        console.print(f"{len(ran)} runtimes agree with eager PyTorch on {cases} cases", style="green", highlight=False)
    elif report.departs:
        console.print(f"first departure: {report.departs}", style="bold red", highlight=False)
    else:
        console.print("nothing ran, so nothing is proven", style="bold red", highlight=False)


def _figures(record: OutputRecord) -> tuple[str, str, str, str]:
    def text(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    top1 = text(record.top1, ".0%") if record.top1 is not None else "-"
    return text(record.max_abs, ".1e"), text(record.limit, ".1e"), text(record.sqnr_db, ".0f"), top1
