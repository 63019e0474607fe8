""".pt2 files: the round trip, inputs by name, and damage."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torch2edge.errors import InputError, SourceError
from torch2edge.source import load

X, SHIFT = torch.linspace(-1, 1, 8).view(2, 4), torch.tensor([1.0, 2.0, 3.0])


def test_round_trip(path: Path, net: nn.Module) -> None:
    source = load(path)
    result, expected = source.module(*source.args, **source.kwargs), net(X, shift=SHIFT)
    assert torch.equal(source.args[0], X) and torch.equal(source.kwargs["shift"], SHIFT)
    assert list(result) == ["out", "moved"]
    assert all(torch.equal(result[k], expected[k]) for k in expected)
    assert not any(p.requires_grad for p in source.module.parameters())


# torch copies its own LeafSpec objects, whose constructor warns.
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_modes_and_copies(path: Path, net: nn.Module) -> None:
    source = load(path)
    source.module.train().eval()
    double = copy.deepcopy(source.module).double().eval()
    result = double(X.double(), shift=SHIFT.double())["out"]
    assert result.dtype == torch.float64  # the copy computes with its own weights
    assert torch.allclose(result.float(), net(X, shift=SHIFT)["out"])
    assert source.module(X, shift=SHIFT)["out"].dtype == torch.float32


def test_weights_go_into_the_program(path: Path, net: nn.Module, tmp_path: Path) -> None:
    source = load(path)
    state = {k: v + 1 for k, v in source.module.state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    moved = load(path, weights=tmp_path / "w.pt")
    assert not torch.allclose(moved.module(X, shift=SHIFT)["out"], net(X, shift=SHIFT)["out"])


def test_inputs_by_name(path: Path, refused: Any) -> None:
    source = load(path, inputs=["x=2x4", "shift=3"])
    assert source.args[0].shape == (2, 4) and not torch.equal(source.args[0], X)
    error = refused(InputError, lambda: load(path, inputs=["xx=2x4"]), "did you mean x?")
    assert error.expected == "forward(x, *, shift)"


def test_inputs_of_another_shape_or_dtype(path: Path, refused: Any) -> None:
    error = refused(InputError, lambda: load(path, inputs=["x=5x4", "shift=3:float64"]))
    assert error.details == (
        "tensor 0: the program takes 2x4:float32, given 5x4:float32",
        "tensor 1: the program takes 3:float32, given 3:float64",
    )


def test_a_dynamic_dimension_takes_other_sizes(tmp_path: Path, refused: Any) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(nn.Linear(4, 3), (torch.ones(8, 4),), dynamic_shapes=({0: 2 * batch},))
    torch.export.save(program, tmp_path / "d.pt2")
    source = load(tmp_path / "d.pt2", inputs=["input=6x4"])
    assert source.module(*source.args).shape == (6, 3)
    refused(InputError, lambda: load(tmp_path / "d.pt2", inputs=["input=6x5"]), "takes ?x4:float32")


def test_missing_and_folder(tmp_path: Path, refused: Any) -> None:
    refused(SourceError, lambda: load(tmp_path / "no.pt2"), "does not exist")
    (tmp_path / "folder.pt2").mkdir()
    refused(SourceError, lambda: load(tmp_path / "folder.pt2"), "is a folder")


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999])
def test_truncated(path: Path, good: bytes, refused: Any, part: float) -> None:
    path.write_bytes(good[: int(len(good) * part)])
    refused(SourceError, lambda: load(path), "damaged")


@pytest.mark.parametrize("where", range(12))
def test_a_flipped_byte_never_changes_a_number(path: Path, good: bytes, net: nn.Module, where: int) -> None:
    """Some bytes (padding, dates) mean nothing; the others must be an error, never another result."""
    data = bytearray(good)
    data[len(data) * (2 * where + 1) // 24] ^= 0x55
    path.write_bytes(data)
    try:
        source = load(path)
    except SourceError as error:
        assert error.next_step and error.got
    else:
        assert torch.equal(source.module(X, shift=SHIFT)["out"], net(X, shift=SHIFT)["out"])


def test_a_checkpoint_under_this_name(tmp_path: Path, net: nn.Module, refused: Any) -> None:
    torch.save(net.state_dict(), tmp_path / "net.pt2")
    refused(SourceError, lambda: load(tmp_path / "net.pt2"), "without a torch.export program", "--weights")
