"""The command line: one file per command; each parses, calls and prints.

argparse from the standard library: `--help` must answer within 3x of `python -c pass`, and importing click
alone takes 3.6x (measured; `make bench` measures it again).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

INTERNAL = 70
"""Exit code of a bug in torch2edge itself (sysexits.h: EX_SOFTWARE)."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code.

    0 done, 1 parity or a check failed, 2 usage or a bad input, 3 a missing part, 70 a bug, 130 Ctrl-C.
    """
    import argparse

    def formatter(prog: str) -> argparse.HelpFormatter:
        return argparse.HelpFormatter(prog, width=_width())

    parser = argparse.ArgumentParser(
        prog="torch2edge",
        formatter_class=formatter,
        description="Take a PyTorch model to Cloud TPU or LiteRT, and prove that it still computes the same.",
        epilog="exit codes: 0 done, 1 parity failed, 2 bad input, 3 missing part. "
        "`torch2edge COMMAND --help` says more.",
    )
    parser.add_argument("--version", action="version", version=f"torch2edge {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in _names():
        module = import_module(f"torch2edge.cli.{name}")
        command = commands.add_parser(
            name, help=module.HELP, description=module.HELP, formatter_class=formatter
        )
        module.add_arguments(command)
        command.add_argument(
            "--json", action="store_true", help="one JSON document on stdout, all else on stderr"
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks and the worker's own log")
        command.set_defaults(run=module.run)
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as done:
        return int(done.code or 0)
    import signal

    def stop(number: int, frame: object) -> None:
        """SIGTERM ends a command as Ctrl-C does: workers and half-written files go too."""
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, where signals do not arrive
        return _guarded(arguments)
    try:
        return _guarded(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)


def _width() -> int:
    """Columns for help; argparse would import shutil, and all compressors with it, to ask."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size().columns) - 2
    except (OSError, ValueError):
        return 78


def _guarded(arguments: object) -> int:
    debug, as_json = arguments.debug, arguments.json  # type: ignore[attr-defined]
    if not debug:
        _hush()
    try:
        if not as_json:
            return int(arguments.run(arguments))  # type: ignore[attr-defined]
        from torch2edge.cli import _print

        with _print.reserved():
            return int(arguments.run(arguments))  # type: ignore[attr-defined]
    except KeyboardInterrupt:
        print("interrupted; nothing was left behind", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:
        from torch2edge.errors import Torch2EdgeError

        if debug:
            import traceback

            traceback.print_exc()
            log = error.log if isinstance(error, Torch2EdgeError) else ""
            if log:
                print(f"--- the worker's own log\n{log.rstrip()}\n---", file=sys.stderr)
        if isinstance(error, Torch2EdgeError):
            if as_json:
                import json

                print(json.dumps({"error": error.to_json()}, indent=1))
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        print(
            f"internal error: {type(error).__name__}: {error}\n  next: run again with --debug and report it",
            file=sys.stderr,
        )
        return INTERNAL


def _hush() -> None:
    """torchao, which transformers imports, reports each GPU kernel that a CPU build of torch lacks."""
    import logging

    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _names() -> list[str]:
    order = ("export", "parity", "run", "inspect", "runtimes", "doctor")
    files = os.listdir(os.path.dirname(__file__))  # pathlib alone would cost 2 ms of `--help`
    found = [f.removesuffix(".py") for f in files if f.endswith(".py") and not f.startswith("_")]
    return sorted(found, key=lambda n: (order.index(n) if n in order else len(order), n))


def _version() -> str:
    from torch2edge import __version__

    return __version__
