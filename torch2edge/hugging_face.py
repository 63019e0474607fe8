"""A folder in the Hugging Face layout: config.json and safetensors; never the folder's own code, never the network."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch2edge.errors import MissingPartError, SourceError

TOKENS = 16
"""Length of the example text where no inputs are given."""


def read(folder: Path) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The module and example inputs of a folder.

    Raises:
        SourceError: no config, an unknown architecture, remote code, or weights that do not load.
        MissingPartError: transformers is not installed.
    """
    config = _config(folder)
    if "auto_map" in config:
        raise SourceError(
            f"{folder} brings its own Python code (auto_map), which is not run",
            where=str(folder / "config.json"),
            next_step="write a factory that builds the module from code you trust: file.py:factory",
        )
    if not any(folder.glob("*.safetensors")):
        raise SourceError(f"{folder} has no *.safetensors", where=str(folder), next_step="save it with save_pretrained(safe_serialization=True)")
    try:
        import transformers
    except ImportError as error:
        raise MissingPartError(
            "a Hugging Face folder needs transformers", got="not installed", next_step="pip install transformers"
        ) from error
    names = config.get("architectures") or []
    kind = getattr(transformers, names[0], None) if names else transformers.AutoModel
    if kind is None:
        raise SourceError(f"transformers {transformers.__version__} has no {names[0]}", where=str(folder / "config.json"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        module = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, attn_implementation="eager"
        )
    except Exception as error:  # transformers wraps many libraries
        raise SourceError(
            f"transformers could not load {folder}: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}", where=str(folder)
        ) from error
    if hasattr(module.config, "use_cache"):
        module.config.use_cache = False  # a cache in the result is state that no signature names
    return module, (), _inputs(module, config)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise SourceError(f"{folder} has no config.json", where=str(folder), expected="config.json and *.safetensors")
    try:
        return dict(json.loads(path.read_text()))
    except ValueError as error:
        raise SourceError(f"{path} is no JSON: {error}", where=str(path)) from error


def _inputs(module: nn.Module, config: dict[str, Any]) -> dict[str, Any]:
    if getattr(module, "main_input_name", "") == "pixel_values":
        size = config.get("image_size", 224)
        height, width = (size, size) if isinstance(size, int) else size
        generator = torch.Generator().manual_seed(0)
        return {"pixel_values": torch.randn(1, config.get("num_channels", 3), height, width, generator=generator)}
    vocabulary = int(config.get("vocab_size", 2))
    ids = (torch.arange(TOKENS) * 7 + 1).remainder(vocabulary).view(1, TOKENS)
    return {"input_ids": ids, "attention_mask": torch.ones(1, TOKENS, dtype=torch.int64)}
