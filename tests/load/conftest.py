"""What the tests of this room share: files written on the spot, and one way to read a refusal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torch2edge.errors import Torch2EdgeError

Refused = Callable[..., Torch2EdgeError]


@pytest.fixture
def refused() -> Refused:
    """Call something; it must raise exactly this kind of error, complete, and with these words in it."""

    def check(kind: type[Torch2EdgeError], action: Callable[[], Any], *words: str) -> Torch2EdgeError:
        with pytest.raises(kind) as caught:
            action()
        error = caught.value
        assert type(error) is kind
        empty = [n for n in ("what", "where", "expected", "got", "next_step") if not getattr(error, n)]
        assert not empty, f"{empty} empty in:\n{error}"
        lacking = [w for w in words if w not in str(error)]
        assert not lacking, f"{lacking} not in:\n{error}"
        assert "Traceback" not in str(error)
        return error

    return check


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a script into the test's folder."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return make


class Payload:
    """Pickles to a call that creates a folder: if the folder is there, code ran."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (str(self.trace),)


@pytest.fixture
def payload(tmp_path: Path) -> Payload:
    """An object that leaves a trace when it is unpickled."""
    return Payload(tmp_path / "code-ran")


class Net(nn.Module):
    """Weights, a buffer, a constant, a default and a keyword input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("mean", torch.arange(3.0))
        self.constant = torch.full((3,), 0.5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, *, shift: torch.Tensor, y: None = None) -> dict[str, torch.Tensor]:
        out = self.drop(self.linear(x)) * self.constant + self.mean
        return {"out": out, "moved": out - shift}


@pytest.fixture(scope="module")
def net() -> Net:
    """One set of weights for all tests."""
    torch.manual_seed(1)
    return Net().eval()


@pytest.fixture(scope="module")
def good(net: Net, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a sound file."""
    x = torch.linspace(-1, 1, 8).view(2, 4)
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(torch.export.export(net, (x,), {"shift": torch.tensor([1.0, 2.0, 3.0])}), path)
    return path.read_bytes()


@pytest.fixture
def path(good: bytes, tmp_path: Path) -> Path:
    """A sound file of the test's own."""
    (tmp_path / "net.pt2").write_bytes(good)
    return tmp_path / "net.pt2"
