"""Training on scikit-learn's 1797 labelled 8x8 digits: what the two small samples share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

HELD_OUT = 360
"""Pictures that training never sees."""

Predict = Callable[[torch.Tensor], NDArray[np.generic]]


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """(pictures float32 1797x8x8 from 0 to 1, labels int64 1797), in one fixed order; held-out ones last."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    pictures = (loaded.images[order] / 16).astype(np.float32)
    return torch.from_numpy(pictures), torch.from_numpy(loaded.target[order].astype(np.int64))


def train(make: Callable[[], torch.nn.Module], shape: tuple[int, ...], *, epochs: int) -> torch.nn.Module:
    """The trained module in eval mode; the same weights each time on one machine.

    Args:
        make: the untrained module, for pictures of `shape`.
        shape: of one picture as the module takes it.
        epochs: passes over the training part.
    """
    pictures, labels = (part[:-HELD_OUT] for part in data())
    with torch.random.fork_rng(devices=[]), torch.enable_grad():  # the caller's random state stays as it was
        torch.manual_seed(0)
        module = make().train()
        optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
        for _ in range(epochs):
            for batch in torch.split(torch.randperm(len(labels)), 64):
                optimizer.zero_grad()
                answers = module(pictures[batch].reshape(-1, *shape))
                torch.autograd.backward(torch.nn.functional.cross_entropy(answers, labels[batch]))
                optimizer.step()
    return module.eval()


def accuracy(predict: Predict, shape: tuple[int, ...]) -> float:
    """Share of the held-out pictures that are told right.

    Args:
        predict: takes one picture (1 x shape), as the exported model does, and returns 1x10 logits.
        shape: of one picture.
    """
    pictures, labels = (part[-HELD_OUT:] for part in data())
    answers = [int(np.argmax(predict(picture.reshape(1, *shape)))) for picture in pictures]
    return float(np.mean(np.array(answers) == labels.numpy()))
