"""A small LSTM that reads handwritten digits row by row, trained in a few seconds while it is loaded.

torch2edge export samples/digits_lstm.py:model --target litert --target cloud-tpu
"""

from __future__ import annotations

import torch
from torch import nn

import digits

SHAPE = (8, 8)
"""Rows (the steps in time), columns of one picture."""


class RowReader(nn.Module):
    """An LSTM over the rows; the last step decides."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Float32 Bx8x8 -> Bx10 logits."""
        steps, _ = self.lstm(rows)
        logits: torch.Tensor = self.head(steps[:, -1])
        return logits


def model() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The trained network, and a held-out digit."""
    pictures, _ = digits.data()
    return digits.train(RowReader, SHAPE, epochs=40), (pictures[-1:].reshape(1, *SHAPE),)


def accuracy(predict: digits.Predict) -> float:
    """Share of the held-out digits that `predict` (1x8x8 -> 1x10 logits) tells right."""
    return digits.accuracy(predict, SHAPE)
