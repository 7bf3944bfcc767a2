"""RoBERTa's forward pass over a flat batch (packing.py), with the weights of the transformers model it is given.

The numbers are those of the model's own forward pass.  It differs in what it launches: linear layers see the tokens of
all rectangles at once, queries, keys and values come from one product, and there is no padding to speak of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from pcfg_artifact.mlm.model import MaskedLM, is_pre_norm
from pcfg_artifact.mlm.packing import Batch
from pcfg_artifact.system.machine import can_compile

VOCABULARY_MULTIPLE = 64


class FlatInputs(NamedTuple):
    """A Batch on its device, without what is predicted; is_token is (rows, 1, 1, width) for attention."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    shapes: Sequence[tuple[int, int]]
    is_token: Sequence[torch.Tensor | None]


def to_device(batch: Batch, device: torch.device) -> tuple[FlatInputs, torch.Tensor, torch.Tensor]:
    """(inputs, where, targets)"""

    def moved(array: np.ndarray) -> torch.Tensor:
        host = torch.from_numpy(array)
        return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)

    is_token = [None if mask is None else moved(mask)[:, None, None] for mask in batch.is_token]
    inputs = FlatInputs(moved(batch.input_ids), moved(batch.position_ids), batch.shapes, is_token)
    return inputs, moved(batch.where), moved(batch.targets)


def encode(model: MaskedLM, inputs: FlatInputs) -> torch.Tensor:
    """(tokens, width) hidden states of the last layer, as the model's head reads them."""
    return last_states(model, embed(model, inputs), inputs)


def embed(model: MaskedLM, inputs: FlatInputs) -> torch.Tensor:
    """(tokens, width) hidden states below the first layer."""
    embeddings: Any = model.base_model.embeddings
    hidden = embeddings.word_embeddings(inputs.input_ids) + embeddings.token_type_embeddings.weight[0]
    hidden = embeddings.LayerNorm(hidden + embeddings.position_embeddings(inputs.position_ids))
    return functional.dropout(hidden, model.config.hidden_dropout_prob if model.training else 0.0, model.training)


def layers_above(model: MaskedLM, hidden: torch.Tensor, inputs: FlatInputs, first: int = 0) -> Iterator[torch.Tensor]:
    """Hidden states after each layer but the first `first`, from those that these left."""
    base: Any = model.base_model
    dropout, is_pre = model.config.hidden_dropout_prob if model.training else 0.0, is_pre_norm(model.config)
    # Rows of other shapes in every step, as without packing, would be compiled in every step.
    is_static = hidden.is_cuda and model.training and len(inputs.shapes) == 1 and inputs.is_token[0] is None
    block = compiled_block() if is_static and can_compile() else one_layer
    for layer in base.encoder.layer[first:]:
        hidden = block(layer, hidden, inputs.shapes, inputs.is_token, dropout, is_pre, model.training)
        yield hidden


def one_layer(layer: Any, hidden: torch.Tensor, shapes: Sequence[tuple[int, int]],
              is_token: Sequence[torch.Tensor | None], dropout: float, is_pre: bool, is_training: bool) -> torch.Tensor:
    """(tokens, width) hidden states after a layer, from those below it."""
    attention, inner, outer = layer.attention, layer.intermediate, layer.output
    mixed = attend(attention.self, attention.LayerNorm(hidden) if is_pre else hidden, shapes, is_token, is_training)
    mixed = hidden + functional.dropout(attention.output.dense(mixed), dropout, is_training)
    hidden = mixed if is_pre else attention.output.LayerNorm(mixed)
    activated = inner.intermediate_act_fn(inner.dense(inner.LayerNorm(hidden) if is_pre else hidden))
    hidden = hidden + functional.dropout(outer.dense(activated), dropout, is_training)
    return hidden if is_pre else outer.LayerNorm(hidden)


@cache
def compiled_block() -> Any:
    """one_layer, compiled once for all layers of a shape: each reads its weights as arguments."""
    return torch.compile(one_layer, dynamic=False, fullgraph=True)


def last_states(model: MaskedLM, hidden: torch.Tensor, inputs: FlatInputs, first: int = 0) -> torch.Tensor:
    """The hidden states of the last layer as the head reads them, from those that the first `first` layers left."""
    for above in layers_above(model, hidden, inputs, first):
        hidden = above  # one layer's at a time
    base: Any = model.base_model
    return base.LayerNorm(hidden) if is_pre_norm(model.config) else hidden


def attend(heads: Any, hidden: torch.Tensor, shapes: Sequence[tuple[int, int]],
           masks: Sequence[torch.Tensor | None], is_training: bool) -> torch.Tensor:
    """(tokens, width) what each token takes from the others of its row."""
    parts = (heads.query, heads.key, heads.value)
    mixed = functional.linear(hidden, torch.cat([part.weight for part in parts]),
                              torch.cat([part.bias for part in parts]))
    taken = []
    of_rectangle = mixed.split([rows * width for rows, width in shapes])
    for values, (rows, width), is_token in zip(of_rectangle, shapes, masks, strict=True):
        by_head = values.view(rows, width, 3, heads.num_attention_heads, heads.attention_head_size)
        query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
        found = functional.scaled_dot_product_attention(query, key, value, is_token,
                                                        heads.dropout.p if is_training else 0.0)
        taken.append(found.transpose(1, 2).reshape(rows * width, -1))
    return torch.cat(taken)


def masked_logits(model: MaskedLM, inputs: FlatInputs, where: torch.Tensor) -> torch.Tensor:
    """(masked, vocabulary) scores at the flat positions `where`; the vocabulary projection is computed only there."""
    head, hidden = model.lm_head, encode(model, inputs).index_select(0, where)
    if not hidden.is_cuda:
        return head(hidden)
    return padded_scores(head.decoder, head.layer_norm(functional.gelu(head.dense(hidden))))


def padded_scores(decoder: torch.nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
    """decoder(hidden), with the vocabulary padded to a multiple of 64 in the product: GPUs are slow at odd sizes."""
    n_tokens = len(decoder.weight)
    missing = -n_tokens % VOCABULARY_MULTIPLE
    bias = None if decoder.bias is None else functional.pad(decoder.bias, (0, missing))
    return functional.linear(hidden, functional.pad(decoder.weight, (0, 0, 0, missing)), bias)[:, :n_tokens]


class MaskedLoss(torch.nn.Module):
    """Negative log-likelihood at the masked positions, summed."""

    def __init__(self, model: MaskedLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: FlatInputs, where: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """where (masked,) into the flat tokens; targets (masked,) token ids."""
        return summed_loss(masked_logits(self.model, inputs, where), targets)


def summed_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy over all predictions, in single precision at least."""
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return functional.cross_entropy(logits, targets, reduction="sum")
