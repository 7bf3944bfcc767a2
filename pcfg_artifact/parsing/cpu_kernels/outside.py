"""The outside pass in linear space; layout, legend and range as in workspace.py."""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from pcfg_artifact.parsing.chart_index import cell_of
from pcfg_artifact.parsing.constraints import Forbidden, clear
from pcfg_artifact.parsing.cpu_kernels.rule_index import INDEX, RuleIndex
from pcfg_artifact.parsing.cpu_kernels.semiring import LARGEST, SMALLEST
from pcfg_artifact.parsing.cpu_kernels.vectors import exchange_rows, gather_4, signs_4
from pcfg_artifact.parsing.cpu_kernels.workspace import (
    BLOCK,
    DONE,
    INLINED,
    INLINED_SCALAR,
    OUT_OF_RANGE,
    SMALLEST_TERM,
    VECTORS,
    Workspace,
    block_after,
    block_before,
    row_size,
)


@INLINED_SCALAR
def from_rules(parent, lane, rule_parent, rule_prob, first, last):
    """Sum over A of P(A -> q) parent(A), for the rules of a pair q, in one cell of a block."""
    given = 0.0
    for rule in range(first, last):
        given += rule_prob[rule] * parent[uint64(BLOCK) * uint64(rule_parent[rule]) + lane]
    return given


@INLINED
def from_matrix(parent, matrix, q):
    """The same where rules are dense."""
    given = 0.0
    for a in range(matrix.shape[1]):
        given += matrix[q, a] * parent[a]
    return given


@njit(nogil=True)
def give_to_pairs(parent, i, begin, end, size, listed, rules, rule_parent, rule_prob, smallest, pairs, pair_seen):
    """pairs(q) = sum over A of P(A -> q) parent(A), for the four cells from `begin` on, q one of those listed.

    Returns whether one is below `smallest`.
    """
    small = uint64(0)
    for n in range(len(listed)):
        q = uint64(listed[n])
        if pair_seen[q] != i:
            pair_seen[q] = i
            for k in range(uint64(block_before(i + 2)), end):
                pairs[q * size + k] = 0.0
        place = q * size + begin
        gather_4(pairs, place, rule_prob, rule_parent, uint64(rules[q]), uint64(rules[q + uint64(1)]), parent)
        small |= signs_4(pairs, place, smallest) >> uint64(BLOCK)
    return small != 0


@INLINED_SCALAR
def give_beside(parent, lane, edge_first, edge_last, edge_parent, edge_weight, edge_received, t, first, last, symbols,
                values, outside):
    """Outside values of a parent for word t at its edge and for the entries first .. last-1 beside that word."""
    for entry in range(first, last):
        b = uint64(symbols[entry])
        received = 0.0
        for edge in range(edge_first[t, b], edge_last[t, b]):
            value = parent[uint64(BLOCK) * uint64(edge_parent[t, edge]) + lane]
            received += edge_weight[t, edge] * value
            edge_received[t, edge] += value * values[entry]
        outside[entry] += received


@njit(nogil=True)
def give_beside_all(parent, lane, edges, all_edges, t, first, last, values, outside, received):
    """The same where every symbol is an entry: received (E,) collects for all edges of the grammar."""
    number, edge_parent, weight, child = edges.number, edges.parent, edges.weight, all_edges.child
    for edge in range(edges.n[t]):
        outside[first + uint64(child[number[t, edge]])] += weight[t, edge] * parent[BLOCK * edge_parent[t, edge] + lane]
    all_first, all_parent = all_edges.first, all_edges.parent
    for b in range(last - first):
        value = values[first + b]
        if value != 0.0:
            for edge in range(all_first[b], all_first[b + uint64(1)]):
                received[edge] += parent[BLOCK * all_parent[edge] + lane] * value


@njit(nogil=True, fastmath=VECTORS)
def give_two_leaves(parent, lane, rules, pairs, left, tags, n_tags, right, to_left, to_right, is_full, flat):
    """Outside values of a parent for its two words; flat (I or more,) is scratch, 0 beyond I."""
    pair_first, others, rule_first, matrix = pairs.first, pairs.other, pairs.rules, pairs.matrix
    rule_parent, rule_prob, is_dense = rules.parent, rules.prob, len(matrix) > 0
    if is_dense:
        for a in range(uint64(len(parent) // BLOCK)):
            flat[a] = parent[uint64(BLOCK) * a + lane]
    for n in range(n_tags):
        p = tags[n]
        for q in range(pair_first[p], pair_first[p + 1]):
            other = others[q]
            if is_full or right[other] != 0.0:
                if is_dense:
                    given = from_matrix(flat, matrix, q)
                else:
                    given = from_rules(parent, lane, rule_parent, rule_prob, rule_first[q], rule_first[q + uint64(1)])
                to_left[p] += given * right[other]
                to_right[other] += given * left[p]


@INLINED
def from_all(received, n_edges, prob, first):
    """Sum over e of prob(first + e) received(e), where a pre-terminal has a rule for every edge."""
    total = 0.0
    for edge in range(n_edges):
        total += prob[first + edge] * received[edge]
    return total


@njit(nogil=True)
def give_to_tags(rules, edges, tags, n_tags, found, is_full, all_received, leaf_beta):
    """beta(p) += sum over the rules of p of P(A -> .. p ..) times what their edge has received, for every word.

    all_received: with is_full (L, E), what has been received; otherwise (1, E), scratch: 0 before and after.
    """
    rule_first, rule_prob, of_rule, n_edges = rules.first, rules.prob, edges.of_rule, uint64(len(edges.parent))
    number, given = found.number, found.received
    for t in range(uint64(len(n_tags))):
        received, n_found = all_received[t if is_full else uint64(0)], uint64(0) if is_full else found.n[t]
        for edge in range(n_found):
            received[number[t, edge]] = given[t, edge]
        for n in range(n_tags[t]):
            p = tags[t, n]
            if uint64(rule_first[p + 1] - rule_first[p]) == n_edges:
                leaf_beta[t, p] += from_all(received, n_edges, rule_prob, uint64(rule_first[p]))
                continue
            total = 0.0
            for rule in range(rule_first[p], rule_first[p + 1]):
                total += rule_prob[rule] * received[of_rule[rule]]
            leaf_beta[t, p] += total
        for edge in range(n_found):
            received[number[t, edge]] = 0.0


@INLINED
def exchange_nearby(value, parent, begin, first_end, last_end, is_full, rule_parent, rule_prob, first_rule, last_rule,
                    alpha, beta, row, alpha_b):
    """The splits that lie inside a block, one by one: beta(C,j,right end) += what the parents give alpha(B,i,j).

    Returns value plus what they give B.
    """
    for right_end in range(first_end, last_end):
        if is_full or alpha[row + right_end] != 0.0:
            given = from_rules(parent, right_end - begin, rule_parent, rule_prob, first_rule, last_rule)
            value += given * alpha[row + right_end]
            beta[row + right_end] += given * alpha_b
    return value


@INLINED
def least_inside(i, first_j, last_j, least_left, least_right):
    """A bound from below of the inside values of the children of the cells (i, first_j .. last_j)."""
    least = least_left[i, last_j - 2]
    for j in range(max(first_j, i + 4), last_j + 1):
        least = min(least, least_right[j, i + 2])
    return least


@INLINED
def clear_block(parent, i, first_j, last_j, begin, length, first, last, symbols):
    """parent is 0 again for the entries of the cells (i, first_j .. last_j)."""
    for j in range(first_j, last_j + 1):
        cell, lane = cell_of(i, j, length), uint64(j) - begin
        for entry in range(first[cell], last[cell]):
            parent[uint64(BLOCK) * uint64(symbols[entry]) + lane] = 0.0


@njit(nogil=True, cache=True, fastmath=VECTORS)
def outside(grammar: RuleIndex, leaves: np.ndarray, tags: np.ndarray, n_tags: np.ndarray, is_full: bool,
            forbidden: Forbidden, work: Workspace) -> int:
    """Give every entry its outside value, from the whole sentence down to the words; returns a status.

    With is_full forbidden symbols are entries too, with 0; otherwise they are none.
    """
    length, n_preterminals = leaves.shape
    n_interminals, n_pairs = len(grammar.root_inner), len(grammar.left_pairs.left)
    by_left, first, last, symbols, values = grammar.left_pairs, work.first, work.last, work.symbols, work.inside
    row_of, alpha, beta, pairs, pair_seen = work.row_of, work.alpha, work.beta, work.pairs, work.pair_seen
    partners, first_partner, last_partner = work.partners, work.first_partner, work.last_partner
    rules, rule_parent, rule_prob = by_left.rules, by_left.parent, by_left.prob
    live, live_first, live_last = work.live, work.live_first, work.live_last
    least_left, least_right = work.least_left, work.least_right
    outside_values, root, right_edges, left_edges = work.outside, grammar.root_inner, work.right_edges, work.left_edges
    n_right, n_left = len(grammar.right_edges.parent), len(grammar.left_edges.parent)
    is_refused, is_constrained = False, is_full and len(forbidden.first) > 0
    parent = np.zeros(BLOCK * n_interminals)  # beta of the block at hand, by symbol, then by cell
    flat = np.zeros(max(n_interminals, grammar.leaf_pairs.matrix.shape[1]))  # beta of one cell
    all_pairs = np.arange(n_pairs).astype(INDEX)
    leaf_beta = np.zeros((length, n_preterminals))
    # what every edge of the grammar receives from words that are right and left children
    n_words = length if is_full else 1
    right_received, left_received = np.zeros((n_words, n_right)), np.zeros((n_words, n_left))
    if length == 1:
        leaf_beta[0] = grammar.root_leaf
    pair_seen[:] = -1
    size, end = uint64(row_size(length)), uint64(block_after(length + 1))

    for i in range(length - 1):
        for block in range(length // BLOCK, (i + 2) // BLOCK - 1, -1):
            begin = uint64(BLOCK * block)
            after = begin + uint64(BLOCK)
            first_j, last_j = max(BLOCK * block, i + 2), min(BLOCK * block + BLOCK, length + 1) - 1
            is_block_reached = False
            for j in range(last_j, first_j - 1, -1):
                cell, lane, is_reached = cell_of(i, j, length), uint64(j) - begin, False
                block_end = uint64(last_j + 1) if is_block_reached else uint64(0)  # nothing is given from within before
                for entry in range(first[cell], last[cell]):
                    b = uint64(symbols[entry])
                    value, alpha_b = outside_values[entry] + beta[uint64(row_of[i, b]) + uint64(j)], values[entry]
                    for partner in range(first_partner[j, b], last_partner[j, b]):
                        q, row = uint64(partners[j, partner, 0]), uint64(partners[j, partner, 1])
                        value = exchange_nearby(value, parent, begin, uint64(j + 2), block_end, is_full, rule_parent,
                                                rule_prob, rules[q], rules[q + uint64(1)], alpha, beta, row, alpha_b)
                        if pair_seen[q] == i:
                            value += exchange_rows(pairs, q * size + after, alpha, beta, row + after, alpha_b,
                                                   end - after)
                    if j - i == length:
                        value = root[b]
                    outside_values[entry] = value
                    parent[uint64(BLOCK) * b + lane] = value
                    is_reached |= value != 0.0
                    is_refused |= (value != 0.0) & ((value <= SMALLEST) | (value >= LARGEST))  # no branch: half are 0
                if is_constrained:
                    clear(parent[lane::BLOCK], 0.0, forbidden, cell, 0)
                    clear(outside_values[first[cell]:last[cell]], 0.0, forbidden, cell, 0)
                if not is_reached:
                    continue
                is_block_reached = True

                right_side, left_side = cell_of(i, j - 1, length), cell_of(i + 1, j, length)
                if j - i == 2:
                    give_two_leaves(parent, lane, grammar.two_leaves, grammar.leaf_pairs, leaves[i], tags[i], n_tags[i],
                                    leaves[j - 1], leaf_beta[i], leaf_beta[j - 1], is_full, flat)
                elif is_full:
                    give_beside_all(parent, lane, work.right_edges, grammar.right_edges, j - 1, first[right_side],
                                    last[right_side], values, outside_values, right_received[j - 1])
                    give_beside_all(parent, lane, work.left_edges, grammar.left_edges, i, first[left_side],
                                    last[left_side], values, outside_values, left_received[i])
                else:
                    give_beside(parent, lane, right_edges.first, right_edges.last, right_edges.parent,
                                right_edges.weight, right_edges.received, j - 1, first[right_side], last[right_side],
                                symbols, values, outside_values)
                    give_beside(parent, lane, left_edges.first, left_edges.last, left_edges.parent,
                                left_edges.weight, left_edges.received, i, first[left_side], last[left_side], symbols,
                                values, outside_values)

            if is_block_reached and last_j - i >= 4:
                least = least_inside(i, first_j, last_j, least_left, least_right)
                listed = all_pairs if is_full else live[live_first[i, block]:live_last[i, block]]
                is_refused |= give_to_pairs(parent, i, begin, end, size, listed, rules, rule_parent, rule_prob,
                                            SMALLEST_TERM / least, pairs, pair_seen)
            if is_block_reached:
                clear_block(parent, i, first_j, last_j, begin, length, first, last, symbols)

    give_to_tags(grammar.right_leaf, grammar.right_edges, tags, n_tags, right_edges, is_full, right_received, leaf_beta)
    give_to_tags(grammar.left_leaf, grammar.left_edges, tags, n_tags, left_edges, is_full, left_received, leaf_beta)
    for t in range(length):
        cell = cell_of(t, t + 1, length)
        if is_constrained:
            clear(leaf_beta[t], 0.0, forbidden, cell, n_interminals)
        for entry in range(first[cell], last[cell]):
            work.outside[entry] = leaf_beta[t, symbols[entry] - n_interminals]
    return OUT_OF_RANGE if is_refused else DONE
