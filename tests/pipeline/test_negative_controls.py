"""A comparison that cannot fail proves nothing: real bundles are spoilt here, and each fault must be caught.

The artifact is exchanged behind the manifest (whose hashes would refuse it): parity alone has to notice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import torch2edge
from torch2edge import pipeline
from torch2edge.bundle import Bundle
from torch2edge.numerics.report import Report
from torch2edge.stages import Opened

pytestmark = pytest.mark.real

LITERT = ("litert-reference", "litert-cpu-noreuse", "litert-cpu")


class Net(nn.Module):
    """Two outputs of one shape; `spoil` makes the artifact wrong in one way, the goldens stay honest."""

    def __init__(self, spoil: str = "none") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.spoil = nn.Linear(8, 6), nn.Linear(8, 6), spoil
        self.register_buffer("offset", torch.tensor([0.0, 0, 0, 1e-2, 0, 0]))
        if spoil == "perturbed weight":
            with torch.no_grad():
                self.a.weight[2, 3] *= 1.01

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        left, right = self.a(x), torch.tanh(self.b(x))
        if self.spoil == "swapped outputs":
            left, right = right, left
        if self.spoil == "transposed":
            left = left.T.contiguous()
        if self.spoil == "wrong shape":
            left = left.unsqueeze(0)
        if self.spoil == "wrong dtype":
            left = left.to(torch.int32)
        if self.spoil == "NaN":
            left = torch.where(left > left.mean(), left, left / 0.0 * 0.0)
        if self.spoil == "all zeros":
            left = left * 0
        if self.spoil == "one element":
            left = left + self.offset
        if self.spoil == "dropped output":
            return {"left": left}
        if self.spoil == "renamed output":
            return {"left": left, "rihgt": right}
        return {"left": left, "right": right}


SPOILS = (
    "perturbed weight", "swapped outputs", "transposed", "wrong shape", "wrong dtype", "NaN", "all zeros",
    "one element", "dropped output", "renamed output",
)  # fmt: skip


@pytest.fixture(scope="module")
def export_net(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Bundle]]:
    folder = tmp_path_factory.mktemp("nets")
    done: dict[str, dict[str, Bundle]] = {}

    def get(spoil: str) -> dict[str, Bundle]:
        if spoil not in done:
            x = torch.linspace(-2, 3, 48).sin().reshape(6, 8)
            made = torch2edge.export(
                Net(spoil),
                x,
                target=["litert", "cloud-tpu"],
                output=folder / spoil.replace(" ", "-"),
                parity=False,
            )
            assert isinstance(made, dict)
            done[spoil] = made
        return done[spoil]

    return get


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list:  # type: ignore[type-arg]
    from torch2edge import goldens
    from torch2edge.capture import capture
    from torch2edge.source import load

    source = load(Net(), args=torch.linspace(-2, 3, 48).sin().reshape(6, 8))
    return goldens.make(source, capture(source))[0]


def compared(honest: Bundle, spoilt: Bundle, cases: list, runtimes: tuple[str, ...]) -> Report:  # type: ignore[type-arg]
    """The spoilt artifact, asked for what the honest bundle promises."""
    view = Opened(spoilt.path, spoilt.target, honest.signature, spoilt.arguments)
    return pipeline._compare(view, cases, runtimes, 120.0, [])


@pytest.mark.parametrize(("target", "runtimes"), [("litert", LITERT), ("cloud-tpu", ("xla",))])
def test_the_honest_artifact_passes(  # type: ignore[no-untyped-def]
    target: str, runtimes: tuple[str, ...], export_net, cases
) -> None:
    honest = export_net("none")[target]
    report = compared(honest, honest, cases, runtimes)
    assert report.passed and report.departs is None


FAULTS: list[tuple[str, tuple[str, ...], str]] = [("litert", LITERT, s) for s in SPOILS]
# StableHLO results have no names: what could be renamed there is only the manifest's, which stays honest.
FAULTS += [("cloud-tpu", ("xla",), s) for s in SPOILS if s != "renamed output"]


@pytest.mark.parametrize(("target", "runtimes", "spoil"), FAULTS)
def test_every_fault_is_caught_by_every_runtime(  # type: ignore[no-untyped-def]
    target: str, runtimes: tuple[str, ...], spoil: str, export_net, cases
) -> None:
    report = compared(export_net("none")[target], export_net(spoil)[target], cases, runtimes)
    assert not report.passed
    assert {r.runtime: r.status for r in report.runtimes} == dict.fromkeys(runtimes, "failed")
    for runtime in report.runtimes:
        assert runtime.why or any(
            r.reason for r in report.records if r.runtime == runtime.runtime and not r.passed
        )


def test_a_weight_off_by_one_percent_names_the_stage(export_net, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    honest = export_net("none")["cloud-tpu"]
    folder = tmp_path / "spoilt"
    shutil.copytree(honest.path, folder)
    weights = load_file(folder / "weights.safetensors")
    weights["a.weight"][0, 0] *= 1.01
    (folder / "weights.safetensors").unlink()
    save_file(weights, folder / "weights.safetensors", metadata={"tied": "{}"})
    with pytest.raises(torch2edge.errors.BundleError, match="damaged"):
        torch2edge.parity(folder)
    view = Opened(folder, honest.target, honest.signature, honest.arguments)
    report = pipeline._compare(view, honest.goldens(), ["xla"], 120.0, [])
    assert report.departs == "lowering to StableHLO"
    assert {r.output for r in report.records if not r.passed} == {"left"}
