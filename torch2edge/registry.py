"""Adding by one file: its stem, with `-` for `_`, is its public name; a leading `_` makes a file private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch2edge.errors import UsageError


def names(room: str) -> list[str]:
    """Public names in a room ("runtime", ...), found without importing anything."""
    folder = Path(__file__).parent / room
    return sorted(p.stem.replace("_", "-") for p in folder.glob("*.py") if not p.stem.startswith("_"))


def get(room: str, name: str) -> Any:
    """Import the module behind a public name.

    Raises:
        UsageError: an unknown name; the known ones are listed, none is put in its place.
    """
    from importlib import import_module

    known = names(room)
    if name not in known:
        from difflib import get_close_matches

        close = get_close_matches(name, known, 1)
        raise UsageError(
            f"unknown {room} {name!r}",
            expected=", ".join(known),
            next_step=f"did you mean {close[0]!r}?" if close else "use one of the names above",
        )
    return import_module(f"torch2edge.{room}.{name.replace('-', '_')}")
