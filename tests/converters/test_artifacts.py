"""What the converters write, read back from the files themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torch2edge
from torch2edge.bundle import Bundle

pytestmark = pytest.mark.real


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.big = nn.Linear(256, 256)
        self.head = nn.Linear(256, 256, bias=False)
        self.head.weight = self.big.weight
        self.register_buffer("floor", torch.full((256,), float("-inf")))

    def forward(self, picture: Tensor, token: Tensor) -> dict[str, Any]:
        y = torch.maximum(self.head(torch.relu(self.big(picture))), self.floor)
        return {"scores": y, "ids": (y.argmax(-1), token + 1)}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    made = torch2edge.export(
        Net(),
        (torch.linspace(-1, 1, 512).reshape(2, 256), torch.tensor([3, 4])),
        target=["litert", "cloud-tpu"],
        output=tmp_path_factory.mktemp("net") / "out",
    )
    assert isinstance(made, dict)
    return made


def operations(artifact: bytes) -> tuple[set[str], str]:
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax  # type: ignore[attr-defined]
    from jaxlib.mlir import ir

    found: set[str] = set()

    def visit(operation: Any) -> Any:
        found.add(operation.name)
        return ir.WalkResult.ADVANCE

    with mlir.make_ir_context():
        made = _jax.mlir.deserialize_portable_artifact(artifact)
        module = ir.Module.parse(made) if isinstance(made, (bytes, str)) else made
        module.operation.walk(visit)
        return found, str(module)


def test_nothing_but_the_four_dialects_is_left(bundles: dict[str, Bundle]) -> None:
    names, _ = operations((bundles["cloud-tpu"].path / "model.default.stablehlo").read_bytes())
    assert {n.split(".")[0] for n in names} <= {"stablehlo", "chlo", "func", "builtin"}
    assert "stablehlo.dot_general" in names


def test_weights_are_arguments_and_lie_in_one_file(bundles: dict[str, Bundle]) -> None:
    bundle = bundles["cloud-tpu"]
    assert (bundle.path / "model.default.stablehlo").stat().st_size < 50_000
    assert set(bundle.arguments) <= {"big.weight", "big.bias", "head.weight", "floor"}
    weights = bundle.path / "weights.safetensors"
    assert 256 * 256 * 4 < weights.stat().st_size < 256 * 256 * 4 + 10_000  # the tied weight once


def test_the_portable_artifact_says_which_stablehlo_it_needs(bundles: dict[str, Bundle]) -> None:
    bundle = bundles["cloud-tpu"]
    assert bundle.manifest["versions"]["stablehlo"] == "1.0.0"
    assert b"StableHLO_v1.0.0" in (bundle.path / "model.default.stablehlo").read_bytes()


def test_the_tflite_file_has_the_users_names_and_int32_ids(bundles: dict[str, Bundle]) -> None:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(bundles["litert"].path / "model.tflite"))
    assert list(interpreter.get_signature_list()) == ["serving_default"]
    runner = interpreter.get_signature_runner("serving_default")
    inputs, outputs = runner.get_input_details(), runner.get_output_details()
    assert {n: (d["dtype"], list(d["shape"])) for n, d in inputs.items()} == {
        "picture": (np.float32, [2, 256]),
        "token": (np.int32, [2]),
    }
    assert set(outputs) == {"scores", "ids_0", "ids_1"}


def test_lowering_for_litert_does_not_spoil_the_weights_of_the_other(bundles: dict[str, Bundle]) -> None:
    """The LiteRT lowering clamps infinities in place; weights.safetensors must keep them."""
    from torch2edge.program import load_weights

    for bundle in bundles.values():
        assert torch.isinf(load_weights(bundle.path)["floor"]).all()


def test_both_bundles_open_on_their_own_after_the_other_is_gone(
    bundles: dict[str, Bundle], tmp_path: Path
) -> None:
    import shutil

    for target, bundle in bundles.items():
        shutil.copytree(bundle.path, tmp_path / target)
    shutil.rmtree(tmp_path / "litert")
    with torch2edge.load(tmp_path / "cloud-tpu") as runner:
        got = runner(np.zeros((2, 256), np.float32), np.array([3, 4]))
    assert got["ids"][1].tolist() == [4, 5] and got["ids"][1].dtype == np.int64


def test_both_programs_are_the_same_bytes_as_a_single_export(
    bundles: dict[str, Bundle], tmp_path: Path
) -> None:
    args = (torch.linspace(-1, 1, 512).reshape(2, 256), torch.tensor([3, 4]))
    single = torch2edge.export(Net(), args, target="litert", output=tmp_path / "one", parity=False)
    assert not isinstance(single, dict)
    assert (single.path / "model.tflite").read_bytes() == (
        bundles["litert"].path / "model.tflite"
    ).read_bytes()
    assert single.manifest["parity"] == "not checked" and single.report is None
