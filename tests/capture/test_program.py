"""The program on disk: hollow, with weights beside it, tied ones once, nothing confused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from tests.models import MODELS, ViewsOfOneStorage
from torch2edge import program
from torch2edge.capture import capture
from torch2edge.errors import BundleError
from torch2edge.source import load
from torch2edge.stages import Captured


def captured(name: str) -> Captured:
    case = MODELS[name]
    return capture(load(case.make(), args=case.args(), kwargs=case.kwargs()))


READ_BACK = [
    "strided-constant",
    "expanded-constant",
    "sliced-constant",
    "non-persistent-buffer",
    "views-of-one-storage",
    "lifted-constant",
    "equal-shape-weights",
    "tied-weights",
    "shared-module",
    "two-states",
    "bfloat16-module",
    "no-inputs",
    "gru",
]


@pytest.mark.parametrize("name", READ_BACK)
def test_what_is_read_back_computes_the_same_bits(name: str, tmp_path: Path) -> None:
    made = captured(name)
    program.save(made, tmp_path)
    again = program.load(tmp_path)
    inputs = made.program.example_inputs[0]
    with torch.no_grad():
        expected = made.program.module()(*inputs)
        got = again.module()(*inputs)
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine, theirs)


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    program.save(captured("tied-weights"), tmp_path)
    with safe_open(tmp_path / program.WEIGHTS, framework="pt") as file:
        assert len(list(file.keys())) == 1
    weights = program.load_weights(tmp_path)
    assert weights["emb.weight"].data_ptr() == weights["head.weight"].data_ptr()


def test_views_of_one_storage_stay_apart(tmp_path: Path) -> None:
    program.save(captured("views-of-one-storage"), tmp_path)
    module, weights = ViewsOfOneStorage(), program.load_weights(tmp_path)
    for name in "abc":
        assert torch.equal(weights[name], module.get_buffer(name))


def test_the_program_itself_holds_no_weights(tmp_path: Path) -> None:
    program.save(capture(load(nn.Linear(512, 512), args=torch.ones(1, 512))), tmp_path)
    assert (tmp_path / program.PROGRAM).stat().st_size < 100_000
    assert (tmp_path / program.WEIGHTS).stat().st_size > 512 * 512 * 4


def test_saving_does_not_change_the_program(tmp_path: Path) -> None:
    made = captured("gru")
    before = made.program.module()(*made.program.example_inputs[0])
    program.save(made, tmp_path)
    after = made.program.module()(*made.program.example_inputs[0])
    for mine, theirs in zip(after, before, strict=True):
        assert torch.equal(mine, theirs)


def test_weights_that_lack_one_are_refused_by_name(tmp_path: Path) -> None:
    program.save(captured("gru"), tmp_path)
    held = load_file(tmp_path / program.WEIGHTS)
    lost = sorted(held)[0]
    save_file({k: v for k, v in held.items() if k != lost}, tmp_path / program.WEIGHTS)
    with pytest.raises(BundleError) as caught:
        program.load(tmp_path)
    assert caught.value.details == (lost,)
