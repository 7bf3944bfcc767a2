"""Infixes: what neighbouring words say of one of them, summed exactly over all sentences that hold them.

Nederhof and Satta (2011) compute infix probabilities by Inside over the words and a loop at each end, on which any
words may stand; where an end is the sentence's own there is no loop.  A cell at a loop may have a child all of whose
words stand on the loop; chains of such children are summed by factors made once for a grammar (prefix_grammar.Closure).
Here cells hold expected numbers of occurrences, so that the outside values of one position predict its word.

Legend.  m words, fenceposts 0 .. m; A parent, pair q of children; inside[i, j] and outside[i, j] are (N,).
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix

from pcfg_artifact.errors import GrammarError
from pcfg_artifact.grammar.expectation import spectral_radius
from pcfg_artifact.grammar.pcfg import PCFG
from pcfg_artifact.parsing.prefix.prefix_grammar import (
    Closure,
    Tables,
    closure_of,
    prefix_grammar,
    solve,
    solve_transposed,
)


class InfixTables(NamedTuple):
    """The rules, and factors that sum chains of right children, of left children, and of both."""

    rules: Tables
    right_chains: Closure
    left_chains: Closure
    all_chains: Closure


_compiled: WeakKeyDictionary[PCFG, InfixTables] = WeakKeyDictionary()


def infix_tables(grammar: PCFG) -> InfixTables:
    """Built once; refused where sentences have no finite expected length, and so infixes no expected number."""
    if grammar not in _compiled:
        if not (radius := spectral_radius(grammar)) < 1.0:
            raise GrammarError(f"the spectral radius of the grammar is {radius:.6f}, expected below 1: its sentences "
                               f"have no finite expected length, so that nothing can be said of some words of one")
        tables, n = prefix_grammar(grammar).tables, grammar.n_interminals
        pair = np.repeat(np.arange(len(tables.left)), np.diff(tables.first))
        left, right = (csr_matrix((tables.prob, (tables.parent, child[pair])), (n, grammar.n_nonterminals))[:, :n]
                       for child in (tables.left, tables.right))
        _compiled[grammar] = InfixTables(tables, closure_of(right), tables.closure, closure_of(left + right))
    return _compiled[grammar]


def infix_outside(grammar: PCFG, leaves: np.ndarray, position: int, *, begins: bool, ends: bool) -> np.ndarray:
    """(P,) expected number of sentence positions of each pre-terminal with these surroundings.

    leaves (m, P): P(A -> w) of each word, 1 for every pre-terminal where any word may stand; what stands at `position`
    is ignored.  begins, ends: whether the first word is the sentence's first, the last its last.
    """
    leaves = leaves.astype(np.float64)
    leaves[position] = 1.0
    inside, outside = (np.zeros((len(leaves) + 1,) * 2 + (grammar.n_nonterminals,)) for _ in range(2))
    _fill(infix_tables(grammar), leaves, begins, ends, inside, outside)
    return outside[position, position + 1, grammar.n_interminals:]


@njit(nogil=True, cache=True)
def _fill(grammar, leaves, begins, ends, inside, outside):
    m, n = len(leaves), inside.shape[2] - leaves.shape[1]
    for t in range(m):
        inside[t, t + 1, n:] = leaves[t]
    inside[0, 0] = 0.0 if begins else 1.0  # all words of a child on the loop
    inside[m, m] = 0.0 if ends else 1.0
    total = np.empty(n)
    for width in range(1, m + 1):
        for i in range(m - width + 1):
            j = i + width
            total[:] = 0.0
            for k in range(i if width == 1 and i == 0 else i + 1, j + 1 if width == 1 and j == m else j):
                _combine(grammar.rules, inside[i, k], inside[k, j], total)
            inside[i, j, :n] = _chains(grammar, total, i == 0 and not begins, j == m and not ends, False)
    outside[0, m] = grammar.rules.root
    for width in range(m, 0, -1):
        for i in range(m - width + 1):
            j = i + width
            given = _chains(grammar, outside[i, j, :n].copy(), i == 0 and not begins, j == m and not ends, True)
            for k in range(i if width == 1 and i == 0 else i + 1, j + 1 if width == 1 and j == m else j):
                _divide(grammar.rules, given, inside[i, k], inside[k, j], outside[i, k], outside[k, j])


@njit(nogil=True)
def _chains(grammar, values, is_open_left, is_open_right, transposed):
    """Values of a cell with those of all chains of children that leave one side to a loop."""
    if is_open_left and is_open_right:
        closure = grammar.all_chains
    elif is_open_left:
        closure = grammar.right_chains
    elif is_open_right:
        closure = grammar.left_chains
    else:
        return values
    return solve_transposed(closure, values) if transposed else solve(closure, values)


@njit(nogil=True)
def _combine(rules, left, right, total):
    """total[A] += P(A -> B C) left[B] right[C], over all rules."""
    for q in range(len(rules.left)):
        weight = left[rules.left[q]]
        if weight != 0.0:
            weight *= right[rules.right[q]]
            if weight != 0.0:
                for e in range(rules.first[q], rules.first[q + 1]):
                    total[rules.parent[e]] += weight * rules.prob[e]


@njit(nogil=True)
def _divide(rules, given, left, right, to_left, to_right):
    """The derivative of _combine.  What has no inside value cannot hold the position that is asked for: any word may
    stand there."""
    for q in range(len(rules.left)):
        first, second = left[rules.left[q]], right[rules.right[q]]
        if first != 0.0 and second != 0.0:
            weight = 0.0
            for e in range(rules.first[q], rules.first[q + 1]):
                weight += given[rules.parent[e]] * rules.prob[e]
            to_left[rules.left[q]] += weight * second
            to_right[rules.right[q]] += weight * first
