"""Capture: the module comes out as it went in, and the program computes the same."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.models import MODELS, Model, ramp
from torch2edge.boundary import bind
from torch2edge.capture import capture, frozen
from torch2edge.errors import CaptureError, InputError, Torch2EdgeError, UnsupportedError
from torch2edge.reference import Reference, captured_outputs, sample_of, start_state
from torch2edge.source import load
from torch2edge.stages import Captured, Source


def source(case: Model) -> Source:
    return load(case.make(), args=case.args(), kwargs=case.kwargs())


def captured(name: str) -> Captured:
    return capture(source(MODELS[name]))


@pytest.mark.parametrize("case", [m for m in MODELS.values() if m.want == "equal"], ids=lambda m: m.name)
def test_the_program_equals_the_module(case: Model) -> None:
    mine = source(case)
    made = capture(mine)
    tensors, _, _ = bind(mine.module, mine.args, mine.kwargs)
    sample = sample_of(made, tensors)
    expected = Reference(mine.module, made.signature)(sample)
    got, _ = captured_outputs(made, sample, start_state(made))
    assert list(got) == list(expected) == [s.name for s in made.signature.outputs]
    for spec in made.signature.outputs:
        assert got[spec.name].dtype == expected[spec.name].dtype
        assert got[spec.name].shape == expected[spec.name].shape == spec.shape
        np.testing.assert_allclose(
            got[spec.name].astype(np.float64), expected[spec.name].astype(np.float64), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("name", ["python-if", "attribute-state", "complex-input"])
def test_what_cannot_be_captured_is_a_typed_error(name: str) -> None:
    with pytest.raises(Torch2EdgeError) as caught:
        captured(name)
    assert type(caught.value).__name__ == MODELS[name].want
    assert caught.value.next_step


def test_a_branch_on_a_value_names_the_users_line_and_keeps_both_failures() -> None:
    with pytest.raises(CaptureError) as caught:
        captured("python-if")
    assert "if x.sum() > 0:" in caught.value.where
    assert "models.py" in caught.value.where
    assert [line.split(":")[0] for line in caught.value.details] == ["non-strict", "strict"]


def test_an_attribute_that_carries_state_is_named_and_a_cache_is_only_noted() -> None:
    with pytest.raises(CaptureError, match="last"):
        captured("attribute-state")
    (note,) = captured("attribute-cache").notes
    assert note == "forward assigns self.last; the exported model does not keep it"


def test_forward_that_fails_says_why() -> None:
    with pytest.raises(CaptureError) as caught:
        capture(load(nn.Linear(4, 3), args=torch.ones(2, 5)))
    assert any("5" in line for line in caught.value.details)


def test_int64_and_float64_are_narrowed_at_the_boundary_and_only_there() -> None:
    made = captured("token-ids")
    (ids,) = made.signature.inputs
    assert (ids.dtype, ids.stored) == ("int64", "int32")
    made = captured("float64-boundary")
    assert [(s.dtype, s.stored) for s in made.signature.inputs] == [("float64", "float32")]
    assert made.signature.outputs[0].dtype == "float64"


def test_output_names_come_from_keys_and_fields() -> None:
    wanted = {
        "dataclass-output": ["logits", "hidden_0", "hidden_1"],
        "keyword-inputs": ["diff", "both", "prod"],
        "nested-output": ["h_0", "h_1", "y_0"],
        "names-that-collide": ["a_b", "a_b_2", "sp_ace__"],
    }
    assert {n: [s.name for s in captured(n).signature.outputs] for n in wanted} == wanted


class Modes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(3)
        self.register_buffer("view", ramp(3, 2).t())

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.drop(x)) + self.view.sum()


def test_the_users_module_comes_back_as_it_was() -> None:
    module = Modes().train()
    module.norm.eval()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    view, fast = module.view, torch.backends.mha.get_fastpath_enabled()
    capture(load(module, args=torch.ones(2, 3)))
    assert module.training and module.drop.training and not module.norm.training
    assert module.view is view and not view.is_contiguous()
    assert all(p.requires_grad for p in module.parameters())
    assert torch.backends.mha.get_fastpath_enabled() is fast
    assert torch.is_grad_enabled()
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_frozen_undoes_itself_when_forward_raises() -> None:
    module = Modes().train()
    with pytest.raises(RuntimeError, match="stop"), frozen(module):
        assert not module.training and module.view.is_contiguous()
        raise RuntimeError("stop")
    assert module.training and not module.view.is_contiguous()


def test_a_module_without_a_tensor_in_its_result_is_refused() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> int:
            return 3

    with pytest.raises(UnsupportedError, match="no tensor"):
        capture(load(Nothing(), args=torch.ones(2)))


def test_a_result_that_cannot_cross_the_boundary_is_named() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> dict[str, object]:
            return {"ok": x, "odd": {1, 2}}

    with pytest.raises(InputError, match="set"):
        capture(load(Odd(), args=torch.ones(2)))


def test_a_compiled_module_is_captured_by_what_it_wraps() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled = torch.compile(nn.Linear(3, 2))
    made = capture(load(compiled, args=torch.ones(1, 3)))
    assert [s.name for s in made.signature.inputs] == ["input"]


def test_a_script_module_is_refused_with_the_way_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Linear(3, 2))
    with pytest.raises(CaptureError) as caught:
        capture(load(scripted, args=torch.ones(1, 3)))
    assert "TorchScript" in str(caught.value)
