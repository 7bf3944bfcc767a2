"""All trees of a sentence as a packed forest, and what is uncertain about them: entropy, and spans that go together.

An entry of a forest is split by a rule and a fencepost, whatever lies around it.  A *choice* at an entry (A, i, j) is a
rule A -> B C and a split k; its weight is P(A -> B C) times what is below the two children.  Three questions go from
the root downwards through choices: entropies here, draws in tree_draws.py, the best trees in best_trees.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from pcfg_artifact.errors import UsageError
from pcfg_artifact.grammar.expectation import derivation_entropy, entropy_terms
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.chart_index import cell_bounds, n_cells
from pcfg_artifact.parsing.charts import Chart, entries_of, log_of
from pcfg_artifact.parsing.engine import DEFAULT, EngineOptions, each_chart
from pcfg_artifact.parsing.leaves import Sentence, word_ids


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


# ---- what is uncertain about the tree of a sentence ------------------------------------------------------------------


def tree_entropy(grammar: PCFG, given: Sentence | None = None, options: EngineOptions = DEFAULT) -> float:
    """Entropy in nats of the grammar's trees, words included, or of the trees of one sentence given its words.

    NaN for a sentence without probability.
    """
    if given is None:
        return derivation_entropy(grammar)
    return SpanEntropies.of(grammar, next(each_chart(grammar, [given], options))).total


@dataclass(frozen=True, eq=False)
class SpanEntropies:
    """Entropy in nats of the tree of a sentence, as a sum of the uncertainty that each span adds.

    root: of the symbol on top.  spans (L+1, L+1): of the rule and the split of the node over (i, j), given its symbol,
    times the probability of that node.  By the chain rule they add up to the entropy of the labelled tree.
    """

    root: float
    spans: np.ndarray

    @property
    def total(self) -> float:
        return self.root + float(self.spans.sum())

    @classmethod
    def of(cls, grammar: PCFG, chart: Chart) -> SpanEntropies:
        """From the chart of a sentence; NaN where it has no probability."""
        if chart.log_prob == -np.inf:
            return cls(np.nan, np.full((chart.length + 1,) * 2, np.nan))
        starts, stops = chart.entry_bounds
        used = np.flatnonzero(chart.entry_marginals)
        at = starts[used], stops[used]
        choices = choice_entropies(forest_of_chart(grammar, chart), *at, chart.symbols[used])
        spans = np.zeros((chart.length + 1,) * 2)
        np.add.at(spans, at, chart.entry_marginals[used] * choices)
        top = np.minimum(chart.entry_marginals[entries_of(chart, 0, chart.length)], 1.0)
        return cls(float(entropy_terms(top).sum()), spans)


@dataclass(frozen=True, eq=False)
class SpanPairs:
    """joint (L+1, L+1, L+1, L+1): probability that (i, j) and (k, l) are both spans of the tree, given the sentence."""

    joint: np.ndarray

    @property
    def spans(self) -> np.ndarray:
        """(L+1, L+1) probability of each span."""
        posts = np.arange(len(self.joint))
        return self.joint[posts[:, None], posts, posts[:, None], posts]

    @cached_property
    def conditional(self) -> np.ndarray:
        """[i, j, k, l]: probability of (k, l) given that (i, j) is a span; NaN where it never is."""
        spans = self.spans[:, :, None, None]
        return np.divide(self.joint, spans, out=np.full_like(self.joint, np.nan), where=spans > 0)


def span_pairs(grammar: PCFG, sentence: Sentence, options: EngineOptions = DEFAULT) -> SpanPairs:
    """Exact probabilities of all pairs of spans, whatever their labels.

    One chart for every span that may be in the tree: of the trees that have it.  So L^2 / 2 charts at most, of which
    each costs less than that of the sentence, because a span leaves no entry that crosses it; in all O(L^5) a rule.
    For labels, `log_probabilities` with constraints gives the probability of any set of labelled spans.
    """
    ids = word_ids(grammar, sentence)
    whole = next(each_chart(grammar, [ids], options))
    if whole.log_prob == -np.inf:
        raise UsageError("the grammar gives the sentence no probability, so that no span has one; give another "
                         "sentence")
    probability = _span_probability(whole)
    joint = np.zeros((len(ids) + 1,) * 4)
    possible = [(int(i), int(j)) for i, j in np.argwhere(probability) if 1 < j - i < len(ids)]
    for i, j in [(0, len(ids)), *((t, t + 1) for t in range(len(ids)))]:
        joint[i, j] = probability  # every tree has them
    charts = each_chart(grammar, [ids] * len(possible), options, [{span: True} for span in possible])
    for (i, j), chart in zip(possible, charts, strict=True):
        joint[i, j] = probability[i, j] * _span_probability(chart)
    return SpanPairs(joint)


def _span_probability(chart: Chart) -> np.ndarray:
    """(L+1, L+1) probability of every span, whatever its label."""
    spans = np.zeros((chart.length + 1,) * 2)
    np.add.at(spans, chart.entry_bounds, chart.entry_marginals)
    return spans
