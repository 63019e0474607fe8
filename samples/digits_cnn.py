"""A small convolutional network, trained on handwritten digits in a few seconds while it is loaded.

torch2edge export samples/digits_cnn.py:model --target litert --target cloud-tpu
"""

from __future__ import annotations

import torch
from torch import nn

import digits

SHAPE = (1, 8, 8)
"""Channels, rows, columns of one picture."""


def network() -> nn.Module:
    """Untrained: float32 Bx1x8x8 -> Bx10 logits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def model() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The trained network, and a held-out digit."""
    pictures, _ = digits.data()
    return digits.train(network, SHAPE, epochs=8), (pictures[-1:].reshape(1, *SHAPE),)


def accuracy(predict: digits.Predict) -> float:
    """Share of the held-out digits that `predict` (1x1x8x8 -> 1x10 logits) tells right."""
    return digits.accuracy(predict, SHAPE)
