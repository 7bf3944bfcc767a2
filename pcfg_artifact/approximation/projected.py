"""Inside-Outside over few in-terminals with projected vectors: compiled kernels, linear space, one sentence at a time.

Legend.  i < k < j fenceposts; A parent, B left child, C right child; p pre-terminal; n in-terminals are left.
left[i, B, k] is alpha(B, i, k) and right[j, C, k] is alpha(C, k, j), so both children of a span are read along k.
For every width >= 2 the vector alpha(., i, j) is replaced by W+ W alpha, and for widths 2 .. L-1 beta in the same way;
then the sign rule applies (signs.py).  After a projection hardly an entry is 0, so nothing is pruned.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.cpu_kernels.rule_index import grouped

DRIFT = 256  # bits: if the largest value of a width is further from 1, leaves need another scale


class Group(NamedTuple):
    """Rules in g groups: those of group x are first[x]:first[x + 1], with their parent, their other child and prob."""

    first: np.ndarray
    other: np.ndarray
    parent: np.ndarray
    prob: np.ndarray


class Rules(NamedTuple):
    """A compact grammar by the type of the children.

    inner: A -> B C by distinct pair q, with the children left[q] and right[q]; right_leaf: A -> B p and
    left_leaf: A -> p C by p, `other` being the in-terminal; two_leaves: A -> p p' by p.
    """

    root: np.ndarray
    left: np.ndarray
    right: np.ndarray
    inner: Group
    right_leaf: Group
    left_leaf: Group
    two_leaves: Group


def rules_of(grammar: PCFG) -> Rules:
    n, n_leaves = grammar.n_interminals, grammar.n_preterminals
    left, right = grammar.binary[:, 1].astype(np.int64), grammar.binary[:, 2].astype(np.int64)
    has_left_leaf, has_right_leaf = left >= n, right >= n

    def group(chosen: np.ndarray, key: np.ndarray, n_keys: int, other: np.ndarray) -> Group:
        first, order = grouped(key[chosen], n_keys)
        rules = np.flatnonzero(chosen)[order]
        return Group(first, np.where(other >= n, other - n, other)[rules], grammar.binary[rules, 0].astype(np.int64),
                     grammar.binary_prob[rules])

    is_inner = ~has_left_leaf & ~has_right_leaf
    pairs, pair = np.unique(left[is_inner] * n + right[is_inner], return_inverse=True)
    of_rule = np.zeros(len(left), np.int64)
    of_rule[is_inner] = pair
    return Rules(root=grammar.root[:n].copy(), left=pairs // max(n, 1), right=pairs % max(n, 1),
                 inner=group(is_inner, of_rule, len(pairs), right),
                 right_leaf=group(~has_left_leaf & has_right_leaf, right - n, n_leaves, left),
                 left_leaf=group(has_left_leaf & ~has_right_leaf, left - n, n_leaves, right),
                 two_leaves=group(has_left_leaf & has_right_leaf, left - n, n_leaves, right))


@njit(nogil=True, cache=True)
def inside(rules: Rules, leaves: np.ndarray, encode: np.ndarray, decode: np.ndarray, stored_floor: float,
           key_floor: float, left: np.ndarray, right: np.ndarray, may_be_small: bool) -> float:
    """Fill left and right (L+1, n, L+1), given as zeros; returns 0, or the bits per word to take off the leaves.

    encode (widths, k, n), decode (widths, n, k): W and W+ of every width, k = 0 for no projection.
    stored_floor, key_floor: least value that is stored, and that a key keeps: 0 or -inf.
    may_be_small: only values that grow too large are a reason to stop.
    """
    length = len(leaves)
    n = len(rules.root)
    inner, right_leaf, left_leaf, two_leaves = rules.inner, rules.right_leaf, rules.left_leaf, rules.two_leaves
    total = np.zeros(n)
    for width in range(2, length + 1):
        largest = 0.0
        for i in range(length - width + 1):
            j = i + width
            total[:] = 0.0
            if width == 2:
                for p in np.flatnonzero(leaves[i]):
                    for rule in range(two_leaves.first[p], two_leaves.first[p + 1]):
                        total[two_leaves.parent[rule]] += (
                            two_leaves.prob[rule] * leaves[i, p] * leaves[i + 1, two_leaves.other[rule]])
            else:
                for p in np.flatnonzero(leaves[j - 1]):  # A -> B p
                    for rule in range(right_leaf.first[p], right_leaf.first[p + 1]):
                        beside = max(left[i, right_leaf.other[rule], j - 1], key_floor)
                        total[right_leaf.parent[rule]] += right_leaf.prob[rule] * leaves[j - 1, p] * beside
                for p in np.flatnonzero(leaves[i]):  # A -> p C
                    for rule in range(left_leaf.first[p], left_leaf.first[p + 1]):
                        total[left_leaf.parent[rule]] += (
                            left_leaf.prob[rule] * leaves[i, p] * right[j, left_leaf.other[rule], i + 1])
            if width >= 4:
                for pair in range(len(rules.left)):
                    b, c = rules.left[pair], rules.right[pair]
                    product = 0.0
                    for k in range(i + 2, j - 1):
                        product += max(left[i, b, k], key_floor) * right[j, c, k]
                    if product != 0.0:
                        for rule in range(inner.first[pair], inner.first[pair + 1]):
                            total[inner.parent[rule]] += inner.prob[rule] * product
            project(total, encode[width], decode[width], stored_floor)
            for a in range(n):
                left[i, a, j] = total[a]
                right[j, a, i] = total[a]
                largest = max(largest, abs(total[a]))
        if largest != 0.0:
            bits = math.frexp(largest)[1] if largest < np.inf else 1024
            if bits > DRIFT or (bits < -DRIFT and not may_be_small):
                return bits / width
    return 0.0


@njit(nogil=True, cache=True)
def outside(rules: Rules, leaves: np.ndarray, encode: np.ndarray, decode: np.ndarray, stored_floor: float,
            key_floor: float, left: np.ndarray, right: np.ndarray, beta: np.ndarray, leaf_beta: np.ndarray) -> None:
    """Fill beta (L+1, L+1, n) and leaf_beta (L, P), given as zeros; leaf_beta of size 0 is not computed.

    A sentence of one word has no outside: the root is cut to in-terminals.
    """
    length = len(leaves)
    n = len(rules.root)
    inner, right_leaf, left_leaf, two_leaves = rules.inner, rules.right_leaf, rules.left_leaf, rules.two_leaves
    gives_leaves = leaf_beta.size > 0
    as_left, as_right = np.zeros_like(left), np.zeros_like(right)  # what a span receives as a left or a right child
    parent, key_parent = np.zeros(n), np.zeros(n)
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            j = i + width
            if width == length:
                parent[:] = rules.root
            else:
                parent[:] = as_left[i, :, j] + as_right[j, :, i]
                project(parent, encode[width], decode[width], stored_floor)
            is_reached = False
            for a in range(n):
                beta[i, j, a] = parent[a]
                key_parent[a] = max(parent[a], key_floor)
                is_reached |= parent[a] != 0.0
            if not is_reached:
                continue
            if width == 2:
                for p in range(leaves.shape[1]):
                    if gives_leaves:
                        for rule in range(two_leaves.first[p], two_leaves.first[p + 1]):
                            a, c = two_leaves.parent[rule], two_leaves.other[rule]
                            leaf_beta[i, p] += two_leaves.prob[rule] * parent[a] * leaves[i + 1, c]
                            leaf_beta[i + 1, c] += two_leaves.prob[rule] * key_parent[a] * leaves[i, p]
                continue
            for p in range(leaves.shape[1]):
                seen = leaves[j - 1, p]
                if gives_leaves or seen != 0.0:  # A -> B p
                    for rule in range(right_leaf.first[p], right_leaf.first[p + 1]):
                        a, b, prob = right_leaf.parent[rule], right_leaf.other[rule], right_leaf.prob[rule]
                        as_left[i, b, j - 1] += prob * parent[a] * seen
                        if gives_leaves:
                            leaf_beta[j - 1, p] += prob * key_parent[a] * left[i, b, j - 1]
                seen = leaves[i, p]
                if gives_leaves or seen != 0.0:  # A -> p C
                    for rule in range(left_leaf.first[p], left_leaf.first[p + 1]):
                        a, c, prob = left_leaf.parent[rule], left_leaf.other[rule], left_leaf.prob[rule]
                        as_right[j, c, i + 1] += prob * key_parent[a] * seen
                        if gives_leaves:
                            leaf_beta[i, p] += prob * parent[a] * max(right[j, c, i + 1], key_floor)
            if width >= 4:
                for pair in range(len(rules.left)):
                    b, c = rules.left[pair], rules.right[pair]
                    given, key_given = 0.0, 0.0
                    for rule in range(inner.first[pair], inner.first[pair + 1]):
                        given += inner.prob[rule] * parent[inner.parent[rule]]
                        key_given += inner.prob[rule] * key_parent[inner.parent[rule]]
                    if given != 0.0 or key_given != 0.0:
                        for k in range(i + 2, j - 1):
                            as_left[i, b, k] += given * max(right[j, c, k], key_floor)
                            as_right[j, c, k] += key_given * left[i, b, k]


@njit(inline="always")
def project(vector, encode, decode, stored_floor):
    """vector <- W+ W vector, then the sign rule for what is stored; without W nothing happens."""
    k, n = encode.shape
    if k == 0:
        return
    code = np.zeros(k)
    for r in range(k):
        for a in range(n):
            code[r] += encode[r, a] * vector[a]
    for a in range(n):
        value = 0.0
        for r in range(k):
            value += decode[a, r] * code[r]
        vector[a] = max(value, stored_floor)
