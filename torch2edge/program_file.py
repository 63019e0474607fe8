"""A user's .pt2 file (torch.export.save), opened only when nothing in it would run as code."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
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
            next_step="check MODEL",
        )
    program_archive.check(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
            # Guards would be Python text from the file; shapes are checked against the graph instead.
            count = len(program.call_spec.in_spec.child(0).children()) if program.call_spec.in_spec else 0
            module = Program(program.module(check_guards=False), count, _expected(program))
    except Exception as error:  # a damaged or foreign program fails anywhere in torch's reader
        first = str(error).strip().splitlines() or [""]
        raise SourceError(
            f"{path} cannot be read as a torch.export program: {type(error).__name__}: {first[0][:200]}",
            where=str(path),
            expected=f"a file that torch.export.save of torch {torch.__version__} or older wrote",
            next_step="save it again with torch.export.save",
        ) from error
    args, kwargs = program.example_inputs or ((), {})
    return module, tuple(args), dict(kwargs)


class Program(nn.Module):
    """A loaded program as a plain module, with the program's own parameter names.

    Args:
        program: what ExportedProgram.module() made.
        positional: how many of its parameters it takes by position; it takes the others by keyword only.
        expected: shape (None where dynamic) and dtype of each tensor input, flat.
    """

    def __init__(
        self, program: nn.Module, positional: int, expected: list[tuple[tuple[int | None, ...], torch.dtype]]
    ) -> None:
        super().__init__()
        self.program = program
        self.expected = expected
        tolerate_modes(self)
        # capture asks inspect.signature(module.forward): *args would hide a wrong input name
        signature = inspect.signature(program.forward)
        names = list(signature.parameters)
        listed = [
            p.replace(kind=p.KEYWORD_ONLY) if i >= positional and p.kind is p.POSITIONAL_OR_KEYWORD else p
            for i, p in enumerate(signature.parameters.values())
        ]

        def forward(*args: Any, **kwargs: Any) -> Any:
            by_name = [n for n in names[len(args) : positional] if n in kwargs]
            return self.program(*args, *(kwargs[n] for n in by_name), **{k: v for k, v in kwargs.items() if k not in by_name})

        forward.__signature__ = signature.replace(parameters=listed)  # type: ignore[attr-defined]
        self.forward = forward

    def mismatches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """How inputs differ from what the program was exported with; a line each."""
        given = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if len(given) != len(self.expected):
            return [f"{len(given)} tensors, the program takes {len(self.expected)}"]
        wrong = []
        for index, (tensor, (shape, dtype)) in enumerate(zip(given, self.expected, strict=True)):
            fits = len(tensor.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, tensor.shape, strict=True))
            if not fits or tensor.dtype != dtype:
                sizes = "x".join("?" if n is None else str(n) for n in shape) or "scalar"
                has = "x".join(map(str, tensor.shape)) or "scalar"
                wrong.append(f"tensor {index}: the program takes {sizes}:{_name(dtype)}, given {has}:{_name(tensor.dtype)}")
        return wrong


def tolerate_modes(module: nn.Module) -> None:
    """Let train() and eval() pass over exported programs inside a module; those refuse both calls."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule) and "eval" in vars(part):
            # set on the instance by ExportedProgram.module(), so it is replaced there
            part.train = part.eval = _Unchanged(part)  # type: ignore[method-assign,assignment]


class _Unchanged:
    """A mode switch that changes nothing; an object, so that copying a module copies it too."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, mode: bool = True) -> nn.Module:
        return self.part


def _expected(program: torch.export.ExportedProgram) -> list[tuple[tuple[int | None, ...], torch.dtype]]:
    named = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    values = [named.get(name) for name in program.graph_signature.user_inputs if isinstance(name, str)]
    return [
        (tuple(n if isinstance(n, int) else None for n in v.shape), v.dtype) for v in values if isinstance(v, torch.Tensor)
    ]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
