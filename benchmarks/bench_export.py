"""Time and peak memory of torch2edge beside what it is built on; writes benchmarks/RESULTS.md (`make bench`).

Comparisons run their sides in turn (A B A B ...): a machine that slows down slows both; medians are shown.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

from measure import Run, run

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parent / "samples"
TOOLS = ("torch2edge", "torch", "litert-torch", "litert-converter", "ai-edge-litert", "jax")

BOTH = "efficientnet_lite0"
HELP_TIMES = 15

Side = tuple[str, Callable[[], Run]]


def torch2edge(*arguments: str, watch: bool = True) -> Run:
    """One command of torch2edge."""
    return run([sys.executable, "-m", "torch2edge", *arguments], watch=watch)


def export(sample: str, out: Path, *targets: str, parity: bool = False) -> Run:
    """One `torch2edge export`, as a user would call it."""
    options = [word for target in targets for word in ("--target", target)]
    options += [] if parity else ["--no-parity"]
    return torch2edge("export", f"{SAMPLES}/{sample}.py:model", "-o", str(out), "--force", *options)


def both_apart(sample: str, out: Path, *, parity: bool = False) -> Run:
    """A target after the other in two commands: the times add up, the peak is the larger one."""
    runs = [export(sample, out / target, target, parity=parity) for target in ("litert", "cloud-tpu")]
    return Run(sum(r.seconds for r in runs), max(r.peak for r in runs))


def table(title: str, sides: Sequence[Side], times: int, *, unit: str = "s") -> list[str]:
    """Measure sides in turn; lines of a Markdown section, each ratio against the last side.

    Args:
        title: of the section.
        sides: name and action; the last is what the others are compared with.
        times: runs of each side.
        unit: "s", or "ms" for commands too short for memory to be watched.
    """
    runs: dict[str, list[Run]] = {name: [] for name, _ in sides}
    for turn in range(times):
        for name, action in sides:
            print(f"{title}: {name}, run {turn + 1} of {times} ...", file=sys.stderr, flush=True)
            runs[name].append(action())
    scale, digits = (1, 1) if unit == "s" else (1000, 0)
    base_seconds = median(r.seconds for r in runs[sides[-1][0]])
    base_peak = median(r.peak for r in runs[sides[-1][0]])
    lines = [
        f"## {title}",
        "",
        f"| | median, {unit} | all runs, {unit} | time ratio | peak, MB | memory ratio |",
    ]
    lines.append("|---|---:|---|---:|---:|---:|")
    for name, found in runs.items():
        seconds, peak = median(r.seconds for r in found), median(r.peak for r in found)
        every = ", ".join(f"{r.seconds * scale:.{digits}f}" for r in found)
        memory = f"{peak / 1e6:,.0f} | {peak / base_peak:.2f}" if base_peak else "- | -"
        row = f"{seconds * scale:.{digits}f} | {every} | {seconds / base_seconds:.2f} | {memory}"
        lines.append(f"| {name} | {row} |")
    return [*lines, ""]


def comparisons(out: Path, times: int) -> list[str]:
    """Measure everything, with `out` as scratch folder; lines of Markdown."""
    lines = []
    for sample in ("efficientnet_lite0", "minilm"):
        bare = [sys.executable, str(HERE / "bare_convert.py"), sample, str(out / "bare.tflite")]
        sides: list[Side] = [
            ("export --target litert --no-parity", partial(export, sample, out / "a", "litert")),
            ("bare litert_torch.convert", partial(run, bare)),
        ]
        lines += table(f"Conversion of {sample}", sides, times)
    for parity, words in ((False, "--no-parity"), (True, "parity included")):
        sides = [
            ("one command", partial(export, BOTH, out / "b", "litert", "cloud-tpu", parity=parity)),
            ("a command for each", partial(both_apart, BOTH, out / "c", parity=parity)),
        ]
        lines += table(f"Both targets, {BOTH}, {words}", sides, times)
    sides = [
        ("torch2edge --help", partial(torch2edge, "--help", watch=False)),
        ("torch2edge export --help", partial(torch2edge, "export", "--help", watch=False)),
        ("python -c pass", partial(run, [sys.executable, "-c", "pass"], watch=False)),
    ]
    return lines + table("Start-up", sides, HELP_TIMES, unit="ms")


def machine() -> list[str]:
    """The head of the page: when, where and with what."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    tools = ", ".join(f"{name} {version(name)}" for name in TOOLS)
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GB"
    return [
        "# Results",
        "",
        "Written by `make bench`; not edited by hand.",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, {system}",
        f"- Python {platform.python_version()}, {tools}",
        "- sides run in turn; ratios are against the last side of a table",
        "- peak: largest sum of PSS over the process tree, sampled 20 times a second",
        "",
    ]


def main() -> int:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description="Measure torch2edge and write benchmarks/RESULTS.md")
    parser.add_argument("--times", type=int, default=3, help="runs of each side of an export (default 3)")
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md")
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    head = machine()  # first: a tool that is not installed shows before minutes of measuring
    with tempfile.TemporaryDirectory() as scratch:
        lines = comparisons(Path(scratch), arguments.times)
    text = "\n".join([*head, *lines]).rstrip() + "\n"
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
