"""torch2edge run BUNDLE --runtime R --input x=x.npy -o out.npz"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the 6 ms of importing typing for `--help`
if TYPE_CHECKING:
    from typing import Any

HELP = "run a bundle once by one runtime"


def add_arguments(parser: Any) -> None:
    """Declare the command's arguments."""
    parser.add_argument("bundle", metavar="BUNDLE", help="folder that export wrote")
    parser.add_argument(
        "--runtime", default="", metavar="R", help="default: litert-cpu or xla, by the bundle's target"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="one for each input; default: the golden sample",
    )
    parser.add_argument("-o", "--output", metavar="OUT.npz", help="write the outputs")
    parser.add_argument(
        "--time-limit", type=float, default=600.0, metavar="SECONDS", help="for each call into a worker"
    )


def run(arguments: Any) -> int:
    """Call torch2edge.load and print the outputs."""
    from torch2edge.bundle import Bundle
    from torch2edge.cli import _print
    from torch2edge.pipeline import load

    bundle = Bundle.open(arguments.bundle)
    inputs = _print.named_arrays(arguments.input) if arguments.input else bundle.goldens()[0].inputs
    with load(bundle, arguments.runtime, time_limit=arguments.time_limit) as runner:
        outputs = runner.run(inputs)
        name = runner.name
    table = _print.table("output", "shape", "dtype", "min", "max", title=f"{bundle.path} by {name}")
    facts = {}
    for key, array in outputs.items():
        wide = array.astype("float64") if array.size else None
        low, high = (float(wide.min()), float(wide.max())) if wide is not None else (None, None)
        facts[key] = {
            "shape": list(array.shape),
            "dtype": array.dtype.name,
            "min": _text(low),
            "max": _text(high),
        }
        table.add_row(key, str(list(array.shape)), array.dtype.name, _text(low), _text(high))
    console = _print.console(arguments)
    console.print(table)
    if arguments.output:
        _save(arguments.output, outputs, console)
    if arguments.json:
        _print.document({"runtime": name, "outputs": facts})
    return 0


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _save(path: str, outputs: dict[str, Any], console: Any) -> None:
    import os

    import numpy as np

    widened = [n for n, a in outputs.items() if a.dtype.kind == "V" or a.dtype.name == "bfloat16"]
    part = f"{path}.partial.npz"
    np.savez(part, **{n: a.astype(np.float32) if n in widened else a for n, a in outputs.items()})
    os.replace(part, path)
    for name in widened:
        console.print(f"note: {name} is bfloat16, written as float32", markup=False)
