"""Where training starts: `structured` weights, from which a small model leaves the unigram plateau at once.

With random weights a model must learn from each other two things that are of no use alone: which words are alike, and
to look at the neighbours.  A structured start gives it a first version of both: word vectors from neighbour counts
(neighbours.py), positions as sinusoids, and attention that prefers what is alike and near (query-key products near
the identity, value-output products near its negative).  The architecture is the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.model import MaskedLM
from pcfg_artifact.mlm.neighbours import neighbour_vectors, word_counts
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import stream

PARTS = ("words", "positions", "attention", "bias")  # all that a structured start replaces
# Shares of noise and of the identity in the products of one layer's attention weights.
QUERY_KEY = (0.7, 0.7)
VALUE_OUTPUT = (0.4, -0.4)
LONGEST_WAVE = 100.0  # in positions, over 2 pi: neighbours differ more than with the usual 10,000


@threadpool_limits.wrap(limits=1)  # sums in one order, whatever the number of cores
@torch.no_grad()
def start_structured(model: MaskedLM, sentences: Ragged, seed: int, parts: Collection[str] = PARTS) -> None:
    """Replace random weights in place; depends on (seed, shape, the first training sentences) alone."""
    config = model.config
    scale, width, n_words = config.initializer_range, config.hidden_size, config.vocab_size - tokens.FIRST_WORD
    base: Any = model.base_model
    embeddings = base.embeddings

    def rng(part: str) -> np.random.Generator:
        return stream(seed, "structured weights", part, config.num_attention_heads, config.num_hidden_layers)

    if "words" in parts:
        set_weights(embeddings.word_embeddings.weight[tokens.FIRST_WORD:],
                    scale * neighbour_vectors(sentences, n_words, width, rng("words")))
    if "positions" in parts:
        positions = embeddings.position_embeddings.weight[tokens.PAD + 1:]
        set_weights(positions, np.sqrt(2) * scale * sinusoids(len(positions), width))
    if "attention" in parts:
        noise = rng("attention")
        for layer in base.encoder.layer:
            start_attention(layer.attention, width, config.num_attention_heads, noise)
    if "bias" in parts:
        set_weights(model.lm_head.bias, log_unigram(word_counts(sentences, n_words)))


def start_attention(attention: Any, width: int, n_heads: int, rng: np.random.Generator) -> None:
    query, key = query_key_weights(width, n_heads, rng)
    value, output = factors(VALUE_OUTPUT, width, width, rng)
    for linear, weights in ((attention.self.query, query), (attention.self.key, key), (attention.self.value, value),
                            (attention.output.dense, output.T)):
        set_weights(linear.weight, weights.T)


def sinusoids(n_positions: int, width: int) -> np.ndarray:
    """(n_positions, width) sines, then cosines, of wavelengths from 2 pi to 2 pi * LONGEST_WAVE positions."""
    n_sines = (width + 1) // 2
    angles = np.arange(n_positions)[:, None] / LONGEST_WAVE ** (np.arange(n_sines) / n_sines)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width]


def query_key_weights(width: int, n_heads: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(width, width) each, heads side by side: what a word asks for, and what it answers with."""
    pairs = [factors(QUERY_KEY, width, width // n_heads, rng) for _ in range(n_heads)]
    return np.concatenate([q for q, _ in pairs], axis=1), np.concatenate([k for _, k in pairs], axis=1)


def factors(shares: tuple[float, float], width: int, rank: int, rng: np.random.Generator
            ) -> tuple[np.ndarray, np.ndarray]:
    """(width, rank) each; their product a @ b.T is the best of that rank to noise * Z / sqrt(width) + identity * I."""
    noise, identity = shares
    product = noise * rng.standard_normal((width, width)) / np.sqrt(width) + identity * np.eye(width)
    u, s, v = np.linalg.svd(product)
    root = np.sqrt(s[:rank])
    return u[:, :rank] * root, v[:rank].T * root


def log_unigram(counts: np.ndarray) -> np.ndarray:
    """(vocabulary,) log shares of special tokens and words; what was never seen counts as half a word."""
    counts = np.concatenate([np.zeros(tokens.FIRST_WORD), counts])
    return np.log(np.maximum(counts, 0.5) / counts.sum())


def set_weights(parameter: torch.Tensor, values: np.ndarray) -> None:
    parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
