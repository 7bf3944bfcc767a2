"""Masked words: the Bayes-optimal masked language model of a grammar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.engine import leaf_charts
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves


def masked_word_distribution(grammar: PCFG, sentence: Sentence, masked: Sequence[int],
                             backend: str = "auto", device: str = "cpu") -> np.ndarray:
    """(len(masked), n_words) probability of every word at each masked position, given the words that are not masked.

    masked: 0-based positions; the words there are ignored.  An impossible context gives rows of zeros.
    """
    length = len(sentence)
    for position in masked:
        if not 0 <= position < length:
            raise UsageError(f"masked position {position} is outside the sentence; expected 0 to {length - 1}")
    leaves = sentence_leaves(grammar, sentence, masked)
    chart = next(leaf_charts(grammar, [leaves], backend=backend, device=device))
    return word_distributions(grammar, chart)[list(masked)]


def preterminal_outside(grammar: PCFG, chart: Chart) -> np.ndarray:
    """(L, P) beta(A, t, t+1) of every position, each row scaled to sum to 1 (0 where nothing fits)."""
    starts, ends = chart.entry_bounds
    is_leaf = ends - starts == 1
    log_outside = np.full((chart.length, grammar.n_preterminals), -np.inf)
    log_outside[starts[is_leaf], chart.symbols[is_leaf] - grammar.n_interminals] = chart.entry_log_outside[is_leaf]
    peak = log_outside.max(axis=1, keepdims=True, initial=-np.inf)
    weights = np.exp(log_outside - np.where(peak > -np.inf, peak, 0.0))
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)


def word_distributions(grammar: PCFG, chart: Chart) -> np.ndarray:
    """(L, n_words): proportional to the sum over A of P(A -> w) beta(A, t, t+1)."""
    weights = np.zeros((chart.length, grammar.n_words))
    head, word = grammar.lexical.T
    contributions = preterminal_outside(grammar, chart)[:, head - grammar.n_interminals] * grammar.lexical_prob
    for t in range(chart.length):
        weights[t] = np.bincount(word, contributions[t], minlength=grammar.n_words)
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=weights, where=total > 0)
