"""The model family A{heads}L{layers}: RoBERTa with random weights, and its loss at masked positions only."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers import RobertaConfig, RobertaForMaskedLM

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.seeding import derive_seed


class Shape(NamedTuple):
    """A model of the family; `name` is the paper's, e.g. A12L12."""

    n_heads: int
    n_layers: int

    @property
    def name(self) -> str:
        return f"A{self.n_heads}L{self.n_layers}"

    @classmethod
    def parse(cls, name: str) -> Shape:
        match = re.fullmatch(r"A([1-9]\d*)L([1-9]\d*)", name)
        if not match:
            raise ConfigError(f"the model name {name!r} is not of the form A<heads>L<layers>, for example A12L12")
        return cls(int(match[1]), int(match[2]))


def build_config(shape: Shape, *, n_words: int, width: int, max_length: int, dropout: float,
                 initial_scale: float = 0.02) -> RobertaConfig:
    """RoBERTa's proportions at any width; positions for `max_length` words, <s> and </s>.

    initial_scale: standard deviation of the random weights; the default is RoBERTa's.
    """
    if width % shape.n_heads:
        raise ConfigError(f"{shape.name}: width {width} is not divisible by {shape.n_heads} heads; "
                          f"change pretrain.width or the model")
    return RobertaConfig(
        vocab_size=tokens.FIRST_WORD + n_words, hidden_size=width, num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads, intermediate_size=4 * width,
        max_position_embeddings=max_length + 2 + tokens.PAD + 1,  # RoBERTa counts positions from PAD + 1
        type_vocab_size=1, layer_norm_eps=1e-5, initializer_range=initial_scale,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, bos_token_id=tokens.BEGIN,
        pad_token_id=tokens.PAD, eos_token_id=tokens.END, attn_implementation="sdpa")


def build_model(config: RobertaConfig, seed: int) -> RobertaForMaskedLM:
    """Random weights that depend on (seed, shape) alone; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights", config.num_attention_heads, config.num_hidden_layers)
                          % 2**63)
        return RobertaForMaskedLM(config)


def count_parameters(config: RobertaConfig) -> tuple[int, int]:
    """Parameters of the layers (the part that costs time per token), and of everything."""
    width, inner = config.hidden_size, config.intermediate_size
    layer = 4 * width * (width + 1) + width * (inner + 1) + inner + inner * width + 4 * width
    embeddings = (config.vocab_size + config.max_position_embeddings + config.type_vocab_size + 2) * width
    head = width * (width + 1) + 2 * width + config.vocab_size
    layers = config.num_hidden_layers * layer
    return layers, layers + embeddings + head


class MaskedLoss(nn.Module):
    """Negative log-likelihood at the masked positions, summed; the vocabulary projection is computed only there."""

    def __init__(self, model: RobertaForMaskedLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, where: torch.Tensor,
                targets: torch.Tensor) -> torch.Tensor:
        """input_ids (rows, width); where (masked,) into the flattened rows; targets (masked,) token ids."""
        logits = masked_logits(self.model, input_ids, attention_mask, where)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return functional.cross_entropy(logits, targets, reduction="sum")


def masked_logits(model: RobertaForMaskedLM, input_ids: torch.Tensor, attention_mask: torch.Tensor | None,
                  where: torch.Tensor) -> torch.Tensor:
    """(masked, vocabulary) scores at the flat positions `where`."""
    hidden = model.roberta(input_ids, attention_mask=attention_mask).last_hidden_state
    return model.lm_head(hidden.flatten(0, 1).index_select(0, where))
