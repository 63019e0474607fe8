"""Run the user's own script or package, which is what the user asked for, and call a factory in it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from torch2edge.blame_source import user_line
from torch2edge.errors import SourceError


def call(head: str, factory: str) -> Any:
    """What `factory` of a script or package returns.

    Raises:
        SourceError: no such file, module or factory, or one that raises.
    """
    module = _module(head)
    function = getattr(module, factory, None)
    if not callable(function):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_") and _own(v, module)]
        close = get_close_matches(factory, names, 1)
        raise SourceError(
            f"{head} has no factory {factory!r}",
            where=head,
            expected=f"one of {', '.join(names)}" if names else "a function that returns a module",
            got=factory,
            next_step=f"did you mean {head}:{close[0]}?" if close else "name a function of that file",
        )
    return _run(function, f"{head}:{factory}")


def pair(path: Path) -> Any:
    """(module, args, kwargs) of a file with get_model() and get_args()."""
    module = _module(str(path))
    if not callable(getattr(module, "get_model", None)):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_") and _own(v, module)]
        raise SourceError(
            f"{path} has no get_model(), and no factory was named",
            where=str(path),
            expected="get_model() and get_args(), or file.py:factory",
            got=", ".join(names) or "no function",
            next_step=f"torch2edge export {path}:{names[0] if names else 'FACTORY'} ...",
        )
    made = _run(module.get_model, f"{path}:get_model")
    parts = []
    for name, empty in (("get_args", ()), ("get_kwargs", {})):
        function = getattr(module, name, None)
        parts.append(_run(function, f"{path}:{name}") if callable(function) else empty)
    return (made, *parts)


def _own(value: Any, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """The script's folder is importable while it runs; what it prints stays off the user's stdout."""
    sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _module(head: str) -> ModuleType:
    if not head.endswith(".py"):
        with _beside(Path.cwd()):
            return _imported(lambda: importlib.import_module(head), head)
    path = Path(head)
    if not path.is_file():
        raise SourceError(f"{head} does not exist", where=str(path.absolute()), next_step="check the path before the colon")
    name = f"torch2edge_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling inside the script look it up
    loader = spec.loader

    def execute() -> ModuleType:
        loader.exec_module(module)
        return module

    with _beside(path.absolute().parent):
        return _imported(execute, head)


def _imported(action: Callable[[], ModuleType], head: str) -> ModuleType:
    try:
        return action()
    except ModuleNotFoundError as error:
        if error.name and head.split(".")[0] == error.name.split(".")[0]:
            raise SourceError(
                f"there is no module {error.name!r}", where=head, next_step="give a file.py, or run from its project's folder"
            ) from error
        raise SourceError(
            f"{head} needs {error.name!r}, which is not installed", where=user_line(error) or head, next_step=f"pip install {error.name}"
        ) from error
    except (Exception, SystemExit) as error:
        raise _raised(error, head) from error


def _run(function: Callable[[], Any], name: str) -> Any:
    folder = Path(name.rpartition(":")[0]).absolute().parent
    try:
        with _beside(folder):
            return function()
    except (Exception, SystemExit) as error:
        raise _raised(error, name) from error


def _raised(error: BaseException, name: str) -> SourceError:
    text = str(error).strip().splitlines()
    return SourceError(
        f"{name} raised {type(error).__name__}: {text[0][:300] if text else ''}",
        where=user_line(error) or name,
        next_step="the line above is yours; run with --debug for the whole traceback",
    )
