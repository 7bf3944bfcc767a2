"""The compiled grammar: rules grouped by the type of their children, as flat arrays that every engine shares.

Pre-terminals cover one word and in-terminals more, so the type of a child says where its split can lie: only rules with
two in-terminal children have the whole range of splits, and only they cost cubic time.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from pcfg_artifact.grammar.pcfg import PCFG

DENSE = 0.2  # share of all parents that a group of rules has, from which on whole vectors are faster than single rules
LANES = 16  # numbers that a compiled loop takes at once
INDEX = np.uint32  # of symbols; unsigned, so that compiled loops need no test for negative indices


class InnerPairs(NamedTuple):
    """Rules A -> B C with both children in-terminals, by distinct child pair q: its children are left[q], right[q],
    its rules are first[q]:first[q + 1], with their parent and prob.

    Pairs are sorted by their number of rules, so that loops over the rules of successive pairs have equal length.
    """

    left: np.ndarray
    right: np.ndarray
    first: np.ndarray
    parent: np.ndarray
    prob: np.ndarray


class LeftPairs(NamedTuple):
    """The InnerPairs sorted by left child: those of B are first[B]:first[B + 1], with their left and right child; the
    rules of pair q are rules[q]:rules[q + 1], with their parent and prob.  is_right (I,): whether a symbol is a right
    child.
    """

    first: np.ndarray
    left: np.ndarray
    right: np.ndarray
    rules: np.ndarray
    parent: np.ndarray
    prob: np.ndarray
    is_right: np.ndarray


class LeafRules(NamedTuple):
    """Rules with a pre-terminal child p, by p: those of p are first[p]:first[p + 1]; `other` is the other child."""

    first: np.ndarray
    other: np.ndarray
    parent: np.ndarray
    prob: np.ndarray


class LeafEdges(NamedTuple):
    """Distinct (A, B) of rules A -> .. p .. with a pre-terminal p and an in-terminal B, by B: those of B are
    first[B]:first[B + 1], with their child B and their parent; of_rule is the edge of each of the LeafRules.

    A word gives an edge the sum over p of P(A -> .. p ..) leaf(p), once for all cells.
    """

    first: np.ndarray
    child: np.ndarray
    parent: np.ndarray
    of_rule: np.ndarray


class LeafPairs(NamedTuple):
    """Distinct (p, p') of rules A -> p p', by p: those of p are first[p]:first[p + 1], with the right one in `other`;
    the rules of pair q are rules[q]:rules[q + 1] of the LeafRules.
    matrix: the rules again as (pairs, I or more), where they are dense (`rule_matrix`).
    """

    first: np.ndarray
    other: np.ndarray
    rules: np.ndarray
    matrix: np.ndarray


class RuleIndex(NamedTuple):
    """inner: A -> B C; right_leaf: A -> B p; left_leaf: A -> p C; two_leaves: A -> p p', by the left one.

    Symbols are 0 .. I-1 for in-terminals and 0 .. P-1 for pre-terminals.  Rules of probability 0 are left out.
    """

    root_inner: np.ndarray
    root_leaf: np.ndarray
    inner: InnerPairs
    left_pairs: LeftPairs
    right_leaf: LeafRules
    left_leaf: LeafRules
    two_leaves: LeafRules
    right_edges: LeafEdges
    left_edges: LeafEdges
    leaf_pairs: LeafPairs

    @property
    def n_interminals(self) -> int:
        return len(self.root_inner)

    @property
    def n_preterminals(self) -> int:
        return len(self.root_leaf)

    @property
    def smallest_prob(self) -> float:
        """The smallest probability of a rule that is not 0 (1 without rules)."""
        return min(rules.prob.min(initial=1.0)
                   for rules in (self.inner, self.right_leaf, self.left_leaf, self.two_leaves))


def grouped(group: np.ndarray, n_groups: int, *within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Items by group: those of group g are order[first[g]:first[g + 1]], sorted by the keys in `within`, then as given.

    Returns first (n_groups + 1,) and order.
    """
    order = np.lexsort((*reversed(within), group))
    return np.searchsorted(group[order], np.arange(n_groups + 1)), order


def rule_matrix(first: np.ndarray, parent: np.ndarray, prob: np.ndarray, n_interminals: int) -> np.ndarray:
    """(groups, I) probabilities of the rules of each group by parent; (0, I) unless they are dense.

    Columns of 0 are added, so that compiled loops of whole vectors need no remainder.
    """
    n_groups, width = len(first) - 1, -(-n_interminals // LANES) * LANES
    if len(prob) <= DENSE * n_groups * n_interminals:
        return np.zeros((0, width))
    matrix = np.zeros((n_groups, width))
    matrix[np.repeat(np.arange(n_groups), np.diff(first)), parent] = prob
    return matrix


_compiled: WeakKeyDictionary[PCFG, RuleIndex] = WeakKeyDictionary()


def compiled(grammar: PCFG) -> RuleIndex:
    """The compiled form of a grammar, built once."""
    if grammar not in _compiled:
        _compiled[grammar] = _compile(grammar)
    return _compiled[grammar]


def _compile(grammar: PCFG) -> RuleIndex:
    n_interminals, n_preterminals = grammar.n_interminals, grammar.n_preterminals
    is_possible = grammar.binary_prob > 0
    (parent, left, right), prob = grammar.binary[is_possible].T, grammar.binary_prob[is_possible]
    left_is_leaf, right_is_leaf = left >= n_interminals, right >= n_interminals

    def by_leaf(chosen: np.ndarray, leaf: np.ndarray, other: np.ndarray) -> LeafRules:
        first, order = grouped(leaf[chosen] - n_interminals, n_preterminals, other[chosen], parent[chosen])
        rules = np.flatnonzero(chosen)[order]
        other = np.where(other >= n_interminals, other - n_interminals, other)
        return LeafRules(first.astype(INDEX), other[rules].astype(INDEX), parent[rules].astype(INDEX), prob[rules])

    right_leaf = by_leaf(~left_is_leaf & right_is_leaf, right, left)
    left_leaf = by_leaf(left_is_leaf & ~right_is_leaf, left, right)
    two_leaves = by_leaf(left_is_leaf & right_is_leaf, left, right)
    inner = _by_pair(*(x[~left_is_leaf & ~right_is_leaf] for x in (parent, left, right, prob)))
    return RuleIndex(
        root_inner=grammar.root[:n_interminals].copy(), root_leaf=grammar.root[n_interminals:].copy(),
        inner=inner, left_pairs=_by_left(inner, n_interminals),
        right_leaf=right_leaf, left_leaf=left_leaf, two_leaves=two_leaves,
        right_edges=_edges(right_leaf, n_interminals), left_edges=_edges(left_leaf, n_interminals),
        leaf_pairs=_leaf_pairs(two_leaves, n_interminals, n_preterminals))


def _edges(rules: LeafRules, n_interminals: int) -> LeafEdges:
    edges, of_rule = np.unique(np.stack([rules.other, rules.parent], axis=1), axis=0, return_inverse=True)
    first, order = grouped(edges[:, 0], n_interminals)  # they are in this order already
    return LeafEdges(first.astype(INDEX), edges[order, 0].astype(INDEX), edges[order, 1].astype(INDEX),
                     of_rule.reshape(-1).astype(INDEX))


def _leaf_pairs(rules: LeafRules, n_interminals: int, n_preterminals: int) -> LeafPairs:
    leaf = np.repeat(np.arange(n_preterminals), np.diff(rules.first))
    pairs, begin = np.unique(leaf * n_preterminals + rules.other.astype(np.int64), return_index=True)  # sorted already
    first, _ = grouped(pairs // max(n_preterminals, 1), n_preterminals)
    ends = np.append(begin, len(leaf))
    return LeafPairs(first.astype(INDEX), (pairs % max(n_preterminals, 1)).astype(INDEX), ends.astype(INDEX),
                     rule_matrix(ends, rules.parent, rules.prob, n_interminals))


def _by_pair(parent: np.ndarray, left: np.ndarray, right: np.ndarray, prob: np.ndarray) -> InnerPairs:
    pairs, pair_of_rule, n_rules = np.unique(np.stack([left, right], axis=1), axis=0, return_inverse=True,
                                             return_counts=True)
    order = np.argsort(n_rules, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    first, rules = grouped(rank[pair_of_rule.reshape(-1)], len(pairs), parent)
    pairs = pairs[order].astype(INDEX)
    return InnerPairs(left=pairs[:, 0].copy(), right=pairs[:, 1].copy(), first=first.astype(INDEX),
                      parent=parent[rules].astype(INDEX), prob=prob[rules])


def _by_left(inner: InnerPairs, n_interminals: int) -> LeftPairs:
    first, order = grouped(inner.left, n_interminals, inner.right)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rules, rule_order = grouped(np.repeat(rank, np.diff(inner.first)), len(order))
    is_right = np.zeros(n_interminals, np.bool_)
    is_right[inner.right] = True
    return LeftPairs(first.astype(INDEX), inner.left[order], inner.right[order], rules.astype(INDEX),
                     inner.parent[rule_order], inner.prob[rule_order], is_right)
