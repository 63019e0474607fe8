"""Run the user's own script or package, which is what the user asked for, and call a factory in it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from torch2edge.blame_source import user_line
from torch2edge.errors import SourceError

_beside_scripts: dict[str, Path] = {}
"""Modules from a script's folder: another folder's `layers.py` must not be taken for this one's."""


def call(head: str, factory: str) -> Any:
    """What `factory` of a script or package returns; a module object of that name stands for itself.

    Raises:
        SourceError: no such file, module or factory, or one that raises or needs arguments.
    """
    module = _module(head)
    function = getattr(module, factory, None)
    if not callable(function):
        names = _factories(module)
        close = get_close_matches(factory, names, 1)
        raise SourceError(
            f"{head} has no factory {factory!r}",
            where=head,
            expected=f"one of {', '.join(names)}" if names else "a function that returns a module",
            got=f"{factory}, a {type(function).__name__}" if hasattr(module, factory) else factory,
            next_step=f"did you mean {head}:{close[0]}?" if close else "name a function of that file",
        )
    return _run(function, f"{head}:{factory}")


def pair(path: Path) -> Any:
    """(module, args, kwargs) of a file with get_model() and get_args(), or the tuple of get_model() itself.

    Raises:
        SourceError: no such file, no get_model(), or a function that raises.
    """
    module = _module(str(path))
    if not callable(getattr(module, "get_model", None)):
        names = _factories(module)
        raise SourceError(
            f"{path} has no get_model(), and no factory was named",
            where=str(path),
            expected="get_model() and get_args(), or file.py:factory",
            got=", ".join(names) or "no function",
            next_step=f"torch2edge export {path}:{names[0] if names else 'FACTORY'} ...",
        )
    made = _run(module.get_model, f"{path}:get_model")
    found = {n: getattr(module, n) for n in ("get_args", "get_kwargs") if callable(getattr(module, n, None))}
    if isinstance(made, tuple) and not found:
        return made
    parts = {n: _run(f, f"{path}:{n}") for n, f in found.items()}
    return made, parts.get("get_args", ()), parts.get("get_kwargs", {})


def _factories(module: ModuleType) -> list[str]:
    """Public functions and classes that the file itself defines."""
    own = vars(module).items()
    return [
        n
        for n, v in own
        if callable(v) and not n.startswith("_") and getattr(v, "__module__", None) == module.__name__
    ]


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """The script's folder is importable while it runs; what it prints stays off the user's stdout."""
    before = set(sys.modules)
    for name, home in list(_beside_scripts.items()):
        if home != folder and ((folder / f"{name}.py").is_file() or (folder / name).is_dir()):
            for loaded in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
                del sys.modules[loaded]
            del _beside_scripts[name]
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()  # the folder may have changed within the file system's clock tick
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if "." not in name and origin and Path(origin).parent in (folder, folder / name):
                _beside_scripts[name] = folder


def _module(head: str) -> ModuleType:
    if not head.endswith(".py"):
        with _beside(Path.cwd()):
            return _imported(lambda: importlib.import_module(head), head)
    path = Path(head)
    if not path.is_file():
        raise SourceError(
            f"{head} {'is a folder' if path.is_dir() else 'does not exist'}",
            where=str(path.absolute()),
            expected="a Python file",
            got="a folder" if path.is_dir() else "no such file",
            next_step="check the path (what stands before the colon)",
        )
    name = f"torch2edge_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickling inside the script look it up
    loader = spec.loader

    def execute() -> ModuleType:
        loader.exec_module(module)
        return module

    try:
        with _beside(path.absolute().parent):
            return _imported(execute, head)
    except SourceError:
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
        raise


def _imported(action: Callable[[], ModuleType], head: str) -> ModuleType:
    try:
        return action()
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if not head.endswith(".py") and (head == missing or head.startswith(f"{missing}.")):
            raise SourceError(
                f"there is no module {missing!r}",
                where=head,
                expected="file.py:factory, or a package that Python can import from here",
                got=f"searched from {Path.cwd()} and the installed packages",
                next_step="give a file.py, or run from its project's folder",
            ) from error
        raise SourceError(
            f"{head} needs {missing!r}, which is not installed",
            where=_where(error, head),
            expected=f"{missing!r} importable by {sys.executable}",
            got=str(error),
            next_step=f"install the package that brings {missing.partition('.')[0]!r} and try again",
        ) from error
    except (Exception, SystemExit) as error:
        raise _raised(error, head) from error


def _run(function: Callable[[], Any], name: str) -> Any:
    from torch import nn

    if isinstance(function, nn.Module):
        return function
    needed = _needed(function)
    if needed:
        raise SourceError(
            f"{name} needs arguments",
            where=name,
            expected="a factory without required arguments",
            got=f"no value for {', '.join(needed)}",
            next_step="write a small function in that file that fills them and returns the module",
        )
    folder = Path(name.rpartition(":")[0]).absolute().parent
    try:
        with _beside(folder):
            return function()
    except (Exception, SystemExit) as error:
        raise _raised(error, name) from error


def _needed(function: Callable[[], Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # builtins may have no signature; calling them tells
        return []
    required = (
        p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    )
    return [p.name for p in required]


def _raised(error: BaseException, name: str) -> SourceError:
    text = str(error).strip().splitlines()
    if isinstance(error, SystemExit):
        what, got = f"{name} ends the process", f"sys.exit({'' if error.code is None else error.code})"
    else:
        what = f"{name} raised {type(error).__name__}"
        got = f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
    return SourceError(
        what,
        where=_where(error, name),
        expected="a script that only defines and returns, without an error",
        got=got,
        next_step="mend the line above, which is yours; --debug shows the whole traceback",
    )


def _where(error: BaseException, name: str) -> str:
    """The user's line: of the syntax error, of the innermost function, or of the file's top level."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
    line = user_line(error)
    if line:
        return line
    head = name.rpartition(":")[0] if not name.endswith(".py") else name
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if head.endswith(".py") and Path(f.filename) == Path(head)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else name
