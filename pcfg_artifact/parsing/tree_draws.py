"""Exact draws of trees: from the grammar, from all trees of a given sentence, or from all sentences of given lengths.

The trees of a sentence are drawn from its inside chart, from the root downwards.  A sentence of n words that are not
known has a chart too, in which all spans of one width are alike: P(A yields n words), the inside recursion over
lengths.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar import sampling
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import STEP, SampledTrees, id_dtype, mix, uniform
from pcfg_artifact.parsing.charts import log_of
from pcfg_artifact.parsing.engine import each_chart
from pcfg_artifact.parsing.forest import Forest, forest, forest_of_chart, log_choice, splits
from pcfg_artifact.parsing.leaves import Sentence, emissions, word_ids
from pcfg_artifact.system.machine import available_memory
from pcfg_artifact.system.ragged import Ragged
from pcfg_artifact.system.random_streams import derive_seed

ANY_WORD = -1


def sample_trees(grammar: PCFG, n: int, seed: int = 0, max_length: int | None = None, *,
                 length: int | tuple[int, int] | None = None, given: Sentence | None = None) -> SampledTrees:
    """Draw n trees from the grammar.

    max_length: longer sentences are drawn again, and counted in `n_rejected`.  length: sentences of exactly so many
    words, or of low to high words, both included.  given: trees of this sentence (words, or word ids).  The draws
    follow the exact conditional distribution.
    """
    if sum(limit is not None for limit in (max_length, length, given)) > 1:
        raise UsageError("more than one of max_length, length and given was set; choose one")
    if given is not None:
        return SentenceSampler(grammar, given, seed).draw(0, n)
    if length is not None:
        return LengthSampler(grammar, *((length, length) if isinstance(length, int) else length), seed).draw(0, n)
    return sampling.sample_trees(grammar, n, seed, max_length)


class ConditionalSampler:
    """Draws blocks of an endless sequence of trees from a forest, as `Sampler` does from a grammar.

    lengths, symbols, log_root (R,): what a tree may be at the top, and the log weight of it.
    """

    max_length: int | None = None

    def __init__(self, grammar: PCFG, trees: Forest, words: np.ndarray, lengths: np.ndarray, symbols: np.ndarray,
                 log_root: np.ndarray, base: int) -> None:
        self.grammar, self._trees, self._words = grammar, trees, words
        possible = np.flatnonzero(log_root > -np.inf)
        shares = np.exp(log_root[possible] - log_root.max())
        self._lengths, self._symbols, self._root_sum = lengths[possible], symbols[possible], np.cumsum(shares)
        self._base: Any = uint64(base)
        self.rule_dtype: type = id_dtype(len(grammar.binary) + len(grammar.lexical))
        head, self._word = (column.astype(np.int64) for column in grammar.lexical.T)
        self._first = np.searchsorted(head, np.arange(grammar.n_interminals, grammar.n_nonterminals + 1))
        sums = np.cumsum(grammar.lexical_prob)
        self._sums = sums - np.append(0.0, sums)[self._first[head - grammar.n_interminals]]

    def draw(self, first: int, n: int) -> SampledTrees:
        """Trees first, first + 1, ..., first + n - 1."""
        rules: np.ndarray = np.empty((n, 2 * int(self._lengths.max()) - 1), self.rule_dtype)
        n_words = draw_trees(self._trees, self._words, self._first, self._word, self._sums, self._lengths,
                             self._symbols, self._root_sum, self._base, first, rules)
        is_filled = np.arange(rules.shape[1]) < (2 * n_words - 1)[:, None]
        return SampledTrees(self.grammar, Ragged(rules[is_filled], np.append(0, np.cumsum(2 * n_words - 1))), 0)


class SentenceSampler(ConditionalSampler):
    """Trees of one sentence, by their probability given its words; words as the grammar reads them."""

    def __init__(self, grammar: PCFG, sentence: Sentence, seed: int) -> None:
        ids = word_ids(grammar, sentence)
        chart = next(each_chart(grammar, [ids]))
        if chart.log_prob == -np.inf:
            raise UsageError("the grammar gives the sentence no probability, so that there is no tree to draw; give "
                             "another sentence")
        trees, symbols = forest_of_chart(grammar, chart), np.flatnonzero(grammar.root)
        log_root = log_of(grammar.root[symbols]) + trees.log_weight[trees.rows[0, len(ids)], symbols]
        super().__init__(grammar, trees, ids, np.full(len(symbols), len(ids)), symbols, log_root,
                         derive_seed(seed, "sampler", "given", *map(str, ids)))


class LengthSampler(ConditionalSampler):
    """Trees of sentences of `low` to `high` words, by their probability given that."""

    def __init__(self, grammar: PCFG, low: int, high: int, seed: int) -> None:
        if not 1 <= low <= high:
            raise UsageError(f"sentences of {low} to {high} words were asked for, expected 1 or more, the smaller "
                             f"number first")
        log_yield = log_length_probabilities(grammar, high)
        lengths, symbols = (index.reshape(-1) for index in np.meshgrid(
            np.arange(low, high + 1), np.flatnonzero(grammar.root), indexing="ij"))
        log_root = log_of(grammar.root[symbols]) + log_yield[lengths, symbols]
        if log_root.max() == -np.inf:
            raise UsageError(f"no sentence of the grammar has {low if low == high else f'{low} to {high}'} words; give "
                             f"another length")
        posts = np.arange(high + 1)
        rows = np.maximum(posts[None, :] - posts[:, None], 0)
        super().__init__(grammar, forest(grammar, rows, log_yield), np.full(high, ANY_WORD), lengths, symbols, log_root,
                         derive_seed(seed, "sampler", "length", str(low), str(high)))


def log_length_probabilities(grammar: PCFG, longest: int) -> np.ndarray:
    """(longest + 1, N) log probability that a symbol yields so many words, -inf for 0.  Costs longest^2 a rule.

    Each length has a scale of its own, so that nothing leaves the range of float64 however rare long sentences are.
    """
    needed, available = 8 * longest * (len(grammar.binary) + grammar.n_nonterminals), available_memory()
    if needed > available:
        raise UsageError(f"sentences of {longest:,} words need {needed / 1e9:.1f} GB with this grammar "
                         f"({len(grammar.binary):,} rules), {available / 1e9:.1f} GB are free; ask for shorter ones")
    (parent, left, right), prob = grammar.binary.T, grammar.binary_prob
    share, log_scale = np.zeros((longest + 1, grammar.n_nonterminals)), np.full(longest + 1, -np.inf)
    share[1, grammar.n_interminals:], log_scale[1] = emissions(grammar).any_word, 0.0
    for n in range(2, longest + 1):
        # P(A yields n) = sum over rules, and over the k words of the left child, of P(A -> B C) P(B yields k) P(..)
        log_terms = log_scale[1:n] + log_scale[n - 1:0:-1]
        if (largest := log_terms.max()) == -np.inf:
            continue
        pairs = np.einsum("k,kr,kr->r", np.exp(log_terms - largest), share[1:n, left], share[n - 1:0:-1, right])
        weight = np.bincount(parent, prob * pairs, minlength=grammar.n_nonterminals)
        if (peak := weight.max()) > 0:
            share[n], log_scale[n] = weight / peak, largest + np.log(peak)
    return log_of(share) + np.where(log_scale > -np.inf, log_scale, 0.0)[:, None]


# ---- compiled --------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def draw_choice(trees, a, i, j, share):
    """The choice at which the summed shares of the entry's weight come to `share`: its rule and split."""
    total = trees.log_weight[trees.rows[i, j], a]
    summed, chosen, split = 0.0, -1, -1
    for rule in range(trees.first[a], trees.first[a + 1]):
        low, high = splits(trees, rule, i, j)
        for k in range(low, high):
            value = log_choice(trees, rule, i, k, j)
            if value > -np.inf:
                summed += math.exp(value - total)
                chosen, split = rule, k  # the last one takes what rounding leaves
                if summed > share:
                    return chosen, split
    return chosen, split


@njit(nogil=True, cache=True)
def draw_trees(trees: Forest, words: np.ndarray, lexical_first: np.ndarray, lexical_word: np.ndarray,
               lexical_sum: np.ndarray, lengths: np.ndarray, symbols: np.ndarray, root_sum: np.ndarray, base: int,
               first: int, rules: np.ndarray) -> np.ndarray:
    """Fill rules (n, 2L-1) with the rules of n trees in preorder; returns the number of words of each.

    A tree covers the first lengths[r] words and has symbols[r] on top, with the probability that root_sum gives r.
    words (L,): the word at each position, or ANY_WORD, which a pre-terminal chooses as it does without any context:
    its lexical rules are lexical_first[p]:lexical_first[p + 1], with running sums of probability.
    """
    n_words = np.zeros(len(rules), np.int64)
    stack = np.empty((rules.shape[1] + 1, 3), np.int64)
    for s in range(len(rules)):
        state = mix(base ^ mix(uint64(first + s) + STEP)) + STEP
        top = min(np.searchsorted(root_sum, uniform(state) * root_sum[-1], side="right"), len(root_sum) - 1)
        n_words[s] = lengths[top]
        stack[0] = (symbols[top], 0, lengths[top])
        height, filled = 1, 0
        while height:
            height -= 1
            a, i, j = stack[height]
            state += STEP
            if a < trees.n_interminals:
                rule, k = draw_choice(trees, a, i, j, uniform(state))
                stack[height] = (trees.right[rule], k, j)
                stack[height + 1] = (trees.left[rule], i, k)
                height += 2
            else:
                low, high = lexical_first[a - trees.n_interminals], lexical_first[a - trees.n_interminals + 1]
                if words[i] == ANY_WORD:
                    share = uniform(state) * lexical_sum[high - 1]
                    found = low + min(np.searchsorted(lexical_sum[low:high], share, side="right"), high - low - 1)
                else:
                    found = low + np.searchsorted(lexical_word[low:high], words[i])
                rule = len(trees.left) + found
            rules[s, filled] = rule
            filled += 1
    return n_words
