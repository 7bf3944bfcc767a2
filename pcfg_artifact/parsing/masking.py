"""Masked words: the Bayes-optimal masked language model of a grammar (Theorem 3.3).

A position that is not seen is a leaf with weight 1 for every pre-terminal; the word there has probability proportional
to the sum over A of P(A -> w) beta(A, t, t+1).  beta ignores the word under its own position, so one pass with all
words visible, and with beta of every pre-terminal, predicts every word from all the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.charts import Chart, log_of
from pcfg_artifact.parsing.constraints import Constraints, forbidden_entries
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, LazyLeaves, leaf_outsides, leaves_of
from pcfg_artifact.parsing.leaves import Sentence, emissions, sentence_leaves, word_ids
from pcfg_artifact.parsing.masks import Masking, hide, selected_channel, visible_channel
from pcfg_artifact.system.random_streams import derive_seed

MASK_NAME = "named masks"  # of the random stream


def masked_word_distribution(grammar: PCFG, sentence: Sentence, masked: Sequence[int],
                             options: EngineOptions = DEFAULT, constraints: Constraints | None = None) -> np.ndarray:
    """(len(masked), n_words) probability of every word at each masked position, given the words that are not masked.

    masked: 0-based positions; the words there are ignored.  An impossible context gives rows of zeros.
    constraints: spans that the tree must have or may not have, as in inside_outside.
    """
    masked = list(masked)
    for position in masked:
        if not 0 <= position < len(sentence):
            raise UsageError(f"masked position {position} is outside the sentence; expected 0 to {len(sentence) - 1}")
    leaves = sentence_leaves(grammar, sentence, masked)
    forbidden = [forbidden_entries(grammar, len(leaves), constraints or {})]
    return _distributions(grammar, next(leaf_outsides(grammar, [leaves], options, forbidden)))[masked]


def with_all_outside(options: EngineOptions) -> EngineOptions:
    """The same engine with beta of every pre-terminal, also of those that the word itself excludes."""
    return replace(options, outside="full")


def word_distributions(grammar: PCFG, chart: Chart) -> np.ndarray:
    """(L, n_words): proportional to the sum over A of P(A -> w) beta(A, t, t+1)."""
    return _distributions(grammar, chart.leaf_outside(grammar.n_interminals))


def _distributions(grammar: PCFG, outside: np.ndarray) -> np.ndarray:
    """The same from the outside values of pre-terminals (L, P)."""
    head, word = grammar.lexical.T
    weights = np.zeros((len(outside), grammar.n_words))
    for t in range(len(outside)):
        contributions = outside[t, head - grammar.n_interminals] * grammar.lexical_prob
        weights[t] = np.bincount(word, contributions, minlength=grammar.n_words)
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=weights, where=total > 0)


# ---- whole corpora ---------------------------------------------------------------------------------------------------


def one_mask_log_probs(grammar: PCFG, sentences: Sequence[Sentence], options: EngineOptions = DEFAULT
                       ) -> Iterator[np.ndarray]:
    """(L,) per sentence: log probability of each word given all the other words; -inf where it is 0."""
    found = leaf_outsides(grammar, leaves_of(grammar, sentences), with_all_outside(options))
    for sentence, outside in zip(sentences, found, strict=True):
        words = word_ids(grammar, sentence)
        yield _log_probs(grammar, outside, words, np.full(len(words), -1), np.arange(len(words)))


def masked_log_probs(grammar: PCFG, sentences: Sequence[Sentence], masking: Masking, seed: int,
                     indices: Sequence[int] | None = None, options: EngineOptions = DEFAULT
                     ) -> Iterator[np.ndarray]:
    """(masked,) per sentence: log probability of each selected word given what is seen, exact for the masking process.

    The masks are those of (seed, index of the sentence, position), the same for every process and model; indices are
    0, 1, .. unless the sentences are a selection and keep their own.
    """
    indices = range(len(sentences)) if indices is None else indices
    hidden = [hidden_words(grammar, sentence, masking, seed, index)
              for sentence, index in zip(sentences, indices, strict=True)]
    leaves = LazyLeaves(lambda s: observed_leaves(grammar, hidden[s][1], masking), len(hidden))
    for (words, seen, positions), outside in zip(hidden, leaf_outsides(grammar, leaves, options), strict=True):
        yield _log_probs(grammar, outside, words, seen, positions)


def hidden_words(grammar: PCFG, sentence: Sentence, masking: Masking, seed: int, index: int
                 ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Word ids (L,), what is seen of them (L,), -1 = <mask>, and the selected positions, under the named masks."""
    words = word_ids(grammar, sentence)
    key = np.uint64(derive_seed(seed, MASK_NAME))
    is_masked, seen = hide(words, key, np.uint64(index), np.arange(len(words)), masking, grammar.n_words)
    return words, seen, np.flatnonzero(is_masked)


def observed_leaves(grammar: PCFG, seen: np.ndarray, masking: Masking) -> np.ndarray:
    """(L, P) probability, up to a factor per position, that each pre-terminal leads to what is seen (-1 = <mask>)."""
    table = emissions(grammar)
    leaves = table.of(seen)
    if masking.corruption != "mask":
        channel = visible_channel(masking, grammar.n_words)
        leaves = channel.same * leaves + channel.other * table.any_word
    leaves[seen < 0] = table.any_word
    return leaves


def _log_probs(grammar: PCFG, outside: np.ndarray, words: np.ndarray, seen: np.ndarray, positions: np.ndarray
               ) -> np.ndarray:
    """Log probability of the true words at selected positions, from the outside values of pre-terminals (L, P).

    The sum over all words w of P(shows o | w) x(w), where x(w) is the sum over A of P(A -> w) beta(A), needs only x(o)
    and the sum of x.
    """
    table = emissions(grammar)
    outside = outside[positions]
    x_true = (table.of(words[positions]) * outside).sum(axis=1)
    x_any = outside @ table.any_word
    shown, channel = seen[positions], selected_channel(grammar.n_words)
    x_shown = (table.of(shown) * outside).sum(axis=1)
    is_mask = shown < 0
    numerator = np.where(is_mask, x_true, (channel.other + channel.same * (shown == words[positions])) * x_true)
    denominator = np.where(is_mask, x_any, channel.other * x_any + channel.same * x_shown)
    return log_of(np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0))


def perplexity(log_probs: Iterable[np.ndarray]) -> float:
    """exp of the mean negative log probability over all predicted words; NaN for none, inf if one has probability 0."""
    rows = list(log_probs)
    flat = np.concatenate(rows) if rows else np.zeros(0)
    return float(np.exp(-flat.mean())) if len(flat) else float("nan")
