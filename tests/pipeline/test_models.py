"""Every model of tests/models.py through the real converters and runtimes, on each target."""

from __future__ import annotations

from pathlib import Path

import pytest

import torch2edge
from tests.models import MODELS
from torch2edge.errors import ConversionError, ParityError, Torch2EdgeError, UnsupportedError

pytestmark = pytest.mark.real

EQUAL = [m.name for m in MODELS.values() if m.want == "equal" and not m.xfail]
REFUSED = [m.name for m in MODELS.values() if m.want != "equal"]
MISSING = [
    pytest.param(
        name,
        target,
        marks=pytest.mark.xfail(reason=why, raises=(UnsupportedError, ConversionError, ParityError)),
    )
    for name, case in MODELS.items()
    for target, why in case.xfail.items()
]
OTHER = [(n, t) for n, m in MODELS.items() if m.xfail for t in m.on if t not in m.xfail]


@pytest.mark.parametrize("name", EQUAL)
def test_every_runtime_agrees_with_eager(name: str, tmp_path: Path) -> None:
    case = MODELS[name]
    bundles = torch2edge.export(
        case.make(), case.args(), case.kwargs(), target=list(case.on), output=tmp_path / "out"
    )
    assert isinstance(bundles, dict) and list(bundles) == list(case.on)
    for target, bundle in bundles.items():
        assert bundle.report is not None and bundle.report.passed
        assert {r.status for r in bundle.report.runtimes} == {"passed"}
        ran = {r.runtime for r in bundle.report.runtimes}
        assert (
            ran
            == {
                "litert": {"eager", "litert-reference", "litert-cpu-noreuse", "litert-cpu"},
                "cloud-tpu": {"eager", "xla"},
            }[target]
        )
        outputs = {s.name for s in bundle.signature.outputs}
        assert {r.output for r in bundle.report.records} == outputs


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_target_takes_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    case = MODELS[name]
    with pytest.raises(Torch2EdgeError) as caught:
        torch2edge.export(
            case.make(), case.args(), case.kwargs(), target=list(case.on), output=tmp_path / "out"
        )
    assert type(caught.value).__name__ == case.want
    assert caught.value.next_step
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize(("name", "target"), MISSING)
def test_operators_still_missing(name: str, target: str, tmp_path: Path) -> None:
    case = MODELS[name]
    torch2edge.export(case.make(), case.args(), case.kwargs(), target=target, output=tmp_path / "out")


@pytest.mark.parametrize(("name", "target"), OTHER)
def test_the_other_target_takes_it(name: str, target: str, tmp_path: Path) -> None:
    case = MODELS[name]
    bundle = torch2edge.export(
        case.make(), case.args(), case.kwargs(), target=target, output=tmp_path / "out"
    )
    assert not isinstance(bundle, dict) and bundle.report is not None and bundle.report.passed


def test_a_target_without_blockers_is_offered(tmp_path: Path) -> None:
    case = MODELS["fold"]
    with pytest.raises(UnsupportedError) as caught:
        torch2edge.export(case.make(), case.args(), target=list(case.on), output=tmp_path / "out")
    assert "index_put" in caught.value.details[0] and "Fold" in caught.value.details[0]
    assert "--target cloud-tpu alone has no blocker" in caught.value.next_step
