"""One model through every runtime: calls by position and by name, wrong inputs, state, dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torch2edge
from tests.models import Result, ramp
from torch2edge import registry
from torch2edge.bundle import Bundle
from torch2edge.errors import InputError, MissingPartError, UsageError
from torch2edge.runtime._runner import bound, checked, narrowed
from torch2edge.stages import TensorSpec

pytestmark = pytest.mark.real

WHERE = {
    "eager": "litert",
    "xla": "cloud-tpu",
    "litert-reference": "litert",
    "litert-cpu": "litert",
    "litert-cpu-noreuse": "litert",
}


class Everything(nn.Module):
    """Keyword-only input, ids, mask, nesting, state, a dataclass result."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb = nn.Embedding(11, 4)
        self.register_buffer("calls", torch.tensor(10, dtype=torch.int64))

    def forward(self, ids: Tensor, extra: dict[str, Tensor], *, mask: Tensor, scale: float = 2.0) -> Result:
        self.calls += 1
        x = self.emb(ids) * scale + extra["bias"]
        x = torch.where(mask.unsqueeze(-1), x, torch.zeros_like(x))
        return Result(logits=x, hidden=(x.sum(-1), self.calls.clone()))


IDS = torch.tensor([[1, 7, 3, 0]])
MASK = torch.tensor([[True, True, True, False]])


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    made = torch2edge.export(
        Everything(),
        (IDS, {"bias": ramp(4)}),
        {"mask": MASK},
        target=["litert", "cloud-tpu"],
        output=tmp_path_factory.mktemp("everything") / "out",
    )
    assert isinstance(made, dict)
    return made


@pytest.fixture(scope="module", params=list(WHERE))
def runner(request: pytest.FixtureRequest, bundles: dict[str, Bundle]) -> Iterator[Any]:
    with torch2edge.load(bundles[WHERE[request.param]], request.param) as opened:
        yield opened


def test_it_is_called_as_the_module_is_and_answers_in_its_structure(runner: Any) -> None:
    runner.reset()
    expected = Everything()(IDS, {"bias": ramp(4)}, mask=MASK)
    got = runner(IDS, {"bias": ramp(4)}, mask=MASK)
    np.testing.assert_allclose(got.logits, expected.logits.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.hidden[0], expected.hidden[0].detach(), rtol=1e-5, atol=1e-5)
    assert type(got).__name__ == "Result" and isinstance(got.hidden, tuple) and got.extra is None
    assert got.hidden[1] == 11 and got.hidden[1].dtype == np.int64


def test_numpy_and_names_in_any_order_give_the_same(runner: Any) -> None:
    runner.reset()
    first = runner(IDS, {"bias": ramp(4)}, mask=MASK)
    runner.reset()
    second = runner(mask=MASK.numpy(), extra={"bias": ramp(4).numpy()}, ids=IDS.numpy(), scale=2.0)
    np.testing.assert_array_equal(first.logits, second.logits)


def test_state_goes_on_from_call_to_call_and_comes_back_on_reset(runner: Any) -> None:
    runner.reset()
    counts = [int(runner(IDS, {"bias": ramp(4)}, mask=MASK).hidden[1]) for _ in range(4)]
    assert counts == [11, 12, 13, 14]
    runner.reset()
    assert int(runner(IDS, {"bias": ramp(4)}, mask=MASK).hidden[1]) == 11


def test_int32_ids_are_taken_and_ids_beyond_int32_are_not(runner: Any) -> None:
    runner(IDS.to(torch.int32), {"bias": ramp(4)}, mask=MASK)
    with pytest.raises(InputError, match="int32"):
        runner(torch.full((1, 4), 2**40), {"bias": ramp(4)}, mask=MASK)


def test_every_mismatch_is_listed_at_once(runner: Any) -> None:
    with pytest.raises(InputError) as caught:
        runner(torch.ones(1, 5, dtype=torch.int64), {"bias": torch.ones(4, dtype=torch.int16)}, mask=MASK.T)
    text = "\n".join(caught.value.details)
    assert len(caught.value.details) == 3
    assert "ids" in text and "bias" in text and "mask" in text


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((IDS,), {"mask": MASK}, "extra: missing"),
        ((IDS, {"bias": ramp(4)}, 3), {"mask": MASK}, "too many"),
        ((IDS, {"bias": ramp(4)}), {"mask": MASK, "scale": 3.0}, "captured as the constant 2.0"),
        ((IDS, {"bias": ramp(4)}), {"mask": MASK, "nope": 3.0}, "unknown argument 'nope'"),
        ((IDS, {"bais": ramp(4)}), {"mask": MASK}, "bias"),
        ((IDS, ramp(4)), {"mask": MASK}, "keys"),
        ((IDS, {"bias": None}), {"mask": MASK}, "bias"),
    ],
)
def test_calls_that_do_not_fit_say_so(args: Any, kwargs: Any, says: str, bundles: dict[str, Bundle]) -> None:
    signature = bundles["litert"].signature
    with pytest.raises(InputError) as caught:
        checked(signature.inputs, bound(signature, args, kwargs))
    assert says in str(caught.value)


def test_a_runtime_of_the_other_target_is_refused(bundles: dict[str, Bundle]) -> None:
    with pytest.raises(UsageError, match="cannot run a cloud-tpu bundle") as caught:
        torch2edge.load(bundles["cloud-tpu"], "litert-cpu")
    assert "xla" in caught.value.expected


def test_an_unknown_runtime_is_refused_with_the_known_ones(bundles: dict[str, Bundle]) -> None:
    with pytest.raises(UsageError, match="litert-cpo") as caught:
        torch2edge.load(bundles["litert"], "litert-cpo")
    assert "litert-cpu" in caught.value.expected


def test_a_missing_runtime_is_a_typed_error_and_reads_not_run(
    bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.get("runtime", "xla"), "available", lambda: "needs jax: pip install jax")
    with pytest.raises(MissingPartError, match="xla"):
        torch2edge.load(bundles["cloud-tpu"], "xla")
    report = torch2edge.parity(bundles["cloud-tpu"])
    statuses = {r.runtime: r.status for r in report.runtimes}
    assert statuses == {"eager": "passed", "xla": "not run"}
    assert torch2edge.runtimes()["xla"] == "needs jax: pip install jax"


def test_an_artifact_that_does_not_load_fails_as_a_record(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    import shutil

    from torch2edge import pipeline
    from torch2edge.stages import Opened

    bundle = bundles["litert"]
    shutil.copytree(bundle.path, tmp_path / "broken")
    (tmp_path / "broken" / "model.tflite").write_bytes((bundle.path / "model.tflite").read_bytes()[:200])
    view = Opened(tmp_path / "broken", bundle.target, bundle.signature, bundle.arguments)
    report = pipeline._compare(view, bundle.goldens(), ["eager", "litert-cpu"], 60.0, [])
    assert {r.runtime: r.status for r in report.runtimes} == {"eager": "passed", "litert-cpu": "failed"}
    assert report.departs and "\n" in report.runtimes[1].why


def test_the_xla_runtime_takes_a_litert_bundle_too(bundles: dict[str, Bundle]) -> None:
    report = torch2edge.parity(bundles["litert"], ["xla"])
    assert report.passed


def test_exported_has_the_fields_that_jax_writes() -> None:
    """The wrapper knows jax's private fields: a new jax that changes them must fail here, by name."""
    import dataclasses

    from jax.export import Exported

    from torch2edge.runtime import _exported

    names = {f.name for f in dataclasses.fields(Exported)}
    source = Path(_exported.__file__).read_text()
    assert {n for n in names if f"{n}=" not in source} == set()


def test_narrowing_checks_the_range_and_keeps_infinities() -> None:
    spec = TensorSpec("x", (3,), "float64", "float32")
    got = narrowed(np.array([1.0, np.inf, np.nan]), spec)
    assert got.dtype == np.float32 and np.isinf(got[1]) and np.isnan(got[2])
    with pytest.raises(InputError, match="float32"):
        narrowed(np.array([1e300, 0, 0]), spec)
    with pytest.raises(InputError, match="int32"):
        narrowed(np.array([2**31]), TensorSpec("i", (1,), "int64", "int32"))
    assert (
        narrowed(np.array([-(2**31), 2**31 - 1]), TensorSpec("i", (2,), "int64", "int32")).dtype == np.int32
    )
