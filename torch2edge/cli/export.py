"""torch2edge export MODEL --target litert --target cloud-tpu -o DIR"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own constant, without the 6 ms of importing typing for `--help`
if TYPE_CHECKING:
    from typing import Any

HELP = "export a model to a target and prove that the numbers survived"


def add_arguments(parser: Any) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="file.py:factory, package.module:factory, file.pt2, or a Hugging Face folder",
    )
    parser.add_argument(
        "--target",
        action="append",
        required=True,
        choices=("litert", "cloud-tpu"),
        help="repeat for both in one go",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="the bundle's folder (for two targets its parent); default build/NAME",
    )
    parser.add_argument("--weights", metavar="FILE", help="state dict: safetensors, or a pickle without code")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=SHAPE:DTYPE",
        help="x=1x3x224x224:float32 or x=file.npy; repeatable",
    )
    parser.add_argument(
        "--no-parity", action="store_true", help="skip the comparison; the manifest then says not checked"
    )
    parser.add_argument("--force", action="store_true", help="replace a bundle that stands there")
    parser.add_argument(
        "--time-limit",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="for each step in a worker (default 600)",
    )
    parser.add_argument("--verbose", action="store_true", help="show every case, not the worst only")


def run(arguments: Any) -> int:
    """Call torch2edge.export and print what it made."""
    from torch2edge.cli import _print
    from torch2edge.errors import ParityError
    from torch2edge.pipeline import export

    targets = list(dict.fromkeys(arguments.target))
    single = len(targets) == 1
    failure = None
    with _print.progress() as say:
        try:
            made: Any = export(
                arguments.model,
                target=targets[0] if single else targets,
                output=arguments.output or f"build/{_stem(arguments.model)}",
                parity=not arguments.no_parity,
                force=arguments.force,
                weights=arguments.weights,
                inputs=arguments.input,
                time_limit=arguments.time_limit,
                progress=say,
            )
        except ParityError as error:
            failure, made = error, error.bundle
    bundles = {targets[0]: made} if single else made
    if arguments.json:
        facts: dict[str, Any] = {t: _facts(b) for t, b in bundles.items()}
        _print.document(facts | ({"error": failure.to_json()} if failure is not None else {}))
    _show(bundles, _print.console(arguments), arguments.verbose)
    if failure is None:
        return 0
    print(f"error: {failure}", file=sys.stderr)
    return failure.exit_code


def _stem(model: str) -> str:
    from pathlib import Path

    head = model.rpartition(":")[0] or model
    return Path(head).stem.replace(".", "_") or "model"


def _facts(bundle: Any) -> dict[str, Any]:
    report = bundle.report.as_dict() if bundle.report is not None else None
    return {
        "path": str(bundle.path),
        "parity": bundle.manifest["parity"],
        "files": bundle.manifest["files"],
        "report": report,
    }


def _show(bundles: dict[str, Any], console: Any, verbose: bool) -> None:
    from torch2edge.cli import _print
    from torch2edge.numerics.report import joined
    from torch2edge.numerics.table import print_report

    reports = [b.report for b in bundles.values() if b.report is not None]
    if reports:
        print_report(joined(reports), console, verbose=verbose)
    for target, bundle in bundles.items():
        files = bundle.manifest["files"]
        payload = files[bundle.manifest["model"]]["bytes"]
        weights = files.get("weights.safetensors", {}).get("bytes", 0)
        detail = (
            f"{bundle.manifest['model']} {_print.size(payload)}, weights.safetensors {_print.size(weights)}"
        )
        console.print(
            f"{target}: {bundle.path} ({detail}), parity {bundle.manifest['parity']}",
            markup=False,
            soft_wrap=True,
        )
