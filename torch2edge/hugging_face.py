"""A folder in the Hugging Face layout: config.json and safetensors; never its own code, never the network."""

from __future__ import annotations

import inspect
import json
import warnings
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torch2edge.errors import InputError, MissingPartError, SourceError, WeightsError

TOKENS = 16
"""Length of the example text where no inputs are given."""

_GUESSED = ("input_ids", "pixel_values")


def read(
    folder: Path, given: frozenset[str] | None = frozenset()
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The module and example inputs of a folder.

    Args:
        folder: holds config.json and safetensors.
        given: names of inputs that the caller brings; None when it brings all of them.

    Raises:
        SourceError: no config, an unknown architecture, remote code, or a folder that does not load.
        WeightsError: weights that are missing or misshaped (transformers itself would make them up).
        InputError: inputs that neither were given nor can be guessed.
        MissingPartError: transformers is not installed.
    """
    config = _config(folder)
    where = str(folder / "config.json")
    foreign = [f"{key}: {config[key]}" for key in ("auto_map", "custom_pipelines") if key in config]
    if foreign:
        raise SourceError(
            f"{folder} brings its own Python code (auto_map), which is not run",
            where=where,
            details=foreign,
            got=f"{len(foreign)} entry of that kind in config.json",
            expected="an architecture that transformers itself has",
            next_step="write a factory that builds the module from code you trust: file.py:factory",
        )
    if not any(folder.glob("*.safetensors")):
        raise SourceError(
            f"{folder} has no *.safetensors",
            where=str(folder),
            expected="config.json and *.safetensors",
            got=_listed(folder),
            next_step="save it with save_pretrained; pickled weights (*.bin) are not read",
        )
    module = _module(folder, _architecture(config, where))
    for part in module.modules():
        config_of: Any = getattr(part, "config", None)
        if hasattr(config_of, "use_cache"):
            config_of.use_cache = False  # a cache in the result is state that no signature names
    return module, (), {} if given is None else _inputs(module, given, str(folder))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        bundle = (folder / "manifest.json").is_file()
        held = _listed(folder) or "an empty folder"
        raise SourceError(
            f"{folder} has no config.json",
            where=str(folder),
            expected="config.json and *.safetensors",
            got="a bundle, which export has already made" if bundle else held,
            next_step="use parity, run or inspect on a bundle"
            if bundle
            else "give the folder that save_pretrained wrote",
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SourceError(
            f"{path} is no JSON",
            where=str(path),
            expected="a JSON object",
            got=str(error),
            next_step="copy or download it again",
        ) from error
    if not isinstance(config, dict):
        raise SourceError(
            f"{path} holds no JSON object",
            where=str(path),
            expected="a JSON object",
            got=type(config).__name__,
            next_step="copy or download it again",
        )
    return config


def _listed(folder: Path) -> str:
    return ", ".join(sorted(p.name for p in folder.iterdir())[:8])


def _architecture(config: dict[str, Any], where: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingPartError(
            "a Hugging Face folder needs transformers",
            got="not installed",
            next_step="pip install transformers",
        ) from error
    names = config.get("architectures")
    if not names:
        return transformers.AutoModel
    name = names[0] if isinstance(names, list) else names
    kind = getattr(transformers, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise SourceError(
            f"transformers {transformers.__version__} has no architecture {name!r}",
            where=where,
            expected='the name of a model class of transformers under "architectures"',
            got=str(names),
            next_step="install the transformers version that saved it, or write a factory: file.py:factory",
        )
    return kind


def _module(folder: Path, kind: Any) -> nn.Module:
    try:
        module, info = kind.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="eager",
            output_loading_info=True,
        )
    except Exception as error:  # transformers wraps many libraries
        first = str(error).strip().splitlines() or [""]
        raise SourceError(
            f"transformers could not load {folder}",
            where=str(folder),
            details=[f"{p.name}: {p.stat().st_size} bytes" for p in sorted(folder.glob("*.safetensors"))[:8]],
            expected="config.json and *.safetensors that fit each other and are whole",
            got=f"{type(error).__name__}: {first[0][:200]}",
            next_step="copy or download the folder again",
        ) from error
    wrong = [f"missing in the files: {k}" for k in sorted(info["missing_keys"])]
    wrong += [f"misshaped: {m}" for m in sorted(map(str, info.get("mismatched_keys", ())))]
    wrong += [f"failed: {m}" for m in map(str, info.get("error_msgs") or ())]
    if wrong:
        raise WeightsError(
            f"the weights of {folder} do not fill {kind.__name__}: {len(wrong)} finding(s)",
            where=str(folder),
            details=wrong,
            expected=f"every tensor of {kind.__name__}",
            got="tensors that transformers would fill with random numbers",
            next_step='name the class that the weights were saved from under "architectures" in config.json',
        )
    unused = sorted(info.get("unexpected_keys", ()))
    if unused:
        names = ", ".join(unused[:8])
        warnings.warn(
            f"{folder}: {kind.__name__} does not use {len(unused)} tensor(s): {names}", stacklevel=3
        )
    loaded: nn.Module = module
    return loaded


def _inputs(module: nn.Module, given: frozenset[str], where: str) -> dict[str, Any]:
    takes = inspect.signature(module.forward).parameters
    config: Any = module.config
    main = getattr(module, "main_input_name", "input_ids")
    made: dict[str, Any] = {}
    if main in _GUESSED:
        made = _pixels(config) if main == "pixel_values" else _text(config, takes)
        if main == "input_ids" and "pixel_values" in takes and hasattr(config, "vision_config"):
            made |= _pixels(config)
        if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
            made |= _decoder(config)
    made = {name: value for name, value in made.items() if name not in given}
    known = made.keys() | given
    missing = [] if main in known or (given and main == "input_ids" and "inputs_embeds" in given) else [main]
    embedded = {"decoder_input_ids", "decoder_inputs_embeds"}
    if getattr(config, "is_encoder_decoder", False) and embedded & takes.keys() and not embedded & known:
        missing.append("decoder_input_ids")
    # forward takes **kwargs and would drop a misspelt name in silence
    named = [n for n, p in takes.items() if p.kind is not p.VAR_KEYWORD]
    unknown = sorted(n for n in given if n not in named)
    if missing or unknown:
        wrong = [f"{name}: forward has no such parameter{_similar(name, named)}" for name in unknown]
        wrong += [f"{name}: no value given, and none can be guessed" for name in missing]
        raise InputError(
            f"the inputs do not fit {type(module).__name__}: {len(wrong)} finding(s)",
            where=where,
            details=wrong,
            expected=f"forward({', '.join(named)})",
            got=", ".join(sorted(known)) or "no inputs",
            next_step=" ".join(f"--input {name}={_example(name)}" for name in missing or named[:1]),
        )
    return made


def _similar(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _example(name: str) -> str:
    return f"1x{TOKENS}:int64" if name.endswith("_ids") else "SHAPE:float32"


def _pixels(config: Any) -> dict[str, torch.Tensor]:
    own = getattr(config, "vision_config", config)
    size = getattr(own, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else (size[-2], size[-1])
    generator = torch.Generator().manual_seed(0)
    return {
        "pixel_values": torch.randn(1, getattr(own, "num_channels", 3), height, width, generator=generator)
    }


def _text(config: Any, takes: Any) -> dict[str, torch.Tensor]:
    """Ids spread over the vocabulary, without the padding id, which models treat apart."""
    own = config.get_text_config() if hasattr(config, "get_text_config") else config
    length = min(TOKENS, int(getattr(own, "max_position_embeddings", None) or TOKENS))
    made = {"input_ids": _spread(own, length)}
    if "attention_mask" in takes:
        made["attention_mask"] = torch.ones(1, length, dtype=torch.int64)
    return made


def _decoder(config: Any) -> dict[str, torch.Tensor]:
    """The decoder's own start token, then ids; nothing where the configuration names no start token."""
    names = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    start = next((v for n in names if (v := getattr(config, n, None)) is not None), None)
    if start is None:
        return {}
    ids = _spread(config, TOKENS)
    ids[0, 0] = int(start)
    return {"decoder_input_ids": ids}


def _spread(config: Any, length: int) -> torch.Tensor:
    vocabulary = int(getattr(config, "vocab_size", None) or 2)
    step = vocabulary // length | 1
    ids = (torch.arange(length) * step + 1).remainder(vocabulary).view(1, length)
    padding = getattr(config, "pad_token_id", None)
    return (
        ids if padding is None or vocabulary < 3 else torch.where(ids == padding, (ids + 1) % vocabulary, ids)
    )
