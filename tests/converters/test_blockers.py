"""What a target cannot take is refused before or after lowering, all of it at once, with line and way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch2edge
from tests.models import Call, ramp
from torch2edge.converters.isolate import reason
from torch2edge.errors import UnsupportedError

pytestmark = pytest.mark.real


def refused(call: Callable[..., Any], *args: Tensor, target: Any, output: Path) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as caught:
        torch2edge.export(Call(call), args, target=target, output=output)
    assert not output.exists()
    return caught.value


def test_dropout_that_stays_on_is_refused_and_dropout_of_eval_is_not(tmp_path: Path) -> None:
    error = refused(
        lambda x: F.dropout(x, 0.5, training=True), ramp(4), target="cloud-tpu", output=tmp_path / "a"
    )
    assert "dropout" in error.details[0] and "randomness" in error.details[0]
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    made = torch2edge.export(module, ramp(1, 4), target="cloud-tpu", output=tmp_path / "b")
    assert not isinstance(made, dict) and made.report is not None and made.report.passed


def test_an_int64_constant_beyond_int32_is_refused_for_litert_only(tmp_path: Path) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("wide", torch.tensor([2**40, 1]))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.wide

    with pytest.raises(UnsupportedError) as caught:
        torch2edge.export(
            Wide(),
            torch.tensor([1, 2]),
            target=["litert", "cloud-tpu"],
            output=tmp_path / "out",
            parity=False,
        )
    assert "wide" in caught.value.details[0] and "int32" in caught.value.details[0]
    assert caught.value.where == "litert"
    assert "--target cloud-tpu alone" in caught.value.next_step


def test_missing_operators_are_counted_by_module_and_listed_together(tmp_path: Path) -> None:
    def call(x: Tensor) -> Tensor:
        y = torch.special.bessel_j0(x) + torch.special.bessel_j0(x * 2)
        return y + torch.fft.fft(x).real

    error = refused(call, ramp(8), target=["litert", "cloud-tpu"], output=tmp_path / "out")
    text = "\n".join(error.details)
    assert "bessel_j0.default x2" in text
    assert "complex numbers" in text
    assert "test_blockers.py" in text and "in call" in text
    assert error.where == "litert, cloud-tpu"


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (
            "Failed to run converter passes: /a/b/linear.py:134:0: error: 'tfl.x' op bad",
            "linear.py:134: 'tfl.x' op bad",
        ),
        ("Failed to export flatbuffer:\n\nsomething: %3 = tfl.y()", "Failed to export flatbuffer: something"),
        ("", "ValueError"),
    ],
)
def test_the_converters_texts_are_shortened(text: str, short: str) -> None:
    assert reason(ValueError(text)) == short
