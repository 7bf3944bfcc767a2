"""All trees of a sentence as a packed forest: an entry is split by a rule and a fencepost, whatever lies around it.

A *choice* at an entry (A, i, j) is a rule A -> B C and a split k; its weight is P(A -> B C) times what is below the two
children.  Three questions go from the root downwards through choices: draws and entropies here, the best trees in
best_trees.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import STEP, mix, uniform
from pcfg_artifact.parsing.chart_index import cell_bounds, n_cells
from pcfg_artifact.parsing.charts import Chart
from pcfg_artifact.parsing.reference import log_of

ANY_WORD = -1


class Forest(NamedTuple):
    """Rules by parent, those of A are first[A]:first[A + 1], and the log weight below every entry.

    Symbols are numbered as in the grammar, the first n_interminals are in-terminals.
    rows (L+1, L+1): the row of every span in log_weight (rows, N), which is -inf where an entry is impossible.
    begins, ends (L+1, N): whether some entry of the symbol begins, or ends, at a fencepost.
    """

    n_interminals: int
    first: np.ndarray
    left: np.ndarray
    right: np.ndarray
    log_prob: np.ndarray
    rows: np.ndarray
    log_weight: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def cell_rows(length: int) -> np.ndarray:
    """Rows for tables with one row a cell."""
    rows = np.zeros((length + 1, length + 1), np.int64)
    rows[cell_bounds(length)] = np.arange(n_cells(length))
    return rows


def forest(grammar: PCFG, rows: np.ndarray, log_weight: np.ndarray) -> Forest:
    begins, ends = np.zeros((2, len(rows), grammar.n_nonterminals), bool)
    for i in range(len(rows) - 1):
        begins[i] = (log_weight[rows[i, i + 1:]] > -np.inf).any(axis=0)
        ends[i + 1] = (log_weight[rows[:i + 1, i + 1]] > -np.inf).any(axis=0)
    parent, left, right = (column.astype(np.int64) for column in grammar.binary.T)
    return Forest(grammar.n_interminals, np.searchsorted(parent, np.arange(grammar.n_interminals + 1)), left, right,
                  log_of(grammar.binary_prob), rows, log_weight, begins, ends)


def forest_of_chart(grammar: PCFG, chart: Chart) -> Forest:
    """All trees of the chart's sentence, each with its probability."""
    log_inside = np.full((n_cells(chart.length), chart.n_nonterminals), -np.inf)
    log_inside[np.repeat(np.arange(len(log_inside)), np.diff(chart.offsets)), chart.symbols] = chart.entry_log_inside
    return forest(grammar, cell_rows(chart.length), log_inside)


@njit(nogil=True)
def splits(trees, rule, i, j):
    """first, last: where a rule may split (i, j); nowhere if a child cannot lie there."""
    b, c = trees.left[rule], trees.right[rule]
    if not (trees.begins[i, b] and trees.ends[j, c]):
        return j, j
    if b >= trees.n_interminals:
        return i + 1, i + 2
    if c >= trees.n_interminals:
        return j - 1, j
    return i + 2, j - 1


@njit(nogil=True)
def log_choice(trees, rule, i, k, j):
    """Log weight of one choice."""
    return trees.log_prob[rule] + trees.log_weight[trees.rows[i, k], trees.left[rule]] \
        + trees.log_weight[trees.rows[k, j], trees.right[rule]]


@njit(nogil=True, cache=True)
def choice_entropies(trees: Forest, starts: np.ndarray, stops: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    """(E,) entropy in nats of the choice at every entry (symbol, i, j), given that it is in the tree."""
    found = np.zeros(len(symbols))
    for entry in range(len(symbols)):
        i, j, a = starts[entry], stops[entry], symbols[entry]
        total = trees.log_weight[trees.rows[i, j], a]
        if a < trees.n_interminals and total > -np.inf:
            for rule in range(trees.first[a], trees.first[a + 1]):
                low, high = splits(trees, rule, i, j)
                for k in range(low, high):
                    log_share = min(log_choice(trees, rule, i, k, j) - total, 0.0)
                    if log_share > -np.inf:
                        found[entry] -= math.exp(log_share) * log_share
    return found


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
