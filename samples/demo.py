"""The main job: one network to both targets in one call, then photographs on each, beside eager PyTorch.

python samples/demo.py [--output DIR] [--readme README.md]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import efficientnet_lite0
import photos
import torch2edge as t2e

PHOTOGRAPHS = ("china", "flower", "chelsea")
TOP = 5
BEGIN, END = "<!-- demo:begin -->", "<!-- demo:end -->"

Logits = NDArray[np.float32]


def classify(module: torch.nn.Module, bundles: dict[str, Any]) -> dict[str, dict[str, Logits]]:
    """Runtime -> photograph -> logits (1000); "eager" is the module itself, not a bundle."""
    pictures = {name: photos.load(name) for name in PHOTOGRAPHS}
    with torch.no_grad():
        answers = {"eager": {name: module(x).numpy()[0] for name, x in pictures.items()}}
    for target, runtime in (("cloud-tpu", "xla"), ("litert", "litert-cpu")):
        with t2e.load(bundles[target], runtime=runtime) as runner:
            answers[runtime] = {name: runner(x)[0] for name, x in pictures.items()}
    return answers


def print_answers(answers: dict[str, dict[str, Logits]], console: Any) -> None:
    """A table of the best classes with their probabilities, and how far each runtime is from eager."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    names = photos.class_names()
    table = Table("photo", *answers, box=SIMPLE_HEAD, pad_edge=False)
    for photo in PHOTOGRAPHS:
        columns = []
        for logits in (answers[runtime][photo] for runtime in answers):
            odds = np.exp(logits - logits.max(), dtype=np.float64)
            best = np.argsort(-logits)[:TOP]
            columns.append([f"{names[i]} {odds[i] / odds.sum():.4f}" for i in best])
        for rank, cells in enumerate(zip(*columns, strict=True)):
            table.add_row(photo if rank == 0 else "", *cells, end_section=rank == TOP - 1)
    console.print(table)
    for runtime in list(answers)[1:]:
        worst = max(float(np.abs(answers[runtime][p] - answers["eager"][p]).max()) for p in PHOTOGRAPHS)
        largest = max(float(np.abs(answers["eager"][p]).max()) for p in PHOTOGRAPHS)
        console.print(f"{runtime}: largest difference from eager {worst:.1e}, of logits up to {largest:.1f}")


def print_bundles(bundles: dict[str, Any], seconds: float, console: Any) -> None:
    """What the export made, and whether parity passed."""
    for target, bundle in bundles.items():
        files = bundle.manifest["files"]
        payload = [bundle.manifest["model"], *(["weights.safetensors"] if target == "cloud-tpu" else [])]
        sizes = ", ".join(f"{name} {files[name]['bytes'] / 1e3:,.0f} kB" for name in payload)
        ran = [r.runtime for r in bundle.report.runtimes if r.status == "passed"]
        verdict = "passed" if bundle.report.passed else "FAILED"
        console.print(f"{target}: {sizes}\n  parity {verdict} on {', '.join(ran)}")
    console.print(f"both targets exported and compared in {seconds:.0f} s")


def main() -> int:
    """Export, classify, print; with --readme also write what was printed into that file."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default="build/demo", help="folder for the two bundles, replaced")
    parser.add_argument("--readme", type=Path, help="put the output between the demo marks of this file")
    arguments = parser.parse_args()
    console = Console(record=True, width=88, highlight=False)

    module, args = efficientnet_lite0.model()
    began = time.perf_counter()
    bundles: Any = t2e.export(
        module, args, target=["litert", "cloud-tpu"], output=arguments.output, force=True,
        progress=lambda line: print(f"{line} ...", file=sys.stderr, flush=True),
    )  # fmt: skip
    print_bundles(bundles, time.perf_counter() - began, console)
    print_answers(classify(module, bundles), console)
    if arguments.readme is not None:
        fill(arguments.readme, console.export_text())
    return 0


def fill(file: Path, text: str) -> None:
    """Replace what stands between the demo marks of a file by `text`, as a code block."""
    page = file.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SystemExit(f"{file}: expected one {BEGIN} and then one {END}")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    file.write_text(f"{before}{BEGIN}\n```console\n$ make demo\n{lines}\n```\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
