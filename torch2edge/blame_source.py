"""Which line of the user's own code a failure or a graph node comes from."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

_OWN = str(Path(__file__).parent)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\s*\n?\s*(.*)')


def _foreign(path: str) -> bool:
    return (
        "site-packages" in path
        or "dist-packages" in path
        or path.startswith(("<frozen", "<string"))
        or path.startswith(_OWN)
        or re.search(r"/lib/python3\.\d+/", path) is not None
    )


def user_line(error: BaseException) -> str:
    """ "file.py:12 in forward: if x.sum() > 0:", the innermost frame of the user's code; "" if there is none."""
    seen: BaseException | None = error
    while seen is not None:
        frames = [f for f in traceback.extract_tb(seen.__traceback__) if not _foreign(f.filename)]
        if frames and seen is not error or len(frames) > 1:
            break
        seen = seen.__cause__ or seen.__context__
    frames = [f for f in traceback.extract_tb((seen or error).__traceback__) if not _foreign(f.filename)]
    inside = [f for f in frames if f.name not in ("<module>",)]
    if inside:
        last = inside[-1]
        return f"{last.filename}:{last.lineno} in {last.name}: {last.line}"
    return _from_text(str(error))


def _from_text(text: str) -> str:
    found = [m for m in _FRAME.findall(text) if not _foreign(m[0])]
    if not found:
        return ""
    path, line, name, code = found[-1]
    return f"{path}:{line} in {name}: {code.strip()}"


def node_line(node: Any) -> str:
    """The user's line that made an FX node, or "" where torch.export kept none."""
    return _from_text(node.meta.get("stack_trace") or "")


def module_path(node: Any) -> str:
    """Dotted path of the innermost user module that made an FX node ("" for the root)."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values()]
    return paths[-1].removeprefix("L['self'].").removeprefix("module").removeprefix(".") if paths else ""
