"""Every form of MODEL by its outer shape, the merging of inputs, and what the module's owner keeps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torch2edge.errors import InputError, SourceError
from torch2edge.source import load


class Net(nn.Module):
    """Two inputs and a keyword, so that positions and names can be confused."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor, *, bias: torch.Tensor | None = None) -> torch.Tensor:
        out = x * self.weight - y
        return out if bias is None else out + bias


class Open(nn.Module):
    """A forward that takes any name."""

    def forward(self, x: torch.Tensor, /, **rest: torch.Tensor) -> torch.Tensor:
        return x + sum(rest.values())


def test_a_module_object_is_left_as_it_is() -> None:
    net = Net().train()
    source = load(net, args=(torch.ones(2), torch.ones(2)))
    assert source.module is net
    assert net.training and net.weight.requires_grad
    assert source.origin == "Net"


@pytest.mark.parametrize("args", [torch.ones(2), (torch.ones(2),), [torch.ones(2)]])
def test_args_as_tensor_tuple_or_list(args: Any) -> None:
    source = load(nn.Identity(), args=args)
    assert isinstance(source.args, tuple) and torch.equal(source.args[0], torch.ones(2))


def test_args_win_over_the_factory_and_inputs_over_both(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text(
        "import torch\nfrom torch import nn\ndef make(): return nn.Identity(), (torch.zeros(1),)"
    )
    assert load(f"{script}:make").args[0].shape == (1,)
    assert load(f"{script}:make", args=torch.zeros(2)).args[0].shape == (2,)
    assert load(f"{script}:make", args=torch.zeros(2), inputs=["input=3:int32"]).args[0].shape == (3,)


def test_an_input_replaces_one_of_the_positional_inputs() -> None:
    source = load(
        Net(), args=(torch.ones(2), torch.full((2,), 5.0)), inputs=["x=2:float64", "bias=2:float16"]
    )
    assert source.args[0].dtype == torch.float64
    assert torch.equal(source.args[1], torch.full((2,), 5.0))
    assert {k: v.dtype for k, v in source.kwargs.items()} == {"bias": torch.float16}


def test_inputs_alone_go_by_name_and_order_does_not_matter() -> None:
    one = load(Net(), inputs=["y=2", "x=2"])
    two = load(Net(), inputs=["x=2", "y=2"])
    assert one.args == () and {k: v.tolist() for k, v in one.kwargs.items()} == {
        k: v.tolist() for k, v in two.kwargs.items()
    }


def test_positional_only_and_open_keywords() -> None:
    source = load(Open(), inputs=["extra=2", "x=2"])
    expected = source.args[0] + source.kwargs["extra"]
    assert torch.equal(source.module(*source.args, **source.kwargs), expected)


def test_unknown_and_missing_names_come_in_one_error(refused: Any) -> None:
    error = refused(InputError, lambda: load(Net(), inputs=["xx=2", "biass=2"]), "did you mean bias?")
    assert len(error.details) == 4  # xx and biass are unknown, x and y have no value
    assert error.expected == "forward(x, y, *, bias=None)"
    assert "--input x=" in error.next_step


def test_a_missing_second_input(refused: Any) -> None:
    error = refused(InputError, lambda: load(Net(), args=torch.ones(2)))
    assert error.details == ("y: no value given",)


def test_too_many_positional_inputs(refused: Any) -> None:
    refused(InputError, lambda: load(Net(), args=(torch.ones(2),) * 3), "too many positional", "3 positional")


def test_a_module_alone_may_be_loaded_without_inputs() -> None:
    source = load(Net())  # a reference to compare with
    assert (source.args, source.kwargs) == ((), {})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nothing", ["neither a file nor a factory", "no such file"]),
        ("", ["neither a file nor a factory"]),
        (":make", ["neither a file nor a factory"]),
        ("net.py:", ["neither a file nor a factory"]),
        ("missing.pt2", ["does not exist"]),
        ("notes.txt", ["of no known form", ".txt"]),
        ("net.ckpt", ["is a checkpoint", "--weights net.ckpt"]),
        ("net.safetensors", ["is a checkpoint"]),
        ("empty", ["has no config.json", "an empty folder"]),
        ("bundle", ["a bundle, which export has already made"]),
    ],
)
def test_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any, model: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "net.ckpt", "net.safetensors"):
        Path(name).write_bytes(b"x")
    Path("empty").mkdir()
    Path("bundle").mkdir()
    Path("bundle/manifest.json").write_text("{}")
    refused(SourceError, lambda: load(model), *words)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Net, ["the class Net", "pass an instance: Net(...)"]),
        (Net().state_dict(), ["a state dict", "weights="]),
        (None, ["got: None"]),
        (3, ["got: int"]),
        (torch.export.export(nn.Identity(), (torch.ones(2),)), ["program.module()"]),
    ],
)
def test_no_module_object(refused: Any, model: Any, words: list[str]) -> None:
    refused(SourceError, lambda: load(model), *words)


@pytest.mark.parametrize("nested", [False, True])
def test_an_exported_program_inside_a_factory_takes_eval(tmp_path: Path, nested: bool) -> None:
    script = tmp_path / "net.py"
    wrap = "nn.Sequential(m, nn.Dropout())" if nested else "m"
    script.write_text(
        "import torch\nfrom torch import nn\ndef make():\n    x = torch.ones(2)\n"
        f"    m = torch.export.export(nn.Linear(2, 2), (x,)).module()\n    return {wrap}, x"
    )
    source = load(f"{script}:make")
    source.module.eval()  # what capture does
    source.module.train(False)
    first, second = (source.module(*source.args) for _ in range(2))
    assert torch.equal(first, second)


def test_an_ordinary_graph_module_is_put_into_eval_mode(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text(
        "import torch\nfrom torch import nn\n"
        "def make(): return torch.fx.symbolic_trace(nn.Sequential(nn.Dropout(0.5))), torch.ones(100)"
    )
    source = load(f"{script}:make")
    assert torch.equal(source.module(*source.args), torch.ones(100))


# torch.compile imports parts of torch that still use torch.jit.
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_wrappers_are_taken_off(tmp_path: Path) -> None:
    net = Net()
    for wrapped in (torch.compile(net), nn.DataParallel(net), torch.compile(nn.DataParallel(net))):
        source = load(wrapped, inputs=["x=2", "y=2"])
        assert source.module is net and list(source.kwargs) == ["x", "y"]


def test_torchscript_is_left_to_capture() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # such modules stay around
        traced = torch.jit.trace(nn.Identity(), torch.ones(2))  # type: ignore[no-untyped-call]
    source = load(
        traced, args=torch.ones(2), inputs=["any=3"]
    )  # its forward has no signature to check against
    assert source.module is traced and list(source.kwargs) == ["any"]
