"""What the tests of this room share: files written on the spot, and one way to read a refusal."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
