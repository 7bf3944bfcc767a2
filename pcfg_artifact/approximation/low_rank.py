"""Low rank: Inside-Outside over few in-terminals, each vector replaced by W+ W of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from pcfg_artifact.approximation.restriction import compact
from pcfg_artifact.approximation.transforms import Transforms, inverse_of, rule_named, transform_of_width
from pcfg_artifact.errors import StageError, UsageError
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.cpu_kernels.rule_index import grouped
from pcfg_artifact.parsing.leaves import Sentence, sentence_leaves

MAX_RESCALINGS = 100  # each brings the widest spans so far near 1; 60 words usually need one or two
DRIFT = 256  # bits: if the largest value of a width is further from 1, leaves need another scale


def projections_of(transforms: Transforms | None, n: int, max_width: int) -> tuple[np.ndarray, np.ndarray]:
    """W and W+ of every width up to max_width: (max_width+1, k, n) and (max_width+1, n, k).

    W of full rank changes nothing but rounding, and rounding would make zeros positive: it is left out (k = 0).
    """
    matrices = [] if transforms is None else [transform_of_width(transforms, w) for w in range(max_width + 1)]
    for matrix in matrices:
        if matrix.ndim != 2 or matrix.shape[1] != n or matrix.shape != matrices[0].shape:
            raise UsageError(f"a transform has shape {matrix.shape}, expected ({matrices[0].shape[0]}, {n}) "
                             f"for every width: one column for each of the {n} in-terminals")
    if not matrices or matrices[0].shape[0] == n:
        return np.zeros((max_width + 1, 0, n)), np.zeros((max_width + 1, n, 0))
    return np.ascontiguousarray(matrices), np.ascontiguousarray([inverse_of(matrix) for matrix in matrices])


@dataclass(frozen=True, eq=False)
class ProjectedChart:
    """inside, outside (L+1, L+1, n) of the in-terminals and leaf_outside (L, P), with leaf t divided by scale[t].

    The true alpha(A, i, j) is inside * prod(scale[i:j]), the true beta outside * prod(scale of the words around).
    """

    inside: np.ndarray
    outside: np.ndarray
    leaf_outside: np.ndarray
    log_scale: np.ndarray

    def span_scores(self) -> np.ndarray:
        """(L+1, L+1): max over A of inside times outside, up to one factor for the sentence; widths >= 2."""
        return np.maximum((self.inside * self.outside).max(axis=-1), 0.0)


class LowRank:
    """The approximate algorithm for one grammar: in-terminals in the order of the columns of W."""

    def __init__(self, grammar: PCFG, interminals: np.ndarray, transforms: Transforms | None, max_length: int,
                 sign_rule: str = "clip", outside_transforms: Transforms | None = None) -> None:
        self.grammar = compact(grammar, interminals)
        self.rule = rule_named(sign_rule)
        n = len(interminals)
        self.max_length = max_length
        self._inside = self._outside = projections_of(transforms, n, max_length)
        if outside_transforms is not None:
            self._outside = projections_of(outside_transforms, n, max_length)
        counts = self.grammar.symbol_counts
        share = np.ones(grammar.n_preterminals) if counts is None else counts[n:]
        self._share = share / share.sum()
        self._rules = rules_of(self.grammar)
        self._floors = (0.0 if self.rule.clips_stored else -np.inf, 0.0 if self.rule.clips_keys else -np.inf)

    def chart(self, leaves: np.ndarray, with_leaves: bool = True) -> ProjectedChart:
        """The chart of one sentence from its (L, P) leaves; leaf_outside is left empty unless `with_leaves`."""
        length, n = len(leaves), self.grammar.n_interminals
        if length > self.max_length:
            raise UsageError(f"the sentence has {length} words, more than max_length {self.max_length}")
        # Leaves divided by the word's unigram probability keep long spans near 1; those that drift are scaled again.
        unigram = leaves @ self._share
        log2_scale = np.log2(unigram, out=np.zeros(length), where=unigram > 0)
        # A projection can remove nearly all of one width and nothing of another, so that no scale suits both.  Then
        # none may overflow, and values smaller by hundreds of orders of magnitude become 0.
        may_be_small = False
        for _ in range(MAX_RESCALINGS):
            scaled = leaves * np.exp2(-log2_scale)[:, None]
            left, right = np.zeros((2, length + 1, n, length + 1))
            bits = fill_inside(self._rules, scaled, *self._inside, *self._floors, left, right, may_be_small)
            if bits == 0.0:
                break
            may_be_small |= bits > 0
            log2_scale += bits
        else:
            raise StageError(f"a sentence of {length} words does not fit into float64 at any scale; shorten max_length")
        beta = np.zeros((length + 1, length + 1, n))
        leaf_beta = np.zeros((length, self.grammar.n_preterminals if with_leaves else 0))
        fill_outside(self._rules, scaled, *self._outside, *self._floors, left, right, beta, leaf_beta)
        return ProjectedChart(np.ascontiguousarray(left.transpose(0, 2, 1)), beta, leaf_beta, log2_scale * np.log(2.0))


def approximate_charts(grammar: PCFG, sentence: Sentence, interminals: np.ndarray, preterminals: np.ndarray,
                       transforms: Transforms | None = None, sign_rule: str = "clip") -> tuple[np.ndarray, np.ndarray]:
    """Inside and outside (L+1, L+1, N) of the approximate algorithm, as probabilities, in the grammar's numbering.

    Inside: all pre-terminals at width 1, `interminals` above.  Outside: `preterminals` at width 1, `interminals` above.
    transforms: width -> W (k, len(interminals)), None for the restriction alone.
    """
    leaves = sentence_leaves(grammar, sentence)
    length = len(leaves)
    chart = LowRank(grammar, interminals, transforms, length, sign_rule).chart(leaves)
    inside, outside = np.zeros((2, length + 1, length + 1, grammar.n_nonterminals))
    fencepost = np.concatenate([[0.0], np.cumsum(chart.log_scale)])
    within = np.triu(np.exp(fencepost[None, :] - fencepost[:, None]))[:, :, None]
    around = np.triu(np.exp(fencepost[-1] - (fencepost[None, :] - fencepost[:, None])))[:, :, None]
    inside[:, :, interminals] = chart.inside * within
    outside[:, :, interminals] = chart.outside * around
    starts = np.arange(length)
    inside[starts, starts + 1, grammar.n_interminals:] = leaves
    outside[starts[:, None], starts[:, None] + 1, preterminals] = (
        chart.leaf_outside[:, preterminals - grammar.n_interminals] * around[starts, starts + 1])
    return inside, outside


# ---- compiled kernels: linear space, one sentence at a time ----------------------------------------------------------
# i < k < j fenceposts; A parent, B left child, C right child; p pre-terminal; n in-terminals are left.
# left[i, B, k] is alpha(B, i, k) and right[j, C, k] is alpha(C, k, j), so both children of a span are read along k.
# For every width >= 2 the vector alpha(., i, j) is replaced by W+ W alpha, and for widths 2 .. L-1 beta likewise; then
# the sign rule applies.  After a projection hardly an entry is 0, so nothing is pruned.


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
def fill_inside(rules: Rules, leaves: np.ndarray, encode: np.ndarray, decode: np.ndarray, stored_floor: float,
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
def fill_outside(rules: Rules, leaves: np.ndarray, encode: np.ndarray, decode: np.ndarray, stored_floor: float,
                 key_floor: float, left: np.ndarray, right: np.ndarray, beta: np.ndarray, leaf_beta: np.ndarray
                 ) -> None:
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
