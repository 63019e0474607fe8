"""What the commands share for printing: a console, progress, sizes, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any


def console(arguments: Any) -> Any:
    """A rich console on stdout, or on stderr when stdout is for JSON."""
    from rich.console import Console

    return Console(stderr=bool(arguments.json), highlight=False)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line for each step: a spinner on a terminal, plain lines otherwise."""
    if not sys.stderr.isatty():
        yield lambda line: print(f"{line} ...", file=sys.stderr, flush=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda line: status.update(f"{line} ...")


def size(count: int) -> str:
    """ "18.6 MB" for bytes (1 MB = 1,000,000 bytes)."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.2f} GB"


_stdout: IO[str] | None = None


@contextmanager
def reserved() -> Iterator[None]:
    """Keep stdout for the one document: what the user's own code prints goes to stderr meanwhile."""
    global _stdout
    _stdout = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout = None


def document(data: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(data, indent=1, allow_nan=False), file=_stdout or sys.stdout)


def table(*columns: str, title: str = "") -> Any:
    """A plain rich table that reads well in 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, title=title or None, title_justify="left")
    return made


def named_arrays(texts: list[str]) -> dict[str, Any]:
    """Arrays of "name=file.npy" texts.

    Raises:
        InputError: lists every text that cannot be read.
    """
    import numpy as np

    from torch2edge.errors import InputError

    arrays, wrong = {}, []
    for text in texts:
        name, equals, path = text.partition("=")
        try:
            if not equals:
                raise ValueError("expected name=file.npy")
            arrays[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            wrong.append(f"{text}: {error}")
    if wrong:
        raise InputError(f"{len(wrong)} --input could not be read", details=wrong, expected="name=file.npy")
    return arrays
