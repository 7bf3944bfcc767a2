"""Looking back from a prefix: the probability of every node of the words read, and of what has begun; compiled kernels.

Legend and scaling are those of prefix_kernels.py.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from pcfg_artifact.parsing.chart_index import column_cell_of
from pcfg_artifact.parsing.cpu_kernels.semiring import one, over, plus, times, zero
from pcfg_artifact.parsing.prefix.left_corners import add_left_children, begun_by, begun_with
from pcfg_artifact.parsing.prefix.prefix_grammar import Tables
from pcfg_artifact.parsing.prefix.prefix_kernels import (
    WORD,
    State,
    bits_between,
    clear_column,
    enter_right,
    find_live_pairs,
    lowest,
    without_lowest,
)


@njit(nogil=True, cache=True)
def n_begun(grammar: Tables, state: State, i: int, word: int, log: bool | None) -> float:
    """Expected number of constituents of two words or more that begin with word i + 1, given words 1 .. i + 1.

    They are the symbols between what begins at i, after a left sibling or at the root, and the word's pre-terminal:
    forward[i] R counts each chain of left corners once for every symbol on it.
    """
    n_interminals = len(grammar.corner_first) - 1
    chains = begun_by(grammar.closure, grammar.log_closure, state.forward[i, :n_interminals], log)
    above = np.full(len(grammar.root), zero(log))
    add_left_children(grammar.corner_first, grammar.corner, grammar.corner_prob, chains, above, log)
    counted, total = zero(log), zero(log)
    for e in range(grammar.head_first[word], grammar.head_first[word + 1]):
        p, prob = grammar.head[e], grammar.head_prob[e]
        counted = plus(counted, times(above[p], prob, log), log)
        total = plus(total, times(state.forward[i, p], prob, log), log)
    found = over(counted, total, log)
    return found if log is None else math.exp(found)


@njit(nogil=True, cache=True)
def posteriors(grammar: Tables, state: State, t: int, has_ended: bool, log: bool | None) -> np.ndarray:
    """(entries of columns 1 .. t,) probability of every node, given words 1 .. t, and the end if it was read.

    unfinished[k, C] is the probability, over that of the words, that a C beginning at k yields words k+1 .. t and has
    more to come; anything may begin at t.  A node receives from parents that are complete, and from those that are not.
    """
    n, n_interminals = len(grammar.root), len(grammar.corner_first) - 1
    n_entries = state.offsets[column_cell_of(0, t) + 1]
    unfinished = np.full((t + 1, n), zero(log))
    beta = np.full((state.n_rows[0], t + 1), zero(log))
    if not has_ended:
        unfinished[t] = one(log)
        for h in range(t - 1, -1, -1):
            from_pairs, from_rules = np.full(len(grammar.left), zero(log)), np.full(n_interminals, zero(log))
            for k in range(h + 1, t + 1):
                cell = column_cell_of(h, k)
                for entry in range(state.offsets[cell], state.offsets[cell + 1]):
                    b, received = state.symbols[entry], zero(log)
                    for q in range(grammar.left_first[b], grammar.left_first[b + 1]):
                        weight, to_come = state.pair_weight[h, q], unfinished[k, grammar.right[q]]
                        if weight != zero(log) and to_come != zero(log):
                            received = plus(received, times(weight, to_come, log), log)
                            from_pairs[q] = plus(from_pairs[q], times(state.values[entry], to_come, log), log)
                    beta[state.row_of[h, b], k] = received
            for q in range(len(grammar.left)):
                if from_pairs[q] != zero(log):
                    for rule in range(grammar.first[q], grammar.first[q + 1]):
                        a = grammar.parent[rule]
                        from_rules[a] = plus(from_rules[a], times(grammar.prob[rule], from_pairs[q], log), log)
            values = begun_with(grammar.closure, grammar.log_closure, from_rules, log)
            for a in range(n_interminals):
                if state.forward[h, a] != zero(log):
                    unfinished[h, a] = values[a]

    found = np.zeros(n_entries)
    end = zero(log)
    if has_ended:
        cell = column_cell_of(0, t)
        for entry in range(state.offsets[cell], state.offsets[cell + 1]):
            end = plus(end, times(grammar.root[state.symbols[entry]], state.values[entry], log), log)
        if end == zero(log):
            return found
    else:
        end = one(log)
    parent, right_beta = np.full(n, zero(log)), np.full((n, t + 1), zero(log))
    for j in range(t, 0, -1):
        for i in range(j):
            cell = column_cell_of(i, j)
            for entry in range(state.offsets[cell], state.offsets[cell + 1]):
                enter_right(grammar.right_first, grammar.by_right, state.is_right, state.right_pairs, state.right,
                            state.right_mask, state.symbols[entry], i, state.values[entry])
                right_beta[state.symbols[entry], i] = zero(log)
        for i in range(j):
            cell = column_cell_of(i, j)
            for entry in range(state.offsets[cell], state.offsets[cell + 1]):
                a = state.symbols[entry]
                value = plus(beta[state.row_of[i, a], j], right_beta[a, i], log)
                if i == 0 and j == t:
                    value = plus(value, over(grammar.root[a], end, log), log)
                parent[a] = value
                posterior = times(value, state.values[entry], log)
                found[entry] = posterior if log is None else math.exp(posterior)
            if j - i > 1:
                for mask_word in range((i + 1) // WORD, (j - 1) // WORD + 1):
                    n_live = find_live_pairs(
                        grammar.left, grammar.right, state.left_pairs[i], state.right_pairs, state.mask[i],
                        state.right_mask, state.live_pair, state.live_mask, mask_word,
                        bits_between(i + 1, j, mask_word))
                    for m in range(n_live):
                        q, splits = state.live_pair[m], state.live_mask[m]
                        given = zero(log)
                        for rule in range(grammar.first[q], grammar.first[q + 1]):
                            given = plus(given, times(grammar.prob[rule], parent[grammar.parent[rule]], log), log)
                        if given == zero(log):
                            continue
                        row, c = state.row_of[i, grammar.left[q]], grammar.right[q]
                        while splits != 0:
                            k = lowest(mask_word, splits)
                            beta[row, k] = plus(beta[row, k], times(given, state.right[c, k], log), log)
                            right_beta[c, k] = plus(right_beta[c, k], times(given, state.alpha[row, k], log), log)
                            splits = without_lowest(splits)
            for entry in range(state.offsets[cell], state.offsets[cell + 1]):
                parent[state.symbols[entry]] = zero(log)
        clear_column(state.is_right, state.right_mask, state.right_pairs)
    return found
