"""Which line of the user's own code a failure or a graph node comes from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_OWN = str(Path(__file__).parent)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\s*\n?\s*(.*)')


def _foreign(path: str) -> bool:
    return (
        "site-packages" in path
        or "dist-packages" in path
        or path.startswith("<")
        or path.startswith(_OWN)
        or re.search(r"/lib/python3\.\d+/", path) is not None
    )


def user_line(error: BaseException) -> str:
    """ "file.py:12 in forward: if x.sum() > 0:", the innermost frame of the user's code, or ""."""
    seen: BaseException | None = error
    while seen is not None:
        frames = [f for f in traceback.extract_tb(seen.__traceback__) if not _foreign(f.filename)]
        if (frames and seen is not error) or len(frames) > 1:
            break
        seen = seen.__cause__ or seen.__context__
    frames = [f for f in traceback.extract_tb((seen or error).__traceback__) if not _foreign(f.filename)]
    inside = [f for f in frames if f.name not in ("<module>",)]
    if inside:
        last = inside[-1]
        return f"{last.filename}:{last.lineno} in {last.name}: {last.line}"
    return _from_text(str(error))


def _from_text(text: str) -> str:
    """The innermost frame of the user's code in a printed traceback."""
    found = [m for m in _FRAME.findall(text) if not _foreign(m[0])]
    if not found:
        return ""
    path, line, name, code = found[-1]
    return f"{path}:{line} in {name}: {code.strip()}"


@contextmanager
def whole_traces() -> Iterator[None]:
    """While it lasts, graph nodes remember the user's helper functions too, not only frames called "forward".

    torch.fx keeps just the latter (TracerBase._filter_traceback_frames, torch 2.13, made to be overridden).
    """
    from torch.fx.proxy import TracerBase

    before = TracerBase._filter_traceback_frames

    def keep(self: TracerBase, frames: traceback.StackSummary) -> traceback.StackSummary:
        mine = [f for f in frames if not _foreign(f.filename)]
        start = next((i for i, f in enumerate(mine) if f.name == "forward"), None)
        return before(self, frames) if start is None else traceback.StackSummary.from_list(mine[start:])

    TracerBase._filter_traceback_frames = keep  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = before  # type: ignore[method-assign]


def failing_line(error: BaseException) -> str:
    """The user's line in the text of an error that an FX interpreter raised, or ""."""
    return _from_text(str(error))


def node_line(node: Any) -> str:
    """The user's line that made an FX node, or "" where torch.export kept none."""
    return _from_text(node.meta.get("stack_trace") or "")


def module_path(node: Any) -> str:
    """Dotted path of the innermost user module that made an FX node ("" for the root)."""
    return _innermost(node)[0]


def module_place(node: Any) -> str:
    """The same with the module's class: "layers.0 (TransformerEncoderLayer)"; "" where nothing is known."""
    path, kind = _innermost(node)
    return f"{path} ({kind})" if path and kind else path or kind


def _innermost(node: Any) -> tuple[str, str]:
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1][:2]
    dotted = path.removeprefix("L['self']").removeprefix(".").removeprefix("module").removeprefix(".")
    name = kind if isinstance(kind, str) else getattr(kind, "__qualname__", "")
    return dotted, name.rpartition(".")[2]
