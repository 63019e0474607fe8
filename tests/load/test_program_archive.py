"""What no sound .pt2 file does: other records, and every way in which such a file could run code."""

from __future__ import annotations

import contextlib
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
from torch2edge.errors import SourceError
from torch2edge.source import load

X, SHIFT = torch.linspace(-1, 1, 8).view(2, 4), torch.tensor([1.0, 2.0, 3.0])


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


def test_a_rewritten_archive_is_still_sound(path: Path, net: nn.Module) -> None:
    """The control of all tests below that change a record: rewriting alone breaks nothing."""
    source = load(rebuilt(path, lambda name, data: data))
    assert torch.equal(source.module(X, shift=SHIFT)["out"], net(X, shift=SHIFT)["out"])


def test_a_program_without_example_inputs(path: Path) -> None:
    source = load(rebuilt(path, lambda name, data: b"" if name == "data/sample_inputs/model.pt" else data))
    assert (source.args, source.kwargs) == ((), {})


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
    with contextlib.suppress(Exception):  # the payload is no part of a program, so torch fails after it ran
        torch.export.load(path)
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
        "torch.ops.load_library",
        "torch.ops.aten.__class__.mro",
        "torch.ops.aten.from_file",
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


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.add.Tensor",
        "torch.ops.aten._softmax.default",
        "torch.ops.aten.__and__.Tensor",
        "torch.ops.higher_order.cond",
        "_operator.add",
        "math.ceil",
        "torch.sym_max",
    ],
)
def test_operators_are_let_through(target: str) -> None:
    assert list(program_archive._unsafe_program({"target": target, "inputs": []})) == []


def test_a_nesting_that_imports_a_module(path: Path, refused: Any) -> None:
    context = json.dumps(
        {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []}
    )
    spec = json.dumps([1, {"type": "collections.defaultdict", "context": context, "children_spec": []}])

    def change(content: Any) -> None:
        content["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = spec

    refused(SourceError, lambda: load(edited(path, "models/model.json", change)), "imports antigravity")


def test_guards_of_the_file_are_not_run(path: Path, payload: Any, net: nn.Module) -> None:
    """They are Python text that torch would compile; the program itself is read."""
    guard = f"__import__('os').mkdir({str(payload.trace)!r})"
    source = load(edited(path, "models/model.json", lambda c: c.update(guards_code=[guard])))
    assert torch.equal(source.module(X, shift=SHIFT)["out"], net(X, shift=SHIFT)["out"])
    assert not payload.trace.exists()
