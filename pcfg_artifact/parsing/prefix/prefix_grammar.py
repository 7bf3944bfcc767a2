"""A grammar made ready for reading from left to right: finite trees only, and the left-corner closure.

Left corners.  P_L(A, B) = sum over C of P(A -> B C).  R = (1 - P_L)^-1 sums over all chains of left children: R(A, B)
is the expected number of B that begin where an A begins.  It exists if the spectral radius of P_L is below 1.
Sparse factors of 1 - P_L stand for R: no row of R is ever needed whole, and R itself is dense.

Finite trees.  A prefix has the probability of all sentences that begin with it, and a sentence is finite.  Where trees
of the grammar end with probability z(A) < 1, its rules are turned into those of the same trees given that they end,
P(A -> B C) z(B) z(C) / z(A): proper rules, whose trees end with probability 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from scipy.sparse import csc_matrix, csr_matrix, identity, tril, triu
from scipy.sparse.linalg import splu

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.expectation import component_radii, spectral_radius
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.grammar.sampling import shortest_yield
from pcfg_artifact.parsing.cpu_kernels.rule_index import INDEX
from pcfg_artifact.parsing.cpu_kernels.semiring import plus, times, zero

PROPER = 1e-13  # rules that sum to 1 within this are proper: the rounding of about a thousand additions
CRITICAL = 1e-9  # above 1: a spectral radius of 1 may be computed as slightly more
MAX_NEWTON_STEPS = 200  # from 0 each step at least halves the error, even where the radius is exactly 1


class Closure(NamedTuple):
    """Sparse triangular factors of 1 - P_L over in-terminals, columns one after the other.

    Row a of the matrix is row row_rank[a] of the factors, column a is column column_rank[a].  Lower has an implicit
    diagonal of 1; all entries beside the diagonals are negative or 0, so that solving only adds.
    """

    row_rank: np.ndarray
    column_rank: np.ndarray
    lower_first: np.ndarray
    lower_row: np.ndarray
    lower: np.ndarray
    upper_first: np.ndarray
    upper_row: np.ndarray
    upper: np.ndarray
    diagonal: np.ndarray


class Tables(NamedTuple):
    """Rules as flat arrays; symbols are numbered as in the PCFG, in-terminals first, and impossible rules left out.

    Pair q has the children left[q], right[q] and the rules first[q]:first[q + 1] (parent, prob); pairs are sorted by
    left child, those of B are left_first[B]:left_first[B + 1], and those of right child C are
    by_right[right_first[C]:right_first[C + 1]].  corner: P_L(A, .) by in-terminal A.  head: P(p -> w) by word w,
    word: the same by pre-terminal p - I.  log_closure (I, I) is log R; in linear space it is empty.
    """

    root: np.ndarray
    left: np.ndarray
    right: np.ndarray
    first: np.ndarray
    parent: np.ndarray
    prob: np.ndarray
    left_first: np.ndarray
    by_right: np.ndarray
    right_first: np.ndarray
    corner_first: np.ndarray
    corner: np.ndarray
    corner_prob: np.ndarray
    head_first: np.ndarray
    head: np.ndarray
    head_prob: np.ndarray
    word_first: np.ndarray
    word: np.ndarray
    word_prob: np.ndarray
    closure: Closure
    log_closure: np.ndarray


@dataclass(frozen=True, eq=False)
class PrefixGrammar:
    """A PCFG, the log of the total probability of its finite trees, and the rules of these trees."""

    pcfg: PCFG
    log_total: float
    tables: Tables

    @cached_property
    def log_tables(self) -> Tables:
        """The same with logarithms in place of probabilities."""
        n_interminals = self.pcfg.n_interminals
        closure = solve_columns(self.tables.closure, np.eye(n_interminals))
        with np.errstate(divide="ignore"):
            logs = {name: np.log(getattr(self.tables, name)) for name in ("root", "prob", "corner_prob", "head_prob",
                                                                         "word_prob")}
            return self.tables._replace(**logs, log_closure=np.log(closure))

    @property
    def smallest_prob(self) -> float:
        """The smallest probability of a rule that is not 0."""
        return float(min(self.tables.prob.min(initial=1.0), self.tables.head_prob.min(initial=1.0)))


_compiled: WeakKeyDictionary[PCFG, PrefixGrammar] = WeakKeyDictionary()


def prefix_grammar(pcfg: PCFG) -> PrefixGrammar:
    """The grammar ready for prefixes, built once; refused if R does not exist or no tree is finite."""
    if pcfg not in _compiled:
        check_left_corners(pcfg)
        ends = termination(pcfg)
        total = float(pcfg.root @ ends)
        if not total > 0:
            raise GrammarError("no tree of the grammar is finite: every root symbol has only rules that lead back to "
                               "themselves; add rules that end")
        _compiled[pcfg] = PrefixGrammar(pcfg, float(np.log(total)), _tables(pcfg, ends, total))
    return _compiled[pcfg]


# ---- does it exist ---------------------------------------------------------------------------------------------------


def left_corner_matrix(pcfg: PCFG, binary: np.ndarray, prob: np.ndarray) -> csr_matrix:
    """(I, N) P_L(A, B) = sum over C of P(A -> B C), of these rules."""
    matrix = csr_matrix((prob, (binary[:, 0], binary[:, 1])), shape=(pcfg.n_interminals, pcfg.n_nonterminals))
    matrix.eliminate_zeros()
    return matrix


def check_left_corners(pcfg: PCFG) -> None:
    """Refuse a grammar whose P_L has a spectral radius of 1 or more, by name of the symbols that cause it."""
    matrix = left_corner_matrix(pcfg, pcfg.binary, pcfg.binary_prob)[:, :pcfg.n_interminals]
    for radius, members in component_radii(matrix):
        if not radius < 1.0 - PROPER:
            names = ", ".join(pcfg.interminals[a] for a in members[:5]) + (", .." if len(members) > 5 else "")
            raise GrammarError(
                f"the left-corner matrix of the grammar has spectral radius {radius:.6f}, expected below 1: a tree of "
                f"{names} begins with the same symbols again and again and never comes to its first word, so that "
                f"next-word probabilities do not exist; remove these rules or add some that begin with another symbol")


def termination(pcfg: PCFG) -> np.ndarray:
    """(N,) total probability z(A) of the finite trees of each symbol: the least solution of
    z(A) = sum over B, C of P(A -> B C) z(B) z(C), with z(p) = the mass of the words of p; exactly 1 where all end."""
    mass = pcfg.rule_mass()
    is_productive = np.isfinite(shortest_yield(pcfg))
    is_proper = bool(np.abs(mass - 1.0).max() <= PROPER) and bool(is_productive.all())
    if is_proper and spectral_radius(pcfg) <= 1.0 + CRITICAL:
        return np.ones(pcfg.n_nonterminals)
    ends = np.where(np.arange(pcfg.n_nonterminals) < pcfg.n_interminals, 0.0, mass)
    rules = is_productive[pcfg.binary].all(axis=1) & (pcfg.binary_prob > 0)
    (parent, left, right), prob = pcfg.binary[rules].T, pcfg.binary_prob[rules]
    n = pcfg.n_interminals
    for _ in range(MAX_NEWTON_STEPS):
        residual = np.bincount(parent, prob * ends[left] * ends[right], minlength=n)[:n] - ends[:n]
        values = np.concatenate([prob * ends[right], prob * ends[left]])
        places = np.concatenate([parent, parent]), np.concatenate([left, right])
        slope = csc_matrix((values, places), shape=(n, pcfg.n_nonterminals))[:, :n]
        try:
            step = splu((identity(n, format="csc") - slope).tocsc()).solve(residual) if n else residual
        except RuntimeError:  # exactly singular: a double root, reached as closely as float64 can
            return ends
        if not np.abs(step).max(initial=0.0) > np.finfo(np.float64).eps:
            return ends
        ends[:n] += np.maximum(step, 0.0)  # from 0 the steps only rise; what falls is rounding
    return ends


# ---- tables ----------------------------------------------------------------------------------------------------------


def _tables(pcfg: PCFG, ends: np.ndarray, total: float) -> Tables:
    """Rules given that trees end, divided by their own sum so that they are proper to the last digit."""
    n, n_interminals = pcfg.n_nonterminals, pcfg.n_interminals
    (parent, left, right), prob, head_prob, root = pcfg.binary.T, pcfg.binary_prob, pcfg.lexical_prob, pcfg.root
    if not (ends == 1.0).all() or abs(total - 1.0) > PROPER:
        prob, root = prob * ends[left] * ends[right], root * ends
        mass = np.bincount(np.concatenate([parent, pcfg.lexical[:, 0]]), np.concatenate([prob, head_prob]), minlength=n)
        mass = np.where(mass > 0, mass, 1.0)
        prob, head_prob, root = prob / mass[parent], head_prob / mass[pcfg.lexical[:, 0]], root / root.sum()
    possible = prob > 0
    parent, left, right, prob = parent[possible], left[possible], right[possible], prob[possible]

    pairs, pair_of_rule, n_rules = np.unique(np.stack([left, right], axis=1), axis=0, return_inverse=True,
                                             return_counts=True)
    order = np.lexsort((parent, pair_of_rule.reshape(-1)))
    by_right = np.argsort(pairs[:, 1], kind="stable")
    symbols = np.arange(n + 1)
    corners = left_corner_matrix(pcfg, np.stack([parent, left], axis=1), prob)
    (head, word), emitted = pcfg.lexical.T, head_prob > 0
    emissions = csr_matrix((head_prob[emitted], (word[emitted], head[emitted])), shape=(pcfg.n_words, n))
    words = emissions.T.tocsr()[n_interminals:]
    return Tables(
        root=root.astype(np.float64), left=pairs[:, 0].astype(INDEX), right=pairs[:, 1].astype(INDEX),
        first=np.append(0, np.cumsum(n_rules)).astype(np.int64), parent=parent[order].astype(INDEX), prob=prob[order],
        left_first=np.searchsorted(pairs[:, 0], symbols), by_right=by_right,
        right_first=np.searchsorted(pairs[by_right, 1], symbols),
        corner_first=corners.indptr.astype(np.int64), corner=corners.indices.astype(INDEX), corner_prob=corners.data,
        head_first=emissions.indptr.astype(np.int64), head=emissions.indices.astype(INDEX), head_prob=emissions.data,
        word_first=words.indptr.astype(np.int64), word=words.indices.astype(INDEX), word_prob=words.data,
        closure=closure_of(corners[:, :n_interminals]), log_closure=np.zeros((0, 0)))


def closure_of(corners: csr_matrix) -> Closure:
    """Factors of 1 - P_L, or of other children, with the pivots on the diagonal: then every step of a solution adds
    what is not negative."""
    n = corners.shape[0]
    if n == 0:
        none, first, index = np.zeros(0), np.zeros(1, np.int64), np.zeros(0, np.int64)
        return Closure(index, index, first, index, none, first, index, none, none)
    factors = splu((identity(n, format="csc") - corners).tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
                   options={"SymmetricMode": True})
    diagonal = factors.U.diagonal()
    lower, upper = tril(factors.L, -1, format="csc"), triu(factors.U, 1, format="csc")
    return Closure(factors.perm_r.astype(np.int64), factors.perm_c.astype(np.int64),
                   lower.indptr.astype(np.int64), lower.indices.astype(np.int64), lower.data,
                   upper.indptr.astype(np.int64), upper.indices.astype(np.int64), upper.data, diagonal)


# ---- sums over chains of left children, R = (1 - P_L)^-1: compiled kernels -------------------------------------------


@njit(nogil=True)
def solve(closure, vector):
    """R v, by the sparse factors."""
    n = len(vector)
    y = np.empty(n)
    for a in range(n):
        y[closure.row_rank[a]] = vector[a]
    for j in range(n):
        if y[j] != 0.0:
            for e in range(closure.lower_first[j], closure.lower_first[j + 1]):
                y[closure.lower_row[e]] -= closure.lower[e] * y[j]
    for j in range(n - 1, -1, -1):
        if y[j] != 0.0:
            y[j] /= closure.diagonal[j]
            for e in range(closure.upper_first[j], closure.upper_first[j + 1]):
                y[closure.upper_row[e]] -= closure.upper[e] * y[j]
    found = np.empty(n)
    for a in range(n):
        found[a] = y[closure.column_rank[a]]
    return found


@njit(nogil=True)
def solve_transposed(closure, vector):
    """v R, by the sparse factors."""
    n = len(vector)
    y = np.empty(n)
    for a in range(n):
        y[closure.column_rank[a]] = vector[a]
    for j in range(n):
        total = y[j]
        for e in range(closure.upper_first[j], closure.upper_first[j + 1]):
            total -= closure.upper[e] * y[closure.upper_row[e]]
        y[j] = total / closure.diagonal[j]
    for j in range(n - 1, -1, -1):
        total = y[j]
        for e in range(closure.lower_first[j], closure.lower_first[j + 1]):
            total -= closure.lower[e] * y[closure.lower_row[e]]
        y[j] = total
    found = np.empty(n)
    for a in range(n):
        found[a] = y[closure.row_rank[a]]
    return found


@njit(nogil=True, cache=True)
def solve_columns(closure: Closure, columns: np.ndarray) -> np.ndarray:
    """R times a matrix (I, n)."""
    found = np.empty_like(columns)
    for c in range(columns.shape[1]):
        found[:, c] = solve(closure, columns[:, c].copy())
    return found


@njit(nogil=True)
def begun_by(closure, log_closure, vector, space):
    """(I,) v R: what begins where the symbols of v begin."""
    if space is None:
        return solve_transposed(closure, vector)
    found = np.full(len(vector), -np.inf)
    for a in range(len(vector)):
        if vector[a] != -np.inf:
            for b in range(len(vector)):
                found[b] = plus(found[b], vector[a] + log_closure[a, b], space)
    return found


@njit(nogil=True)
def begun_with(closure, log_closure, vector, space):
    """(I,) R v: the value of a symbol from those of the symbols that it may begin with."""
    if space is None:
        return solve(closure, vector)
    found = np.full(len(vector), -np.inf)
    for a in range(len(vector)):
        for b in range(len(vector)):
            found[a] = plus(found[a], log_closure[a, b] + vector[b], space)
    return found


@njit(nogil=True)
def add_left_children(corner_first, corner, corner_prob, vector, total, space):
    """total(B) += sum over A of v(A) P_L(A, B)"""
    for a in range(len(vector)):
        if vector[a] != zero(space):
            for e in range(corner_first[a], corner_first[a + 1]):
                total[corner[e]] = plus(total[corner[e]], times(vector[a], corner_prob[e], space), space)
