"""Looking back from a prefix: the probability of every node of the words read, and of what has begun; compiled kernels.

Legend and scaling are those of prefix_kernels.py.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from pcfg_artifact.parsing.chart_index import column_cell_of
from pcfg_artifact.parsing.cpu_kernels.semiring import Space, one, over, plus, times, zero
from pcfg_artifact.parsing.prefix.left_corners import add_left_children, begun_by, begun_with
from pcfg_artifact.parsing.prefix.prefix_grammar import Tables
from pcfg_artifact.parsing.prefix.prefix_kernels import (
    INLINED_EXACT,
    WORD,
    State,
    clear_column,
    enter_right,
    find_live_pairs,
    lowest,
    without_lowest,
)


@njit(nogil=True, cache=True)
def n_begun(grammar: Tables, state: State, i: int, word: int, space: Space) -> float:
    """Expected number of constituents of two words or more that begin with word i + 1, given words 1 .. i + 1.

    They are the symbols between what begins at i, after a left sibling or at the root, and the word's pre-terminal:
    forward[i] R counts each chain of left corners once for every symbol on it.
    """
    n_interminals = len(grammar.corner_first) - 1
    chains = begun_by(grammar.closure, grammar.log_closure, state.forward[i, :n_interminals], space)
    above = np.full(len(grammar.root), zero(space))
    add_left_children(grammar.corner_first, grammar.corner, grammar.corner_prob, chains, above, space)
    counted, total = zero(space), zero(space)
    for e in range(grammar.head_first[word], grammar.head_first[word + 1]):
        p, prob = grammar.head[e], grammar.head_prob[e]
        counted = plus(counted, times(above[p], prob, space), space)
        total = plus(total, times(state.forward[i, p], prob, space), space)
    found = over(counted, total, space)
    return found if space is None else math.exp(found)


@njit(nogil=True)
def give_from_unfinished(grammar, state, t, beta, space):
    """beta of left children, from parents that have more to come.

    unfinished[k, C] is the probability, over that of the words, that a C beginning at k yields words k+1 .. t and has
    more to come; anything may begin at t.
    """
    n_pairs, n_interminals = len(grammar.left), len(grammar.corner_first) - 1
    unfinished = np.full((t + 1, len(grammar.root)), zero(space))
    unfinished[t] = one(space)
    for h in range(t - 1, -1, -1):
        from_pairs, from_rules = np.full(n_pairs, zero(space)), np.full(n_interminals, zero(space))
        for k in range(h + 1, t + 1):
            cell = column_cell_of(h, k)
            for entry in range(state.offsets[cell], state.offsets[cell + 1]):
                b, received = state.symbols[entry], zero(space)
                for q in range(grammar.left_first[b], grammar.left_first[b + 1]):
                    weight, to_come = state.pair_weight[h, q], unfinished[k, grammar.right[q]]
                    if weight != zero(space) and to_come != zero(space):
                        received = plus(received, times(weight, to_come, space), space)
                        from_pairs[q] = plus(from_pairs[q], times(state.values[entry], to_come, space), space)
                beta[state.row_of[h, b], k] = received
        for q in range(n_pairs):
            if from_pairs[q] != zero(space):
                for rule in range(grammar.first[q], grammar.first[q + 1]):
                    a = grammar.parent[rule]
                    from_rules[a] = plus(from_rules[a], times(grammar.prob[rule], from_pairs[q], space), space)
        values = begun_with(grammar.closure, grammar.log_closure, from_rules, space)
        for a in range(n_interminals):
            if state.forward[h, a] != zero(space):
                unfinished[h, a] = values[a]


@INLINED_EXACT
def give_to_children(grammar, state, i, j, parent, beta, right_beta, space):
    """beta of both children of every split of (i, j), from the values of its parents."""
    for mask_word in range((i + 1) // WORD, (j - 1) // WORD + 1):
        for m in range(find_live_pairs(grammar, state, i, j, mask_word)):
            q, splits = state.live_pair[m], state.live_mask[m]
            given = zero(space)
            for rule in range(grammar.first[q], grammar.first[q + 1]):
                given = plus(given, times(grammar.prob[rule], parent[grammar.parent[rule]], space), space)
            if given == zero(space):
                continue
            row, c = state.row_of[i, grammar.left[q]], grammar.right[q]
            while splits != 0:
                k = lowest(mask_word, splits)
                beta[row, k] = plus(beta[row, k], times(given, state.right[c, k], space), space)
                right_beta[c, k] = plus(right_beta[c, k], times(given, state.alpha[row, k], space), space)
                splits = without_lowest(splits)


@njit(nogil=True, cache=True)
def posteriors(grammar: Tables, state: State, t: int, has_ended: bool, space: Space) -> np.ndarray:
    """(entries of columns 1 .. t,) probability of every node, given words 1 .. t, and the end if it was read.

    A node receives from parents that are complete, and from those that are not.
    """
    n, offsets, symbols, values = len(grammar.root), state.offsets, state.symbols, state.values
    found, end = np.zeros(offsets[column_cell_of(0, t) + 1]), one(space)
    beta = np.full((state.n_rows[0], t + 1), zero(space))
    parent, right_beta = np.full(n, zero(space)), np.full((n, t + 1), zero(space))
    if has_ended:
        end = zero(space)
        for entry in range(offsets[column_cell_of(0, t)], len(found)):
            end = plus(end, times(grammar.root[symbols[entry]], values[entry], space), space)
        if end == zero(space):
            return found
    else:
        give_from_unfinished(grammar, state, t, beta, space)
    for j in range(t, 0, -1):
        for i in range(j):
            for entry in range(offsets[column_cell_of(i, j)], offsets[column_cell_of(i, j) + 1]):
                enter_right(grammar.right_first, grammar.by_right, state.is_right, state.right_pairs, state.right,
                            state.right_mask, symbols[entry], i, values[entry])
                right_beta[symbols[entry], i] = zero(space)
        for i in range(j):
            first, last = offsets[column_cell_of(i, j)], offsets[column_cell_of(i, j) + 1]
            for entry in range(first, last):
                a = symbols[entry]
                parent[a] = plus(beta[state.row_of[i, a], j], right_beta[a, i], space)
                if i == 0 and j == t:
                    parent[a] = plus(parent[a], over(grammar.root[a], end, space), space)
                posterior = times(parent[a], values[entry], space)
                found[entry] = posterior if space is None else math.exp(posterior)
            if j - i > 1:
                give_to_children(grammar, state, i, j, parent, beta, right_beta, space)
            for entry in range(first, last):
                parent[symbols[entry]] = zero(space)
        clear_column(state)
    return found
