"""file.py:factory, package.module:factory and get_model/get_args: what works, and what each mistake says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torch2edge.errors import SourceError
from torch2edge.source import load

Write = Callable[[str, str], Path]

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.tensor(2.0))
    def forward(self, x, shift=None):
        y = self.drop(x) * self.scale
        return y if shift is None else y + shift

def make_module(): return Net()
def make_args(): return Net(), (torch.ones(2),)
def make_one(): return Net(), torch.ones(2)
def make_kwargs(): return Net(), (torch.ones(2),), {"shift": torch.ones(2)}
def make_empty(): return Net(), None, None
def _hidden(): return Net()
ready = Net()
number = 3
"""


@pytest.mark.parametrize(
    ("factory", "args", "kwargs"),
    [
        ("make_module", 0, []),
        ("Net", 0, []),
        ("ready", 0, []),
        ("_hidden", 0, []),
        ("make_empty", 0, []),
        ("make_args", 1, []),
        ("make_one", 1, []),
        ("make_kwargs", 1, ["shift"]),
    ],
)
def test_each_form_of_factory(write: Write, factory: str, args: int, kwargs: list[str]) -> None:
    path = write("net.py", NET)
    source = load(f"{path}:{factory}")
    assert (len(source.args), sorted(source.kwargs)) == (args, kwargs)
    assert source.origin == f"{path}:{factory}"
    assert not any(m.training for m in source.module.modules())
    assert not any(p.requires_grad for p in source.module.parameters())
    # in training mode dropout would zero some and scale the others
    assert torch.equal(source.module(torch.ones(100)), torch.full((100,), 2.0))


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("def get_model(): return Net()\ndef get_args(): return (torch.ones(2),)", 1, []),
        ("def get_model(): return Net()\ndef get_args(): return torch.ones(2)", 1, []),
        ("def get_model(): return Net()", 0, []),
        ("def get_model(): return Net(), (torch.ones(2),)", 1, []),
        (
            "def get_model(): return Net()\ndef get_args(): return (torch.ones(2),)\n"
            "def get_kwargs(): return {'shift': torch.ones(2)}",
            1,
            ["shift"],
        ),
    ],
)
def test_get_model_and_get_args(write: Write, text: str, args: int, kwargs: list[str]) -> None:
    source = load(write("pair.py", NET + text))
    assert (len(source.args), sorted(source.kwargs)) == (args, kwargs)


def test_a_package_in_the_working_folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("shop_of_nets/__init__.py", "")
    path = write("shop_of_nets/net.py", NET)
    monkeypatch.chdir(path.parent.parent)
    assert len(load("shop_of_nets.net:make_args").args) == 1


def test_a_script_imports_its_neighbour_and_not_that_of_the_script_before(write: Write) -> None:
    text = "import neighbour_layers\ndef make(): return neighbour_layers.Own()"
    for folder, value in (("one", 1.0), ("two", 2.0)):
        write(
            f"{folder}/neighbour_layers.py",
            f"import torch\nclass Own(torch.nn.Module):\n    def forward(self, x): return x * 0 + {value}",
        )
        source = load(f"{write(f'{folder}/net.py', text)}:make")
        assert source.module(torch.zeros(1)).item() == value


def test_what_the_user_prints_stays_off_stdout(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    load(f"{write('loud.py', NET + 'print(1111)' + chr(10) + 'def loud(): print(2222); return Net()')}:loud")
    out, err = capsys.readouterr()
    assert out == ""
    assert "1111" in err and "2222" in err


def test_sys_path_and_modules_are_put_back(write: Write, refused: Any) -> None:
    before = list(sys.path)
    load(f"{write('fine.py', NET)}:Net")
    bad = write("bad_one.py", "1 / 0")
    refused(SourceError, lambda: load(f"{bad}:make"), "ZeroDivisionError")
    assert sys.path == before
    assert "torch2edge_user_bad_one" not in sys.modules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def make(:\n", ["SyntaxError", "net.py:1"]),
        ("x = 1\n\n  y = 2\n", ["IndentationError", "net.py:3"]),
        ("import torch\n\nraise ValueError('no data here')\n", ["ValueError: no data here", "net.py:3"]),
        ("import sys\nsys.exit(3)\n", ["sys.exit(3)", "net.py:2"]),
        ("import sys\nsys.exit()\n", ["ends the process", "got: sys.exit()"]),
        ("import a_module_that_nobody_has\n", ["needs 'a_module_that_nobody_has'", "net.py", "install"]),
        ("import torch.a_part_that_nobody_has\n", ["needs 'torch.a_part_that_nobody_has'"]),
        ("from torch import a_name_that_nobody_has\n", ["ImportError", "net.py:1"]),
        ("def make():\n    raise KeyError('k')\n", ["KeyError: 'k'", "net.py:2 in make"]),
        ("def make():\n    exit(4)\n", ["sys.exit(4)", "net.py"]),
        ("def make(): return make()\n", ["RecursionError"]),
        ("def make(width, depth=3, *, kind): return None\n", ["needs arguments", "width, kind"]),
        ("", ["has no factory 'make'"]),
        ("make = 5\n", ["has no factory 'make'", "a int"]),
        ("def make_net(): return None\n", ["expected: one of make_net", "did you mean", "make_net?"]),
        ("\0", ["SyntaxError"]),
    ],
)
def test_a_script_that_does_not_work(write: Write, refused: Any, text: str, words: list[str]) -> None:
    refused(SourceError, lambda: load(f"{write('net.py', text)}:make"), *words)


def test_a_file_that_is_no_text(tmp_path: Path, refused: Any) -> None:
    (tmp_path / "net.py").write_bytes(b"\xff\xfe\x00\x01")
    refused(SourceError, lambda: load(f"{tmp_path / 'net.py'}:make"), "net.py")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("Net", ["got: the class Net"]),
        ("Net().state_dict()", ["a dict of 1 tensors (a state dict)"]),
        ("None", ["got: None"]),
        ("3", ["got: int"]),
        ("(torch.ones(2), torch.ones(2))", ["a tuple of Tensor, Tensor"]),
        ("()", ["a tuple of nothing"]),
        ("(Net(), (), {}, 4)", ["a tuple of Net, tuple, dict, int"]),
        ("[Net(), (torch.ones(2),)]", ["got: list"]),
        ("(Net(), (), (torch.ones(2),))", ["keyword inputs", "got: tuple"]),
        ("(Net(), (), {1: 2})", ["keyword inputs"]),
    ],
)
def test_a_factory_that_returns_something_else(
    write: Write, refused: Any, value: str, words: list[str]
) -> None:
    path = write("net.py", NET + f"def make(): return {value}")
    refused(SourceError, lambda: load(f"{path}:make"), *words)


@pytest.mark.parametrize("model", ["net.py:make", "net.py", "folder.py:make"])
def test_a_file_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any, model: str
) -> None:
    (tmp_path / "folder.py").mkdir()
    monkeypatch.chdir(tmp_path)
    refused(
        SourceError,
        lambda: load(model),
        "is a folder" if "folder" in model else "does not exist",
        str(tmp_path),
    )


def test_a_file_without_get_model_names_its_functions(write: Write, refused: Any) -> None:
    path = write("plain.py", "import torch\nfrom math import sin\ndef build(): ...\ndef _private(): ...\n")
    error = refused(SourceError, lambda: load(path), "has no get_model()", "plain.py:build")
    assert error.got == "build"  # neither the imported nor the private name


def test_a_get_args_that_raises(write: Write, refused: Any) -> None:
    path = write("pair.py", NET + "def get_model(): return Net()\ndef get_args(): return [][0]")
    refused(SourceError, lambda: load(path), "get_args raised IndexError", "pair.py")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("a_package_that_nobody_has.net:make", ["no module 'a_package_that_nobody_has'"]),
        ("torch.a_part_that_nobody_has:make", ["no module 'torch.a_part_that_nobody_has'"]),
        ("torch.nn:Linnear", ["has no factory 'Linnear'"]),
        ("torch.nn:Linear", ["needs arguments", "in_features, out_features"]),
        (".relative:make", [".relative"]),
    ],
)
def test_a_package_that_does_not_work(refused: Any, model: str, words: list[str]) -> None:
    refused(SourceError, lambda: load(model), *words)


def test_a_package_with_a_missing_dependency(
    write: Write, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    path = write("shop_of_gaps.py", "import a_module_that_nobody_has\n")
    monkeypatch.chdir(path.parent)
    refused(SourceError, lambda: load("shop_of_gaps:make"), "shop_of_gaps needs 'a_module_that_nobody_has'")


def test_ctrl_c_in_a_script_is_not_swallowed(write: Write) -> None:
    path = write("net.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load(f"{path}:make")


def test_a_module_on_the_meta_device(write: Write, refused: Any) -> None:
    path = write("net.py", NET + "def make():\n    with torch.device('meta'): return nn.Linear(2, 2)")
    error = refused(SourceError, lambda: load(f"{path}:make"), "--weights")
    assert error.details == ("weight", "bias")


def test_the_meta_device_filled_by_weights(write: Write, tmp_path: Path) -> None:
    path = write("net.py", NET + "def make():\n    with torch.device('meta'): return nn.Linear(2, 2)")
    trained = nn.Linear(2, 2)
    torch.save(trained.state_dict(), tmp_path / "w.pt")
    source = load(f"{path}:make", weights=tmp_path / "w.pt")
    assert torch.equal(source.module(torch.ones(2)), trained(torch.ones(2)))
