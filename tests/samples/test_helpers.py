"""The samples' helpers: photographs, class names, and the part of the README that a demo run fills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import demo
import photos


@pytest.mark.parametrize("name", photos.PHOTOS)
def test_a_photograph_is_what_the_network_takes(name: str) -> None:
    picture = photos.load(name)
    assert picture.shape == (1, 3, 224, 224) and picture.dtype == torch.float32 and picture.is_contiguous()
    assert picture.min() >= -0.9921 and picture.max() <= 1.0001  # (0 - 0.498) / 0.502 and (1 - 0.498) / 0.502
    assert picture.std() > 0.1


def test_cropping_keeps_the_centre_and_the_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = np.zeros((256, 512, 3), np.uint8)
    wide[:, 128:384] = (255, 0, 0)  # a red square in the middle of a wide black picture
    Image.fromarray(wide).save(tmp_path / "wide.png")
    monkeypatch.setattr(photos, "path", lambda name: tmp_path / "wide.png")
    red, green, blue = photos.load("wide")[0]
    assert torch.all(red == red[0, 0]) and red[0, 0] == pytest.approx(1.0, abs=1e-3)
    assert torch.all(green == blue) and green[0, 0] == pytest.approx(-0.498 / 0.502, abs=1e-6)


def test_a_photograph_that_is_not_there_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(photos.PHOTOS, "gone", ("sklearn", "datasets/images/gone.jpg"))
    monkeypatch.setitem(photos.PHOTOS, "nowhere", ("no_such_package", "x.jpg"))
    for name in ("gone", "nowhere"):
        with pytest.raises(FileNotFoundError, match="make setup"):
            photos.path(name)


def test_class_names_are_in_the_order_of_imagenet() -> None:
    names = photos.class_names()
    assert len(names) == 1000
    assert (names[0], names[281], names[985], names[999]) == ("tench", "tabby", "daisy", "toilet tissue")
    assert "None" not in names


def test_the_readme_is_filled_between_its_marks_and_again(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"# before\n{demo.BEGIN}\nold\n{demo.END}\nafter\n")
    demo.fill(page, "first  \n")
    demo.fill(page, "\nsecond × 2  \n")
    assert page.read_text(encoding="utf-8") == (
        f"# before\n{demo.BEGIN}\n```console\n$ make demo\nsecond × 2\n```\n{demo.END}\nafter\n"
    )


@pytest.mark.parametrize("text", ["", demo.BEGIN, demo.END + demo.BEGIN, 2 * demo.BEGIN + demo.END])
def test_a_readme_without_its_marks_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "README.md"
    page.write_text(text)
    with pytest.raises(SystemExit, match="demo:begin"):
        demo.fill(page, "x")
    assert page.read_text() == text
