"""The report as terminal tables that fit 80 columns: a heading for each runtime, a row for each output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch2edge.numerics.report import badness
from torch2edge.stages import OutputRecord, RuntimeRecord

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from torch2edge.numerics.report import Report

MOST = 6
"""Outputs shown per runtime unless asked for all: the worst ones."""
FIGURES = (("max abs", 7), ("limit", 7), ("SQNR dB", 7), ("cosine", 7), ("top-1", 5))
VERDICT = 6
LONGEST_CASE = 15


def print_report(report: Report, console: Console, *, verbose: bool = False) -> None:
    """Print one row per runtime and output (its worst case), then what failed and the verdict.

    Args:
        report: to print.
        console: of rich; long names are wrapped and numbers never cut, however narrow it is.
        verbose: every case instead of the worst.
    """

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    worst = report.worst()
    chosen = report.records if verbose else tuple(worst.values())
    widths = _widths(chosen, console.width)
    line(f"parity: {report.target}", "bold")
    _rows(console, widths, [], case="case" if verbose else "worst case")
    for runtime in report.runtimes:
        mine = sorted((r for r in chosen if r.runtime == runtime.runtime), key=badness, reverse=True)
        shown = mine if verbose else mine[:MOST]
        console.print(_heading(report, runtime), soft_wrap=True)
        _rows(console, widths, shown)
        if len(shown) < len(mine):
            line(f"  and {len(mine) - len(shown)} more outputs, none worse")
    for runtime in report.runtimes:
        reason = runtime.why or ("" if report.of(runtime) else report.fault(runtime))
        if reason and runtime.status != "not run":
            line(f"{runtime.runtime}: {reason}")
    for record in chosen:
        if not record.passed:
            line(f"{record.runtime}, {record.output}, {record.case}: {record.reason}")
    for note in report.notes:
        line(f"note: {note}")
    ran = [r for r in report.runtimes if r.status != "not run"]
    if report.passed:
        cases = len({r.case for r in report.records})
        line(f"{len(ran)} runtimes agree with eager PyTorch on {cases} cases", "green")
    elif report.departs:
        line(f"first departure: {report.departs}", "bold red")
    elif ran:
        line("a record failed that belongs to no runtime", "bold red")
    else:
        line("nothing ran, so nothing is proven", "bold red")


def _heading(report: Report, runtime: RuntimeRecord) -> Text:
    from rich.text import Text

    if runtime.status == "not run":
        return Text.assemble(
            f"{runtime.runtime}: ", ("not run", "yellow"), f": {runtime.why}" if runtime.why else ""
        )
    failed = bool(report.fault(runtime))
    return Text.assemble(f"{runtime.runtime}: ", ("FAILED", "bold red") if failed else ("passed", "green"))


def _widths(records: Sequence[OutputRecord], console: int) -> tuple[int, int]:
    """Widths of the columns for an output's and a case's name: as long as needed, within the room."""
    case = min(LONGEST_CASE, max([len("worst case"), *(len(r.case) for r in records)]))
    taken = 2 + 1 + case + 1 + sum(width + 1 for _, width in FIGURES) + VERDICT
    return min(max(12, console - taken), max([len("output"), *(len(r.output) for r in records)])), case


def _rows(console: Console, widths: tuple[int, int], records: Sequence[OutputRecord], case: str = "") -> None:
    """Rows of one runtime, or with `case` the head of the columns."""
    from rich.segment import Segments
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_header=bool(case))
    table.add_column("", width=1)
    for name, width in zip(("output", case), widths, strict=True):
        table.add_column(name, overflow="fold", width=width)
    for name, width in FIGURES:
        table.add_column(name, justify="right", no_wrap=True, width=width)
    table.add_column("", no_wrap=True, width=VERDICT)
    for record in records:
        verdict = Text("passed", "green") if record.passed else Text("FAILED", "bold red")
        # Text: brackets in a name are not markup.
        table.add_row("", Text(record.output), Text(record.case), *_figures(record), verdict)
    if case or records:
        total = 2 + sum(widths) + 2 + sum(width + 1 for _, width in FIGURES) + VERDICT
        # Rendered at its own width: rich would cut numbers short to squeeze it into a narrower console.
        drawn = Segments(console.render(table, console.options.update_width(total)))
        console.print(drawn, end="", crop=False, no_wrap=True, overflow="ignore")


def _figures(record: OutputRecord) -> tuple[str, str, str, str, str]:
    return (
        _number(record.max_abs, ".1e"),
        _number(record.limit, ".1e"),
        _number(record.sqnr_db, ".1f"),
        _share(record.cosine, 4),
        "-" if record.top1 is None else f"{_share(record.top1, 2, 100)}%",
    )


def _number(value: float | None, form: str) -> str:
    if value is None:
        return "-"
    return "0" if value == 0 and form.endswith("e") else format(value, form)


def _share(value: float | None, digits: int, factor: int = 1) -> str:
    """Cut, not rounded: what is not 1 must not read as 1."""
    if value is None:
        return "-"
    if value == 1.0:
        return str(factor)
    cut = math.floor(value * 10**digits) / 10**digits
    return f"{cut * factor:.{0 if factor > 1 else digits}f}"
