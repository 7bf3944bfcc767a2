"""The inside pass in linear space; layout, legend and range as in workspace.py."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64

from pcfg_artifact.parsing.chart_index import cell_of
from pcfg_artifact.parsing.constraints import Forbidden, clear
from pcfg_artifact.parsing.cpu_kernels.rule_index import INDEX, RuleIndex
from pcfg_artifact.parsing.cpu_kernels.semiring import SMALLEST
from pcfg_artifact.parsing.cpu_kernels.vectors import add_4, add_row, set_row, signs_4
from pcfg_artifact.parsing.cpu_kernels.workspace import (
    BLOCK,
    DONE,
    DRIFT,
    DRIFTING,
    INLINED,
    INLINED_SCALAR,
    NEVER_READ,
    NO_ROW,
    OUT_OF_RANGE,
    SMALLEST_TERM,
    VECTORS,
    Workspace,
    block_after,
    find_nonzero,
    find_partners,
    row_size,
    start_row,
)


@INLINED
def add_all(weight, n_edges, prob, first, leaf):
    """weight(e) += prob(first + e) leaf, where a pre-terminal has a rule for every edge"""
    for edge in range(n_edges):
        weight[edge] += prob[first + edge] * leaf


@njit(nogil=True)
def find_edges(rules, edges, leaves, tags, n_tags, work):
    """The edges of every word, as a right child or as a left child."""
    rule_first, rule_prob, of_rule, n_edges = rules.first, rules.prob, edges.of_rule, uint64(len(edges.parent))
    edge_child, edge_parent, first, last, number = edges.child, edges.parent, work.first, work.last, work.number
    parents, weights, received, weight = work.parent, work.weight, work.received, np.zeros(n_edges)
    for t in range(uint64(len(leaves))):
        for n in range(n_tags[t]):
            p = tags[t, n]
            leaf = leaves[t, p]
            if leaf == 0.0:
                continue
            if uint64(rule_first[p + 1] - rule_first[p]) == n_edges:  # rules are in the order of edges
                add_all(weight, n_edges, rule_prob, uint64(rule_first[p]), leaf)
            else:
                for rule in range(rule_first[p], rule_first[p + 1]):
                    weight[of_rule[rule]] += rule_prob[rule] * leaf
        n_found = find_nonzero(weight, number[t])
        work.n[t] = n_found
        first[t] = 0
        last[t] = 0
        for n in range(n_found):
            edge = uint64(number[t, n])
            last[t, edge_child[edge]] = n + uint64(1)
            parents[t, n] = edge_parent[edge]
            weights[t, n] = weight[edge]
            received[t, n] = 0.0
            weight[edge] = 0.0
        for n in range(uint64(1), n_found + uint64(1)):  # backwards, so that the first edge of a child stays
            first[t, edge_child[number[t, n_found - n]]] = n_found - n


@INLINED_SCALAR
def add_beside(total, lane, edge_first, edge_last, edge_parent, edge_weight, t, first, last, symbols, values):
    """total(A) += weight of the edge (A, B) of word t times value(B), B the entries first .. last-1 beside the word"""
    for entry in range(first, last):
        b = uint64(symbols[entry])
        for edge in range(edge_first[t, b], edge_last[t, b]):
            total[uint64(BLOCK) * uint64(edge_parent[t, edge]) + lane] += edge_weight[t, edge] * values[entry]


@INLINED_SCALAR
def add_rules(total, lane, rule_parent, rule_prob, first, last, product):
    """total(A) += P(A -> q) product, for the rules of a pair q, in one cell of a block"""
    for rule in range(first, last):
        total[uint64(BLOCK) * uint64(rule_parent[rule]) + lane] += rule_prob[rule] * product


@INLINED
def add_matrix(total, matrix, q, product):
    """The same where rules are dense."""
    for a in range(matrix.shape[1]):
        total[a] += matrix[q, a] * product


@njit(nogil=True)
def add_two_leaves(total, lane, rules, pairs, left, tags, n_tags, right, flat):
    """total(A) += P(A -> p p') left(p) right(p'); flat is scratch, 0 before and after."""
    pair_first, other, rule_first, matrix = pairs.first, pairs.other, pairs.rules, pairs.matrix
    rule_parent, rule_prob, is_dense = rules.parent, rules.prob, len(matrix) > 0
    for n in range(n_tags):
        p = tags[n]
        for q in range(pair_first[p], pair_first[p + 1]):
            product = left[p] * right[other[q]]
            if product == 0.0:
                continue
            if is_dense:
                add_matrix(flat, matrix, q, product)
            else:
                add_rules(total, lane, rule_parent, rule_prob, rule_first[q], rule_first[q + uint64(1)], product)
    if is_dense:
        for a in range(uint64(len(total) // BLOCK)):
            total[uint64(BLOCK) * a + lane] = flat[a]
        flat[:] = 0.0


@INLINED
def add_live(total, pairs, size, j, touched, n_touched, rules, rule_parent, rule_prob, live, n_live):
    """total(A) += P(A -> q) pairs(q), for the four cells from j on; lists the pairs that are live there.

    Returns the new number of live pairs, and whether one of them is too small.
    """
    small = uint64(0)
    for n in range(n_touched):
        q = uint64(touched[n])
        signs = signs_4(pairs, q * size + j, SMALLEST)
        live[n_live] = q
        n_live += uint64(signs != 0)
        small |= signs >> uint64(BLOCK)
        if signs != 0:
            for rule in range(rules[q], rules[q + uint64(1)]):
                add_4(total, uint64(BLOCK) * uint64(rule_parent[rule]), rule_prob[rule], pairs, q * size + j)
    return n_live, small != 0


@INLINED
def begin_rows(row_of, is_right, length):
    """No row has been started; the symbols that are right children of a pair may have one from fencepost 2 on."""
    row_of[:2] = NEVER_READ  # no left sibling ends there
    for a in range(len(is_right) if length > 1 else 0):
        row_of[2, a] = NO_ROW if is_right[a] else NEVER_READ
    for k in range(3, length + 1):
        row_of[k] = row_of[2]


@INLINED
def enter_word(i, length, n_interminals, leaves, tags, n_tags, n_entries, work):
    """The pre-terminals of a word become entries; returns the new number of entries."""
    cell, symbols, values = cell_of(i, i + 1, length), work.symbols, work.inside
    work.first[cell] = n_entries
    for n in range(n_tags[i]):
        symbols[n_entries], values[n_entries] = n_interminals + tags[i, n], leaves[i, tags[i, n]]
        n_entries += uint64(1)
    work.last[cell] = n_entries
    work.least_left[i, i + 1] = np.inf
    work.least_right[i + 1, i] = np.inf
    return n_entries


@INLINED
def add_words(total, lane, i, j, grammar, leaves, tags, n_tags, flat, work):
    """total(A) += what the rules with a pre-terminal give the cell (i, j)"""
    length, first, last, symbols, values = len(leaves), work.first, work.last, work.symbols, work.inside
    if j - i == 2:
        add_two_leaves(total, lane, grammar.two_leaves, grammar.leaf_pairs, leaves[i], tags[i], n_tags[i],
                       leaves[j - 1], flat)
        return
    side, edges = cell_of(i, j - 1, length), work.right_edges
    add_beside(total, lane, edges.first, edges.last, edges.parent, edges.weight, j - 1, first[side], last[side],
               symbols, values)
    side, edges = cell_of(i + 1, j, length), work.left_edges
    add_beside(total, lane, edges.first, edges.last, edges.parent, edges.weight, i, first[side], last[side], symbols,
               values)


@INLINED
def enter_cell(total, lane, i, j, length, is_full, found, n_entries, top, work):
    """The symbols of a cell become entries, and total is 0 again; with is_full all of them, otherwise the possible.

    Returns the new number of entries, the new top of the rows, and the largest and smallest value that is not 0.
    """
    cell, symbols, values, outside_values = cell_of(i, j, length), work.symbols, work.inside, work.outside
    row_of, alpha, beta = work.row_of, work.alpha, work.beta
    n_found = uint64(0)
    for a in range(uint64(len(total) // BLOCK)):
        found[n_found] = a
        n_found += uint64(is_full or total[uint64(BLOCK) * a + lane] != 0.0)
    work.first[cell] = n_entries
    largest, smallest = 0.0, np.inf
    for n in range(n_found):
        a = uint64(found[n])
        value = total[uint64(BLOCK) * a + lane]
        total[uint64(BLOCK) * a + lane] = 0.0
        symbols[n_entries] = a
        values[n_entries] = value
        outside_values[n_entries] = 0.0
        n_entries += uint64(1)
        if value == 0.0:
            continue
        largest, smallest = max(largest, value), min(smallest, value)
        if row_of[i, a] == NO_ROW:
            top = start_row(row_of, i, a, length, top, alpha, beta)
        alpha[uint64(row_of[i, a]) + uint64(j)] = value
    work.last[cell] = n_entries
    work.least_left[i, j] = min(smallest, work.least_left[i, j - 1])
    work.least_right[j, i] = min(smallest, work.least_right[j, i + 1])
    return n_entries, top, largest, smallest


@INLINED
def drift_of(largest):
    """Bits between the largest value of a cell and 1; 0 where all are 0."""
    if largest == 0.0:
        return 0
    return math.frexp(largest)[1] if largest < np.inf else 1024


@INLINED
def add_nearby(total, begin, first_end, last_end, rule_parent, rule_prob, first_rule, last_rule, value, alpha, row):
    """The splits that lie inside a block: total(A) += P(A -> B C) alpha(B,i,j) alpha(C,j,right end), one by one.

    Returns whether there is one, and whether one is too small.
    """
    is_live, is_small = False, False
    for right_end in range(first_end, last_end):
        product = value * alpha[row + right_end]
        if product != 0.0:
            is_live, is_small = True, is_small | (product < SMALLEST)
            add_rules(total, right_end - begin, rule_parent, rule_prob, first_rule, last_rule, product)
    return is_live, is_small


@INLINED
def add_to_pairs(total, i, j, length, begin, stamp, by_left, touched, n_touched, listed, n_live, work):
    """pairs(B, C) += alpha(B,i,j) alpha(C,j,.) for the entries of the cell (i, j), in blocks after its own, and the
    splits inside its block.

    Returns the new number of touched and of live pairs, and whether a product is too small.
    """
    cell, symbols, values, is_refused = cell_of(i, j, length), work.symbols, work.inside, False
    rules, rule_parent, rule_prob = by_left.rules, by_left.parent, by_left.prob
    alpha, pairs, pair_seen, live = work.alpha, work.pairs, work.pair_seen, work.live
    partners, first_partner, last_partner = work.partners, work.first_partner, work.last_partner
    size, after, end = uint64(row_size(length)), begin + uint64(BLOCK), uint64(block_after(length + 1))
    for entry in range(work.first[cell], work.last[cell]):
        b, value = uint64(symbols[entry]), values[entry]
        if value == 0.0:
            continue
        for partner in range(first_partner[j, b], last_partner[j, b]):
            q, row = uint64(partners[j, partner, 0]), uint64(partners[j, partner, 1])
            is_live, is_small = add_nearby(
                total, begin, uint64(j + 2), min(after, uint64(length + 1)), rule_parent, rule_prob,
                rules[q], rules[q + uint64(1)], value, alpha, row)
            is_refused |= is_small
            if is_live:
                live[n_live] = q
                n_live += uint64(listed[q] != stamp)
                listed[q] = stamp
            if after < end:
                if pair_seen[q] == i:
                    add_row(pairs, q * size + after, value, alpha, row + after, end - after)
                else:
                    pair_seen[q] = i
                    touched[n_touched] = q
                    n_touched += uint64(1)
                    set_row(pairs, q * size + after, value, alpha, row + after, end - after)
    return n_touched, n_live, is_refused


@njit(nogil=True, cache=True, fastmath=VECTORS)
def inside(grammar: RuleIndex, leaves: np.ndarray, tags: np.ndarray, n_tags: np.ndarray, is_full: bool,
           forbidden: Forbidden, work: Workspace) -> tuple[int, float]:
    """Fill the chart from the (L, P) leaves; returns a status and, when DRIFTING, the bits per word to take off.

    tags (L, P), n_tags (L,): the pre-terminals of every word that are entries.  With is_full every symbol of the right
    type is an entry, otherwise those that are possible.  Leaves are 0 already where they are forbidden.
    """
    length, n_interminals, by_left = len(leaves), len(grammar.root_inner), grammar.left_pairs
    n_pairs, row_of, alpha, beta, live = len(by_left.left), work.row_of, work.alpha, work.beta, work.live
    n_entries, n_live, is_refused, is_constrained = uint64(0), uint64(0), False, len(forbidden.first) > 0
    total = np.zeros(BLOCK * n_interminals)  # alpha of the block at hand, by symbol, then by cell
    flat = np.zeros(grammar.leaf_pairs.matrix.shape[1])
    found, touched = np.empty(n_interminals + 1, INDEX), np.empty(n_pairs + 1, INDEX)
    listed = np.full(n_pairs, -1)  # the last block in which a pair was listed as live
    find_edges(grammar.right_leaf, grammar.right_edges, leaves, tags, n_tags, work.right_edges)
    find_edges(grammar.left_leaf, grammar.left_edges, leaves, tags, n_tags, work.left_edges)
    begin_rows(row_of, by_left.is_right, length)
    work.pair_seen[:], work.first_partner[length], work.last_partner[length] = -1, 0, 0
    top = uint64(NEVER_READ) + uint64(block_after(length + 1))
    beta[:top] = 0.0

    for i in range(length - 1, -1, -1):
        n_entries = enter_word(i, length, n_interminals, leaves, tags, n_tags, n_entries, work)
        n_touched = uint64(0)
        for block in range((i + 2) // BLOCK, length // BLOCK + 1):
            begin, stamp = uint64(BLOCK * block), i * length + block
            work.live_first[i, block] = n_live
            n_live, is_small = add_live(total, work.pairs, uint64(row_size(length)), begin, touched, n_touched,
                                        by_left.rules, by_left.parent, by_left.prob, live, n_live)
            is_refused |= is_small
            for n in range(work.live_first[i, block], n_live):
                listed[live[n]] = stamp

            for j in range(max(BLOCK * block, i + 2), min(BLOCK * block + BLOCK, length + 1)):
                lane = uint64(j) - begin
                add_words(total, lane, i, j, grammar, leaves, tags, n_tags, flat, work)
                if is_constrained:
                    clear(total[lane::BLOCK], 0.0, forbidden, cell_of(i, j, length), 0)
                n_entries, top, largest, smallest = enter_cell(total, lane, i, j, length, is_full, found, n_entries,
                                                               top, work)
                if abs(drift_of(largest)) > DRIFT:
                    return DRIFTING, drift_of(largest) / (j - i)
                if j <= length - 2:
                    n_touched, n_live, is_small = add_to_pairs(total, i, j, length, begin, stamp, by_left, touched,
                                                               n_touched, listed, n_live, work)
                    is_refused |= is_small | (smallest * work.least_left[j, length] < SMALLEST_TERM)
            work.live_last[i, block] = n_live
        if i >= 2:
            find_partners(i, by_left.left, by_left.right, work)
    if is_full:  # what is impossible itself may still receive from its sibling's side
        for k in range(length - 1):
            for a in range(uint64(n_interminals)):
                if row_of[k, a] == NO_ROW:
                    top = start_row(row_of, k, a, length, top, alpha, beta)
            find_partners(k, by_left.left, by_left.right, work)
    return (OUT_OF_RANGE if is_refused else DONE), 0.0
