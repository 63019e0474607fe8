"""Folders in the Hugging Face layout, written here with tiny random models."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from torch2edge.errors import InputError, SourceError, WeightsError
from torch2edge.source import load

transformers = pytest.importorskip("transformers", reason="the optional part for Hugging Face folders")

TINY: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
TEXT: dict[str, Any] = {**TINY, "vocab_size": 30, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
VIT: dict[str, Any] = {**TINY, "patch_size": 8}


def bert(**changes: Any) -> Any:
    """An encoder; its text is shorter than the default example."""
    return transformers.BertModel(transformers.BertConfig(**TEXT, max_position_embeddings=12, **changes))


def gpt2() -> Any:
    """Decoder only, with tied embeddings and a cache."""
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=20, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def vit(size: Any) -> Any:
    """Images."""
    return transformers.ViTModel(transformers.ViTConfig(**VIT, image_size=size))


def t5(**changes: Any) -> Any:
    """Encoder and decoder; `decoder_start_token_id` is in the configuration."""
    facts = {"decoder_start_token_id": 0} | changes
    config = transformers.T5Config(
        d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2, vocab_size=30, **facts
    )
    return transformers.T5ForConditionalGeneration(config)


def clip() -> Any:
    """Text and images."""
    config = transformers.CLIPConfig(
        text_config={**TEXT, "max_position_embeddings": 20}, vision_config={**VIT, "image_size": 16}
    )
    return transformers.CLIPModel(config)


def wav2vec() -> Any:
    """Sound, for which no example is made up."""
    config = transformers.Wav2Vec2Config(
        **TINY,
        conv_dim=[8],
        conv_stride=[2],
        conv_kernel=[3],
        num_feat_extract_layers=1,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    return transformers.Wav2Vec2Model(config)


def saved(model: Any, folder: Path) -> Path:
    """Written by save_pretrained."""
    model.eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that loads."""
    torch.manual_seed(0)
    return saved(bert(), tmp_path_factory.mktemp("bert"))


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """The test's own copy."""
    return Path(shutil.copytree(sound, tmp_path / "bert"))


def configure(folder: Path, **changes: Any) -> Path:
    """Change config.json; None removes an entry."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (bert, {"input_ids": [1, 12], "attention_mask": [1, 12]}),
        (gpt2, {"input_ids": [1, 16], "attention_mask": [1, 16]}),
        (lambda: vit(16), {"pixel_values": [1, 3, 16, 16]}),
        (lambda: vit([16, 32]), {"pixel_values": [1, 3, 16, 32]}),
        (t5, {"input_ids": [1, 16], "attention_mask": [1, 16], "decoder_input_ids": [1, 16]}),
        (clip, {"input_ids": [1, 16], "attention_mask": [1, 16], "pixel_values": [1, 3, 16, 16]}),
    ],
    ids=["bert", "gpt2", "vit", "vit-wide", "t5", "clip"],
)
def test_a_folder_computes_what_the_saved_model_does(
    tmp_path: Path, make: Callable[[], Any], names: dict[str, list[int]]
) -> None:
    torch.manual_seed(3)
    model = make()
    source = load(saved(model, tmp_path / "model"))
    assert {k: list(v.shape) for k, v in source.kwargs.items()} == names
    assert source.args == () and not source.module.training
    with torch.no_grad():
        mine, theirs = source.module(**source.kwargs), model(**source.kwargs)
    tensors = {k: v for k, v in mine.items() if isinstance(v, torch.Tensor)}
    assert tensors
    for key, value in tensors.items():
        torch.testing.assert_close(value, theirs[key])
    assert "past_key_values" not in mine  # a cache would be state that no signature names
    if "past_key_values" in theirs:
        assert model.config.use_cache  # the control: the model itself makes one


def test_example_tokens_stay_inside_the_vocabulary_and_off_the_padding(folder: Path) -> None:
    ids = load(folder).kwargs["input_ids"]
    assert ids.max() < 30 and ids.min() >= 0 and len(ids.unique()) > 5
    assert not (ids == 1).any()


def test_the_vocabulary_counts_where_the_file_leaves_it_out(folder: Path) -> None:
    """config.json holds only what differs from the defaults."""
    state = load_file(folder / "model.safetensors")
    state["embeddings.word_embeddings.weight"] = torch.ones(30522, 16)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    assert load(configure(folder, vocab_size=None)).kwargs["input_ids"].max() > 20000


def test_no_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise AssertionError("the network was asked")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    load(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_folder_loads_on_the_cpu(tmp_path: Path, dtype: torch.dtype) -> None:
    source = load(saved(bert().to(dtype), tmp_path / "half"))
    assert {(t.device.type, t.dtype) for t in source.module.parameters()} == {("cpu", dtype)}
    assert torch.isfinite(source.module(**source.kwargs)[0]).all()


def test_inputs_of_the_user_win(folder: Path) -> None:
    source = load(
        folder, inputs=["input_ids=2x5:int64", "attention_mask=2x5:int64", "token_type_ids=2x5:int64"]
    )
    assert set(source.kwargs) == {"input_ids", "attention_mask", "token_type_ids"}
    assert {tuple(v.shape) for v in source.kwargs.values()} == {(2, 5)}
    own = load(folder, kwargs={"input_ids": torch.ones(1, 3, dtype=torch.int64)})
    assert list(own.kwargs) == ["input_ids"]


def test_unknown_input_names(folder: Path, refused: Any) -> None:
    error = refused(
        InputError, lambda: load(folder, inputs=["input_idss=1x4:int64"]), "did you mean input_ids?"
    )
    assert "input_ids" in error.expected and "Tensor" not in error.expected


def test_a_decoder_without_a_start_token_asks(tmp_path: Path, refused: Any) -> None:
    folder = configure(
        saved(t5(), tmp_path / "t5"), decoder_start_token_id=None, pad_token_id=None, bos_token_id=None
    )
    config = transformers.T5Config.from_pretrained(folder)
    if config.pad_token_id is None and config.decoder_start_token_id is None:
        refused(
            InputError,
            lambda: load(folder),
            "decoder_input_ids: no value given",
            "--input decoder_input_ids=",
        )
    given = load(folder, inputs=["decoder_input_ids=1x4:int64"])
    assert given.kwargs["decoder_input_ids"].shape == (1, 4) and given.kwargs["input_ids"].shape == (1, 16)


def test_sound_asks_and_takes(tmp_path: Path, refused: Any) -> None:
    folder = saved(wav2vec(), tmp_path / "sound")
    refused(InputError, lambda: load(folder), "input_values: no value given", "--input input_values=")
    source = load(folder, inputs=["input_values=1x400"])
    assert source.module(**source.kwargs)[0].shape[0] == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "config.json").unlink(), ["has no config.json"]),
        (lambda f: (f / "config.json").write_text("{"), ["is no JSON"]),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), ["is no JSON"]),
        (lambda f: (f / "config.json").write_text("[1]"), ["holds no JSON object", "list"]),
        (lambda f: (f / "model.safetensors").unlink(), ["has no *.safetensors", "*.bin"]),
        (
            lambda f: (f / "model.safetensors").write_bytes(b""),
            ["could not load", "model.safetensors: 0 bytes"],
        ),
        (
            lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
            ["could not load", "model.safetensors: 5000 bytes"],
        ),
        (
            lambda f: configure(f, auto_map={"AutoModel": "modeling.Net"}),
            ["its own Python code", "modeling.Net"],
        ),
        (lambda f: configure(f, architectures=["NetOfNobody"]), ["no architecture 'NetOfNobody'"]),
        (lambda f: configure(f, architectures=["pipeline"]), ["no architecture 'pipeline'"]),
        (lambda f: configure(f, architectures=[3]), ["no architecture 3"]),
        (lambda f: configure(f, architectures=None, model_type="of-nobody"), ["could not load", "of-nobody"]),
        (lambda f: configure(f, hidden_size="wide"), ["could not load"]),
    ],
)
def test_a_folder_that_does_not_load(
    folder: Path, refused: Any, damage: Callable[[Path], Any], words: list[str]
) -> None:
    damage(folder)
    refused(SourceError, lambda: load(folder), *words)


def test_the_code_of_a_folder_does_not_run(folder: Path, refused: Any, tmp_path: Path) -> None:
    trace = tmp_path / "code-ran"
    (folder / "modeling.py").write_text(f"open({str(trace)!r}, 'w').close()")
    configure(folder, auto_map={"AutoModel": "modeling.Net"}, architectures=None)
    refused(SourceError, lambda: load(folder), "file.py:factory")
    assert not trace.exists()


def test_pickled_weights_of_a_folder_are_not_read(folder: Path, refused: Any, payload: Any) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(payload, folder / "pytorch_model.bin")
    refused(SourceError, lambda: load(folder), "pickled weights")
    assert not payload.trace.exists()


def test_weights_that_are_missing_are_not_made_up(folder: Path, refused: Any) -> None:
    state = load_file(folder / "model.safetensors")
    del state["pooler.dense.weight"], state["pooler.dense.bias"]
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    error = refused(WeightsError, lambda: load(folder), "random numbers")
    assert error.details == (
        "missing in the files: pooler.dense.bias",
        "missing in the files: pooler.dense.weight",
    )


def test_a_class_with_a_head_that_was_not_saved(folder: Path, refused: Any) -> None:
    configure(folder, architectures=["BertForSequenceClassification"])
    refused(WeightsError, lambda: load(folder), "classifier.weight")


def test_weights_of_another_shape(folder: Path, refused: Any) -> None:
    configure(folder, intermediate_size=8)
    with pytest.raises(SourceError) as caught:
        load(folder)
    assert "size" in str(caught.value) or "shape" in str(caught.value)


def test_weights_that_nothing_uses_are_said(folder: Path) -> None:
    state = load_file(folder / "model.safetensors") | {"left.over": torch.ones(2)}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.warns(UserWarning, match=r"does not use 1 tensor.*left\.over"):
        load(folder)


def test_weights_of_the_user_go_into_the_folder(folder: Path, tmp_path: Path) -> None:
    source = load(folder)
    state = {k: v + 0.5 for k, v in source.module.state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    moved = load(folder, weights=tmp_path / "w.pt")
    assert not torch.allclose(moved.module(**source.kwargs)[0], source.module(**source.kwargs)[0])
