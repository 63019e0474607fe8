"""A user's .pt2 file (torch.export.save), opened only when nothing in it would run as code."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import nn

from torch2edge import program_archive
from torch2edge.errors import SourceError


def read(path: Path) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The module and the example inputs of a .pt2 file.

    Raises:
        SourceError: missing, damaged, or holding pickled objects or compiled code.
    """
    if not path.is_file():
        raise SourceError(
            f"{path} {'is a folder' if path.is_dir() else 'does not exist'}",
            where=str(path.absolute()),
            expected="a .pt2 file",
            got="a folder" if path.is_dir() else "no such file",
            next_step="check MODEL",
        )
    program_archive.check(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
            module = wrapped(program)
    except Exception as error:  # a damaged or foreign program fails anywhere in torch's reader
        first = str(error).strip().splitlines() or [""]
        raise SourceError(
            f"{path} cannot be read as a torch.export program",
            where=str(path),
            expected=f"a file that torch.export.save of torch {torch.__version__} or older wrote",
            got=f"{type(error).__name__}: {first[0][:200]}",
            next_step="save it again with torch.export.save",
        ) from error
    args, kwargs = program.example_inputs or ((), {})
    return module, tuple(args), dict(kwargs)


class Program(nn.Module):
    """A loaded program as a plain module; `wrapped` gives it the program's own parameter names.

    Args:
        program: what ExportedProgram.module() made.
        expected: shape (None where dynamic) and dtype of each tensor input, flat.
    """

    def __init__(
        self, program: nn.Module, expected: list[tuple[tuple[int | None, ...], torch.dtype]]
    ) -> None:
        super().__init__()
        self.program = program
        self.expected = expected
        tolerate_modes(self)

    def mismatches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """How inputs differ from what the program was exported with; a line each."""
        given = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if len(given) != len(self.expected):
            return [f"{len(given)} tensors, the program takes {len(self.expected)}"]
        wrong = []
        for index, (tensor, (shape, dtype)) in enumerate(zip(given, self.expected, strict=True)):
            fits = len(tensor.shape) == len(shape) and all(
                n in (None, m) for n, m in zip(shape, tensor.shape, strict=True)
            )
            if not fits or tensor.dtype != dtype:
                sizes = "x".join("?" if n is None else str(n) for n in shape) or "scalar"
                has = "x".join(map(str, tensor.shape)) or "scalar"
                takes, got = f"{sizes}:{_name(dtype)}", f"{has}:{_name(tensor.dtype)}"
                wrong.append(f"tensor {index}: the program takes {takes}, given {got}")
        return wrong


def tolerate_modes(module: nn.Module) -> None:
    """Let train() and eval() pass over exported programs inside a module; those refuse both calls."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule) and "eval" in vars(part):
            # set on the instance by ExportedProgram.module(), so it is replaced there
            part.train = part.eval = MethodType(_unchanged, part)  # type: ignore[method-assign]


def _unchanged(part: nn.Module, mode: bool = True) -> nn.Module:
    return part


def wrapped(program: torch.export.ExportedProgram) -> Program:
    """The program as a module whose forward bears the names of the program's inputs.

    The forward belongs to a class of its own: as an instance's attribute it would still run the original's
    weights in a copy of the module.
    """
    # Guards would be Python text from the file; shapes are checked against the graph instead.
    module = program.module(check_guards=False)
    positional = len(program.call_spec.in_spec.child(0).children()) if program.call_spec.in_spec else 0
    signature = inspect.signature(module.forward)
    names = list(signature.parameters)

    def forward(self: Program, *args: Any, **kwargs: Any) -> Any:
        by_name = [n for n in names[len(args) : positional] if n in kwargs]
        rest = {k: v for k, v in kwargs.items() if k not in by_name}
        return self.program(*args, *(kwargs[n] for n in by_name), **rest)

    listed = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    for index, parameter in enumerate(signature.parameters.values()):
        keyword = index >= positional and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        listed.append(parameter.replace(kind=parameter.KEYWORD_ONLY) if keyword else parameter)
    forward.__signature__ = signature.replace(parameters=listed)  # type: ignore[attr-defined]
    kind = type("Program", (Program,), {"forward": forward, "__module__": __name__})
    made: Program = kind(module, _expected(program))
    return made


def _expected(program: torch.export.ExportedProgram) -> list[tuple[tuple[int | None, ...], torch.dtype]]:
    named = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    values = [named.get(name) for name in program.graph_signature.user_inputs if isinstance(name, str)]
    return [
        (tuple(n if isinstance(n, int) else None for n in v.shape), v.dtype)
        for v in values
        if isinstance(v, torch.Tensor)
    ]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
