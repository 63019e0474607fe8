"""torch2edge inspect BUNDLE"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant, without the 6 ms of importing typing for `--help`
if TYPE_CHECKING:
    from typing import Any

HELP = "show what a bundle holds: signature, versions, files, parity"


def add_arguments(parser: Any) -> None:
    """Declare the command's arguments."""
    parser.add_argument("bundle", metavar="BUNDLE", help="folder that export wrote")


def run(arguments: Any) -> int:
    """Open, verify and print."""
    from torch2edge.bundle import Bundle
    from torch2edge.cli import _print

    bundle = Bundle.open(arguments.bundle)
    if arguments.json:
        _print.document(bundle.manifest)
        return 0
    manifest, console = bundle.manifest, _print.console(arguments)
    console.print(
        f"{bundle.path}: {bundle.target} from {manifest['origin']}, {manifest['created']}",
        markup=False,
        soft_wrap=True,
    )
    table = _print.table("", "name", "shape", "dtype", "stored as")
    signature = bundle.signature
    rows = [("input", s) for s in signature.inputs] + [("output", s) for s in signature.outputs]
    for what, spec in rows + [("state", s.input) for s in signature.state]:
        table.add_row(what, spec.name, str(list(spec.shape)), spec.dtype, spec.stored)
    console.print(table)
    files = _print.table("file", "size", "sha256")
    for name, facts in manifest["files"].items():
        files.add_row(name, _print.size(facts["bytes"]), facts["sha256"][:16])
    console.print(files)
    console.print("versions: " + ", ".join(f"{n} {v}" for n, v in manifest["versions"].items()), markup=False)
    for note in manifest["notes"]:
        console.print(f"note: {note}", markup=False)
    console.print(f"parity: {manifest['parity']}", markup=False)
    return 0
