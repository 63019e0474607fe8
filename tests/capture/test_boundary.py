"""Binding inputs to forward: names, order, kinds and nesting survive flattening."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models import MODELS, Model
from torch2edge.boundary import Flat, bind, check_devices, rebuild
from torch2edge.capture import frozen
from torch2edge.errors import InputError

CALLABLE = [m for m in MODELS.values() if m.want == "equal" and m.name != "mutated-input"]


@pytest.mark.parametrize("case", CALLABLE, ids=lambda m: m.name)
def test_the_flat_module_computes_what_the_module_computes(case: Model) -> None:
    args, kwargs = case.args(), case.kwargs()
    tensors, parameters, names = bind(case.make(), args, kwargs)
    assert len(names) == len(set(names)) == len(tensors)
    flat = Flat(case.make().eval(), parameters, [t.dtype for t in tensors])
    module = case.make()
    with frozen(module), frozen(flat):
        leaves = flat(*tensors)
        expected = module(*case.args(), **case.kwargs())
    wanted: list[Tensor] = []
    _collect(expected, wanted)
    assert len(leaves) == len(wanted)
    for mine, theirs in zip(leaves, wanted, strict=True):
        assert torch.equal(mine, theirs)


def _collect(value: Any, found: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _collect(getattr(value, name), found)


def test_a_skipped_default_does_not_move_what_comes_after_it() -> None:
    case = MODELS["skipped-default"]
    _, parameters, names = bind(case.make(), case.args(), case.kwargs())
    assert names == ["x", "y"]
    args, kwargs = rebuild(parameters, ["X", "Y"])
    assert (args, kwargs) == (["X"], {"y": "Y"})


class Sentinel(nn.Module):
    marker = object()

    def forward(self, x: Tensor, mode: object = marker, y: Tensor | None = None) -> Tensor:
        assert mode is Sentinel.marker
        return x if y is None else x - y


def test_after_a_default_that_is_no_constant_arguments_go_by_keyword() -> None:
    _, parameters, _ = bind(Sentinel(), (torch.ones(2),), {"y": torch.ones(2)})
    assert [(p.name, p.kind) for p in parameters] == [("x", "positional"), ("y", "keyword")]
    args, kwargs = rebuild(parameters, [1, 2])
    assert (args, kwargs) == ([1], {"y": 2})


def test_names_come_from_parameters_and_keys() -> None:
    case = MODELS["names-that-collide"]
    _, _, names = bind(case.make(), case.args(), case.kwargs())
    assert names == ["x_y", "x_z", "x_y_2"]
    case = MODELS["star-arguments"]
    _, _, names = bind(case.make(), case.args(), case.kwargs())
    assert names == ["first", "rest_0", "rest_1", "w"]


def test_a_default_is_optional_and_another_constant_is_not() -> None:
    case = MODELS["keyword-only"]
    _, parameters, _ = bind(case.make(), case.args(), case.kwargs())
    optional = {p.name: p.optional for p in parameters}
    assert optional == {"x": False, "bias": False, "gain": False, "flip": True}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((torch.ones(2),) * 2, {}), ((torch.ones(2),), {"nope": 1})],
    ids=["too-few", "too-many", "unknown"],
)
def test_inputs_that_do_not_bind_are_refused_with_forwards_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(InputError) as caught:
        bind(nn.ReLU(), args, kwargs)
    assert "input" in caught.value.expected


def test_a_value_that_cannot_cross_the_boundary_is_named_by_its_path() -> None:
    with pytest.raises(InputError) as caught:
        bind(nn.Identity(), ({"a": [object()]},), {})
    assert "a.0" in str(caught.value)


def test_every_tensor_on_another_device_is_listed() -> None:
    module = nn.Linear(2, 2, device="meta")
    with pytest.raises(InputError) as caught:
        check_devices(module, [torch.ones(2, device="meta"), torch.ones(2)], ["x", "y"])
    assert len(caught.value.details) == 3
    assert any("weight on meta" in line for line in caught.value.details)
    assert not any("input y" in line for line in caught.value.details)


def test_sparse_inputs_are_refused() -> None:
    with pytest.raises(InputError, match="dense"):
        check_devices(nn.Identity(), [torch.eye(2).to_sparse()], ["x"])
