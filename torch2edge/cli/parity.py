"""torch2edge parity BUNDLE..."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the 6 ms of importing typing for `--help`
if TYPE_CHECKING:
    from typing import Any

HELP = "compare runtimes with eager PyTorch on a bundle's golden cases"


def add_arguments(parser: Any) -> None:
    """Declare the command's arguments."""
    parser.add_argument("bundle", nargs="+", metavar="BUNDLE", help="folder that export wrote")
    parser.add_argument("--runtime", metavar="R,R", help="default: every runtime of the bundle's target")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="inputs instead of the golden ones",
    )
    parser.add_argument(
        "--reference", metavar="MODEL", help="compare with this module instead of the golden outputs"
    )
    parser.add_argument("--report", metavar="FILE.json", help="write the report as JSON")
    parser.add_argument("--junit", metavar="FILE.xml", help="write the report as JUnit XML")
    parser.add_argument(
        "--time-limit", type=float, default=600.0, metavar="SECONDS", help="for each call into a worker"
    )
    parser.add_argument("--verbose", action="store_true", help="show every case, not the worst only")


def run(arguments: Any) -> int:
    """Call torch2edge.parity and print the report; 1 when anything departs."""
    from torch2edge.cli import _print
    from torch2edge.numerics.report import joined
    from torch2edge.numerics.table import print_report
    from torch2edge.pipeline import parity

    reference = None
    if arguments.reference:
        from torch2edge.source import load

        reference = load(arguments.reference).module
    names = [n for n in arguments.runtime.split(",") if n] if arguments.runtime else None
    arrays = _print.named_arrays(arguments.input) or None
    reports = []
    with _print.progress() as say:
        for folder in arguments.bundle:
            say(f"parity of {folder}")
            reports.append(parity(folder, names, arrays, reference, time_limit=arguments.time_limit))
    report = joined(reports)
    if arguments.report:
        report.to_json(arguments.report)
    if arguments.junit:
        report.to_junit(arguments.junit)
    if arguments.json:
        _print.document(report.as_dict())
    print_report(report, _print.console(arguments), verbose=arguments.verbose)
    return 0 if report.passed else 1
