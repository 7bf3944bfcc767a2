"""The outside pass in linear space; layout, legend and range as in linear.py."""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from pcfg_artifact.parsing.compiled import INDEX, CompiledGrammar
from pcfg_artifact.parsing.forbidden import Forbidden, clear
from pcfg_artifact.parsing.linear import (
    DONE,
    INLINED,
    INLINED_SCALAR,
    LARGEST,
    OUT_OF_RANGE,
    SMALLEST,
    SMALLEST_TERM,
    VECTORS,
    Workspace,
    block_after,
    block_before,
    find_leaves,
    members,
)
from pcfg_artifact.parsing.triangle import cell_of


@INLINED_SCALAR
def from_rules(parent, rule_parent, rule_prob, first, last):
    """Sum over A of P(A -> q) parent(A), for the rules of a pair q."""
    given = 0.0
    for rule in range(first, last):
        given += rule_prob[rule] * parent[rule_parent[rule]]
    return given


@INLINED
def from_matrix(parent, matrix, q):
    """The same where rules are dense."""
    given = 0.0
    for a in range(matrix.shape[1]):
        given += matrix[q, a] * parent[a]
    return given


@INLINED
def add_row(given, alpha, source, beta, target, begin, end):
    """beta[target + k] += given * alpha[source + k]"""
    for k in range(begin, end):
        beta[target + k] += given * alpha[source + k]


@INLINED_SCALAR
def give_beside(parent, edge_first, edge_parent, edge_weight, edge_received, t, first, last, symbols, values, outside):
    """Outside values of a parent for word t at its edge and for the entries first .. last-1 beside that word."""
    for entry in range(first, last):
        b = uint64(symbols[entry])
        received = 0.0
        for edge in range(edge_first[t, b], edge_first[t, b + uint64(1)]):
            value = parent[edge_parent[t, edge]]
            received += edge_weight[t, edge] * value
            edge_received[t, edge] += value * values[entry]
        outside[entry] += received


@njit(nogil=True)
def give_beside_all(parent, edges, all_edges, t, first, last, values, outside, received):
    """The same where every symbol is an entry: received (E,) collects for all edges of the grammar."""
    child, edge_parent, weight, n_edges = edges.child, edges.parent, edges.weight, edges.first[t, last - first]
    for edge in range(n_edges):
        outside[first + uint64(child[t, edge])] += weight[t, edge] * parent[edge_parent[t, edge]]
    all_first, all_parent = all_edges.first, all_edges.parent
    for b in range(last - first):
        value = values[first + b]
        if value != 0.0:
            for edge in range(all_first[b], all_first[b + uint64(1)]):
                received[edge] += parent[all_parent[edge]] * value


@njit(nogil=True, fastmath=VECTORS)
def give_two_leaves(parent, rules, pairs, left, tags, n_tags, right, to_left, to_right, is_full):
    """Outside values of a parent for its two words."""
    pair_first, others, rule_first, matrix = pairs.first, pairs.other, pairs.rules, pairs.matrix
    rule_parent, rule_prob, is_dense = rules.parent, rules.prob, len(matrix) > 0
    for n in range(n_tags):
        p = tags[n]
        for q in range(pair_first[p], pair_first[p + 1]):
            other = others[q]
            if is_full or right[other] != 0.0:
                if is_dense:
                    given = from_matrix(parent, matrix, q)
                else:
                    given = from_rules(parent, rule_parent, rule_prob, rule_first[q], rule_first[q + uint64(1)])
                to_left[p] += given * right[other]
                to_right[other] += given * left[p]


@njit(nogil=True)
def give_to_tags(rules, edges, tags, n_tags, received, leaf_beta):
    """beta(p) += sum over the rules of p of P(A -> .. p ..) times what their edge has received."""
    rule_first, rule_prob, of_rule = rules.first, rules.prob, edges.of_rule
    for n in range(n_tags):
        p = tags[n]
        total = 0.0
        for rule in range(rule_first[p], rule_first[p + 1]):
            total += rule_prob[rule] * received[of_rule[rule]]
        leaf_beta[p] += total


@njit(nogil=True, cache=True, fastmath=VECTORS)
def outside(grammar: CompiledGrammar, leaves: np.ndarray, is_full: bool, forbidden: Forbidden, work: Workspace) -> int:
    """Give every entry its outside value, from the whole sentence down to the words; returns a status.

    With is_full forbidden symbols are entries too, with 0; otherwise they are none.
    """
    length, n_preterminals = leaves.shape
    n_interminals = len(grammar.root_inner)
    inner, first, last, symbols, values = grammar.inner, work.first, work.last, work.symbols, work.inside
    left_row, right_row, alpha, beta = work.left_row, work.right_row, work.alpha, work.beta
    pair_left, pair_right, matrix = inner.left, inner.right, inner.matrix
    rule_first, rule_parent, rule_prob = inner.first, inner.parent, inner.prob
    live_pairs, least_left, least_right = work.live_pairs, work.least_left, work.least_right
    outside_values, root, right_edges, left_edges = work.outside, grammar.root_inner, work.right_edges, work.left_edges
    n_right, n_left = len(grammar.right_edges.parent), len(grammar.left_edges.parent)
    is_refused, is_dense, is_constrained = False, len(matrix) > 0, is_full and len(forbidden.first) > 0
    parent = np.zeros(max(n_interminals, inner.matrix.shape[1]))  # beta(A, i, j) of the cell at hand
    pairs, given = np.empty(len(inner.left) + 1, INDEX), np.empty(len(inner.left) + 1)
    live = np.arange(len(inner.left)).astype(INDEX)
    leaf_beta = np.zeros((length, n_preterminals))
    tags, n_tags = find_leaves(leaves, is_full)
    # what every edge of the grammar receives from words that are right and left children
    n_words = length if is_full else 1
    right_received, left_received = np.zeros((n_words, n_right)), np.zeros((n_words, n_left))
    if length == 1:
        leaf_beta[0] = grammar.root_leaf

    for i in range(length - 1):
        for j in range(length, i + 1, -1):
            cell = cell_of(i, j, length)
            is_reached = False
            for entry in range(first[cell], last[cell]):
                a = uint64(symbols[entry])
                value = outside_values[entry] + beta[left_row[i, a] + uint64(j)] + beta[right_row[j, a] + uint64(i)]
                if j - i == length:
                    value = root[a]
                outside_values[entry] = value
                parent[a] = value
                is_reached |= value != 0.0
                is_refused |= (value != 0.0) & ((value <= SMALLEST) | (value >= LARGEST))  # no branch: half are 0
            if is_constrained:
                clear(parent[:n_interminals], 0.0, forbidden, cell, 0)
                clear(outside_values[first[cell]:last[cell]], 0.0, forbidden, cell, 0)
            if not is_reached:
                continue

            right_side, left_side = cell_of(i, j - 1, length), cell_of(i + 1, j, length)
            if j - i == 2:
                give_two_leaves(parent, grammar.two_leaves, grammar.leaf_pairs, leaves[i], tags[i], n_tags[i],
                                leaves[j - 1], leaf_beta[i], leaf_beta[j - 1], is_full)
            elif is_full:
                give_beside_all(parent, work.right_edges, grammar.right_edges, j - 1, first[right_side],
                                last[right_side], values, outside_values, right_received[j - 1])
                give_beside_all(parent, work.left_edges, grammar.left_edges, i, first[left_side], last[left_side],
                                values, outside_values, left_received[i])
            else:
                give_beside(parent, right_edges.first, right_edges.parent, right_edges.weight, right_edges.received,
                            j - 1, first[right_side], last[right_side], symbols, values, outside_values)
                give_beside(parent, left_edges.first, left_edges.parent, left_edges.weight, left_edges.received,
                            i, first[left_side], last[left_side], symbols, values, outside_values)

            if j - i >= 4:
                n_live = uint64(len(pair_left)) if is_full else members(live_pairs[cell], live)
                n_pairs, least = uint64(0), np.inf
                for n in range(n_live):
                    q = uint64(live[n])
                    pairs[n_pairs] = q
                    if is_dense:
                        value = from_matrix(parent, matrix, q)
                    else:
                        value = from_rules(parent, rule_parent, rule_prob, rule_first[q], rule_first[q + uint64(1)])
                    given[n_pairs] = value
                    n_pairs += uint64(value != 0.0)
                begin, end = uint64(block_before(i + 2)), uint64(block_after(j - 1))
                for n in range(n_pairs):
                    least = min(least, given[n])
                    left, right = left_row[i, pair_left[pairs[n]]], right_row[j, pair_right[pairs[n]]]
                    add_row(given[n], alpha, right, beta, left, begin, end)
                    add_row(given[n], alpha, left, beta, right, begin, end)
                is_refused |= least * min(least_left[i, j - 2], least_right[j, i + 2]) < SMALLEST_TERM
            for entry in range(first[cell], last[cell]):
                parent[symbols[entry]] = 0.0

    for t in range(length):
        if not is_full:
            for edge in range(work.right_edges.first[t, n_interminals]):
                right_received[0, work.right_edges.number[t, edge]] = work.right_edges.received[t, edge]
            for edge in range(work.left_edges.first[t, n_interminals]):
                left_received[0, work.left_edges.number[t, edge]] = work.left_edges.received[t, edge]
        row = t if is_full else 0
        give_to_tags(grammar.right_leaf, grammar.right_edges, tags[t], n_tags[t], right_received[row], leaf_beta[t])
        give_to_tags(grammar.left_leaf, grammar.left_edges, tags[t], n_tags[t], left_received[row], leaf_beta[t])
        if not is_full:
            right_received[0] = 0.0
            left_received[0] = 0.0
        cell = cell_of(t, t + 1, length)
        if is_constrained:
            clear(leaf_beta[t], 0.0, forbidden, cell, n_interminals)
        for entry in range(first[cell], last[cell]):
            work.outside[entry] = leaf_beta[t, symbols[entry] - n_interminals]
    return OUT_OF_RANGE if is_refused else DONE
