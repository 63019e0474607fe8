"""--weights: what loads, what is refused, and that nothing in the file runs."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from torch2edge.errors import WeightsError
from torch2edge.source import load
from torch2edge.weights import apply


class Tied(nn.Module):
    """Two names for one tensor, as in a language model's embedding and head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def net() -> nn.Module:
    """A float module with an integer buffer."""
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def trained() -> dict[str, torch.Tensor]:
    """Other values than a fresh module has."""
    state = net().state_dict()
    return {k: v + 7 if v.is_floating_point() else torch.tensor(42) for k, v in state.items()}


def save(state: Any, path: Path) -> Path:
    """By the path's suffix."""
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.bin"])
@pytest.mark.parametrize("key", ["", "state_dict", "model_state_dict", "model"])
def test_the_outputs_become_those_of_the_weights(tmp_path: Path, name: str, key: str) -> None:
    if key and name.endswith(".safetensors"):
        key = ""  # that format has no nesting
    state = trained()
    path = save({key: state, "epoch": 3} if key else state, tmp_path / name)
    module = net().eval()
    x = torch.ones(2, 3)
    before = module(x)
    source = load(module, args=x, weights=path)
    other = net().eval()
    other.load_state_dict(state)
    assert torch.equal(source.module(x), other(x))
    assert not torch.allclose(source.module(x), before)
    assert module.state_dict()["1.num_batches_tracked"].item() == 42


def test_all_differences_are_listed_at_once(tmp_path: Path, refused: Any) -> None:
    state = trained()
    del state["0.bias"], state["1.running_mean"]
    state |= {
        "extra": torch.ones(2),
        "0.weight": torch.ones(4, 9),
        "1.num_batches_tracked": torch.tensor(0.5),
    }
    module = net()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    error = refused(WeightsError, lambda: apply(module, save(state, tmp_path / "w.pt")), "5 difference(s)")
    assert error.details == (
        "missing in the file: 0.bias [4]",
        "missing in the file: 1.running_mean [4]",
        "not in the module: extra [2]",
        "0.weight: the module has [4, 3], the file [4, 9]",
        "1.num_batches_tracked: the module has int64, the file float32",
    )
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())  # nothing was half loaded


def test_a_shape_that_would_broadcast_is_a_difference(tmp_path: Path, refused: Any) -> None:
    state = trained() | {"0.bias": torch.ones(1)}
    refused(
        WeightsError,
        lambda: apply(net(), save(state, tmp_path / "w.pt")),
        "0.bias: the module has [4], the file [1]",
    )


@pytest.mark.parametrize(
    ("prefix", "words"),
    [("module.", "'module.'"), ("_orig_mod.", "'_orig_mod.'"), ("other.", "configuration")],
)
def test_a_wrapper_in_the_keys_is_recognized(tmp_path: Path, refused: Any, prefix: str, words: str) -> None:
    state = {f"{prefix}{k}": v for k, v in trained().items()}
    error = refused(WeightsError, lambda: apply(net(), save(state, tmp_path / "w.pt")))
    assert words in error.next_step


def test_keys_of_the_inner_module_are_recognized(tmp_path: Path, refused: Any) -> None:
    outer = nn.ModuleDict({"net": nn.Linear(2, 2)})
    error = refused(WeightsError, lambda: apply(outer, save(nn.Linear(2, 2).state_dict(), tmp_path / "w.pt")))
    assert "lack an outer name" in error.next_step


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.bin", "w.anything"])
@pytest.mark.parametrize("depth", ["whole", "inside"])
def test_a_pickle_with_code_is_refused_and_does_not_run(
    tmp_path: Path, refused: Any, payload: Any, name: str, depth: str
) -> None:
    path = save(payload if depth == "whole" else {"state_dict": trained(), "hook": payload}, tmp_path / name)
    refused(WeightsError, lambda: apply(net(), path), "could run code", "mkdir")
    assert not payload.trace.exists()
    torch.load(path, weights_only=False)  # the control: this file does run code where it is let
    assert payload.trace.exists()


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_plain_pickle_with_code_does_not_run(
    tmp_path: Path, refused: Any, payload: Any, protocol: int
) -> None:
    path = tmp_path / "w.pt"
    path.write_bytes(pickle.dumps(payload, protocol=protocol))
    refused(WeightsError, lambda: apply(net(), path))
    assert not payload.trace.exists()
    pickle.loads(path.read_bytes())
    assert payload.trace.exists()


def test_a_pickled_module_is_refused(tmp_path: Path, refused: Any) -> None:
    refused(
        WeightsError, lambda: apply(net(), save(net(), tmp_path / "w.pt")), "torch.nn.modules", "state_dict()"
    )


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file(tmp_path: Path, refused: Any, name: str, part: float) -> None:
    path = save(trained(), tmp_path / name)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    error = refused(WeightsError, lambda: apply(net(), path), "damaged", "bytes")
    assert "could run code" not in str(error)


def test_a_flipped_bit_in_a_tensor_is_found(tmp_path: Path, refused: Any) -> None:
    """torch's own reader would load another number; the zip archive holds a checksum."""
    path = save(trained(), tmp_path / "w.pt")
    data = bytearray(path.read_bytes())
    values = torch.load(path, weights_only=True)["1.running_mean"].numpy().tobytes()
    data[data.index(values) + 1] ^= 1
    path.write_bytes(data)
    torch.load(path, weights_only=True)  # the control
    refused(WeightsError, lambda: apply(net(), path), "damaged", "checksum")


@pytest.mark.parametrize("data", [b"hello", b"PK\x03\x04 no zip", b"\x80\x04.", b"\x00" * 64, b'{"a": 1}'])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_garbage(tmp_path: Path, refused: Any, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    refused(WeightsError, lambda: apply(net(), tmp_path / name))


def test_torchscript_is_named(tmp_path: Path, refused: Any) -> None:
    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    path = tmp_path / "w.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # such files stay around
        torch.jit.save(torch.jit.trace(Doubled(), torch.ones(2)), path)  # type: ignore[no-untyped-call]
    refused(WeightsError, lambda: apply(net(), path), "TorchScript")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (torch.ones(3), "got: Tensor"),
        ([torch.ones(3)], "got: list"),
        ({"a": 1, "b": "c"}, "a: int, b: str"),
        ({1: torch.ones(2)}, "1: Tensor"),
        ({}, "an empty dict"),
        ({"state_dict": {}}, "an empty dict"),
    ],
)
def test_no_state_dict(tmp_path: Path, refused: Any, content: Any, words: str) -> None:
    refused(
        WeightsError, lambda: apply(net(), save(content, tmp_path / "w.pt")), "holds no state dict", words
    )


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path, refused: Any) -> None:
    refused(WeightsError, lambda: apply(net(), tmp_path / "w.pt"), "does not exist")
    save(trained(), tmp_path / "model.safetensors")
    error = refused(WeightsError, lambda: apply(net(), tmp_path), "is a folder")
    assert "model.safetensors" in error.next_step


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_another_float_width_is_cast_and_said(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in trained().items()}
    module = net()
    with pytest.warns(UserWarning, match=f"{str(dtype).removeprefix('torch.')} to float32"):
        apply(module, save(state, tmp_path / "w.pt"))
    weight = module.state_dict()["0.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, state["0.weight"].float())


def test_the_same_width_is_not_said(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    apply(net(), save(trained(), tmp_path / "w.pt"))
    assert not recwarn.list


@pytest.mark.parametrize("kept", ["embedding.weight", "head.weight"])
def test_one_name_of_a_tied_tensor_is_enough(tmp_path: Path, kept: str) -> None:
    module, value = Tied(), torch.full((5, 3), 9.0)
    apply(module, save({kept: value}, tmp_path / "w.safetensors"))
    assert torch.equal(module.head.weight, value) and torch.equal(module.embedding.weight, value)
    assert module.head.weight is module.embedding.weight


def test_tied_tensors_that_differ_in_the_file(tmp_path: Path, refused: Any) -> None:
    state = {"embedding.weight": torch.ones(5, 3), "head.weight": torch.zeros(5, 3)}
    refused(WeightsError, lambda: apply(Tied(), save(state, tmp_path / "w.pt")), "differ in the file")
    state["head.weight"] = torch.ones(5, 3)
    apply(Tied(), save(state, tmp_path / "w.pt"))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_empty_and_meta_tensors_are_not_taken_for_tied(tmp_path: Path, refused: Any, device: str) -> None:
    with torch.device(device):
        module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        module.register_buffer("none", torch.empty(0))
        module.register_buffer("nil", torch.empty(0))
    state = {"0.weight": torch.ones(2, 2), "0.bias": torch.ones(2), "none": torch.empty(0)}
    error = refused(WeightsError, lambda: apply(module, save(state, tmp_path / "w.pt")))
    assert error.details == tuple(
        f"missing in the file: {k}" for k in ("1.bias [2]", "1.weight [2, 2]", "nil [0]")
    )


def test_a_checkpoint_saved_on_a_gpu_comes_to_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        path = save(trained(), tmp_path / "w.pt")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(path, weights_only=True)  # the control: the file does ask for a GPU
    module = net()
    apply(module, path)
    assert {t.device.type for t in module.state_dict().values()} == {"cpu"}


def test_lazy_parameters_take_their_shape_from_the_file(tmp_path: Path) -> None:
    module, given = nn.Sequential(nn.LazyLinear(4)), nn.Sequential(nn.Linear(3, 4))
    apply(module, save(given.state_dict(), tmp_path / "w.pt"))
    assert torch.equal(module(torch.ones(3)), given(torch.ones(3)))
