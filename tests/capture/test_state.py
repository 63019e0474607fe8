"""Mutated buffers become inputs and outputs; nothing is written behind the caller's back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.models import MODELS
from torch2edge.capture import capture
from torch2edge.errors import UnsupportedError
from torch2edge.reference import Reference, captured_outputs, start_state
from torch2edge.source import load


@pytest.mark.parametrize("name", ["ring-buffer", "two-states", "state-slice"])
def test_five_calls_in_a_row_equal_eager(name: str) -> None:
    case = MODELS[name]
    source = load(case.make(), args=case.args(), kwargs=case.kwargs())
    made = capture(source)
    reference = Reference(source.module, made.signature)
    reference.reset()
    state = start_state(made)
    rng = np.random.default_rng(0)
    for _ in range(5):
        inputs = {s.name: rng.normal(size=s.shape).astype(s.dtype) for s in made.signature.inputs}
        expected = reference(inputs)
        got, state = captured_outputs(made, inputs, state)
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, rtol=1e-6)


def test_state_has_the_buffers_path_its_start_value_and_no_hidden_write() -> None:
    case = MODELS["two-states"]
    made = capture(load(case.make(), args=case.args()))
    assert [s.buffer for s in made.signature.state] == ["total", "count"]
    assert not made.program.graph_signature.buffers_to_mutate
    start = dict(zip([s.buffer for s in made.signature.state], start_state(made), strict=True))
    assert int(start["count"]) == 4
    torch.testing.assert_close(start["total"], case.make().total)


def test_the_capture_leaves_the_users_buffers_alone() -> None:
    module = MODELS["ring-buffer"].make()
    before = module.state.clone()
    capture(load(module, args=MODELS["ring-buffer"].args()))
    assert torch.equal(module.state, before)


def test_a_buffer_that_is_only_read_is_no_state() -> None:
    case = MODELS["strided-constant"]
    assert capture(load(case.make(), args=case.args())).signature.state == ()


def test_an_overwritten_input_is_noted_and_left_alone() -> None:
    case = MODELS["mutated-input"]
    made = capture(load(case.make(), args=case.args()))
    assert len(made.notes) == 1 and "'x'" in made.notes[0]
    assert len(made.signature.outputs) == 1


class WritesParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.w.mul_(2)
        return x * self.w


def test_a_parameter_that_forward_changes_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="parameters") as caught:
        capture(load(WritesParameter(), args=torch.ones(3)))
    assert caught.value.details == ("w",)
