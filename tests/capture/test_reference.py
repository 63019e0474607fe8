"""The reference in float64, and the golden cases made of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.models import MODELS, Call, ramp
from torch2edge import goldens
from torch2edge.boundary import bind
from torch2edge.capture import capture
from torch2edge.reference import exact, sample_of, start_state, to_numpy, to_torch, vocabulary
from torch2edge.source import load


def test_float64_is_nearer_to_the_truth_than_float32() -> None:
    torch.manual_seed(0)
    module = nn.Linear(512, 1, bias=False)
    x = torch.randn(1, 512)
    source = load(module, args=x)
    made = capture(source)
    sample = sample_of(made, bind(module, source.args, {})[0])
    wide = exact(made, sample, start_state(made))
    assert wide is not None
    truth = float((module.weight.double() @ x.double().T).item())
    got = wide[0]["output_0"]
    assert got.dtype == np.float64
    assert abs(got.item() - truth) < 1e-14 * 512
    with torch.no_grad():
        assert abs(module(x).item() - truth) > abs(got.item() - truth)


def test_an_operator_that_reinterprets_bits_has_no_exact_answer() -> None:
    source = load(Call(lambda x: x.view(torch.int32) + 1), args=ramp(3))
    made = capture(source)
    assert exact(made, {"args_0": ramp(3).numpy()}, []) is None
    cases, _ = goldens.make(source, made)
    assert cases[0].outputs["output_0"].dtype == np.int32
    assert cases[0].undecided == {}


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int64", "bool", "uint8"])
def test_tensors_cross_to_numpy_and_back(name: str) -> None:
    dtype = getattr(torch, name)
    tensor = (torch.arange(6) - 2).to(dtype).reshape(2, 3)
    array = to_numpy(tensor)
    assert array.dtype.name == name
    assert torch.equal(to_torch(array), tensor)


def test_the_vocabulary_of_token_ids_is_found() -> None:
    made = capture(load(MODELS["token-ids"].make(), args=MODELS["token-ids"].args()))
    assert vocabulary(made) == {"input": 11}


def test_goldens_cover_every_kind_and_start_with_the_users_sample() -> None:
    source = load(nn.Linear(4, 3), args=ramp(2, 4))
    cases, notes = goldens.make(source, capture(source))
    assert [c.kind for c in cases] == ["sample", "random", "ramp", "outliers", "zeros"]
    assert notes == []
    np.testing.assert_array_equal(cases[0].inputs["input"], ramp(2, 4).numpy())
    for case in cases:
        assert case.floors["output_0"].source == "float64"


def test_cases_that_eager_itself_cannot_answer_are_left_out_with_a_note() -> None:
    source = load(Call(lambda x: 1 / x), args=ramp(3, lo=1, hi=2))
    cases, notes = goldens.make(source, capture(source))
    assert "zeros" not in [c.kind for c in cases]
    assert any("zeros" in note for note in notes)


def test_a_model_with_state_gets_calls_in_a_row() -> None:
    case = MODELS["ring-buffer"]
    source = load(case.make(), args=case.args())
    cases, _ = goldens.make(source, capture(source), generated=False)
    assert [c.reset for c in cases] == [True, False, False, False, False]
    outputs = [c.outputs["output_0"].tobytes() for c in cases]
    assert len(set(outputs)) == 5


def test_a_sample_beyond_the_narrower_dtype_is_refused() -> None:
    from torch2edge.errors import InputError

    source = load(Call(lambda x: x + 1), args=torch.tensor([2**40]))
    with pytest.raises(InputError, match="int32"):
        goldens.make(source, capture(source))
