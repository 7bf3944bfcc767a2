"""The model family A{heads}L{layers}: RoBERTa with random weights, layer norm before or after each block."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import torch
from transformers import (
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormForMaskedLM,
)

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.seeding import derive_seed

LayerNorm = Literal["pre", "post"]  # of every block: before its input, or after its output as in RoBERTa
MaskedLM = RobertaForMaskedLM | RobertaPreLayerNormForMaskedLM
MaskedLMConfig = RobertaConfig | RobertaPreLayerNormConfig


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
                 initial_scale: float = 0.02, layer_norm: LayerNorm = "post") -> MaskedLMConfig:
    """RoBERTa's proportions at any width; positions for `max_length` words, <s> and </s>.

    initial_scale: standard deviation of the random weights; the default is RoBERTa's.
    """
    if width % shape.n_heads:
        raise ConfigError(f"{shape.name}: width {width} is not divisible by {shape.n_heads} heads; "
                          f"change pretrain.width or the model")
    family: Any = RobertaPreLayerNormConfig if layer_norm == "pre" else RobertaConfig
    return family(
        vocab_size=tokens.FIRST_WORD + n_words, hidden_size=width, num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads, intermediate_size=4 * width,
        max_position_embeddings=max_length + 2 + tokens.PAD + 1,  # RoBERTa counts positions from PAD + 1
        type_vocab_size=1, layer_norm_eps=1e-5, initializer_range=initial_scale,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, bos_token_id=tokens.BEGIN,
        pad_token_id=tokens.PAD, eos_token_id=tokens.END, attn_implementation="sdpa")


def build_model(config: MaskedLMConfig, seed: int) -> MaskedLM:
    """Random weights that depend on (seed, shape) alone; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights", config.num_attention_heads, config.num_hidden_layers)
                          % 2**63)
        return RobertaPreLayerNormForMaskedLM(config) if is_pre_norm(config) else RobertaForMaskedLM(config)


def is_pre_norm(config: MaskedLMConfig) -> bool:
    return isinstance(config, RobertaPreLayerNormConfig)


def count_parameters(config: MaskedLMConfig) -> tuple[int, int]:
    """Parameters of the layers (the part that costs time per token), and of everything."""
    width, inner = config.hidden_size, config.intermediate_size
    layer = 4 * width * (width + 1) + width * (inner + 1) + inner + inner * width + 4 * width
    embeddings = (config.vocab_size + config.max_position_embeddings + config.type_vocab_size + 2) * width
    head = width * (width + 1) + 2 * width + config.vocab_size
    layers = config.num_hidden_layers * layer
    return layers, layers + embeddings + head + 2 * width * is_pre_norm(config)
