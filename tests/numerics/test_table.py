"""The table fits 80 columns, cuts no number and no name, and says passed, FAILED or not run."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from torch2edge.numerics.report import Report, joined
from torch2edge.numerics.table import MOST, print_report
from torch2edge.stages import OutputRecord, RuntimeRecord

GOOD = OutputRecord(
    "litert-cpu", "sample", "y", True, "", 1.25e-7, 1e-6, 1e-8, 1e-8, 140.06, 0.99999999, 0.999, 2e-6, 1e-7
)
BAD = replace(
    GOOD, case="random", passed=False, reason="max_abs 0.5 > 2e-06", max_abs=0.5, sqnr_db=-3.25, cosine=-0.25
)
CPU = RuntimeRecord("litert-cpu", "XNNPACK", "passed", "", 0.5)
LONG = replace(
    GOOD,
    runtime="litert-cpu-noreuse",
    case="outliers-call-12",
    output="last_hidden_state.layers[11].attention",
)
NOREUSE = RuntimeRecord("litert-cpu-noreuse", "buffer reuse", "passed", "", 0.5)
GPU = RuntimeRecord("litert-gpu", "GPU", "not run", "no GPU here: pip install torch2edge[gpu]")


def printed(report: Report, width: int = 80, verbose: bool = False) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    print_report(report, console, verbose=verbose)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def rows(text: str, output: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(f"  {output} ")]


def test_numbers_are_shown_when_passing_too() -> None:
    text = printed(Report("litert", (CPU,), (GOOD,)))
    assert rows(text, "y") == [["y", "sample", "1.2e-07", "2.0e-06", "140.1", "0.9999", "99%", "passed"]]
    assert "litert-cpu: passed" in text
    assert "1 runtimes agree with eager PyTorch on 1 cases" in text
    for head in ("output", "worst case", "max abs", "limit", "SQNR dB", "cosine", "top-1"):
        assert head in text.splitlines()[1]


def test_what_is_not_whole_is_never_rounded_up_to_whole() -> None:
    exact = replace(GOOD, output="exact", cosine=1.0, top1=1.0, max_abs=0.0, sqnr_db=math.inf)
    text = printed(Report("litert", (CPU,), (GOOD, exact)))
    assert rows(text, "exact")[0][2:-1] == ["0", "2.0e-06", "inf", "1", "100%"]
    assert rows(text, "y")[0][-3:-1] == ["0.9999", "99%"]


def test_undefined_measures_are_dashes() -> None:
    text = printed(
        Report("litert", (CPU,), (OutputRecord("litert-cpu", "sample", "ids", True, "", 0.0, limit=0.0),))
    )
    assert rows(text, "ids") == [["ids", "sample", "0", "0", "-", "-", "-", "passed"]]


def test_a_failure_is_a_row_a_reason_and_the_stage() -> None:
    text = printed(Report("litert", (CPU,), (GOOD, BAD)))
    assert rows(text, "y") == [["y", "random", "5.0e-01", "2.0e-06", "-3.2", "-0.2500", "99%", "FAILED"]]
    assert "litert-cpu: FAILED" in text  # although the runtime's own status says passed
    assert "litert-cpu, y, random: max_abs 0.5 > 2e-06" in text
    assert "first departure: XNNPACK" in text and "agree" not in text
    assert "FAILED" not in printed(Report("litert", (CPU,), (GOOD,)))


def test_what_did_not_run_says_so_and_why() -> None:
    text = printed(Report("litert", (CPU, GPU), (GOOD,)))
    assert "litert-gpu: not run: no GPU here: pip install torch2edge[gpu]" in text
    assert "nothing ran, so nothing is proven" in printed(Report("litert", (GPU,), ()))
    assert "nothing ran" in printed(Report("litert", (), ()))


def test_a_crash_and_an_empty_run_are_failures() -> None:
    crashed = replace(CPU, status="failed", why="killed by signal 11\nafter 3 s")
    text = printed(Report("litert", (crashed,), ()))
    assert "litert-cpu: FAILED" in text and "litert-cpu: killed by signal 11" in text
    assert "litert-cpu: nothing was compared" in printed(Report("litert", (CPU,), ()))


def test_the_table_fits_80_columns_and_loses_no_part_of_a_name() -> None:
    text = printed(Report("litert", (NOREUSE, CPU), (LONG, BAD, GOOD)))
    table = text[: text.index("litert-cpu, y")]
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in text
    at = table.splitlines().index("litert-cpu-noreuse: passed") + 1
    lines = table.splitlines()[at : at + 3]
    case = lines[0].index("outliers")
    assert "".join(line[2:case].strip() for line in lines) == LONG.output
    assert "".join(line[case : case + 15].strip() for line in lines) == LONG.case
    assert "1.2e-07" in lines[0] and lines[0].endswith("passed")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_number_is_cut_however_narrow_or_wide(width: int) -> None:
    text = printed(Report("litert", (CPU,), (GOOD, BAD)), width)
    assert rows(text, "y")[0][2:] == ["5.0e-01", "2.0e-06", "-3.2", "-0.2500", "99%", "FAILED"]
    assert max(map(len, text.splitlines())) <= 80


def test_extreme_numbers_keep_their_columns() -> None:
    extreme = replace(GOOD, max_abs=3.4e38, limit=1.2e-38, sqnr_db=-1234.5, cosine=-1.0, top1=0.0)
    text = printed(Report("litert", (CPU,), (extreme,)))
    assert rows(text, "y") == [["y", "sample", "3.4e+38", "1.2e-38", "-1234.5", "-1.0000", "0%", "passed"]]


def test_only_the_worst_outputs_are_shown_unless_asked_for_all() -> None:
    many = tuple(replace(GOOD, output=f"o{i}", max_abs=i * 1e-8) for i in range(10))
    failed = replace(BAD, output="bad")
    text = printed(Report("litert", (CPU,), (*many, failed)))
    shown = [
        line.split()[0]
        for line in text.splitlines()
        if line.endswith(("passed", "FAILED")) and line[0] == " "
    ]
    assert shown == ["bad", *(f"o{i}" for i in range(9, 10 - MOST, -1))]
    assert f"and {11 - MOST} more outputs, none worse" in text
    everything = printed(Report("litert", (CPU,), (*many, failed, GOOD, BAD)), verbose=True)
    assert len(rows(everything, "y")) == 2 and len(rows(everything, "o0")) == 1
    assert "more outputs" not in everything


def test_brackets_in_names_are_not_markup() -> None:
    odd = replace(GOOD, output="[bold]a[/nope]", passed=False, reason="[red]x[/y]")
    runtime = replace(CPU, runtime="litert-cpu")
    text = printed(Report("[litert]", (runtime,), (odd,), notes=("[note] z [/n]",)))
    for part in ("[bold]a[/nope]", "[red]x[/y]", "parity: [litert]", "note: [note] z [/n]"):
        assert part in text


def test_two_bundles_stay_apart() -> None:
    text = printed(joined([Report("litert", (CPU,), (GOOD,)), Report("litert", (CPU,), (BAD,))]))
    assert "litert-cpu (litert 1): passed" in text and "litert-cpu (litert 2): FAILED" in text
    assert [r[-1] for r in rows(text, "y")] == ["passed", "FAILED"]
