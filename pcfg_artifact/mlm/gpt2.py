"""The model family C{heads}L{layers}: GPT-2's architecture with random weights, in the shapes of the masked models.

Its forward pass over a flat batch (packing.py) gives the numbers of the model's own.  Padding stands after the words of
a row, where no word looks, so attention needs no mask but the causal one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from pcfg_artifact.metrics.models import Shape
from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.forward import FlatInputs, padded_scores, summed_loss
from pcfg_artifact.mlm.model import check_width, seeded_weights


def build_causal_config(shape: Shape, *, n_words: int, width: int, max_length: int, dropout: float,
                        initial_scale: float = 0.02) -> GPT2Config:
    """GPT-2's proportions at any width; positions for `max_length` words, <s> and </s>."""
    check_width(shape, width)
    family: Any = GPT2Config
    return family(
        vocab_size=tokens.FIRST_WORD + n_words, n_positions=max_length + 2, n_embd=width, n_layer=shape.layers,
        n_head=shape.heads, n_inner=4 * width,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own, gelu_new, as one operation
        initializer_range=initial_scale, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
        bos_token_id=tokens.BEGIN, eos_token_id=tokens.END, pad_token_id=tokens.PAD, attn_implementation="sdpa")


def build_causal_model(config: GPT2Config, seed: int) -> GPT2LMHeadModel:
    """Random weights that depend on (seed, shape) alone."""
    with seeded_weights(seed, config.n_head, config.n_layer):
        return GPT2LMHeadModel(config)


def causal_states(model: GPT2LMHeadModel, inputs: FlatInputs) -> torch.Tensor:
    """(tokens, width) hidden states of the last layer, as the model's head reads them."""
    base: Any = model.transformer
    # A Batch counts positions as RoBERTa does; padding takes position 0, and nobody reads it.
    positions = (inputs.position_ids - tokens.PAD - 1).clamp(min=0)
    hidden = base.drop(base.wte(inputs.input_ids) + base.wpe(positions))
    for block in base.h:
        attention = block.attn
        mixed = attend_before(attention, linear(attention.c_attn, block.ln_1(hidden)), inputs, model.training)
        hidden = hidden + attention.resid_dropout(linear(attention.c_proj, mixed))
        inner = block.mlp.act(linear(block.mlp.c_fc, block.ln_2(hidden)))
        hidden = hidden + block.mlp.dropout(linear(block.mlp.c_proj, inner))
    return base.ln_f(hidden)


def linear(layer: Any, hidden: torch.Tensor) -> torch.Tensor:
    """GPT-2 keeps its weights as (in, out)."""
    return torch.addmm(layer.bias, hidden, layer.weight)


def attend_before(attention: Any, mixed: torch.Tensor, inputs: FlatInputs, is_training: bool) -> torch.Tensor:
    """(tokens, width) what each token takes from itself and those before it; mixed (tokens, 3 * width)."""
    taken = []
    of_rectangle = mixed.split([rows * width for rows, width in inputs.shapes])
    for values, (rows, width) in zip(of_rectangle, inputs.shapes, strict=True):
        by_head = values.view(rows, width, 3, attention.num_heads, attention.head_dim)
        query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
        found = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=attention.attn_dropout.p if is_training else 0.0, is_causal=True)
        taken.append(found.transpose(1, 2).reshape(rows * width, -1))
    return torch.cat(taken)


def next_word_logits(model: GPT2LMHeadModel, inputs: FlatInputs, where: torch.Tensor) -> torch.Tensor:
    """(predicted, vocabulary) scores of what follows the flat positions `where`."""
    hidden = causal_states(model, inputs).index_select(0, where)
    return padded_scores(model.lm_head, hidden) if hidden.is_cuda else model.lm_head(hidden)


class NextWordLoss(torch.nn.Module):
    """Negative log-likelihood of every next word and end, summed."""

    def __init__(self, model: GPT2LMHeadModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: FlatInputs, where: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """where (predicted,) into the flat tokens; targets (predicted,) token ids."""
        return summed_loss(next_word_logits(self.model, inputs, where), targets)
