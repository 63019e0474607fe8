"""The captured program on disk: program.pt2 without weights, beside weights.safetensors.

Large weights exist once: the program holds zero-stride stand-ins of one element, and the weights file is
mapped into memory, not copied, by each process that reads it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.export import ExportedProgram

from torch2edge.errors import BundleError
from torch2edge.stages import Captured
from torch2edge.state import PREFIX

PROGRAM, WEIGHTS = "program.pt2", "weights.safetensors"


def tensors_of(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Weights, buffers and lifted constants by the user's path."""
    held = {**program.state_dict, **program.constants}
    return {k.removeprefix(PREFIX): v for k, v in held.items() if isinstance(v, torch.Tensor)}


def save(captured: Captured, folder: Path) -> None:
    """Write program.pt2 and weights.safetensors; tied weights are stored once.

    The start value of each state buffer is stored under the buffer's path.
    """
    from safetensors.torch import save_file

    program = captured.program
    weights = tensors_of(program)
    states = captured.signature.state
    for spec, value in zip(states, program.example_inputs[0][len(captured.signature.inputs) :], strict=True):
        weights[spec.buffer] = value
    kept: dict[str, torch.Tensor] = {}
    tied: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for name, tensor in weights.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.dtype) if tensor.numel() else (name,)
        if key in seen:
            tied[name] = seen[key]
        else:
            seen[key] = name
            kept[name] = tensor.detach().contiguous()
    save_file(_unshared(kept), folder / WEIGHTS, metadata={"tied": json.dumps(tied)})
    with _hollow(program), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations while it pickles its specs
        torch.export.save(program, folder / PROGRAM)


def _unshared(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Safetensors refuses overlapping memory; a partial view of another weight is copied."""
    owner: dict[int, str] = {}
    result = {}
    for name, tensor in tensors.items():
        pointer = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if pointer and pointer in owner else tensor
        owner[pointer] = name
    return result


@contextmanager
def _hollow(program: ExportedProgram) -> Iterator[None]:
    real, constants = program._state_dict, program._constants
    program._state_dict = {k: _stand_in(v) for k, v in real.items()}
    program._constants = {k: _stand_in(v) if isinstance(v, torch.Tensor) else v for k, v in constants.items()}
    try:
        yield
    finally:
        program._state_dict, program._constants = real, constants


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    return in_place_of(tensor, torch.zeros((), dtype=tensor.dtype).expand(tensor.shape))


def in_place_of(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """`new` as what `old` is, a parameter or a plain tensor: torch.export insists on it."""
    return torch.nn.Parameter(new, requires_grad=False) if isinstance(old, torch.nn.Parameter) else new


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Weights by path, memory-mapped, tied names included."""
    from safetensors import safe_open

    weights: dict[str, torch.Tensor] = {}
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - safe_open is no mapping
            weights[name] = file.get_tensor(name)
        tied = json.loads((file.metadata() or {}).get("tied", "{}"))
    for alias, name in tied.items():
        weights[alias] = weights[name]
    return weights


def load(folder: Path) -> ExportedProgram:
    """Read a program that save wrote.

    Raises:
        BundleError: the program and the weights do not belong together.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(folder / PROGRAM)
    weights = load_weights(folder)
    missing = sorted(set(tensors_of(program)) - set(weights))
    if missing:
        raise BundleError(
            f"{WEIGHTS} lacks {len(missing)} weight(s) that {PROGRAM} needs",
            where=str(folder),
            details=missing,
        )
    for held in (program._state_dict, program._constants):
        for name, value in held.items():
            if isinstance(value, torch.Tensor):
                held[name] = in_place_of(value, weights[name.removeprefix(PREFIX)])
    return program
