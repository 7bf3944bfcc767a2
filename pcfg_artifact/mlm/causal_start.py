"""A structured start for GPT-2's weights: word vectors from neighbour counts, and positions as sinusoids.

These are parts of initialisation.py.  The others do not serve here: a causal model looks at its neighbours soon without
attention that prefers them, and its head has no bias that could hold the unigram.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from transformers import GPT2LMHeadModel

from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.initialisation import set_weights, sinusoids
from pcfg_artifact.mlm.neighbours import neighbour_vectors
from pcfg_artifact.ragged import Ragged
from pcfg_artifact.seeding import stream


@threadpool_limits.wrap(limits=1)  # sums in one order, whatever the number of cores
@torch.no_grad()
def start_causal(model: GPT2LMHeadModel, sentences: Ragged, seed: int) -> None:
    """Replace random weights in place; depends on (seed, shape, the first training sentences) alone."""
    base: Any = model.transformer
    config = model.config
    scale, width, n_words = config.initializer_range, config.n_embd, config.vocab_size - tokens.FIRST_WORD
    rng = stream(seed, "structured weights", "words", config.n_head, config.n_layer)
    set_weights(base.wte.weight[tokens.FIRST_WORD:], scale * neighbour_vectors(sentences, n_words, width, rng))
    set_weights(base.wpe.weight, np.sqrt(2) * scale * sinusoids(len(base.wpe.weight), width))
