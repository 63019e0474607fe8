""".pt2 files: the round trip, damage, and every way in which such a file could run code."""

from __future__ import annotations

import copy
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torch2edge import program_archive
from torch2edge.errors import InputError, SourceError
from torch2edge.source import load


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


X, SHIFT = torch.linspace(-1, 1, 8).view(2, 4), torch.tensor([1.0, 2.0, 3.0])


@pytest.fixture(scope="module")
def net() -> Net:
    """One set of weights for all tests."""
    torch.manual_seed(1)
    return Net().eval()


@pytest.fixture(scope="module")
def good(net: Net, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a sound file."""
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(torch.export.export(net, (X,), {"shift": SHIFT}), path)
    return path.read_bytes()


@pytest.fixture
def path(good: bytes, tmp_path: Path) -> Path:
    """A sound file of the test's own."""
    (tmp_path / "net.pt2").write_bytes(good)
    return tmp_path / "net.pt2"


def rebuilt(
    path: Path, change: Callable[[str, bytes], bytes | None], extra: dict[str, bytes] | None = None
) -> Path:
    """Write every record again, changed (None drops it), and add some; with sound checksums."""
    with zipfile.ZipFile(path) as archive:
        records = {n: archive.read(n) for n in archive.namelist()}
    root = next(iter(records)).partition("/")[0]
    made = {n: change(n.partition("/")[2], data) for n, data in records.items()}
    made |= {f"{root}/{n}": data for n, data in (extra or {}).items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in made.items():
            if data is not None:
                archive.writestr(name, data)
    return path


def edited(path: Path, record: str, change: Callable[[Any], Any]) -> Path:
    """Change one JSON record in place."""

    def apply(name: str, data: bytes) -> bytes:
        if name != record:
            return data
        content = json.loads(data)
        change(content)
        return json.dumps(content).encode()

    return rebuilt(path, apply)


def saved(value: Any) -> bytes:
    """What torch.save writes."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_round_trip(path: Path, net: Net) -> None:
    source = load(path)
    result, expected = source.module(*source.args, **source.kwargs), net(X, shift=SHIFT)
    assert torch.equal(source.args[0], X) and torch.equal(source.kwargs["shift"], SHIFT)
    assert list(result) == ["out", "moved"]
    assert all(torch.equal(result[k], expected[k]) for k in expected)
    assert not any(p.requires_grad for p in source.module.parameters())


def test_a_rewritten_archive_is_still_sound(path: Path, net: Net) -> None:
    """The control of all tests below that change a record: rewriting alone breaks nothing."""
    source = load(rebuilt(path, lambda name, data: data))
    assert torch.equal(source.module(X, shift=SHIFT)["out"], net(X, shift=SHIFT)["out"])


# torch copies its own LeafSpec objects, whose constructor warns.
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_modes_and_copies(path: Path, net: Net) -> None:
    source = load(path)
    source.module.train().eval()
    double = copy.deepcopy(source.module).double().eval()
    result = double(X.double(), shift=SHIFT.double())["out"]
    assert result.dtype == torch.float64  # the copy computes with its own weights
    assert torch.allclose(result.float(), net(X, shift=SHIFT)["out"])
    assert source.module(X, shift=SHIFT)["out"].dtype == torch.float32


def test_weights_go_into_the_program(path: Path, net: Net, tmp_path: Path) -> None:
    source = load(path)
    state = {k: v + 1 for k, v in source.module.state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    moved = load(path, weights=tmp_path / "w.pt")
    assert not torch.allclose(moved.module(X, shift=SHIFT)["out"], net(X, shift=SHIFT)["out"])


def test_inputs_by_name(path: Path, refused: Any) -> None:
    source = load(path, inputs=["x=2x4", "shift=3"])
    assert source.args[0].shape == (2, 4) and not torch.equal(source.args[0], X)
    error = refused(InputError, lambda: load(path, inputs=["xx=2x4"]), "did you mean x?")
    assert error.expected == "forward(x, *, shift)"


def test_inputs_of_another_shape_or_dtype(path: Path, refused: Any) -> None:
    error = refused(InputError, lambda: load(path, inputs=["x=5x4", "shift=3:float64"]))
    assert error.details == (
        "tensor 0: the program takes 2x4:float32, given 5x4:float32",
        "tensor 1: the program takes 3:float32, given 3:float64",
    )


def test_a_dynamic_dimension_takes_other_sizes(tmp_path: Path, refused: Any) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(nn.Linear(4, 3), (torch.ones(8, 4),), dynamic_shapes=({0: 2 * batch},))
    torch.export.save(program, tmp_path / "d.pt2")
    source = load(tmp_path / "d.pt2", inputs=["input=6x4"])
    assert source.module(*source.args).shape == (6, 3)
    refused(InputError, lambda: load(tmp_path / "d.pt2", inputs=["input=6x5"]), "takes ?x4:float32")


def test_a_program_without_example_inputs(path: Path) -> None:
    source = load(rebuilt(path, lambda name, data: b"" if name == "data/sample_inputs/model.pt" else data))
    assert (source.args, source.kwargs) == ((), {})


def test_missing_and_folder(tmp_path: Path, refused: Any) -> None:
    refused(SourceError, lambda: load(tmp_path / "no.pt2"), "does not exist")
    (tmp_path / "folder.pt2").mkdir()
    refused(SourceError, lambda: load(tmp_path / "folder.pt2"), "is a folder")


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999])
def test_truncated(path: Path, good: bytes, refused: Any, part: float) -> None:
    path.write_bytes(good[: int(len(good) * part)])
    refused(SourceError, lambda: load(path), "damaged")


@pytest.mark.parametrize("where", range(12))
def test_a_flipped_byte_never_changes_a_number(path: Path, good: bytes, net: Net, where: int) -> None:
    """Some bytes (padding, dates) mean nothing; the others must be an error, never another result."""
    data = bytearray(good)
    data[len(data) * (2 * where + 1) // 24] ^= 0x55
    path.write_bytes(data)
    try:
        source = load(path)
    except SourceError as error:
        assert error.next_step and error.got
    else:
        assert torch.equal(source.module(X, shift=SHIFT)["out"], net(X, shift=SHIFT)["out"])


@pytest.mark.parametrize("record", ["data/weights/weight_0", "models/model.json", "data/constants/tensor_0"])
def test_a_flipped_byte_in_a_record_is_found_by_its_checksum(path: Path, refused: Any, record: str) -> None:
    with zipfile.ZipFile(path) as archive:
        content = next(archive.read(n) for n in archive.namelist() if n.endswith(record))
    data = bytearray(path.read_bytes())
    data[data.index(content) + len(content) // 2] ^= 1
    path.write_bytes(data)
    refused(SourceError, lambda: load(path), "damaged", record)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.txt": "hello"}, ["without a torch.export program"]),
        ({}, ["damaged"]),
        ({"x/archive_format": "pt2", "x/models/other.json": "{}"}, ["without a torch.export program"]),
        ({"x/archive_format": "pt2", "x/models/model.json": "{}"}, ["damaged"]),
        ({"x/archive_format": "pt2", "x/models/model.json": "{"}, ["damaged"]),
        ({"version": "8.8", "serialized_exported_program.json": "{}"}, ["torch 2.7"]),
    ],
)
def test_a_zip_that_is_no_program(
    tmp_path: Path, refused: Any, files: dict[str, str], words: list[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "net.pt2", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    refused(SourceError, lambda: load(tmp_path / "net.pt2"), *words)


def test_a_checkpoint_under_this_name(tmp_path: Path, net: Net, refused: Any) -> None:
    torch.save(net.state_dict(), tmp_path / "net.pt2")
    refused(SourceError, lambda: load(tmp_path / "net.pt2"), "without a torch.export program", "--weights")


@pytest.mark.parametrize(
    "record", ["models/model.json", "data/weights/weight_0", "data/weights/model_weights_config.json"]
)
def test_a_record_that_is_gone(path: Path, refused: Any, record: str) -> None:
    refused(SourceError, lambda: load(rebuilt(path, lambda name, data: None if name == record else data)))


def test_a_record_twice(path: Path, refused: Any) -> None:
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith("model.json"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name.upper(), "{}")  # torch's reader does not tell them apart
    refused(SourceError, lambda: load(path), "holds records twice")


# Code in the file.  Each case comes with its control: torch.export.load itself does run the payload.


def in_sample_inputs(path: Path, payload: Any) -> None:
    rebuilt(path, lambda name, data: saved(payload) if name == "data/sample_inputs/model.pt" else data)


def in_legacy_weights(path: Path, payload: Any) -> None:
    rebuilt(path, lambda name, data: data, {"data/weights/model.pt": saved(payload)})


def in_legacy_constants(path: Path, payload: Any) -> None:
    rebuilt(path, lambda name, data: data, {"data/constants/model.pt": saved(payload)})


def in_opaque_constant(path: Path, payload: Any) -> None:
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    edited(path, "data/constants/model_constants_config.json", lambda c: c["config"].update(thing=entry))
    rebuilt(path, lambda name, data: data, {"data/constants/opaque_obj_0": pickle.dumps(payload)})


def in_pickled_weight(path: Path, payload: Any) -> None:
    def change(content: Any) -> None:
        # tensor_meta stays: a file may claim to hold a tensor and still ask for the unpickler
        content["config"]["linear.weight"].update(use_pickle=True, path_name="weight_9")

    edited(path, "data/weights/model_weights_config.json", change)
    rebuilt(path, lambda name, data: data, {"data/weights/weight_9": saved(payload)})


def in_symbolic_size(path: Path, payload: Any) -> None:
    text = f"__import__('os').mkdir({str(payload.trace)!r})"
    size = {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}
    edited(
        path,
        "models/model.json",
        lambda c: c["graph_module"]["graph"]["tensor_values"]["x"].update(sizes=[size, {"as_int": 4}]),
    )


@pytest.mark.parametrize(
    "hide",
    [
        in_sample_inputs,
        in_legacy_weights,
        in_legacy_constants,
        in_opaque_constant,
        in_pickled_weight,
        in_symbolic_size,
    ],
)
def test_code_in_the_file_is_refused_and_does_not_run(
    path: Path, refused: Any, payload: Any, hide: Callable[[Path, Any], None]
) -> None:
    hide(path, payload)
    refused(SourceError, lambda: load(path), "pickled objects or code", "which you trust")
    assert not payload.trace.exists()
    try:
        torch.export.load(path)
    except Exception:  # the payload is no program part, so torch fails after it ran
        pass
    assert payload.trace.exists()


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("data/aotinductor/model/model.so", "compiled code"),
        ("data/constants/custom_obj_0", "pickled object"),
        ("data/constants/opaque_obj_0", "pickled object"),
    ],
)
def test_records_that_only_code_needs(path: Path, refused: Any, record: str, words: str) -> None:
    refused(SourceError, lambda: load(rebuilt(path, lambda n, d: d, {record: b"x"})), f"{record}: {words}")


def test_a_real_pickled_object(tmp_path: Path, refused: Any) -> None:
    """The example inputs of this program hold an object that only a full unpickler reads."""
    program = torch.export.export(nn.Identity(), (X,))
    program._example_inputs = ((complex(1, 2), Path("x")), {})
    torch.export.save(program, tmp_path / "o.pt2")
    refused(SourceError, lambda: load(tmp_path / "o.pt2"), "example inputs that need pathlib")


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.load",
        "torch.hub.load",
        "os.system",
        "_operator.methodcaller",
        "builtins.eval",
        "#x:y",
    ],
)
def test_call_targets_that_are_no_operators(path: Path, refused: Any, target: str) -> None:
    edited(path, "models/model.json", lambda c: c["graph_module"]["graph"]["nodes"][0].update(target=target))
    refused(SourceError, lambda: load(path), "no operator", target)


@pytest.mark.parametrize(
    "text",
    [
        "2*s0 + 1",
        "Max(1, s77 - 3)",
        "s0//2",
        "Eq(s0, 4)",
        "-oo",
        "CeilToInt(s0/2)",
        "u0 < 4",
        "Mul(Integer(2), Symbol('s26', positive=True, integer=True))",
    ],
)
def test_arithmetic_is_let_through(text: str) -> None:
    assert program_archive._arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "exec('1')",
        "eval(chr(49))",
        "s0.__class__",
        "__import__",
        "(lambda: 1)()",
        "[1][0]",
        "'a b'",
        "Symbol('a()')",
        "exec('a')",
        "f'{1}'",
        "print(1)",
        "a(",
        "getattr(s0, s1)",
    ],
)
def test_more_than_arithmetic_is_not(text: str) -> None:
    assert not program_archive._arithmetic(text)


def test_a_program_of_another_device(path: Path, refused: Any) -> None:
    def change(content: Any) -> None:
        content["config"]["mean"]["tensor_meta"]["device"] = {"type": "cuda", "index": 0}

    edited(path, "data/weights/model_weights_config.json", change)
    refused(SourceError, lambda: load(path), "mean lies on cuda", "move the program to the CPU")
