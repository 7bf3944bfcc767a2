"""The model family A{heads}L{layers}: RoBERTa with random weights, layer norm before or after each block.

C{heads}L{layers} is the causal model of the same shape (gpt2.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormForMaskedLM,
)

from pcfg_artifact.errors import ConfigError
from pcfg_artifact.metrics.models import UNTRAINED, Shape, shape_of
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.system.random_streams import derive_seed

LayerNorm = Literal["pre", "post"]  # of every block: before its input, or after its output as in RoBERTa
MaskedLM = RobertaForMaskedLM | RobertaPreLayerNormForMaskedLM
MaskedLMConfig = RobertaConfig | RobertaPreLayerNormConfig
LanguageModel = MaskedLM | GPT2LMHeadModel
LanguageModelConfig = MaskedLMConfig | GPT2Config


def parse_shape(name: str) -> Shape:
    """The shape in the paper's name of a model, e.g. A12L12, or C12L12 for the causal model of that shape."""
    shape = shape_of(name)
    if shape is None or shape.control == UNTRAINED:
        raise ConfigError(f"the model name {name!r} is not of the form A<heads>L<layers>, for example A12L12, or "
                          f"C<heads>L<layers> for a causal model")
    return shape


def check_width(shape: Shape, width: int) -> None:
    if width % shape.heads:
        raise ConfigError(f"width {width} is not divisible by {shape.heads} heads; change pretrain.width or the model")


def build_config(shape: Shape, *, n_words: int, width: int, max_length: int, dropout: float,
                 initial_scale: float = 0.02, layer_norm: LayerNorm = "post") -> MaskedLMConfig:
    """RoBERTa's proportions at any width; positions for `max_length` words, <s> and </s>.

    initial_scale: standard deviation of the random weights; the default is RoBERTa's.
    """
    check_width(shape, width)
    family: Any = RobertaPreLayerNormConfig if layer_norm == "pre" else RobertaConfig
    return family(
        vocab_size=tokens.FIRST_WORD + n_words, hidden_size=width, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, intermediate_size=4 * width,
        max_position_embeddings=max_length + 2 + tokens.PAD + 1,  # RoBERTa counts positions from PAD + 1
        type_vocab_size=1, layer_norm_eps=1e-5, initializer_range=initial_scale,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, bos_token_id=tokens.BEGIN,
        pad_token_id=tokens.PAD, eos_token_id=tokens.END, attn_implementation="sdpa")


def build_model(config: MaskedLMConfig, seed: int) -> MaskedLM:
    """Random weights that depend on (seed, shape) alone; the global random state is left as it was."""
    with seeded_weights(seed, config.num_attention_heads, config.num_hidden_layers):
        return RobertaPreLayerNormForMaskedLM(config) if is_pre_norm(config) else RobertaForMaskedLM(config)


@contextmanager
def seeded_weights(seed: int, n_heads: int, n_layers: int) -> Iterator[None]:
    """Inside, torch draws the first weights of a shape."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights", n_heads, n_layers) % 2**63)
        yield


def is_pre_norm(config: MaskedLMConfig) -> bool:
    return isinstance(config, RobertaPreLayerNormConfig)


def count_parameters(config: LanguageModelConfig) -> tuple[int, int]:
    """Parameters of the layers (the part that costs time per token), and of everything."""
    width = config.hidden_size
    inner = 4 * width
    layer = 4 * width * (width + 1) + width * (inner + 1) + inner + inner * width + 4 * width
    if isinstance(config, GPT2Config):  # its head is the word embeddings
        layers = config.num_hidden_layers * layer
        return layers, layers + (config.vocab_size + config.n_positions + 2) * width
    embeddings = (config.vocab_size + config.max_position_embeddings + config.type_vocab_size + 2) * width
    head = width * (width + 1) + 2 * width + config.vocab_size
    layers = config.num_hidden_layers * layer
    return layers, layers + embeddings + head + 2 * width * is_pre_norm(config)
