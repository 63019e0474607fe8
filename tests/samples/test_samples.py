"""The samples with their real weights, on both targets, with real photographs, sentences and digits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import digits_cnn
import digits_lstm
import efficientnet_lite0
import minilm
import photos
import torch2edge as t2e

if TYPE_CHECKING:
    from torch2edge.bundle import Bundle

    Exported = Callable[[str], dict[str, Bundle]]

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLES = ("efficientnet_lite0", "minilm", "digits_cnn", "digits_lstm")
LADDER = {
    "litert": {"eager", "litert-reference", "litert-cpu-noreuse", "litert-cpu"},
    "cloud-tpu": {"eager", "xla"},
}
RUNTIMES = (("cloud-tpu", "xla"), ("litert", "litert-cpu"), ("litert", "litert-reference"))
DIGITS = {"digits_cnn": digits_cnn, "digits_lstm": digits_lstm}


@pytest.mark.parametrize("target", LADDER)
@pytest.mark.parametrize("sample", SAMPLES)
def test_parity_passes_on_every_runtime(exported: Exported, sample: str, target: str) -> None:
    report = exported(sample)[target].report
    assert report is not None
    assert {r.runtime: r.status for r in report.runtimes} == dict.fromkeys(LADDER[target], "passed")
    assert report.passed


@pytest.fixture(scope="module")
def eager_logits() -> dict[str, NDArray[np.float32]]:
    module, _ = efficientnet_lite0.model()
    with torch.no_grad():
        return {name: module(photos.load(name)).numpy() for name in photos.PHOTOS}


def test_eager_sees_what_is_in_the_photographs(eager_logits: dict[str, NDArray[np.float32]]) -> None:
    names = photos.class_names()
    seen = {photo: names[int(logits.argmax())] for photo, logits in eager_logits.items()}
    assert seen == {
        "china": "palace",
        "flower": "daisy",
        "chelsea": "tiger cat",
        "coffee": "espresso",
        "rocket": "missile",
    }


@pytest.mark.parametrize(("target", "runtime"), RUNTIMES)
def test_photographs_are_classified_as_by_eager(
    exported: Exported, eager_logits: dict[str, NDArray[np.float32]], target: str, runtime: str
) -> None:
    with t2e.load(exported("efficientnet_lite0")[target].path, runtime=runtime) as runner:
        found = {name: runner(photos.load(name)) for name in photos.PHOTOS}
    for name, logits in found.items():
        assert logits.shape == (1, 1000) and logits.dtype == np.float32
        assert np.array_equal(np.argsort(-logits[0])[:3], np.argsort(-eager_logits[name][0])[:3]), name
        assert np.abs(logits - eager_logits[name]).max() < 1e-3, name
    # Negative control: were every answer that of one photograph, this would see it.
    assert np.abs(found["china"] - eager_logits["coffee"]).max() > 1


@pytest.mark.parametrize(("target", "runtime"), RUNTIMES)
def test_sentences_of_one_meaning_are_near(exported: Exported, target: str, runtime: str) -> None:
    pairs = {
        "same": ("A man is playing a guitar.", "Someone plays an instrument."),
        "other": ("A man is playing a guitar.", "The stock market fell today."),
    }
    module, _ = minilm.model()
    with t2e.load(exported("minilm")[target].path, runtime=runtime) as runner:
        ids, mask = minilm.tokens(pairs["same"])
        unmasked = runner(ids, torch.ones_like(mask))
        vectors = {name: runner(*minilm.tokens(pair)) for name, pair in pairs.items()}
    for name, pair in pairs.items():
        with torch.no_grad():
            expected = module(*minilm.tokens(pair)).numpy()
        np.testing.assert_allclose(vectors[name], expected, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(vectors[name], axis=1), 1, atol=1e-5)
    assert vectors["same"][0] @ vectors["same"][1] > 0.5
    assert abs(vectors["other"][0] @ vectors["other"][1]) < 0.2
    # Negative control: the mask is really used.
    assert np.abs(unmasked - vectors["same"]).max() > 1e-2


@pytest.mark.parametrize(("target", "runtime"), RUNTIMES[:2])
@pytest.mark.parametrize("sample", DIGITS)
def test_held_out_digits_are_told_as_well(exported: Exported, sample: str, target: str, runtime: str) -> None:
    module, _ = DIGITS[sample].model()
    with torch.no_grad():
        eager = DIGITS[sample].accuracy(lambda picture: module(picture).numpy())
    with t2e.load(exported(sample)[target].path, runtime=runtime) as runner:
        exact = DIGITS[sample].accuracy(runner)
        # Negative control: what sees nothing is right one time in ten.
        blind = DIGITS[sample].accuracy(lambda picture: runner(torch.zeros_like(picture)))
    assert eager > 0.95
    assert abs(exact - eager) <= 0.005
    assert blind < 0.2


@pytest.mark.parametrize("sample", DIGITS)
def test_training_gives_the_same_weights_each_time(sample: str) -> None:
    state = torch.random.get_rng_state()
    first, second = (DIGITS[sample].model()[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(state, torch.random.get_rng_state())  # and leaves the caller's randomness alone


@pytest.mark.real
def test_one_command_exports_to_both_targets(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch2edge", "export", "samples/digits_cnn.py:model", "--json"]
    command += ["--target", "litert", "--target", "cloud-tpu", "-o", str(tmp_path / "net")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    assert {t: facts["parity"] for t, facts in made.items()} == {"litert": "passed", "cloud-tpu": "passed"}
    for target, model in (("litert", "model.tflite"), ("cloud-tpu", "model.default.stablehlo")):
        assert (tmp_path / "net" / target / model).stat().st_size == made[target]["files"][model]["bytes"]
