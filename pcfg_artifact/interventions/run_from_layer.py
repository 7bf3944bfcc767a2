"""Hidden states of a layer, and a model's predictions from edited states of one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

import numpy as np
import torch

from pcfg_artifact.mlm import tokenizer as tokens
from pcfg_artifact.mlm.evaluation import as_batch
from pcfg_artifact.mlm.exact_comparison import MaskedSentence
from pcfg_artifact.mlm.forward import FlatInputs, embed, last_states, layers_above, to_device
from pcfg_artifact.mlm.model import MaskedLM

ROWS = 64  # sentences of one length, or changed copies of one sentence, that go through a model at a time


@torch.no_grad()
def layer_states(model: MaskedLM, sentences: Sequence[MaskedSentence], layer: int) -> list[np.ndarray]:
    """(L + 2, width) of every sentence: BOS, words and EOS as a layer leaves them, 0: below the first."""
    model.eval()
    device = next(model.parameters()).device
    lengths = np.array([len(s.words) for s in sentences])
    found: dict[int, np.ndarray] = {}
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for rows in np.split(same, range(ROWS, len(same), ROWS)):
            inputs, *_ = to_device(as_batch([sentences[s] for s in rows], [len(rows)]), device)
            hidden = embed(model, inputs)
            hidden = next(islice(chain([hidden], layers_above(model, hidden, inputs)), layer, None))
            found.update(zip(rows.tolist(), hidden.view(len(rows), length + 2, -1).cpu().numpy(), strict=True))
    return [found[s] for s in range(len(sentences))]


@torch.no_grad()
def log_probs_above(model: MaskedLM, layer: int, states: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """(K, masked, n_words) log probability of every word if the output of `layer` is `states` (K, L + 2, width).

    The softmax is over all tokens, as in evaluation.py.
    """
    model.eval()
    device = next(model.parameters()).device
    parts = []
    for some in np.split(states, range(ROWS, len(states), ROWS)):
        n_rows, n_tokens, width = some.shape
        nothing = torch.zeros(0, dtype=torch.long, device=device)  # embeddings are below
        inputs = FlatInputs(nothing, nothing, ((n_rows, n_tokens),), (None,))
        hidden = torch.from_numpy(np.ascontiguousarray(some)).to(device).view(-1, width)
        where = torch.as_tensor((np.arange(n_rows)[:, None] * n_tokens + positions + 1).reshape(-1), device=device)
        scores = model.lm_head(last_states(model, hidden, inputs, layer)[where]).double().log_softmax(-1)
        parts.append(scores[:, tokens.FIRST_WORD:].view(n_rows, len(positions), -1).cpu().numpy())
    return np.concatenate(parts)
