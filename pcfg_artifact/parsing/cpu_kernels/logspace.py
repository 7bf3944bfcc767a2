"""Inside-Outside and Viterbi of one sentence in log space: compiled kernels for what linear space cannot hold.

Legend as in workspace.py.  Charts are dense, (cells, I) and (L, P), with -inf for impossible.  Written for any range of
values, not for speed: the linear kernels refuse few sentences.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from pcfg_artifact.parsing.chart_index import cell_of
from pcfg_artifact.parsing.charts import BestTree, log_of
from pcfg_artifact.parsing.constraints import Forbidden, clear
from pcfg_artifact.parsing.cpu_kernels.rule_index import RuleIndex
from pcfg_artifact.parsing.cpu_kernels.semiring import LOG, Space, plus


@njit(nogil=True, cache=True)
def inside(grammar: RuleIndex, leaves: np.ndarray, forbidden: Forbidden, space: Space) -> np.ndarray:
    """log alpha (cells, I) from log leaves (L, P); in BEST the log probability of the best subtree instead.

    Leaves are -inf already where they are forbidden.
    """
    length = len(leaves)
    n_interminals = len(grammar.root_inner)
    inner = grammar.inner
    log_prob = np.log(inner.prob)
    alpha = np.full((length * (length + 1) // 2, n_interminals), -np.inf)
    starts = np.zeros((length + 1, n_interminals), np.bool_)
    ends = np.zeros((length + 1, n_interminals), np.bool_)
    for j in range(2, length + 1):
        for i in range(j - 2, -1, -1):
            cell = cell_of(i, j, length)
            if j - i == 2:
                add_from_leaf(alpha, cell, grammar.two_leaves, leaves, i, leaves, j - 1, space)
            else:
                add_from_leaf(alpha, cell, grammar.right_leaf, leaves, j - 1, alpha, cell_of(i, j - 1, length), space)
                add_from_leaf(alpha, cell, grammar.left_leaf, leaves, i, alpha, cell_of(i + 1, j, length), space)
            for q in range(len(inner.left)):
                b, c = inner.left[q], inner.right[q]
                if not (starts[i, b] and ends[j, c]):
                    continue
                best = -np.inf
                for k in range(i + 2, j - 1):
                    best = max(best, alpha[cell_of(i, k, length), b] + alpha[cell_of(k, j, length), c])
                if best == -np.inf:
                    continue
                product = best
                if space == LOG:
                    total = 0.0
                    for k in range(i + 2, j - 1):
                        total += math.exp(alpha[cell_of(i, k, length), b] + alpha[cell_of(k, j, length), c] - best)
                    product += math.log(total)
                for rule in range(inner.first[q], inner.first[q + 1]):
                    a = inner.parent[rule]
                    alpha[cell, a] = plus(alpha[cell, a], log_prob[rule] + product, space)
            if len(forbidden.first) > 0:
                clear(alpha[cell], -np.inf, forbidden, cell, 0)
            for a in range(n_interminals):
                if alpha[cell, a] > -np.inf:
                    starts[i, a] = True
                    ends[j, a] = True
    return alpha


@njit(nogil=True)
def add_from_leaf(alpha, cell, rules, leaves, t, other, other_row, space):
    """alpha(A) += P(A -> .. p ..) leaf(p) other(other child), p over word t"""
    for p in range(leaves.shape[1]):
        if leaves[t, p] > -np.inf:
            for rule in range(rules.first[p], rules.first[p + 1]):
                value = math.log(rules.prob[rule]) + leaves[t, p] + other[other_row, rules.other[rule]]
                if value > -np.inf:
                    a = rules.parent[rule]
                    alpha[cell, a] = plus(alpha[cell, a], value, space)


@njit(nogil=True, cache=True)
def outside(grammar: RuleIndex, leaves: np.ndarray, alpha: np.ndarray, forbidden: Forbidden
            ) -> tuple[np.ndarray, np.ndarray]:
    """log beta of in-terminals (cells, I) and of pre-terminals (L, P), of every symbol of the right type."""
    length = len(leaves)
    inner = grammar.inner
    log_prob = np.log(inner.prob)
    beta = np.full(alpha.shape, -np.inf)
    leaf_beta = np.full(leaves.shape, -np.inf)
    if length == 1:
        leaf_beta[0] = np.log(grammar.root_leaf)
    elif length > 1:
        beta[cell_of(0, length, length)] = np.log(grammar.root_inner)
    for j in range(length, 1, -1):
        for i in range(j - 1):
            cell = cell_of(i, j, length)
            if len(forbidden.first) > 0:
                clear(beta[cell], -np.inf, forbidden, cell, 0)
            if j - i == 2:
                give_to_leaf(beta, cell, grammar.two_leaves, leaves, i, leaf_beta, leaves, j - 1, leaf_beta)
            else:
                side = cell_of(i, j - 1, length)
                give_to_leaf(beta, cell, grammar.right_leaf, leaves, j - 1, leaf_beta, alpha, side, beta)
                side = cell_of(i + 1, j, length)
                give_to_leaf(beta, cell, grammar.left_leaf, leaves, i, leaf_beta, alpha, side, beta)
            for q in range(len(inner.left)):
                given = -np.inf
                for rule in range(inner.first[q], inner.first[q + 1]):
                    given = plus(given, log_prob[rule] + beta[cell, inner.parent[rule]], LOG)
                if given == -np.inf:
                    continue
                b, c = inner.left[q], inner.right[q]
                for k in range(i + 2, j - 1):
                    left, right = cell_of(i, k, length), cell_of(k, j, length)
                    if alpha[right, c] > -np.inf:
                        beta[left, b] = plus(beta[left, b], given + alpha[right, c], LOG)
                    if alpha[left, b] > -np.inf:
                        beta[right, c] = plus(beta[right, c], given + alpha[left, b], LOG)
    for t in range(length if len(forbidden.first) > 0 else 0):
        clear(leaf_beta[t], -np.inf, forbidden, cell_of(t, t + 1, length), len(grammar.root_inner))
    return beta, leaf_beta


@njit(nogil=True)
def give_to_leaf(beta, cell, rules, leaves, t, leaf_beta, other, other_row, other_beta):
    """Outside values of a parent for word t at its edge and for the child beside that word."""
    for p in range(leaves.shape[1]):
        for rule in range(rules.first[p], rules.first[p + 1]):
            given = math.log(rules.prob[rule]) + beta[cell, rules.parent[rule]]
            if given == -np.inf:
                continue
            c = rules.other[rule]
            if leaves[t, p] > -np.inf:
                other_beta[other_row, c] = plus(other_beta[other_row, c], given + leaves[t, p], LOG)
            if other[other_row, c] > -np.inf:
                leaf_beta[t, p] = plus(leaf_beta[t, p], given + other[other_row, c], LOG)


def best_tree(grammar: RuleIndex, leaves: np.ndarray, best: np.ndarray) -> BestTree:
    """The most probable tree from log leaves (L, P), L >= 1, and the log probabilities of best subtrees (cells, I)."""
    length = len(leaves)
    top = best[cell_of(0, length, length)] if length > 1 else leaves[0]
    root = log_of(grammar.root_inner if length > 1 else grammar.root_leaf) + top
    if root.max(initial=-np.inf) == -np.inf:
        return BestTree.none()
    nodes = best_nodes(grammar, leaves, best, int(root.argmax()))
    nodes[:, 0] += grammar.n_interminals * (nodes[:, 2] - nodes[:, 1] == 1)  # as the grammar numbers them
    return BestTree(float(root.max()), nodes)


@njit(nogil=True, cache=True)
def best_nodes(grammar: RuleIndex, leaves: np.ndarray, best: np.ndarray, root: int) -> np.ndarray:
    """(2L-1, 3) symbol, i, j of the best tree in preorder, by the values of its subtrees; symbols by type."""
    length = len(leaves)
    nodes = np.zeros((2 * length - 1, 3), np.int64)
    stack = np.zeros((2 * length, 3), np.int64)
    stack[0] = (root, 0, length)
    n_stack, n_nodes = 1, 0
    inner = grammar.inner
    while n_stack:
        n_stack -= 1
        a, i, j = stack[n_stack]
        nodes[n_nodes] = (a, i, j)
        n_nodes += 1
        if j - i == 1:
            continue
        highest, left, right, split = -np.inf, 0, 0, 0
        if j - i == 2:
            highest, left, right = best_leaf_rule(grammar.two_leaves, leaves, i, leaves, j - 1, a)
            split = i + 1
        else:
            value, leaf, other = best_leaf_rule(grammar.right_leaf, leaves, j - 1, best, cell_of(i, j - 1, length), a)
            if value > highest:
                highest, left, right, split = value, other, leaf, j - 1
            value, leaf, other = best_leaf_rule(grammar.left_leaf, leaves, i, best, cell_of(i + 1, j, length), a)
            if value > highest:
                highest, left, right, split = value, leaf, other, i + 1
            for q in range(len(inner.left)):
                for rule in range(inner.first[q], inner.first[q + 1]):
                    if inner.parent[rule] != a:
                        continue
                    b, c = inner.left[q], inner.right[q]
                    for k in range(i + 2, j - 1):
                        left_cell, right_cell = cell_of(i, k, length), cell_of(k, j, length)
                        value = math.log(inner.prob[rule]) + best[left_cell, b] + best[right_cell, c]
                        if value > highest:
                            highest, left, right, split = value, int(b), int(c), k
        stack[n_stack] = (right, split, j)
        stack[n_stack + 1] = (left, i, split)
        n_stack += 2
    return nodes


@njit(nogil=True)
def best_leaf_rule(rules, leaves, t, other, other_row, a):
    """The best rule of parent a with a pre-terminal over word t: its value, the pre-terminal, the other child."""
    highest, best_leaf, best_other = -np.inf, 0, 0
    for p in range(leaves.shape[1]):
        for rule in range(rules.first[p], rules.first[p + 1]):
            if rules.parent[rule] == a:
                value = math.log(rules.prob[rule]) + leaves[t, p] + other[other_row, rules.other[rule]]
                if value > highest:
                    highest, best_leaf, best_other = value, p, int(rules.other[rule])
    return highest, best_leaf, best_other
