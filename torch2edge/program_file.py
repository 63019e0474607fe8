"""A user's .pt2 file (torch.export.save), opened only when nothing in it would be unpickled as code."""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch2edge.errors import SourceError

_PICKLED = ("custom_obj_", "opaque_obj_", "constants/custom", "constants/opaque")


def read(path: Path) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The module and the example inputs of a .pt2 file.

    Raises:
        SourceError: missing, damaged, or holding pickled objects.
    """
    if not path.is_file():
        raise SourceError(f"{path} does not exist", where=str(path.absolute()), next_step="check MODEL")
    _check(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
    except Exception as error:  # a damaged archive fails anywhere in torch's reader
        raise SourceError(
            f"{path} cannot be read as a torch.export program: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}",
            where=str(path),
            expected="a file that torch.export.save wrote with this or an older torch",
            next_step="save it again with torch.export.save",
        ) from error
    args, kwargs = program.example_inputs if program.example_inputs is not None else ((), {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Plain(program.module(check_guards=False)), tuple(args), dict(kwargs)


class _Plain(nn.Module):
    """A loaded program refuses train() and eval(); inside a plain module that no longer matters."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program
        program.train = lambda mode=True: program  # type: ignore[assignment,misc]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*args, **kwargs)


def _check(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            names = archive.namelist()
            configs = [json.loads(archive.read(n)) for n in names if n.endswith(("_config.json", "config.json")) and "constants" in n]
    except (zipfile.BadZipFile, OSError, ValueError, EOFError) as error:
        raise SourceError(
            f"{path} is damaged or no .pt2 archive: {error}", where=str(path), next_step="copy it again, or save it again with torch.export.save"
        ) from error
    if damaged:
        raise SourceError(f"{path} is damaged: {damaged} fails its checksum", where=str(path), next_step="copy it again")
    pickled = [n for n in names if any(mark in n for mark in _PICKLED)]
    pickled += [k for c in configs for k, v in c.get("config", {}).items() if isinstance(v, dict) and v.get("use_pickle") and not v.get("tensor_meta")]
    if pickled:
        raise SourceError(
            f"{path} holds pickled objects, and reading them could run code",
            where=str(path),
            details=sorted(set(pickled)),
            expected="tensors only",
            next_step="export from the module itself (file.py:factory), which you trust",
        )
